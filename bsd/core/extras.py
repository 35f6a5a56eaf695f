"""Packages that bsd needs only with certain settings: its extras."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from bsd.core.errors import Unavailable

# The module of each package, and the extra that installs it.
EXTRAS = {
    "obstore": "s3",
    "pyrage": "s3",
    "psycopg": "postgres",
    "duckdb": "parquet",
    "lancedb": "lancedb",
}


def require_extra(module: str, purpose: str) -> None:
    """Raise Unavailable, with a hint how to install it, if a package of `EXTRAS` is missing.

    Args:
        module: the name with which the package is imported.
        purpose: what needs it, such as "the bucket s3://…"; the subject of the message.
    """
    if importlib.util.find_spec(module) is None:
        wanted = f"'brainsurgeond[{EXTRAS[module]}]'"
        # What pipx, uv and the Debian package install has no pip of its own.
        hint = (
            f"{sys.executable} -m pip install {wanted}"
            if importlib.util.find_spec("pip") is not None
            else f"pipx install --force {wanted}, or `uv tool install {wanted}`;"
            " the Debian package has no extras, use one of these instead"
        )
        raise Unavailable(
            f"{purpose} needs the package {module}, which is not installed", hint=hint
        )


def load_extra(module: str, purpose: str) -> Any:
    """Import a package of `EXTRAS` and return its module; raises as `require_extra`."""
    require_extra(module, purpose)
    return importlib.import_module(module)
