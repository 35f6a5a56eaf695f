"""One page of a session's entries, with the beginnings of what was taken out of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bsd.doors.http.outlines import Outlines
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.value_path import paths_of, value_at
from bsd.session.session import Session
from bsd.store.extracted import Missing, SessionStore
from bsd.surgery.restore import UNAVAILABLE
from bsd.surgery.view import EntryView, Outline, preview_of
from bsd.text.reader import parse_entry

# Of larger lines a list shows no beginning: a page of them would take its time.
_LARGEST_PREVIEWED = 256 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Which entries: the first from line `start` on, or the last before line `before`."""

    start: int = 0
    before: int | None = None
    limit: int = 100
    types: frozenset[str] = frozenset()  # none: all
    extracted: bool | None = None

    def of(self, outline: Outline, lines: range) -> Iterator[int]:
        """The numbers of those lines that are to be shown, wherever they stand."""
        return outline.entries(lines, types=self.types, extracted=self.extracted)


def entry_page(
    layout: Layout, name: SessionName, outlines: Outlines, wanted: EntryFilter
) -> dict[str, Any]:
    """{entries, next, previous}.

    `next` is the line to go on from, `previous` the line to look before; null where there is
    nothing more.
    """
    store = SessionStore(layout, name)
    source, fmt = Session(layout, name).open()
    with source:
        outline = outlines.of(name, source, fmt)
        pick = _from if wanted.before is None else _before
        found, next_, previous = pick(outline, wanted)
        rows = outline.views(source, fmt, found)
        entries = [row.as_json() | _kept(store, row) for row in rows]
    return {"entries": entries, "next": next_, "previous": previous}


_Page = tuple[list[int], int | None, int | None]


def _from(outline: Outline, wanted: EntryFilter) -> _Page:
    lines = range(wanted.start, outline.lines)
    found = list(islice(wanted.of(outline, lines), wanted.limit + 1))
    more = found[wanted.limit] if len(found) > wanted.limit else None
    # Whether anything stands before is not known; to look there is free of harm.
    return found[: wanted.limit], more, wanted.start or None


def _before(outline: Outline, wanted: EntryFilter) -> _Page:
    end = min(wanted.before or 0, outline.lines)
    found = list(islice(wanted.of(outline, range(end - 1, -1, -1)), wanted.limit + 1))[::-1]
    after = next(wanted.of(outline, range(end, outline.lines)), None)
    if len(found) > wanted.limit:
        return found[1:], after, found[1]
    return found, after, None


def _kept(store: SessionStore, row: EntryView) -> dict[str, Any]:
    """The beginning of what is away, or why it cannot be had."""
    if row.marker is None:
        return {"extracted_preview": None, "unavailable": None}
    try:
        if row.marker.size > _LARGEST_PREVIEWED:
            return {"extracted_preview": None, "unavailable": None}
        line = store.load(row.marker.ref, row.marker.hash)
    except (OSError, BsdError):  # gone, or a ref that names no file: reading it will say more
        line = Missing.GONE
    if isinstance(line, Missing):
        return {"extracted_preview": None, "unavailable": UNAVAILABLE[line]}
    return {"extracted_preview": _beginning(line, row.marker.keys), "unavailable": None}


def _beginning(line: bytes, keys: Iterable[str]) -> str | None:
    entry = parse_entry(line)
    if entry is None:
        return None
    for path in paths_of(keys).values():
        value = value_at(entry, path)
        if isinstance(value, str):
            return preview_of(value)
        if isinstance(value, dict) and isinstance(value.get("type"), str):
            return f"[{value['type']}]"
    return None
