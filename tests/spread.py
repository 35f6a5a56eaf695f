"""How pytest-xdist spreads the suite: tests that share something stay in one process.

Its own `--dist loadgroup` does nothing beside pytest 9.2 (pytest-dev/pytest-xdist#1386), and does
not say so: every worker started every daemon and every browser that the tests of a module share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path, PurePosixPath

# Here single tests take long, and go to many workers if they share nothing.
_LONG = {"bench", "chaos", "crash", "daemon", "packaging"}
# One process of pi reads for all of these.
_TOGETHER = "tests/compat"


def unit_of_work(root: Path) -> Callable[[str], str]:
    """How to tell from a test's id what it belongs to: a directory, its module, or only itself."""

    @cache
    def stays_together(module: str) -> bool:
        if not _LONG & {*PurePosixPath(module).parts}:
            return True
        return 'fixture(scope="module")' in (root / module).read_text(encoding="utf-8")

    def unit(test: str) -> str:
        module = test.partition("::")[0]
        if module.startswith(_TOGETHER):
            return _TOGETHER
        return module if stays_together(module) else test

    return unit
