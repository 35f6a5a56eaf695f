"""structlog without rich, which it loads if it can, for tracebacks that are never printed here.

With rich come pygments and attrs: five megabytes in every daemon, and a third of structlog's start.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Let a library look as if it were not installed, unless somebody has it already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment] # what the import system takes as: not there
    try:
        yield
    finally:
        del sys.modules[name]


with _without("rich"):
    import structlog

__all__ = ["structlog"]
