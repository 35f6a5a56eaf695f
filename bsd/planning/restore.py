"""Plans the return of extracted values: one entry's, by key, or everything in a session.

And that of markers that a program has dropped, while the placeholders stayed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import Conflict, Invalid
from bsd.core.formatting import iso_utc
from bsd.planning.locate import (
    Located,
    OriginalLine,
    Return,
    locate,
    name_of,
    nothing_away,
    original_of,
    restored_of,
)
from bsd.planning.plan import Plan
from bsd.store.entry_notes import Noting, Stamp
from bsd.store.history import TouchedLine
from bsd.store.markers import NEEDLES, Markers, away_paths
from bsd.store.originals import Missing, OriginalStore
from bsd.transcripts.agents.entry import MARKER, RESTORED, Entry, Marker
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Line, Transcript, parse_entry
from bsd.transcripts.spans import ValuePath, names_value, paths_of
from bsd.transcripts.splice import SpliceError, edit, encode_string

BUDGET = 64 * 1024 * 1024  # bytes of new lines in one plan

SUGGESTION = (
    "This entry was previously restored. If you need to keep this content long-term, "
    "consider setting _extractable: false on the entry."
)

# What stands in an answer for content that cannot be had.
UNAVAILABLE = {
    Missing.GONE: "[Content unavailable - extracted file missing]",
    Missing.CORRUPT: "[Content unavailable - extracted file corrupted]",
    Missing.FOREIGN: "[Content unavailable - extracted file is of another entry]",
    Missing.FORGOTTEN: "[Content unavailable - forgotten: `bsd archive forget` was asked for it]",
    Missing.UNREADABLE: "[Content unavailable - {}]",
}


def unavailable(why: Missing, stored: OriginalStore) -> str:
    """What to show instead of content that cannot be had."""
    return UNAVAILABLE[why].format(stored.trouble())


_NOT_IN_FILE = "[Content unavailable - not in the extracted file]"
_LEFT_ALONE = "[Content unavailable - the line cannot be edited: {}]"


@dataclass(slots=True, kw_only=True)
class Restored:
    """What became of one entry's values (seed 001)."""

    restored: bool = False
    entry_id: str
    keys_restored: tuple[str, ...] = ()
    sizes_bytes: Annotated[
        dict[str, int], Field(description="Bytes of each value's text in UTF-8, by key")
    ] = field(default_factory=dict)
    unavailable: Annotated[
        dict[str, str],
        Field(description="What cannot come back, by key: what to show instead"),
        OMIT_EMPTY,
    ] = field(default_factory=dict)
    expired: Annotated[
        str | None, Field(description="When and why that was deleted, in words"), OMIT_EMPTY
    ] = None
    changed: Annotated[
        tuple[str, ...],
        Field(description="Keys somebody has overwritten since: left as they are"),
        OMIT_EMPTY,
    ] = ()
    previous_restored_at: Annotated[str | None, OMIT_EMPTY] = None
    suggestion: Annotated[
        str | None, Field(description="What to do if it is needed again and again"), OMIT_EMPTY
    ] = None
    index: Internal[int] = 0  # 0-based line number
    ref: Internal[str] = ""  # of the stored file
    # What is wrong with the stored file, for log and audit.
    missing: Internal[Missing | None] = None
    # When the values left that cannot come back.
    extracted_at: Internal[str] = ""
    stamp: Internal[Stamp | None] = None  # the `_restored` that it sets


def plan_restore(
    source: Transcript,
    fmt: TranscriptFormat,
    entry: str,
    keys: Sequence[str] | None,
    now: float,
    stored: OriginalStore,
) -> tuple[Plan, Restored]:
    """Plan the return of one entry's values; no `keys` means all.

    Raises NotFound, Conflict if nothing of the entry is away, Invalid for unknown keys.
    """
    located = locate(source, fmt, entry)
    found = _marked(located, Markers(source, fmt, stored))
    if not any(marked.away for marked in found):
        raise _nothing_away(located, found)
    wanted = _matching(found, keys) if keys else None
    answer, change = _Returning(fmt, now, stored).entry(located, found, wanted)
    return _plan(source, [change] if change else [], [answer]), answer


def plan_restore_all(
    source: Transcript,
    fmt: TranscriptFormat,
    now: float,
    stored: OriginalStore,
    budget_bytes: int = BUDGET,
    progress: Callable[[int], None] | None = None,
) -> tuple[Plan, tuple[Restored, ...]]:
    """Plan the return of everything that is away; the answers are those of marked entries."""
    edits: list[Edit] = []
    answers: list[Restored] = []
    new_bytes = 0
    complete = True
    markers, returning = Markers(source, fmt, stored), _Returning(fmt, now, stored)
    for located in filter(None, (_located(line, fmt) for line in source.lines())):
        if new_bytes >= budget_bytes:
            complete = False
            break
        found = _marked(located, markers)
        if not found:
            continue
        answer, change = returning.entry(located, found, among_many=True)
        answers.append(answer)
        if change:
            edits.append(change)
            new_bytes += len(change.new)
        if progress:
            progress(located.line.offset + len(located.line.raw))
    return _plan(source, edits, answers, complete=complete), tuple(answers)


def restored_lines(
    source: Transcript, fmt: TranscriptFormat, stored: OriginalStore
) -> Iterator[tuple[bytes, Restored | None]]:
    """Every line of a session with what is away of it inline, for a copy: nothing is planned.

    With the answer of those from which something is away.
    """
    markers, returning = Markers(source, fmt, stored), _Returning(fmt, 0.0, stored)
    for line in source.lines():
        located = _located(line, fmt)
        found = _marked(located, markers) if located else []
        if located is None or not found:
            yield line.raw, None
            continue
        answer, back = returning.line(located, found, among_many=True)
        yield back.raw, answer


def restored_copy(
    source: Transcript,
    fmt: TranscriptFormat,
    stored: OriginalStore,
    write: Callable[[bytes], object],
) -> tuple[int, dict[str, str]]:
    """Write a session as it would be with everything back, line by line.

    Returns the number of values that are inline in the copy, and what could not be had:
    `entry key` → why.
    """
    values = 0
    missing: dict[str, str] = {}
    for raw, answer in restored_lines(source, fmt, stored):
        write(raw)
        if answer is not None:
            values += len(answer.keys_restored)
            lost = answer.unavailable.items()
            missing |= {f"{answer.entry_id} {key}": why for key, why in lost}
    return values, missing


@dataclass(frozen=True, slots=True)
class _MarkedValues:
    """What one marker of an entry names; a program may have taken the marker from the line."""

    marker: Marker
    paths: dict[str, ValuePath]  # of the marker's keys that are paths
    away: frozenset[str]  # keys whose placeholder still stands
    in_line: bool  # the line has this marker

    def matching(self, name: str) -> list[str]:
        """The keys that a name means, whole or by a segment: `message.content[2].text`, `text`."""
        return [key for key, path in self.paths.items() if names_value(name, path)]


def _marked(located: Located, markers: Markers) -> list[_MarkedValues]:
    return [
        _MarkedValues(
            marker,
            paths_of(marker.keys),
            frozenset(away_paths(located.entry, marker)),
            marker == Marker.of(located.entry),
        )
        for marker in markers.of(located.entry, located.info, located.line.index)
    ]


def _matching(found: Sequence[_MarkedValues], names: Iterable[str]) -> frozenset[str]:
    """Return the keys that these names mean; raises Invalid."""
    meant = {name: {key for marked in found for key in marked.matching(name)} for name in names}
    if unknown := [name for name, keys in meant.items() if not keys]:
        raise Invalid(
            f"the entry has no extracted key {', '.join(unknown)}",
            hint=f"its keys: {', '.join(key for marked in found for key in marked.paths)}",
        )
    return frozenset().union(*meant.values())


def _nothing_away(located: Located, found: Sequence[_MarkedValues]) -> Conflict:
    if not found and RESTORED in located.entry:
        return Conflict(
            "Entry was previously restored but content is not currently extracted. If you need "
            "to keep this content long-term, consider setting _extractable: false."
        )
    if not found:
        return nothing_away()
    keys = ", ".join(key for marked in found for key in marked.paths)
    return nothing_away(f"changed since extraction: {keys}; `bsd verify` lists such entries")


@dataclass(frozen=True, slots=True)
class _Returning:
    """Brings values back to entries; `now` is in epoch seconds."""

    fmt: TranscriptFormat
    now: float
    stored: OriginalStore

    def entry(
        self,
        located: Located,
        found: Sequence[_MarkedValues],
        wanted: frozenset[str] | None = None,
        *,
        among_many: bool = False,
    ) -> tuple[Restored, Edit | None]:
        """Plan the return of an entry's values, or of those `wanted`; None: all.

        One that cannot come back keeps its placeholder. A line that cannot be edited stops no
        other `among_many`.
        """
        answer, line = self.line(located, found, wanted, among_many=among_many)
        if not answer.keys_restored:
            return answer, None
        new = edit(line.raw, put={RESTORED: encode_string(iso_utc(self.now))})
        return answer, Edit(located.line.offset, len(located.line.raw), new)

    def line(
        self,
        located: Located,
        found: Sequence[_MarkedValues],
        wanted: frozenset[str] | None = None,
        *,
        among_many: bool,
    ) -> tuple[Restored, Line]:
        """The line with what can come back, and without a note that it did."""
        previous = located.entry.get(RESTORED)
        answer = Restored(
            entry_id=located.info.id or "",
            index=located.line.index,
            ref=found[0].marker.ref,
            previous_restored_at=None if previous is None else str(previous),
            suggestion=None if previous is None else SUGGESTION,
        )
        line = located.line
        for marked in found:
            keys = [key for key in marked.paths if wanted is None or key in wanted]
            away = [key for key in keys if key in marked.away]
            answer.changed += tuple(key for key in keys if key not in marked.away)
            if not away:
                continue
            try:
                line = self._values(answer, line, marked, away)
            except SpliceError as error:
                if not among_many:
                    raise
                answer.unavailable.update(dict.fromkeys(away, _LEFT_ALONE.format(error)))
        return answer, line

    def _values(self, answer: Restored, line: Line, marked: _MarkedValues, away: list[str]) -> Line:
        """Bring these keys back into the line; the answer says what came and what could not."""
        entry = parse_entry(line.raw) or {}
        original = original_of(line.raw, entry, marked.marker, self.fmt, self.stored)
        if isinstance(original, Missing):
            answer.unavailable.update(dict.fromkeys(away, unavailable(original, self.stored)))
            answer.missing, answer.ref = original, marked.marker.ref
            answer.extracted_at = marked.marker.at
            return line
        back = Return.of(entry, original, self.fmt, [marked.paths[key] for key in away])
        restored = tuple(key for key in away if marked.paths[key] in back.replace)
        answer.unavailable.update({key: _NOT_IN_FILE for key in away if key not in restored})
        if not restored:
            return line
        new = _apply(back, line.raw, entry, marked, restored)
        answer.stamp = answer.stamp or _stamp(answer, line, entry, original, self.now)
        answer.restored = True
        answer.keys_restored += restored
        answer.sizes_bytes.update({key: back.sizes[marked.paths[key]] for key in restored})
        return replace(line, raw=new)


def _stamp(answer: Restored, line: Line, entry: Entry, original: OriginalLine, now: float) -> Stamp:
    """What the new `_restored` takes the place of."""
    return Stamp(
        answer.entry_id,
        encode_string(iso_utc(now)),
        present=restored_of(line.raw, entry),
        original=restored_of(original.raw, original.entry),
    )


def _apply(
    back: Return, raw: bytes, entry: Entry, marked: _MarkedValues, restored: Container[str]
) -> bytes:
    marker = marked.marker
    if not marked.in_line and Marker.of(entry):
        return back.apply(raw)  # the line's own marker names what is away besides
    left = tuple(key for key in marker.keys if key in marked.away and key not in restored)
    if left:
        rest = Marker(marker.ref, marker.hash, marker.size, left, marker.at)
        return back.apply(raw, put={MARKER: rest.to_json()})
    return back.apply(raw, remove=[(MARKER,)] if marked.in_line else [])


def _located(line: Line, fmt: TranscriptFormat) -> Located | None:
    """An entry from which something may be away."""
    # Markers and placeholders are written by bsd, so they stand in the line as they are spelled.
    if any(map(line.raw.__contains__, NEEDLES)) and (entry := parse_entry(line.raw)):
        info = fmt.info(entry)
        return None if info.is_header else Located(line, entry, info)
    return None


def _plan(
    source: Transcript, edits: list[Edit], answers: list[Restored], *, complete: bool = True
) -> Plan:
    touched = [TouchedLine(one.index, one.entry_id) for one in answers if one.keys_restored]
    values = sum(len(answer.keys_restored) for answer in answers)
    noting = Noting(stamps=tuple(one.stamp for one in answers if one.stamp))
    plan = Plan.of("restore", source.identity, edits, touched, values=values)
    return replace(plan, complete=complete, noting=noting)


# --- markers that a program has dropped ---


def plan_remark(
    source: Transcript, fmt: TranscriptFormat, stored: OriginalStore
) -> tuple[Plan, tuple[str, ...]]:
    """Plan a marker for each entry whose placeholders stand alone, and whose content is stored.

    The answer names these entries, by id or `#line`. One that several stored lines are away from
    gets none: a marker names one, and restoring finds them all the same.
    """
    markers = Markers(source, fmt, stored)
    edits: list[Edit] = []
    touched: list[TouchedLine] = []
    for line in source.lines():
        entry = parse_entry(line.raw) if NEEDLES[1] in line.raw else None
        if entry is None or Marker.of(entry) is not None:  # one that says nothing is lost, too
            continue
        info = fmt.info(entry)
        found = markers.of(entry, info, line.index)
        if len(found) != 1 or info.is_header:
            continue
        try:
            new = edit(line.raw, put={MARKER: found[0].to_json()})
        except SpliceError:  # a line that is never edited
            continue
        edits.append(Edit(line.offset, len(line.raw), new))
        touched.append(TouchedLine(line.index, info.id))
    names = tuple(name_of(one.entry_id, one.index) for one in touched)
    return Plan.of("remark", source.identity, edits, touched), names
