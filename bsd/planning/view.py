"""A session as people and agents see it: one row per entry, without changes.

The position and the hash of a row depend on all other lines. An `Outline` keeps only these data of
each line, so that a page of entries costs its own bytes. It can be extended by appended lines.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Annotated, Any, ClassVar

from pydantic import Field

from bsd.core.answers import Internal
from bsd.core.formatting import format_size, iso_utc
from bsd.core.layout import SessionName
from bsd.planning.locate import Located, locate_copies
from bsd.planning.originals import nothing_away, original_of
from bsd.planning.restore import UNAVAILABLE, unavailable
from bsd.store.markers import Markers, source_paths
from bsd.store.originals import Missing, OriginalStore
from bsd.transcripts.agents.entry import EXTRACTABLE, RESTORED, Entry, Marker
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.values import media_of
from bsd.transcripts.change import Identity
from bsd.transcripts.damage import MOST_LISTED, DamagedLine, DamagedLines, damage_of, is_damaged
from bsd.transcripts.reader import BLOCK, Line, Transcript
from bsd.transcripts.spans import paths_of, value_at

# Length of the short hash of an entry, from the SHA-256 of its line (SPEC §6).
SHORTEST = 6  # hex digits
_PREVIEW = 200  # characters (seed 000, SP-06)
_MESSAGE, _EXTRACTED, _DAMAGED = 1, 2, 4
_NO_ENTRY, _MOST_TYPES = 255, 254
_GUARDED = 4096  # bytes before the end that are compared
# Type of entries beyond `_MOST_TYPES` types; the true type is read from the line.
_OTHER = ""


def line_hash(raw: bytes) -> str:
    """Return all hex digits of a line's hash."""
    return hashlib.sha256(raw).hexdigest()


def known_hashes(raw: bytes, entry: Entry) -> tuple[str, ...]:
    """Return the hashes that address an entry: of its line, and of the line before extraction.

    The second keeps a hash valid that an agent was told before content was extracted.
    """
    marker = Marker.of(entry)
    if marker is None:
        return (line_hash(raw),)
    return line_hash(raw), marker.hash.removeprefix("sha256:")


@dataclass(frozen=True, slots=True)
class CallRow:
    """One tool call."""

    schema_name: ClassVar[str] = "Call"

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class EntryView:
    """One entry: its type, its size, its extracted values. Sizes are bytes."""

    index: Annotated[int, Field(description="0-based line number")]
    id: str | None
    type: str
    role: str | None
    size: int
    position: Annotated[
        int | None,
        Field(description="Messages after it; null on a page of a session that was not read whole"),
    ]
    extracted: bool
    keys: tuple[str, ...]  # of extracted values
    extracted_size: int  # of the stored line; 0 if no value is extracted
    extracted_at: str | None
    extractable: bool | int | None  # `_extractable`, if set
    restored: str | None  # `_restored`, if set
    hash: str  # as many hex digits of the line's SHA-256 as are unique
    preview: Annotated[str, Field(description=f"The first {_PREVIEW} characters of its text")]
    time: Annotated[str | None, Field(description="Time of writing, as the entry has it")] = None
    calls: tuple[CallRow, ...] = ()
    result_of: Annotated[str | None, Field(description="Id of the call that it answers")] = None
    tool: Annotated[str | None, Field(description="Tool whose result it is")] = None
    marker: Internal[Marker | None] = None  # names the stored line


def preview_of(text: str) -> str:
    """Return the beginning of a text for a list; for a file in base64, its type and size."""
    if media := media_of(text):
        return f"[{media.media_type}, {format_size(media.size)}]"
    return text[:_PREVIEW]


def views(
    source: Transcript,
    fmt: TranscriptFormat,
    *,
    start: int = 0,
    limit: int | None = None,
    outline: Outline | None = None,
) -> Iterator[EntryView]:
    """Yield the entries in the `limit` lines from line `start` on; `limit` None: in all lines.

    Lines without an entry count towards the limit. Positions and hashes depend on later lines, so
    the file is read twice, or once if an `outline` of it is given.
    """
    stop = None if limit is None else start + limit
    lines = takewhile(lambda line: stop is None or line.index < stop, source.lines())
    outline = outline or outline_of(source, fmt)
    yield from outline.rows((line for line in lines if line.index >= start), fmt)


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One entry, as an agent sees it. Sizes are bytes."""

    index: Annotated[int, Field(description="0-based line number")]
    id: str | None
    type: str
    hash: str
    extracted: bool
    extractable: bool | int | None
    size_bytes: int
    extracted_size_bytes: int


@dataclass(frozen=True, slots=True)
class Context:
    """An agent's view of its session: sizes, extracted entries, extractable entries (seed 001)."""

    session: str
    total_entries: int
    extracted_entries: int
    extracted_ids: tuple[str | None, ...]
    extractable_entries: int
    size_bytes: int
    extracted_size_bytes: int
    last_extracted_at: str | None
    entries: tuple[ContextEntry, ...]


def context(name: SessionName, source: Transcript, fmt: TranscriptFormat) -> Context:
    """Return an agent's view of a session."""
    entries = list(views(source, fmt))
    away = [entry for entry in entries if entry.extracted]
    return Context(
        session=str(name),
        total_entries=len(entries),
        extracted_entries=len(away),
        extracted_ids=tuple(entry.id for entry in away),
        extractable_entries=sum(entry.extractable is not False for entry in entries),
        size_bytes=source.size,
        extracted_size_bytes=sum(entry.extracted_size for entry in away),
        last_extracted_at=max((entry.extracted_at or "" for entry in away), default=None),
        entries=tuple(
            ContextEntry(
                index=entry.index,
                id=entry.id,
                type=entry.type,
                hash=entry.hash,
                extracted=entry.extracted,
                extractable=entry.extractable,
                size_bytes=entry.size,
                extracted_size_bytes=entry.extracted_size,
            )
            for entry in entries
        ),
    )


@dataclass(frozen=True, slots=True)
class ExtractedContent:
    """The extracted values of an entry, by key, and the reasons for unavailable ones."""

    entry_id: str | None
    index: int
    ref: str
    extracted_at: str | None
    size_bytes: int
    content: dict[str, Any]
    unavailable: dict[str, str]
    # Keys of values that the program never sends to its model, such as copies for display.
    display: Internal[frozenset[str]] = frozenset()


def extracted_content(
    source: Transcript, fmt: TranscriptFormat, entry: str, stored: OriginalStore
) -> ExtractedContent:
    """Return the extracted values of an entry, by key, without restoring them.

    If several lines are copies of the entry, the first one counts. Unavailable content is listed
    under `unavailable`, as in the answer of a restoration.

    Raises:
        NotFound: there is no such entry.
        Conflict: the entry has no extracted values.
    """
    located = locate_copies(source, fmt, entry)[0]
    finder = Markers(source, fmt, stored)
    markers = finder.of(located.entry, located.info, located.line.index)
    if not markers:
        raise nothing_away()
    content: dict[str, Any] = {}
    missing: dict[str, str] = {}
    display: set[str] = set()
    for marker in markers:
        keys = paths_of(marker.keys)
        original = original_of(located.line.raw, located.entry, marker, fmt, stored)
        if isinstance(original, Missing):
            missing |= dict.fromkeys(keys, unavailable(original, stored))
            continue
        sources = source_paths(located.entry, original.entry, fmt, list(keys.values()))
        leaves = [value.path for value in fmt.values(original.entry, 1) if value.display]
        # For an object extracted as a whole, `values` lists the strings in it.
        shown = {leaf[:steps] for leaf in leaves for steps in range(1, len(leaf) + 1)}
        display |= {key for key, path in keys.items() if sources.get(path) in shown}
        for key, path in keys.items():
            if path in sources:
                content[key] = value_at(original.entry, sources[path])
            else:
                missing[key] = UNAVAILABLE[Missing.CORRUPT]
    return ExtractedContent(
        entry_id=located.info.id,
        index=located.line.index,
        ref=markers[0].ref,
        extracted_at=markers[0].at,
        size_bytes=sum(marker.size for marker in markers),
        content=content,
        unavailable=missing,
        display=frozenset(display),
    )


def line_offsets(source: Transcript, most: int | None = None) -> array[int]:
    """Return the offset of each line. Only line ends are searched; no line is parsed.

    `most`: stop after more than this many lines have begun; None: read the whole session.
    """
    size, offsets = source.size, array("Q", [0])
    for start in range(0, size, BLOCK):
        if most is not None and len(offsets) > most:
            return offsets
        piece = source.read(start, min(BLOCK, size - start))
        found = piece.find(b"\n")
        while found >= 0:
            offsets.append(start + found + 1)
            found = piece.find(b"\n", found + 1)
    if offsets[-1] == size:
        offsets.pop()
    return offsets


def views_alone(
    source: Transcript, fmt: TranscriptFormat, offsets: array[int], numbers: Iterable[int]
) -> Iterator[tuple[Located, EntryView]]:
    """Yield the entries in these lines without reading the others.

    Their positions are unknown. Their hashes have twice the digits that most sessions need.
    """
    for number in numbers:
        start, is_last = offsets[number], number + 1 == len(offsets)
        stop = source.size if is_last else offsets[number + 1]
        line = Line(number, start, source.read(start, stop - start))
        if located := Located.of(line, fmt):
            yield located, _view_of(located, fmt, None, line_hash(line.raw)[: 2 * SHORTEST])


def _view_of(located: Located, fmt: TranscriptFormat, position: int | None, hash: str) -> EntryView:
    """Return an entry as a row; `position` and `hash` depend on the other lines."""
    line, entry, info = located.line, located.entry, located.info
    marker = Marker.of(entry)
    extractable, restored = entry.get(EXTRACTABLE), entry.get(RESTORED)
    return EntryView(
        index=line.index,
        id=info.id,
        type=info.kind,
        role=info.role,
        size=len(line.raw),
        position=position,
        extracted=marker is not None,
        keys=marker.keys if marker else (),
        extracted_size=marker.size if marker else 0,
        extracted_at=marker.at if marker else None,
        extractable=extractable if isinstance(extractable, int) else None,
        restored=restored if isinstance(restored, str) else None,
        hash=hash,
        preview=_preview(entry, fmt),
        time=time_text(info.time_ms),
        calls=tuple(CallRow(call.id, call.name) for call in info.calls),
        result_of=info.result_of,
        tool=info.result_tool,
        marker=marker,
    )


def _preview(entry: Entry, fmt: TranscriptFormat) -> str:
    for value in fmt.values(entry):
        if value.text:
            return preview_of(value.text)
    return ""


def time_text(time_ms: float | None) -> str | None:
    """Format a time in milliseconds since 1970; None if there is none or it is out of range."""
    with suppress(OverflowError, ValueError, OSError):
        return None if time_ms is None else iso_utc(time_ms / 1000)
    return None


@dataclass(slots=True)
class Outline:
    """Type, position and hash of all lines of a session, in about 22 bytes per line.

    An outline is not changed once made. `outline_of` makes a longer one for a session that has
    grown.
    """

    identity: Identity
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    kinds: bytearray = field(default_factory=bytearray)  # per line: number of its type
    flags: bytearray = field(default_factory=bytearray)
    types: dict[str, int] = field(default_factory=dict)  # type → number
    shorts: array[int] = field(default_factory=lambda: array("I"))  # first digits of all hashes
    longs: array[int] = field(default_factory=lambda: array("Q"))  # twice as many; both are sorted
    end: int = 0  # offset after the last complete line
    complete: int = 0  # number of complete lines
    guard: bytes = b""

    @property
    def lines(self) -> int:
        """The number of lines."""
        return len(self.offsets)

    @property
    def memory(self) -> int:
        """The approximate bytes of memory in use."""
        return 22 * len(self.offsets)

    def is_of(self, source: Transcript) -> bool:
        """Return whether this outlines the file as it is."""
        return self.identity == source.identity

    def is_begun_of(self, source: Transcript) -> bool:
        """Return whether this is the same file with lines appended."""
        return has_grown(source, self.identity, self.end, self.guard)

    def damaged(self, source: Transcript) -> DamagedLines:
        """Return the number of damaged lines, and the first of them."""
        numbers = (number for number, flags in enumerate(self.flags) if flags & _DAMAGED)
        first = self._read(source, islice(numbers, MOST_LISTED))
        listed = tuple(DamagedLine(line.index, damage_of(line.raw)) for line in first)
        return DamagedLines(self.flags.count(_DAMAGED), listed)

    def entries(
        self,
        lines: range,
        *,
        types: frozenset[str] = frozenset(),
        extracted: bool | None = None,
    ) -> Iterator[int]:
        """Yield, in order, those of these lines that hold entries of the wanted kind.

        Args:
            types: types of entries; empty means all.
            extracted: whether values are extracted; None: either.
        """
        wanted = {number for name, number in self.types.items() if not types or name in types}
        flag = None if extracted is None else _EXTRACTED * extracted
        for number in lines:
            if self.kinds[number] not in wanted:
                continue
            if flag is None or self.flags[number] & _EXTRACTED == flag:
                yield number

    def views(
        self, source: Transcript, fmt: TranscriptFormat, numbers: Iterable[int]
    ) -> Iterator[EntryView]:
        """Yield the entries in these lines, which are in ascending order."""
        yield from self.rows(self._read(source, numbers), fmt)

    def _read(self, source: Transcript, numbers: Iterable[int]) -> Iterator[Line]:
        for number in numbers:
            start, is_last = self.offsets[number], number + 1 == len(self.offsets)
            stop = source.size if is_last else self.offsets[number + 1]
            yield Line(number, start, source.read(start, stop - start))

    def rows(self, lines: Iterable[Line], fmt: TranscriptFormat) -> Iterator[EntryView]:
        """Yield the entries in these lines, which are in ascending order."""
        return (view for _, view in self._located_rows(lines, fmt))

    def located_views(
        self, source: Transcript, fmt: TranscriptFormat, numbers: Iterable[int]
    ) -> Iterator[tuple[Located, EntryView]]:
        """Yield like `views`, each view with its entry."""
        return self._located_rows(self._read(source, numbers), fmt)

    def _located_rows(
        self, lines: Iterable[Line], fmt: TranscriptFormat
    ) -> Iterator[tuple[Located, EntryView]]:
        counted, left = 0, _messages_in(self.flags, 0, None)
        for line in lines:
            left -= _messages_in(self.flags, counted, line.index + 1)
            counted = line.index + 1
            if located := Located.of(line, fmt):
                digest = self._shortest(line_hash(line.raw))
                yield located, _view_of(located, fmt, left, digest)

    def _shortest(self, digest: str) -> str:
        for digits, known in ((SHORTEST, self.shorts), (2 * SHORTEST, self.longs)):
            number = int(digest[:digits], 16)
            if bisect_right(known, number) - bisect_left(known, number) == 1:
                return digest[:digits]
        return digest


def outline_of(source: Transcript, fmt: TranscriptFormat, begun: Outline | None = None) -> Outline:
    """Return the outline of a session; `begun` is an earlier one that is extended if given."""
    new = Outline(source.identity)
    if begun:
        known = begun.complete  # an incomplete line is read again
        new.offsets, new.kinds, new.flags = (
            begun.offsets[:known],
            begun.kinds[:known],
            begun.flags[:known],
        )
        new.end, new.complete, new.types = begun.end, known, dict(begun.types)
        new.shorts, new.longs = begun.shorts[:], begun.longs[:]
    for line in source.lines(new.end, new.complete):
        kind, flags = _NO_ENTRY, 0
        if located := Located.of(line, fmt):
            info, marker = located.info, Marker.of(located.entry)
            name = info.kind if info.kind in new.types or len(new.types) < _MOST_TYPES else _OTHER
            kind = new.types.setdefault(name, len(new.types))
            flags = _MESSAGE * info.is_message | _EXTRACTED * (marker is not None)
            digest = line_hash(line.raw)
            new.shorts.append(int(digest[:SHORTEST], 16))
            new.longs.append(int(digest[: 2 * SHORTEST], 16))
        elif is_damaged(line.raw, None):
            flags = _DAMAGED
        # A plan's removed lines are missing from the source; they count as lines without an entry.
        gone = line.index - len(new.offsets)
        new.offsets.extend([line.offset] * (gone + 1))
        new.kinds += bytes([_NO_ENTRY]) * gone + bytes([kind])
        new.flags += bytes(gone) + bytes([flags])
        if line.raw.endswith(b"\n"):
            new.end, new.complete = line.offset + len(line.raw), line.index + 1
    new.shorts, new.longs = array("I", sorted(new.shorts)), array("Q", sorted(new.longs))
    new.guard = guard_of(source, min(new.end, source.size))  # edits may add bytes
    return new


def _messages_in(flags: bytearray, start: int, end: int | None) -> int:
    away = _MESSAGE | _EXTRACTED
    return flags.count(_MESSAGE, start, end) + flags.count(away, start, end)


def has_grown(source: Transcript, was: Identity, end: int, guard: bytes) -> bool:
    """Return whether a file is the same as before, with bytes appended.

    Args:
        was: its identity then.
        end: offset after the last line that was read.
        guard: the result of `guard_of` then.
    """
    now = source.identity
    if (now.dev, now.ino) != (was.dev, was.ino) or now.size <= was.size:
        return False
    return guard_of(source, end) == guard


def guard_of(source: Transcript, end: int) -> bytes:
    """Return a hash of the last `_GUARDED` bytes before `end`."""
    start = max(0, end - _GUARDED)
    return hashlib.sha256(source.read(start, end - start)).digest()
