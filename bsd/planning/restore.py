"""Plans the return of extracted values: those of one entry, by key, or all of a session.

Also plans new markers for entries whose program dropped the marker and kept the placeholders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import Conflict, Invalid
from bsd.core.formatting import iso_utc
from bsd.planning.line_length import as_long
from bsd.planning.locate import Located, locate_copied_values, locate_copies, name_of
from bsd.planning.originals import Return, nothing_away, original_of, restored_of
from bsd.planning.plan import Plan
from bsd.store.entry_notes import Noting, Stamp
from bsd.store.history import TouchedLine
from bsd.store.markers import NEEDLES, Markers, away_paths, copied_markers, loose_placeholders
from bsd.store.originals import Missing, OriginalStore
from bsd.transcripts.agents.entry import MARKER, RESTORED, Entry, Marker, standing_at
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Line, Transcript, parse_entry
from bsd.transcripts.spans import ValuePath, names_value, paths_of
from bsd.transcripts.splice import NoRoom, SpliceError, edit, encode_string

BUDGET = 64 * 1024 * 1024  # bytes of new lines in one plan

SUGGESTION = (
    "This entry was previously restored. If you need to keep this content long-term, "
    "consider setting _extractable: false on the entry."
)

# The text that replaces unavailable content in an answer.
UNAVAILABLE = {
    Missing.GONE: "[Content unavailable - extracted file missing]",
    Missing.CORRUPT: "[Content unavailable - extracted file corrupted]",
    Missing.FOREIGN: "[Content unavailable - extracted file is of another entry]",
    Missing.FORGOTTEN: "[Content unavailable - forgotten with `bsd archive forget`]",
    Missing.UNREACHABLE: "[Content unavailable - {}]",
    Missing.UNREADABLE: "[Content unavailable - {}]",
}
_NOT_IN_FILE = "[Content unavailable - not in the extracted file]"
# Hints for a line that must keep its length, if the rest of its marker or its values do not fit.
_WHOLE = "restore all values of the entry at once"
_COPY = "`bsd restore-all AGENT/SESSION --to FILE` writes a copy with the values"
_LEFT_ALONE = "[Content unavailable - the line cannot be edited: {}]"


def unavailable(why: Missing, stored: OriginalStore) -> str:
    """Return the text to show in place of unavailable content."""
    return UNAVAILABLE[why].format(stored.trouble())


@dataclass(slots=True, kw_only=True)
class Restored:
    """The result of restoring the values of one entry (seed 001)."""

    restored: bool = False
    entry_id: str
    keys_restored: tuple[str, ...] = ()
    sizes_bytes: Annotated[
        dict[str, int], Field(description="Bytes of each value's text in UTF-8, by key")
    ] = field(default_factory=dict)
    unavailable: Annotated[
        dict[str, str],
        Field(description="Values that cannot come back, by key: the text to show instead"),
        OMIT_EMPTY,
    ] = field(default_factory=dict)
    expired: Annotated[
        str | None, Field(description="When and why the content was deleted, in words"), OMIT_EMPTY
    ] = None
    changed: Annotated[
        tuple[str, ...],
        Field(description="Keys of values that were overwritten since: left as they are"),
        OMIT_EMPTY,
    ] = ()
    previous_restored_at: Annotated[str | None, OMIT_EMPTY] = None
    suggestion: Annotated[
        str | None,
        Field(description="Advice for content that is needed again and again"),
        OMIT_EMPTY,
    ] = None
    index: Internal[int] = 0  # 0-based line number
    ref: Internal[str] = ""  # of the stored file
    # Why the stored file is missing, for log and audit.
    missing: Internal[Missing | None] = None
    # When the unavailable values were extracted.
    extracted_at: Internal[str] = ""
    stamp: Internal[Stamp | None] = None  # the new `_restored`


def plan_restore(
    source: Transcript,
    fmt: TranscriptFormat,
    entry: str,
    keys: Sequence[str] | None,
    now: float,
    stored: OriginalStore,
) -> tuple[Plan, Restored]:
    """Plan the return of one entry's values.

    If several lines are copies of the entry, each of them gets its values back; the answer is that
    of the first restored line. So do other entries into which the program copied these values.

    Args:
        keys: names of the values, whole or by a segment; none means all.
        now: epoch seconds.

    Raises:
        NotFound: there is no such entry.
        Conflict: the entry has no extracted values, or its name is ambiguous.
        Invalid: a key is unknown.
    """
    copies = locate_copies(source, fmt, entry)
    restorer = _Restorer(source, fmt, stored, now)
    edits, answers = [], []
    of_copies = [(located, restorer.named(located, entry)) for located in copies]
    own = {located.line.index for located, some in of_copies if any(one.away for one in some)}
    of_copies += restorer.copied_values(copies, entry)
    of_copies = [(each, some) for each, some in of_copies if any(one.away for one in some)]
    if not of_copies:
        raise _nothing_away(copies[0], restorer.marked(copies[0]))
    # Copies may differ in their extracted values.
    wanted = _matching(fmt, of_copies, keys) if keys else None
    for located, marked in sorted(of_copies, key=lambda each: each[0].line.index):
        answer, line = restorer.restore(located, marked, wanted)
        answers.append(answer)
        if answer.keys_restored:
            edits.append(_stamped(fmt, line, located.line, now))
    of_entry = [one for one in answers if one.index in own] or answers
    answer = next((one for one in of_entry if one.restored), of_entry[0])
    return _plan(source, fmt, edits, answers), answer


def plan_restore_all(
    source: Transcript,
    fmt: TranscriptFormat,
    now: float,
    stored: OriginalStore,
    budget_bytes: int = BUDGET,
    progress: Callable[[int], None] | None = None,
) -> tuple[Plan, tuple[Restored, ...]]:
    """Plan the return of all extracted values; return an answer for each marked entry.

    If the budget is used up, the plan is not `complete`.
    """
    edits: list[Edit] = []
    answers: list[Restored] = []
    new_bytes, complete = 0, True
    restorer = _Restorer(source, fmt, stored, now)
    for before in source.lines():
        if not any(needle in before.raw for needle in NEEDLES):
            continue
        if new_bytes >= budget_bytes:
            complete = False
            break
        answer, line = restorer.try_to_restore(before)
        if answer is None:
            continue
        answers.append(answer)
        if answer.keys_restored:
            edits.append(_stamped(fmt, line, before, now))
            new_bytes += len(edits[-1].new)
        if progress:
            progress(before.offset + len(before.raw))
    return _plan(source, fmt, edits, answers, complete=complete), tuple(answers)


def restored_lines(
    source: Transcript, fmt: TranscriptFormat, stored: OriginalStore
) -> Iterator[tuple[bytes, Restored | None]]:
    """Yield every line of a session with its values inline, for a copy. Nothing is planned.

    A line with extracted values comes with the answer for its entry, another line with None.
    """
    restorer = _Restorer(source, fmt, stored, 0.0, in_place=False)
    for before in source.lines():
        answer, line = restorer.try_to_restore(before)
        yield line.raw, answer


def restored_copy(
    source: Transcript,
    fmt: TranscriptFormat,
    stored: OriginalStore,
    write: Callable[[bytes], object],
) -> tuple[int, dict[str, str]]:
    """Write a copy of a session with all values inline, line by line.

    Returns:
        The number of values put back in the copy, and the unavailable ones: `entry key` → reason.
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
class _Marked:
    """A marker of an entry. The line may lack it if a program dropped it."""

    marker: Marker
    paths: dict[str, ValuePath]  # of the marker's valid keys
    away: frozenset[str]  # keys with a placeholder in the line
    in_line: bool  # the line has this marker
    is_copied: bool = False  # it is of single values that the program copied from another entry

    def only(self, entry: Entry, name: str) -> _Marked:
        """Return this without the values whose placeholders do not name the entry `name`."""
        paths = {key: at for key, at in self.paths.items() if standing_at(entry, at) == name}
        return replace(self, paths=paths, away=self.away & paths.keys())


@dataclass(frozen=True, slots=True)
class _ValuesBack:
    """Values of one original that come back into a line."""

    values: Return
    sizes: dict[str, int]  # bytes of each value's text in UTF-8, by key
    stamp: bytes | None  # `_restored` of the original

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.sizes)


def _matching(
    fmt: TranscriptFormat,
    of_copies: Iterable[tuple[Located, Sequence[_Marked]]],
    names: Iterable[str],
) -> frozenset[str]:
    """Return the keys that match names, whole or by a segment: `message.content[2].text`, `text`.

    Includes the keys of values that the program copied from matching ones. Raises Invalid if a name
    matches no key.
    """
    known = [
        (key, path, fmt.value_name(located.entry, path))
        for located, marked in of_copies
        for one in marked
        for key, path in one.paths.items()
    ]
    meant = {name: {one for one in known if names_value(name, one[1])} for name in names}
    if unknown := [name for name, found in meant.items() if not found]:
        raise Invalid(
            f"the entry has no extracted key {', '.join(unknown)}",
            hint=f"its keys: {', '.join(key for key, _, _ in known)}",
        )
    matching = frozenset().union(*meant.values())
    copied = {name for *_, name in matching} - {None}
    return frozenset(
        key for key, path, name in known if (key, path, name) in matching or name in copied
    )


def _nothing_away(located: Located, marked: Sequence[_Marked]) -> Conflict:
    if marked:
        keys = ", ".join(key for one in marked for key in one.paths)
        return nothing_away(f"changed since extraction: {keys}; `bsd verify` lists such entries")
    if RESTORED in located.entry:
        return Conflict(
            "Entry was previously restored but content is not currently extracted. If you need "
            "to keep this content long-term, consider setting _extractable: false."
        )
    return nothing_away()


@dataclass(slots=True)
class _Restorer:
    """Restores values in the entries of one session; `now` is in epoch seconds.

    `in_place`: lines keep their lengths if the format requires that; a copy may be longer.
    """

    source: Transcript
    fmt: TranscriptFormat
    stored: OriginalStore
    now: float
    in_place: bool = True
    markers: Markers = field(init=False)

    def __post_init__(self) -> None:
        self.markers = Markers(self.source, self.fmt, self.stored)

    def marked(self, located: Located) -> list[_Marked]:
        """Return the markers of an entry; empty if none of its values is extracted."""
        own, about = Marker.of(located.entry), (located.entry, located.info, located.line.index)
        whole = self.markers.of(*about, copied=False)
        return [
            _Marked(
                marker,
                paths_of(marker.keys),
                frozenset(away_paths(located.entry, marker)),
                marker == own,
                marker not in whole,
            )
            for marker in self.markers.of(*about)
        ]

    def copied_values(
        self, copies: Sequence[Located], entry: str
    ) -> list[tuple[Located, list[_Marked]]]:
        """Return the entries into which the program copied values of an entry, without the others.

        Args:
            copies: the lines of the entry.
            entry: its name as the user typed it; if no line has this id, the id in placeholders.
        """
        mentioned = loose_placeholders(copies[0].entry, self.fmt).values()
        name = entry if entry in mentioned else copies[0].info.id
        if name is None:
            return []
        others = locate_copied_values(self.source, self.fmt, name, copies)
        return [(located, self.named(located, name)) for located in others]

    def named(self, located: Located, name: str) -> list[_Marked]:
        """Return the markers of an entry; if its placeholders name several, those of `name`."""
        marked = self.marked(located)
        mentioned = loose_placeholders(located.entry, self.fmt).values()
        if located.info.id == name or name not in mentioned:
            return marked
        return [one for each in marked if (one := each.only(located.entry, name)).paths]

    def try_to_restore(self, line: Line) -> tuple[Restored | None, Line]:
        """Restore a line, without an error if it cannot be edited.

        Returns:
            The answer and the new line; the answer is None if the line has no extracted values.
        """
        # bsd wrote markers and placeholders, so their spelling is known.
        if not any(needle in line.raw for needle in NEEDLES):
            return None, line
        located = Located.of(line, self.fmt)
        marked = [] if located is None or located.info.is_header else self.marked(located)
        if located is None or not marked:
            return None, line
        return self.restore(located, marked, among_many=True)

    def restore(
        self,
        located: Located,
        marked: Sequence[_Marked],
        wanted: frozenset[str] | None = None,
        *,
        among_many: bool = False,
    ) -> tuple[Restored, Line]:
        """Return the answer, and the line with all available values inline.

        The line has no new `_restored` yet. An unavailable value keeps its placeholder.

        Args:
            wanted: the keys to restore; None means all.
            among_many: report a line that cannot be edited in the answer.

        Raises:
            SpliceError: the line cannot be edited, and `among_many` is False.
        """
        previous = located.entry.get(RESTORED)
        answer = Restored(
            entry_id=located.info.id or "",
            index=located.line.index,
            ref=marked[0].marker.ref,
            previous_restored_at=None if previous is None else str(previous),
            suggestion=None if previous is None else SUGGESTION,
        )
        line = located.line
        copied: list[tuple[_Marked, list[str]]] = []
        for one in marked:
            keys = [key for key in one.paths if wanted is None or key in wanted]
            away = [key for key in keys if key in one.away]
            answer.changed += tuple(key for key in keys if key not in one.away)
            if away and one.is_copied:
                copied.append((one, away))
            elif away:
                with self._reporting(answer, away, among_many=among_many):
                    line = self._restore_values(answer, line, one, away)
        if copied:
            away = [key for _, keys in copied for key in keys]
            with self._reporting(answer, away, among_many=among_many):
                line = self._restore_copied_values(answer, line, copied)
        return answer, line

    @contextmanager
    def _reporting(self, answer: Restored, away: list[str], *, among_many: bool) -> Iterator[None]:
        """Report a line that cannot be edited in the answer if it is one of many."""
        try:
            yield
        except SpliceError as error:
            if not among_many:
                raise
            why = "; ".join(filter(None, (error.message, error.hint)))
            answer.unavailable.update(dict.fromkeys(away, _LEFT_ALONE.format(why)))

    def _restore_values(
        self, answer: Restored, line: Line, marked: _Marked, away: list[str]
    ) -> Line:
        """Bring these keys back into the line.

        The answer lists the restored and the unavailable keys.
        """
        entry, marker = parse_entry(line.raw) or {}, marked.marker
        back = self._values_back(answer, line, entry, marked, away)
        if back is None:
            return line
        restored = back.keys
        left = tuple(key for key in marker.keys if key in marked.away and key not in restored)
        remove, values = copied_markers(entry, back.values.replace), back.values
        if not marked.in_line and Marker.of(entry):
            new = values.apply(line.raw, remove=remove)  # its marker names other extracted values
        elif left:
            rest = Marker(marker.ref, marker.hash, marker.size, left, marker.at)
            new = values.apply(line.raw, remove=remove, put={MARKER: rest.to_json()})
        else:
            own = [(MARKER,)] if marked.in_line else []
            new = values.apply(line.raw, remove=[*remove, *own])
        if self.fmt.keeps_length:
            try:
                new = as_long(line.raw, new)
            except NoRoom as error:
                if self.in_place:
                    hint = _WHOLE if left else _COPY
                    raise SpliceError(error.message, hint=hint) from error
        self._note(answer, line, entry, back)
        return replace(line, raw=new)

    def _restore_copied_values(
        self, answer: Restored, line: Line, copied: Sequence[tuple[_Marked, list[str]]]
    ) -> Line:
        """Bring values that the program copied from other entries back with one edit of the line.

        A line may hold the values of hundreds of entries.
        """
        entry = parse_entry(line.raw) or {}
        found = [self._values_back(answer, line, entry, one, away) for one, away in copied]
        backs = [back for back in found if back is not None]
        if not backs:
            return line
        values = {path: value for back in backs for path, value in back.values.replace.items()}
        new = edit(line.raw, replace=values, remove=copied_markers(entry, values))
        for back in backs:
            self._note(answer, line, entry, back)
        return replace(line, raw=new)

    def _values_back(
        self, answer: Restored, line: Line, entry: Entry, marked: _Marked, away: list[str]
    ) -> _ValuesBack | None:
        """Return the available values of these keys; None if there are none.

        The answer lists the unavailable keys.
        """
        marker = marked.marker
        original = original_of(line.raw, entry, marker, self.fmt, self.stored)
        if isinstance(original, Missing):
            answer.unavailable.update(dict.fromkeys(away, unavailable(original, self.stored)))
            answer.missing, answer.ref, answer.extracted_at = original, marker.ref, marker.at
            return None
        back = Return.of(entry, original, self.fmt, [marked.paths[key] for key in away])
        restored = tuple(key for key in away if marked.paths[key] in back.replace)
        answer.unavailable.update({key: _NOT_IN_FILE for key in away if key not in restored})
        if not restored:
            return None
        sizes = {key: back.sizes[marked.paths[key]] for key in restored}
        return _ValuesBack(back, sizes, restored_of(original.raw, original.entry))

    def _note(self, answer: Restored, line: Line, entry: Entry, back: _ValuesBack) -> None:
        """List restored values in the answer; `line` and `entry` are as before."""
        # Keeps the value that the new `_restored` replaces.
        answer.stamp = answer.stamp or Stamp(
            answer.entry_id,
            encode_string(iso_utc(self.now)),
            present=restored_of(line.raw, entry),
            original=back.stamp,
        )
        answer.restored = True
        answer.keys_restored += back.keys
        answer.sizes_bytes.update(back.sizes)


def _stamped(fmt: TranscriptFormat, line: Line, before: Line, now: float) -> Edit:
    """Return the edit of a restored line, with a new `_restored` if lines may become longer.

    In other formats only the note about the entry (`Stamp`) protects it.
    """
    new = line.raw
    if not fmt.keeps_length:
        new = edit(new, put={RESTORED: encode_string(iso_utc(now))})
    return Edit(before.offset, len(before.raw), new)


def _plan(
    source: Transcript,
    fmt: TranscriptFormat,
    edits: list[Edit],
    answers: list[Restored],
    *,
    complete: bool = True,
) -> Plan:
    touched = [TouchedLine(one.index, one.entry_id) for one in answers if one.keys_restored]
    values = sum(len(answer.keys_restored) for answer in answers)
    noting = Noting(stamps=tuple(one.stamp for one in answers if one.stamp))
    plan = Plan.of("restore", source, fmt, edits, touched, values=values)
    return replace(plan, complete=complete, noting=noting)


def plan_remark(
    source: Transcript, fmt: TranscriptFormat, stored: OriginalStore
) -> tuple[Plan, tuple[str, ...]]:
    """Plan new markers for entries with placeholders but no marker, if their content is stored.

    An entry with values in several stored lines gets none, since a marker names one line; restoring
    finds these lines without a marker.

    Returns:
        The plan, and the names of the entries: id or `#line`.
    """
    markers = Markers(source, fmt, stored)
    edits: list[Edit] = []
    touched: list[TouchedLine] = []
    for line in source.lines():
        located = Located.of(line, fmt) if NEEDLES[1] in line.raw else None
        # A marker without keys counts as lost.
        if located is None or Marker.of(located.entry) is not None or located.info.is_header:
            continue
        found = markers.of(located.entry, located.info, line.index, copied=False)
        if len(found) != 1:
            continue
        try:
            new = edit(line.raw, put={MARKER: found[0].to_json()})
            new = as_long(line.raw, new) if fmt.keeps_length else new
        except SpliceError:  # a line that is never edited, or without room for a marker
            continue
        edits.append(Edit(line.offset, len(line.raw), new))
        touched.append(TouchedLine(line.index, located.info.id))
    names = tuple(name_of(one.entry_id, one.index) for one in touched)
    return Plan.of("remark", source, fmt, edits, touched), names
