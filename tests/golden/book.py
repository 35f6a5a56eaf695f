"""Recorded answers, and how today's answers differ from them."""

from __future__ import annotations

import json
import os
from difflib import unified_diff
from pathlib import Path
from typing import Any

RECORD = "GOLDEN_RECORD"  # a variable: if it is set, answers are recorded
_RECORDED = Path(__file__).parent / "recorded"
_MOST_SHOWN = 400  # lines of differences


def check(name: str, answers: dict[str, Any]) -> None:
    """Compare answers, by request, with the file of this name; or make that file anew."""
    file = _RECORDED / f"{name}.json"
    if os.environ.get(RECORD):
        file.parent.mkdir(exist_ok=True)
        file.write_text(_text(answers), encoding="utf-8")
    recorded = json.loads(file.read_text(encoding="utf-8"))
    found = json.loads(_text(answers))
    lines = [
        line for asked in {**recorded, **found} for line in _difference(asked, recorded, found)
    ]
    shown = "\n".join(lines[:_MOST_SHOWN])
    hint = "if that is meant: python -m tests.golden, and look at the difference"
    assert not lines, f"answers have changed:\n{shown}\n{hint}"


def _difference(asked: str, recorded: dict[str, Any], found: dict[str, Any]) -> list[str]:
    before, now = (
        _text(one[asked]).splitlines() if asked in one else [] for one in (recorded, found)
    )
    return list(unified_diff(before, now, f"recorded: {asked}", f"now: {asked}", n=4, lineterm=""))


def _text(document: Any) -> str:
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"
