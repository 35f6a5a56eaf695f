"""The entry that somebody names (SPEC §8), and the original that is kept of its line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from sys import maxsize

from bsd.core.errors import Conflict, NotFound
from bsd.store.markers import loose_placeholders, source_paths, stored_line
from bsd.store.originals import Missing, OriginalStore, digest
from bsd.transcripts.agents.entry import MARKER, RESTORED, Entry, Marker, placeholder
from bsd.transcripts.agents.format import EntryInfo, TranscriptFormat
from bsd.transcripts.reader import Line, Transcript, is_too_large, parse_entry, parse_kept
from bsd.transcripts.spans import ValuePath, is_present
from bsd.transcripts.splice import SpliceError, edit, find, text_size

_INDEX = re.compile(r"#([0-9]+)")
_ANY_ESCAPE = re.compile(rb"\\u")
_SHORT_ESCAPES = frozenset('"\\/\b\f\n\r\t')  # what can be written as one letter after a backslash
_MOST_DIGITS = 18  # Python refuses to read numbers of thousands of them


@dataclass(frozen=True, slots=True)
class Located:
    """An entry, its line, and what it is."""

    line: Line
    entry: Entry
    info: EntryInfo

    @property
    def name(self) -> str:
        """How it is called in answers."""
        return name_of(self.info.id, self.line.index)


def name_of(entry_id: str | None, index: int) -> str:
    """How an entry is called in answers: by its id, or by `#` and its 0-based line number."""
    return entry_id if entry_id is not None else f"#{index}"


def locate(
    source: Transcript, fmt: TranscriptFormat, name: str, *, header: bool = False
) -> Located:
    """Find an entry by id; by its 0-based line number if that is all digits and no id; `#n` always.

    A copy that got another id is found by that which its placeholders name; with `header`, the
    header by its number and its id, too. Raises NotFound, Conflict if several lines have the id.
    """
    if match := _INDEX.fullmatch(name):
        return _by_index(source, fmt, match[1], header=header)
    found = _by_id(source, fmt, name) or _by_placeholder(source, fmt, name)
    if found is None and header:
        found = _header(source, fmt, name)
    if found is None:
        if not (name.isascii() and name.isdigit()):
            raise _not_found(source, name)
        return _by_index(source, fmt, name, header=header)
    return found


def _by_id(source: Transcript, fmt: TranscriptFormat, entry_id: str) -> Located | None:
    for lines in _lines_that_may_have(source, fmt, entry_id):
        found = list(_with_id(lines, fmt, entry_id))
        if len(found) > 1:
            # Two lines claim it; the one whose values are away is the one that is meant.
            found = [one for one in found if MARKER in one.entry] or found
        if len(found) > 1:
            named = ", ".join(f"#{one.line.index}" for one in found)
            raise Conflict(f"several entries have the id {entry_id}", hint=f"name one of {named}")
        if found:
            return found[0]
    return None


def _lines_that_may_have(
    source: Transcript, fmt: TranscriptFormat, entry_id: str
) -> Iterator[Iterable[Line]]:
    """The lines that show an id; then, for whom that is not enough, those that may spell it.

    Only bytes are compared: of an id that stands nowhere, no line is parsed.
    """
    made_of = fmt.made_of(entry_id)
    if made_of is None:
        yield source.lines_holding(entry_id.encode("utf-8", "surrogatepass"))
        escape = _escape_of_any(set(entry_id))
    else:
        yield (line for line in source.lines() if made_of.search(line.raw))
        escape = _ANY_ESCAPE
    mark = b"\\" if _SHORT_ESCAPES.intersection(entry_id) else b"\\u"
    yield (line for line in source.lines_holding(mark) if escape.search(line.raw))


def _escape_of_any(characters: set[str]) -> re.Pattern[bytes]:
    """An expression for all ways to write one of them in JSON other than as it is."""
    first = (each.encode("utf-16-be", "surrogatepass")[:2].hex() for each in characters)
    # One beginning for all: it is what the search is fast for.
    numbers = rb"\\u(?i:%b)" % "|".join(sorted(first)).encode()
    return re.compile(rb"%b|\\[^u]" % numbers if characters & _SHORT_ESCAPES else numbers)


def _by_placeholder(source: Transcript, fmt: TranscriptFormat, name: str) -> Located | None:
    wanted = placeholder(name).encode("utf-8", "surrogatepass")
    for line in source.lines_holding(wanted):
        entry = parse_entry(line.raw)
        if entry is not None and name in loose_placeholders(entry, fmt).values():
            return Located(line, entry, fmt.info(entry))
    return None


def _header(source: Transcript, fmt: TranscriptFormat, entry_id: str) -> Located | None:
    for line in source.lines():
        if (entry := parse_entry(line.raw)) is not None:
            info = fmt.info(entry)
            is_meant = info.is_header and entry_id in {info.id, entry.get("id")}
            return Located(line, entry, info) if is_meant else None
    return None


def _with_id(lines: Iterable[Line], fmt: TranscriptFormat, entry_id: str) -> Iterator[Located]:
    for line in lines:
        if (entry := parse_entry(line.raw)) is not None:
            info = fmt.info(entry)
            if info.id == entry_id and not info.is_header:
                yield Located(line, entry, info)


def _by_index(source: Transcript, fmt: TranscriptFormat, number: str, *, header: bool) -> Located:
    index = int(number) if len(number) <= _MOST_DIGITS else -1
    for line in source.lines():
        if line.index == index:
            if is_too_large(line.raw):
                raise _too_large(line)
            entry = parse_entry(line.raw)
            if entry is None or ((info := fmt.info(entry)).is_header and not header):
                break
            return Located(line, entry, info)
    raise _not_found(source, f"#{number}")


def _not_found(source: Transcript, name: str) -> NotFound | Conflict:
    for line in source.lines_holding(name.encode("utf-8", "surrogatepass")):
        if is_too_large(line.raw):  # it may be this one
            return _too_large(line)
    return NotFound(
        "Entry not found in session",
        hint=f"`bsd show AGENT/SESSION` lists ids and line numbers; {name} is none of them",
    )


def _too_large(line: Line) -> Conflict:
    return Conflict(
        f"line {line.index} would take too much memory to be read: {len(line.raw):,} bytes that "
        "are mostly brackets and commas",
        hint="bsd leaves such a line alone; `sed` and `jq` can show it",
    )


# --- what is away of a marked line, and how it comes back ---


def nothing_away(hint: str = "`bsd context AGENT/SESSION` lists what is extracted") -> Conflict:
    """The answer to whoever asks for what was taken out of an entry that is whole."""
    return Conflict("Entry exists but has no extracted content", hint=hint)


def restored_of(raw: bytes, entry: Entry) -> bytes | None:
    """A line's own `_restored` as it stands there; None if it has none, or has it twice."""
    if RESTORED not in entry:
        return None
    try:
        return raw[slice(*find(raw, [(RESTORED,)])[(RESTORED,)])]
    except SpliceError:
        return None


def made_again(now: bytes, was: bytes, hash: str) -> bytes | None:
    """The original of a line whose values have all come back, if nothing else of it changed.

    `was` is the line before they did, which tells whether it had been restored before. The hash
    proves it; so content that is stored no longer can be stored anew.
    """
    candidates = [now]
    try:
        if RESTORED in (parse_kept(now) or {}):
            candidates.append(edit(now, remove=[(RESTORED,)]))
        if (before := restored_of(was, parse_kept(was) or {})) is not None:
            candidates.append(edit(now, put={RESTORED: before}))
    except SpliceError:
        pass
    return next((line for line in candidates if digest(line) == hash), None)


@dataclass(frozen=True, slots=True)
class OriginalLine:
    """An original line, read."""

    raw: bytes
    entry: Entry

    @classmethod
    def of(cls, raw: bytes) -> OriginalLine | None:
        """Read a stored line; None if it is no entry."""
        entry = parse_kept(raw)
        return None if entry is None else cls(raw, entry)

    def values(self, paths: Collection[ValuePath]) -> dict[ValuePath, bytes]:
        """Return the bytes of those of these values that it has."""
        try:
            return {
                path: self.raw[start:end] for path, (start, end) in find(self.raw, paths).items()
            }
        except SpliceError:
            if len(paths) <= 1:
                return {}
        return {found: value for path in paths for found, value in self.values([path]).items()}

    def companions(
        self, fmt: TranscriptFormat, paths: Collection[ValuePath]
    ) -> dict[ValuePath, ValuePath]:
        """Members that left together with values, without a placeholder: member → its value.

        Only values that are no leaves have any, so no leaf needs to be listed.
        """
        return {
            member: value.path
            for value in fmt.values(self.entry, maxsize)
            if value.path in paths
            for member in value.removes
        }


def original_of(
    raw: bytes, entry: Entry, marker: Marker, fmt: TranscriptFormat, stored: OriginalStore
) -> OriginalLine | Missing:
    """The original that a marker of this entry names; see `stored_line`."""
    line = stored_line(raw, entry, marker, fmt, stored)
    return line if isinstance(line, Missing) else OriginalLine.of(line) or Missing.CORRUPT


@dataclass(frozen=True, slots=True)
class Return:
    """What brings values back into the line that they left."""

    original: bytes
    replace: Mapping[ValuePath, bytes]
    reinsert: tuple[ValuePath, ...]
    sizes: Mapping[ValuePath, int]  # of each value's text, in UTF-8

    @classmethod
    def of(
        cls,
        entry: Entry,
        original: OriginalLine,
        fmt: TranscriptFormat,
        paths: Collection[ValuePath],
    ) -> Return:
        """Plan the return of those of these values that the original has."""
        sources = source_paths(entry, original.entry, fmt, list(paths))
        kept = original.values(sources.values())
        values = {path: kept[source] for path, source in sources.items() if source in kept}
        companions = original.companions(fmt, values.keys())
        sizes = {path: text_size(value) for path, value in values.items()}
        # What somebody has put there since stays; it is theirs.
        missing = tuple(member for member in companions if not is_present(entry, member))
        return cls(original.raw, values, missing, sizes)

    def apply(
        self,
        raw: bytes,
        *,
        remove: Collection[ValuePath] = (),
        put: Mapping[str, bytes] | None = None,
    ) -> bytes:
        """Return the line with the values inline, and what else changes with that."""
        return edit(
            raw,
            replace=self.replace,
            remove=remove,
            reinsert=self.reinsert,
            original=self.original,
            put=put,
        )


def same_values(one: bytes, other: bytes, paths: Collection[ValuePath]) -> bool:
    """Whether two lines hold the same bytes at all these paths."""
    try:
        here, there = find(one, paths), find(other, paths)
    except SpliceError:
        return False
    return all(one[slice(*here[path])] == other[slice(*there[path])] for path in paths)
