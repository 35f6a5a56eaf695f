"""Nobody outside of bsd/agents knows whose sessions an agent's are."""

from __future__ import annotations

import re
from pathlib import Path

from bsd.agents.owners import KINDS

BSD = Path(__file__).parents[3] / "bsd"
# Its import, or its word as a text of its own.
_NAMED = re.compile(
    r"""formats(\.|\ import\ .*)(claude_code|codex|pi)\b|["'](claude[-_]code|codex|pi)["']"""
)


def test_each_program_has_a_file_and_nobody_else_names_it() -> None:
    files = {path.stem for path in (BSD / "agents").glob("*.py")}
    assert {kind.replace("-", "_") for kind in KINDS} == {"claude_code", "codex", "pi"} <= files
    naming = {path for path in BSD.rglob("*.py") if _NAMED.search(path.read_text())}
    assert {path.parent.name for path in naming} == {"agents"}
