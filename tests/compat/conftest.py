"""The real readers, installed once for all workers."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.compat.install import NotInstalled, install, install_codex


@pytest.fixture(scope="session")
def node() -> str:
    """The Node program that runs pi; on a developer's machine without it, tests are skipped."""
    return _had("pi", install)


@pytest.fixture(scope="session")
def codex_program() -> str:
    """Codex's own program; as above."""
    return _had("Codex", install_codex)


def _had(what: str, install: Callable[[], str]) -> str:
    try:
        return install()
    except NotInstalled as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"needs {what} from npm: {reason}")
