"""One page of a session's entries, with the beginnings of what was taken out of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout, SessionName
from bsd.store.extracted import Missing, SessionStore
from bsd.surgery.kept import paths_of, value_at
from bsd.surgery.restore import UNAVAILABLE
from bsd.surgery.view import EntryView, preview_of
from bsd.transcript.reader import parse_entry

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

    def wants(self, row: EntryView) -> bool:
        """Whether a row is to be shown, wherever it stands."""
        if self.extracted is not None and row.extracted is not self.extracted:
            return False
        return not self.types or row.type in self.types


class Entries(Protocol):
    """`Surgeon.entries`."""

    def __call__(self, name: SessionName, *, start: int = 0) -> Iterator[EntryView]: ...


def entry_page(
    layout: Layout, name: SessionName, entries: Entries, wanted: EntryFilter
) -> dict[str, Any]:
    """{entries, next, previous}.

    `next` is the line to go on from, `previous` the line to look before; null where there is
    nothing more.
    """
    pick = _from if wanted.before is None else _before
    found, next_, previous = pick(lambda start: entries(name, start=start), wanted)
    store = SessionStore(layout, name)
    return {
        "entries": [row.as_json() | _kept(store, row) for row in found],
        "next": next_,
        "previous": previous,
    }


_Page = tuple[list[EntryView], int | None, int | None]


def _from(entries: Callable[[int], Iterator[EntryView]], wanted: EntryFilter) -> _Page:
    found = list(islice(filter(wanted.wants, entries(wanted.start)), wanted.limit + 1))
    more = found[wanted.limit].index if len(found) > wanted.limit else None
    # Whether anything stands before is not known; to look there is free of harm.
    return found[: wanted.limit], more, wanted.start or None


def _before(entries: Callable[[int], Iterator[EntryView]], wanted: EntryFilter) -> _Page:
    last: deque[EntryView] = deque(maxlen=wanted.limit + 1)
    end = wanted.before
    after = None
    for row in filter(wanted.wants, entries(0)):
        if end is not None and row.index >= end:
            after = row.index
            break
        last.append(row)
    found = list(last)
    if len(found) > wanted.limit:
        return found[1:], after, found[1].index
    return found, after, None


def _kept(store: SessionStore, row: EntryView) -> dict[str, Any]:
    """The beginning of what is away, or why it cannot be had."""
    if row.marker is None:
        return {"extracted_preview": None, "unavailable": None}
    try:
        if store.file(row.marker.ref).stat().st_size > _LARGEST_PREVIEWED:
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
