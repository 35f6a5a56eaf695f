"""Finds the entry that a user or an agent names (SPEC §8)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from bsd.core.errors import Conflict, NotFound
from bsd.planning.copies import are_copies
from bsd.store.markers import loose_placeholders
from bsd.transcripts.agents.entry import MARKER, Entry, placeholder
from bsd.transcripts.agents.format import EntryInfo, TranscriptFormat
from bsd.transcripts.reader import Line, Transcript, is_too_large, parse_entry
from bsd.transcripts.splice import encode_string

_INDEX = re.compile(r"#([0-9]+)")
_NUMBER = re.compile(r"\\u[0-9a-f]{4}")
# The last characters of a call's id, by which its lines are searched.
_END_OF_CALL_ID = 8
_NOT_SENT = re.compile(r"[^A-Za-z0-9]")
_MOST_DIGITS = 18  # Python refuses to convert thousands of digits


@dataclass(frozen=True, slots=True)
class Located:
    """An entry with its line and its properties."""

    line: Line
    entry: Entry
    info: EntryInfo

    @classmethod
    def of(cls, line: Line, fmt: TranscriptFormat) -> Self | None:
        """Parse a line; return None if it holds no entry."""
        entry = parse_entry(line.raw)
        return None if entry is None else cls(line, entry, fmt.info(entry))

    @property
    def name(self) -> str:
        """The entry's name in answers."""
        return name_of(self.info.id, self.line.index)


def name_of(entry_id: str | None, index: int) -> str:
    """Return an entry's name in answers: its id, or `#` and its 0-based line number."""
    return entry_id if entry_id is not None else f"#{index}"


def entries(lines: Iterable[Line], fmt: TranscriptFormat) -> Iterator[Located]:
    """Yield the entries in these lines. Lines without an entry are skipped."""
    for line in lines:
        located = Located.of(line, fmt)
        if located is not None:
            yield located


def identifier(fmt: TranscriptFormat) -> Callable[[bytes], str | None]:
    """Return a function that returns the id of the entry in a line, or None."""

    def identify(raw: bytes) -> str | None:
        entry = parse_entry(raw)
        return None if entry is None else fmt.info(entry).id

    return identify


def locate(
    source: Transcript, fmt: TranscriptFormat, name: str, *, header: bool = False
) -> Located:
    """Find an entry by id, by line number, or by its placeholders.

    `#n` is always the 0-based line number n; `n` alone is a line number if no entry has that id. A
    copy with a new id is also found by the id in its placeholders.

    Args:
        header: also find the header, by line number or id.

    Raises:
        NotFound: there is no such entry.
        Conflict: several lines have the id.
    """
    found = _locate(source, fmt, name, header=header)
    if len(found) > 1:
        raise _ambiguous(name, found)
    return found[0]


def locate_copies(source: Transcript, fmt: TranscriptFormat, name: str) -> list[Located]:
    """Find an entry like `locate`, but return all its lines if they are copies of one another."""
    found = _locate(source, fmt, name)
    if len(found) > 1 and not are_copies((one.entry for one in found), fmt):
        raise _ambiguous(name, found)
    return found


def locate_copied_values(
    source: Transcript, fmt: TranscriptFormat, name: str, known: Iterable[Located]
) -> list[Located]:
    """Return the further entries with values that a program copied out of the entry `name`."""
    lines = {located.line.index for located in known}
    wanted = placeholder(name).encode("utf-8", "surrogatepass")
    return [
        located
        for located in entries(source.lines_holding(wanted), fmt)
        if located.line.index not in lines
        and any(
            found == name and fmt.value_name(located.entry, path) is not None
            for path, found in loose_placeholders(located.entry, fmt).items()
        )
    ]


def _ambiguous(entry_id: str, found: list[Located]) -> Conflict:
    named = ", ".join(f"#{located.line.index}" for located in found)
    return Conflict(f"several entries have the id {entry_id}", hint=f"name one of {named}")


def _locate(
    source: Transcript, fmt: TranscriptFormat, name: str, *, header: bool = False
) -> list[Located]:
    """Return the lines of an entry, at least one; several only if they share the id."""
    if match := _INDEX.fullmatch(name):
        return [_by_index(source, fmt, match[1], header=header)]
    if found := _by_id(source, fmt, name):
        return found
    if copy := _by_placeholder(source, fmt, name):
        return [copy]
    if result := _by_call(source, fmt, name):
        return [result]
    if header:
        first = next(entries(source.lines(), fmt), None)
        if first and first.info.is_header and name in {first.info.id, first.entry.get("id")}:
            return [first]
    if not (name.isascii() and name.isdigit()):
        raise _not_found(source, name)
    return [_by_index(source, fmt, name, header=header)]


def _by_id(source: Transcript, fmt: TranscriptFormat, entry_id: str) -> list[Located]:
    """Return the lines of the entry with this id.

    Only lines that contain the id's bytes are parsed.
    """
    made_of = fmt.made_of(entry_id)
    searches: list[Iterator[Line]] = []
    if made_of is not None:
        searches.append(line for line in source.lines() if made_of.search(line.raw))
    else:
        searches += map(source.lines_holding, _spellings(entry_id))
    for lines in searches:
        found = [
            located
            for located in entries(lines, fmt)
            if located.info.id == entry_id and not located.info.is_header
        ]
        if len(found) > 1:
            # Prefer the lines from which values were extracted.
            found = [located for located in found if MARKER in located.entry] or found
        if found:
            return found
    return []


def _spellings(text: str) -> dict[bytes, None]:
    """Return the ways in which JSON writers spell a text: unescaped or with different escapes."""
    plain = encode_string(text)[1:-1]
    escaped = json.dumps(text)[1:-1]
    upper = _NUMBER.sub(lambda number: "\\u" + number[0][2:].upper(), escaped)
    return dict.fromkeys((plain, escaped.encode(), upper.encode(), plain.replace(b"/", b"\\/")))


def _by_placeholder(source: Transcript, fmt: TranscriptFormat, name: str) -> Located | None:
    wanted = placeholder(name).encode("utf-8", "surrogatepass")
    for located in entries(source.lines_holding(wanted), fmt):
        if name in loose_placeholders(located.entry, fmt).values():
            return located
    return None


def _by_call(source: Transcript, fmt: TranscriptFormat, call_id: str) -> Located | None:
    """Return the entry with the result of a call: a model knows the call's id, not the entry's.

    Some programs send ids to the model without characters that are neither letters nor digits.
    """
    for lines in map(source.lines_holding, _spellings(call_id)):
        for located in entries(lines, fmt):
            if located.info.result_of == call_id:
                return located
    if not (call_id.isalnum() and len(call_id) > _END_OF_CALL_ID):
        return None
    for located in entries(source.lines_holding(call_id[-_END_OF_CALL_ID:].encode()), fmt):
        if _NOT_SENT.sub("", located.info.result_of or "") == call_id:
            return located
    return None


def _by_index(source: Transcript, fmt: TranscriptFormat, number: str, *, header: bool) -> Located:
    index = int(number) if len(number) <= _MOST_DIGITS else -1
    for line in source.lines():
        if line.index == index:
            if is_too_large(line.raw):
                raise _too_large(line)
            located = Located.of(line, fmt)
            if located is None or (located.info.is_header and not header):
                break
            return located
    raise _not_found(source, f"#{number}")


def _not_found(source: Transcript, name: str) -> NotFound | Conflict:
    for line in source.lines_holding(name.encode("utf-8", "surrogatepass")):
        if is_too_large(line.raw):  # this may be the entry
            return _too_large(line)
    return NotFound(
        "Entry not found in session",
        hint=f"`bsd show AGENT/SESSION` lists ids and line numbers; {name} is none of them",
    )


def _too_large(line: Line) -> Conflict:
    return Conflict(
        f"line {line.index} would take too much memory to be read: {len(line.raw):,} bytes that "
        "are mostly brackets and commas",
        hint="show it with `sed` or `jq`; bsd leaves such a line alone",
    )
