"""Nobody outside of bsd/formats knows whose sessions an agent's are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from bsd.formats.owners import KINDS

BSD = Path(__file__).parents[3] / "bsd"
PARTICULAR = {"claude_code", "codex", "pi"}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def test_each_program_has_a_file_that_only_its_neighbours_import() -> None:
    named = {path.stem for path in (BSD / "formats").glob("*.py")}
    assert {kind.replace("-", "_") for kind in KINDS} == PARTICULAR <= named
    wanted = {f"bsd.formats.{name}" for name in PARTICULAR}
    for path in BSD.rglob("*.py"):
        if path.parent.name != "formats":
            assert wanted.isdisjoint(imported(path)), path


def test_nobody_else_tells_kinds_apart() -> None:
    for path in BSD.rglob("*.py"):
        if path.parent.name == "formats":
            continue
        words = {
            node.value
            for node in ast.walk(ast.parse(path.read_bytes()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert words.isdisjoint({*KINDS, *PARTICULAR}), path
