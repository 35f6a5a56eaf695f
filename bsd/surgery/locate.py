"""Finding the entry that a person or an agent names (SPEC §8)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bsd.formats.base import Entry, Facts, Format
from bsd.formats.marker import MARKER, placeholder
from bsd.foundation.errors import Conflict, NotFound
from bsd.store.markers import loose_placeholders
from bsd.surgery.plan import Source
from bsd.transcript.reader import Line, parse_entry

_INDEX = re.compile(r"#(\d+)")
_MOST_DIGITS = 18  # Python refuses to read numbers of thousands of them


@dataclass(frozen=True, slots=True)
class Located:
    """An entry, its line, and what it is."""

    line: Line
    entry: Entry
    facts: Facts

    @property
    def name(self) -> str:
        """How `locate` finds it again."""
        return f"#{self.line.index}"


def locate(source: Source, fmt: Format, name: str, *, header: bool = False) -> Located:
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
            raise _not_found(name)
        return _by_index(source, fmt, name, header=header)
    return found


def _by_id(source: Source, fmt: Format, entry_id: str) -> Located | None:
    needle = entry_id.encode("utf-8", "surrogatepass")
    # An id spelled with escapes is found by looking closer, once no line shows it plainly; and one
    # that a dialect makes of other members, by looking at all.
    for lines in (source.lines_holding(needle), source.lines_holding(b"\\"), source.lines()):
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


def _by_placeholder(source: Source, fmt: Format, name: str) -> Located | None:
    wanted = placeholder(name).encode("utf-8", "surrogatepass")
    for line in source.lines_holding(wanted):
        entry = parse_entry(line.raw)
        if entry is not None and name in loose_placeholders(entry, fmt).values():
            return Located(line, entry, fmt.facts(entry))
    return None


def _header(source: Source, fmt: Format, entry_id: str) -> Located | None:
    for line in source.lines():
        if (entry := parse_entry(line.raw)) is not None:
            facts = fmt.facts(entry)
            is_meant = facts.is_header and entry_id in {facts.id, entry.get("id")}
            return Located(line, entry, facts) if is_meant else None
    return None


def _with_id(lines: Iterable[Line], fmt: Format, entry_id: str) -> Iterator[Located]:
    for line in lines:
        if (entry := parse_entry(line.raw)) is not None:
            facts = fmt.facts(entry)
            if facts.id == entry_id and not facts.is_header:
                yield Located(line, entry, facts)


def _by_index(source: Source, fmt: Format, number: str, *, header: bool) -> Located:
    index = int(number) if len(number) <= _MOST_DIGITS else -1
    for line in source.lines():
        if line.index == index:
            entry = parse_entry(line.raw)
            if entry is None or ((facts := fmt.facts(entry)).is_header and not header):
                break
            return Located(line, entry, facts)
    raise _not_found(f"#{number}")


def _not_found(name: str) -> NotFound:
    return NotFound(
        "Entry not found in session",
        hint=f"`bsd show AGENT/SESSION` lists ids and line numbers; {name} is none of them",
    )
