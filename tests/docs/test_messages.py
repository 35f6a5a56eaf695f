"""The messages that the page about troubleshooting quotes still stand in the code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

_TOP = Path(__file__).parents[2]
_PAGE = _TOP / "contrib" / "docs" / "troubleshooting.md"
_GAP = "\0"


def _quoted() -> list[str]:
    """Return the messages: the headings of the third level that are code."""
    return re.findall(r"^### `(.+)`$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@cache
def _texts() -> str:
    """Return all strings of the code, an expression within a string as a gap."""
    found: list[str] = []
    for path in sorted((_TOP / "bsd").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.JoinedStr):
                parts = (p.value if isinstance(p, ast.Constant) else _GAP for p in node.values)
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(text.replace("\n", " ") for text in found)


@pytest.mark.parametrize("message", _quoted())
def test_the_fixed_parts_of_a_message_stand_in_the_code(message: str) -> None:
    parts = [part.strip() for part in message.split("…")]
    pattern = ".*".join(map(re.escape, filter(None, parts)))
    assert re.search(pattern, _texts()), f"no string of bsd/ holds {message!r}"


def test_there_are_messages_to_check() -> None:
    assert len(_quoted()) >= 25
