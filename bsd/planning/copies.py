"""Tells whether lines that share an id are copies of one entry.

Claude Code replays lines, and copies them into branches with a member that names their origin. bsd
treats such copies like other entries: each keeps its own marker and its own stored original. Lines
that share an id but differ in content are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bsd.transcripts.agents.entry import (
    EXTRACTABLE,
    MARKER,
    RESTORED,
    Entry,
    ends_in_placeholder,
)
from bsd.transcripts.agents.format import TranscriptFormat

_OURS = frozenset((MARKER, RESTORED, EXTRACTABLE))
_DEEPEST = 200  # levels; deeper values count as different


def are_copies(entries: Iterable[Entry], fmt: TranscriptFormat) -> bool:
    """Return whether entries share one id and differ only in their origin and in bsd's changes.

    A placeholder of this id equals the value that it stands for. At most two of the entries are in
    memory at a time.
    """
    ignored = _OURS | fmt.origin_members
    merged: Entry | None = None
    entry_id = None
    for entry in entries:
        own_id = fmt.info(entry).id
        plain = {key: entry[key] for key in entry if key not in ignored}
        if merged is None:
            merged, entry_id = plain, own_id
            continue
        if own_id is None or own_id != entry_id:
            return False
        try:
            merged = _merged(merged, plain, own_id, _DEEPEST)
        except ValueError:
            return False
    return True


def _merged(one: Any, other: Any, entry_id: str, depth: int) -> Any:
    """Return the merged value, with every part that is inline in either input.

    Raises ValueError if they differ.
    """
    if depth and isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return {key: _merged(one[key], other[key], entry_id, depth - 1) for key in one}
    if depth and isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = zip(one, other, strict=True)
        return [_merged(*pair, entry_id, depth - 1) for pair in pairs]
    if _is_away(one, entry_id):
        return other
    if _is_away(other, entry_id):
        return one
    if type(one) is type(other) and not isinstance(one, (dict, list)) and one == other:
        return one
    raise ValueError("they differ")


def _is_away(value: Any, entry_id: str) -> bool:
    """Return whether a value is this entry's placeholder, or the text block in place of a block."""
    text = value
    if isinstance(value, dict) and value.keys() in ({"type", "text"}, {"text"}):
        text = value["text"]
    return isinstance(text, str) and ends_in_placeholder(text) == entry_id
