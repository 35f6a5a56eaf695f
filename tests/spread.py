"""How pytest-xdist spreads the suite: tests that share a resource stay in one process.

Its own `--dist loadgroup` has no effect with pytest 9.2 (pytest-dev/pytest-xdist#1386) and gives
no warning: every worker started every daemon and every browser that the tests of a module share.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

# Single tests take long here, and go to many workers if they share no resource.
_LONG = {"bench", "chaos", "crash", "daemon", "packaging"}
# Resources that several modules share: a process of pi that reads, a home of Claude Code.
_CLAUDE_CODE = "claude: ClaudeCode"
_SHARED = {
    "from tests.compat.pi import": "tests/compat/pi",
    _CLAUDE_CODE: "tests/compat",
    "from tests.servers.postgres import": "tests/servers/postgres",
}
# The order of start: tests of Claude Code, half the time of a whole run, one after the other in one
# process; then tests of a browser, and other long tests, since programs are still being installed;
# then tests of other programs. At the end are modules that start no process and make up no
# examples: each takes a few seconds, so that no worker is long alone.
_FIRST = (
    *("claude-code", "web", "test_release.py", "chaos", "packaging", "daemon"),
    *("compat", "crash", "processes", "hypothesis"),
)


@cache
def _kinds(module: Path) -> frozenset[str]:
    """Return the markers in a module, its name and its directory's name."""
    text = module.read_text(encoding="utf-8")
    marks = re.findall(r"pytest\.mark\.(\w+)", text)
    if "compat" in marks and _CLAUDE_CODE in text:
        marks.append("claude-code")
    if re.search(r"\b(subprocess|forked|Program)\b", text):
        marks.append("processes")
    if "from hypothesis import" in text:
        marks.append("hypothesis")
    return frozenset([*marks, module.name, module.parent.name])


def rank(module: Path) -> int:
    """Return the position of a module's tests in the run; lower numbers begin earlier."""
    kinds = _kinds(module)
    return next((at for at, kind in enumerate(_FIRST) if kind in kinds), len(_FIRST))


def unit_of_work(root: Path) -> Callable[[str], str]:
    """Return a function from a test's id to its unit: a directory, a module or the test itself."""

    @cache
    def shared_by(module: str) -> str | None:
        """Return the unit of all tests of a module; None if each test is a unit."""
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
