"""Compares two requests to a model that differ only in values that bsd has extracted."""

from __future__ import annotations

from typing import Any


def extracted_in(before: Any, after: Any) -> int:
    """Return the number of placeholders that stand for values of `before`.

    Fails if there is any other difference. A block with a placeholder may stand for another block.
    """
    if before == after:
        return 0
    if isinstance(before, dict) and isinstance(after, dict):
        if before.keys() == after.keys():
            return sum(extracted_in(before[key], after[key]) for key in before)
        after = after.get("text")
    if isinstance(before, list) and isinstance(after, list):
        assert len(before) == len(after), (before, after)
        return sum(map(extracted_in, before, after))
    assert isinstance(after, str), (before, after)
    assert after.startswith("[[extracted-"), (before, after)
    return 1
