"""Edits that keep the length of a line, for programs that keep byte offsets (SPEC §2.1).

In a format with `keeps_length`, an edited line gets JSON white space before its last brace until it
is as long as before. `Plan.of` does this for all plans, and refuses a plan that cannot keep the
lengths. Planners that treat many lines call `as_long` for each of them, so that a line without room
stays as it is and the others change.
"""

from __future__ import annotations

from bsd.transcripts.agents.entry import MARKER, Marker
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Transcript, parse_kept
from bsd.transcripts.splice import LENGTHS_STAY, NoRoom, SpliceError, room, with_length

_NEEDLE = f'"{MARKER}"'.encode()


def as_long(old: bytes, new: bytes) -> bytes:
    """Return the new form of a line with the length of the old one.

    The room that extracted values have left belongs to them. An edit that leaves the marker as it
    is does not use it.

    Raises NoRoom.
    """
    if len(new) == len(old):
        return new
    padded = with_length(new, len(old))
    if room(padded) < room(old) and _NEEDLE in old and _marker(old) == _marker(new):
        raise NoRoom("use a shorter text, or restore the entry first")
    return padded


def _marker(line: bytes) -> Marker | None:
    return Marker.of(parse_kept(line) or {})


def keeping_lengths(source: Transcript, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    """Return these edits of a session with the lengths of the lines that they change.

    Raises NoRoom if a line would become longer, or is added or removed.
    """
    if any(not (edit.length and edit.new) for edit in edits):
        raise SpliceError(
            f"lines of this session can neither be added nor removed: {LENGTHS_STAY}",
            hint="change the texts of its entries instead",
        )
    return tuple(
        Edit(edit.offset, edit.length, as_long(source.read(edit.offset, edit.length), edit.new))
        if edit.length != len(edit.new)
        else edit
        for edit in edits
    )
