"""How pytest-xdist spreads the suite: tests that share a fixture stay in one process.

Its own `--dist loadgroup` has no effect beside pytest 9.2 (pytest-dev/pytest-xdist#1386),
without a message: every worker started every daemon and every browser that the tests of a module
share.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

# Here single tests take long, and go to many workers if they share no fixture.
_LONG = {"bench", "chaos", "crash", "daemon", "packaging"}
# Names of fixtures that several modules share: one process of pi that reads, one home of Claude
# Code.
_CLAUDE_CODE = "claude: ClaudeCode"
_SHARED = {"from tests.compat.pi import": "tests/compat/pi", _CLAUDE_CODE: "tests/compat"}
# In turn in one process: tests of Claude Code, half of the time of a whole run; a browser's, those
# of other programs; then the longest of the rest.
_FIRST = ("claude-code", "web", "compat", "test_debian.py", "chaos", "packaging", "daemon", "crash")


@cache
def _kinds(module: Path) -> frozenset[str]:
    """The markers that stand in a module, its name and its directory's."""
    text = module.read_text(encoding="utf-8")
    marks = re.findall(r"pytest\.mark\.(\w+)", text)
    if "compat" in marks and _CLAUDE_CODE in text:
        marks.append("claude-code")
    return frozenset([*marks, module.name, module.parent.name])


def rank(module: Path) -> int:
    """How early a module's tests begin; the lower, the earlier."""
    kinds = _kinds(module)
    return next((at for at, kind in enumerate(_FIRST) if kind in kinds), len(_FIRST))


def unit_of_work(root: Path) -> Callable[[str], str]:
    """The unit of a test's id: a directory, its module, or only itself."""

    @cache
    def shared_by(module: str) -> str | None:
        """The unit of all tests of a module; None if each of them is a unit."""
        text = (root / module).read_text(encoding="utf-8")
        kinds = _kinds(root / module)
        if "compat" in kinds:
            return next((name for sign, name in _SHARED.items() if sign in text), module)
        if _LONG & kinds and 'fixture(scope="module")' not in text:
            return None
        return module

    def unit(test: str) -> str:
        return shared_by(test.partition("::")[0]) or test

    return unit
