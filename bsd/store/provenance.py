"""The rule that decides whether a line is a copy of a stored original.

Programs copy lines into other sessions, placeholders included: forks, branches, resumed and renamed
sessions. A person or a model may also write the same placeholder as text. Only a line that is
proved to be a copy gets the content; in any other line, a placeholder is text.

The functions are pure. `markers` finds the candidates and the places at which they stand.
"""

from __future__ import annotations

from enum import Enum

from bsd.transcripts.agents.entry import Entry, ends_in_placeholder
from bsd.transcripts.agents.format import EntryInfo, TranscriptFormat
from bsd.transcripts.spans import value_at


class Proof(Enum):
    """The degree of proof that a line without marker is a copy of a stored original."""

    NONE = "another entry"
    LIKELY = "like it in all that is left, which is too little: its place must decide"
    CERTAIN = "the same entry"


def is_marked_copy(entry: Entry, original: Entry, fmt: TranscriptFormat) -> bool:
    """Return whether an entry whose marker names the hash of a stored line is a copy of that line.

    Both must have the same id, role and `result_of`. Ids may differ only if the program rewrites
    entries under new ids and all values that are inline in both entries agree.
    """
    info, was = fmt.info(entry), fmt.info(original)
    if was.id == info.id:
        # A program may have removed calls from an entry; its role and `result_of` stay.
        return _ties(was)[:-1] == _ties(info)[:-1]
    return _may_be_renamed(entry, info, was, fmt) and _agrees(entry, original, fmt)


def proof_of_copy(
    entry: Entry, original: Entry, fmt: TranscriptFormat, *, own: bool, at_its_place: bool
) -> Proof:
    """Return the proof that an entry without marker is a copy of a stored line.

    Args:
        entry: an entry with a placeholder that names the id of `original`.
        original: the stored line.
        fmt: the format of both.
        own: the line was stored for the session in which the entry stands.
        at_its_place: the program states that it made the session from the session of the stored
            line, and the entry stands at the line number to which that line was copied.
    """
    info, was = fmt.info(entry), fmt.info(original)
    if was.is_header or _ties(was) != _ties(info):
        return Proof.NONE
    if was.id == info.id and own:
        return Proof.CERTAIN
    if was.id != info.id and not _may_be_renamed(entry, info, was, fmt):
        return Proof.NONE
    if not _agrees(entry, original, fmt):
        return Proof.NONE
    if at_its_place or _is_of_the_same_time(info, was):
        return Proof.CERTAIN
    if was.id == info.id or fmt.tells_origin:
        # An id without a time is no proof: flat entries are numbered anew in each session.
        return Proof.NONE
    return Proof.CERTAIN if _shares_provider_ids(info, was) else Proof.LIKELY


def _may_be_renamed(entry: Entry, info: EntryInfo, was: EntryInfo, fmt: TranscriptFormat) -> bool:
    return was.id is not None and _ties(was) == _ties(info) and fmt.renews_id(entry, was.id)


def _ties(info: EntryInfo) -> tuple[object, ...]:
    """Return the members that an entry and its copy must share, even if their ids differ."""
    calls = tuple((call.id, call.name) for call in info.calls)
    return info.is_message, info.role, info.result_of, calls


def _is_of_the_same_time(info: EntryInfo, was: EntryInfo) -> bool:
    return info.time_ms is not None and info.time_ms == was.time_ms


def _shares_provider_ids(info: EntryInfo, was: EntryInfo) -> bool:
    """Return whether both have the id of the same call or answer; providers never reuse ids."""
    if any(call.id for call in info.calls) or info.result_of:
        return True  # equal in both, since the caller compared the ties
    return info.answer is not None and info.answer == was.answer


def _agrees(entry: Entry, original: Entry, fmt: TranscriptFormat) -> bool:
    """Return whether each value that is inline in both entries is equal in both."""
    originals = {value.path for value in fmt.values(original, 1)}
    return all(
        value_at(entry, value.path) == value_at(original, value.path)
        for value in fmt.values(entry, 1)
        if value.path in originals
        and (value.text is None or ends_in_placeholder(value.text) is None)
    )
