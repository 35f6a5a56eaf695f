"""list_entries and show_session: the entries of a session, page by page."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Annotated, Any, ClassVar

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.actions.list_sessions import SessionInList, listed
from bsd.core.answers import OMIT_EMPTY
from bsd.core.errors import BsdError
from bsd.core.formatting import format_size
from bsd.core.layout import SessionName
from bsd.maintenance import catalog
from bsd.maintenance.catalog import children
from bsd.maintenance.lineage import BeginsIn, begins_in
from bsd.planning.entry_texts import EntryText, Original, entry_texts
from bsd.planning.locate import Located
from bsd.planning.originals import original_of
from bsd.planning.restore import unavailable
from bsd.planning.view import EntryView, line_offsets, preview_of, views_alone
from bsd.sessions.session import OpenSession
from bsd.store.originals import Missing, SessionStore
from bsd.transcripts.agents.entry import Entry, Marker
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.opening import stat_transcript
from bsd.transcripts.agents.values import media_of
from bsd.transcripts.damage import DamagedLines
from bsd.transcripts.reader import parse_entry
from bsd.transcripts.spans import paths_of, value_at

# A list has no preview of larger lines: to read a page of them would take too long.
_LARGEST_PREVIEWED = 256 * 1024  # bytes
# Stored lines that are read for the texts of one page; further texts are marked as `later`.
_MOST_READ = 8 << 20  # bytes
# A page of a larger session is returned before the whole session is read.
_LARGE = 32 << 20  # bytes
_LAST_LINE = 10**9
FIRST_PAGE, MOST_ENTRIES = 100, 1000
MOST_TEXT = 100_000  # characters of each text


@dataclass(frozen=True, slots=True)
class EntryRow(EntryView):
    """One entry; `index` is its 0-based line number."""

    extracted_preview: Annotated[
        str | None,
        Field(
            description="The first 200 characters of an extracted value; null if the stored line"
            " is large"
        ),
    ] = None
    unavailable: Annotated[
        str | None, Field(description="Why the extracted values are not available")
    ] = None
    texts: Annotated[
        tuple[EntryText, ...],
        Field(description="Its texts before extraction, if the request asks for them"),
        OMIT_EMPTY,
    ] = ()


@dataclass(frozen=True, slots=True)
class Entries:
    """A page of entries, and the positions of its neighbours."""

    entries: tuple[EntryRow, ...]
    next: Annotated[int | None, Field(description="The `from` of the next page")]
    previous: Annotated[int | None, Field(description="The `before` of the page before this one")]
    damaged: Annotated[
        DamagedLines | None, Field(description="Damaged lines of the whole session")
    ] = None
    left_alone: Annotated[
        str | None, Field(description="Why bsd does not edit the session; null: bsd edits it")
    ] = None
    begins_in: Annotated[
        BeginsIn | None, Field(description="The session in whose file it begins"), OMIT_EMPTY
    ] = None


def list_entries(  # noqa: PLR0913 - options, each by its name
    context: ActionContext,
    session: SessionName,
    *,
    start: int = 0,
    before: int | None = None,
    limit: int = FIRST_PAGE,
    types: str = "",
    extracted: bool | None = None,
    texts: int = 0,
) -> Entries:
    """Return a page of the entries of a session.

    Args:
        start: the number of the first line to list.
        before: list the last entries before this line instead; `start` is ignored.
        types: only entries of these types, separated by commas; empty: all types.
        extracted: only entries with (True) or without (False) extracted values.
        texts: the maximum length of each text of an entry, in characters; 0: no texts.

    Raises:
        NotFound: there is no such session.
        LeftAlone: bsd does not know the format of its lines.
    """
    wanted = frozenset(filter(None, types.split(",")))
    with context.reader(session) as opened:
        source, fmt = opened.transcript, opened.format
        is_plain = bool(texts) and not wanted and extracted is None
        if is_plain and source.size > _LARGE and not context.outlines.has(session, source):
            page = _page_alone(opened, start, before, limit, texts)
            return replace(page, begins_in=begins_in(context.layout, session, source))
        outline = context.outlines.of(session, source, fmt)

        def matching(lines: range) -> Iterator[int]:
            return outline.entries(lines, types=wanted, extracted=extracted)

        if before is None:
            numbers = list(islice(matching(range(start, outline.lines)), limit + 1))
            following = numbers[limit] if len(numbers) > limit else None
            # The page before may be empty. To avoid a search, its position is returned anyway.
            numbers, previous = numbers[:limit], start or None
        else:
            end = min(before, outline.lines)
            numbers = list(islice(matching(range(end - 1, -1, -1)), limit + 1))[::-1]
            following = next(matching(range(end, outline.lines)), None)
            previous = None
            if len(numbers) > limit:
                numbers = numbers[1:]
                previous = numbers[0]
        found = outline.located_views(source, fmt, numbers)
        if texts:
            entries = tuple(rows_with_texts(opened.store, fmt, found, texts))
        else:
            entries = tuple(entry_row(opened.store, fmt, row) for _, row in found)
        damaged = outline.damaged(source)
        begun = begins_in(context.layout, session, source)
        return Entries(entries, following, previous, damaged, opened.left_alone, begun)


def _page_alone(
    opened: OpenSession, start: int, before: int | None, limit: int, texts: int
) -> Entries:
    """Return a page of a large session; only the lines of the page are parsed."""
    source, fmt = opened.transcript, opened.format
    offsets, found = array("Q"), list[tuple[Located, EntryView]]()
    if before is None:  # most lines are entries, so no line after the page is read
        offsets = line_offsets(source, most=start + 2 * limit)
        begun = range(start, len(offsets) - 1)
        found = list(islice(views_alone(source, fmt, offsets, begun), limit + 1))
    if len(found) <= limit:
        offsets = line_offsets(source)
        end = len(offsets)
        numbers = range(start, end) if before is None else range(min(before, end) - 1, -1, -1)
        found = list(islice(views_alone(source, fmt, offsets, numbers), limit + 1))
    further = found[limit][1].index if len(found) > limit else None
    found = found[:limit]
    if before is None:
        following, previous = further, start or None
    else:
        found.reverse()
        following = before if before < len(offsets) else None
        previous = None if further is None or not found else found[0][1].index
    rows = tuple(rows_with_texts(opened.store, fmt, found, texts))
    return Entries(rows, following, previous, None, opened.left_alone)


def entry_row(store: SessionStore, fmt: TranscriptFormat, view: EntryView) -> EntryRow:
    """Return an entry with a preview of its extracted values."""
    beginning, why_not = _kept(store, fmt, view)
    return EntryRow(**_fields(view), extracted_preview=beginning, unavailable=why_not)


def _fields(view: EntryView) -> dict[str, Any]:
    return {one.name: getattr(view, one.name) for one in fields(EntryView)}


def rows_with_texts(
    store: SessionStore,
    fmt: TranscriptFormat,
    found: Iterable[tuple[Located, EntryView]],
    most: int,
) -> Iterator[EntryRow]:
    """Yield entries with their texts; each stored line is read once.

    `most` is the maximum length of a text, in characters.
    """
    left = _MOST_READ
    for located, view in found:
        original, beginning = Original(), None
        if view.marker is not None:
            original = _original(store, fmt, located, view.marker, left)
            left -= 0 if original.later else view.marker.size
            if original.entry is not None:
                beginning = _beginning(original.entry, view.marker.keys)
        yield EntryRow(
            **_fields(view),
            extracted_preview=beginning,
            unavailable=original.unavailable,
            texts=entry_texts(located, fmt, original, most),
        )


def _original(
    store: SessionStore, fmt: TranscriptFormat, located: Located, marker: Marker, most: int
) -> Original:
    """Return the entry before extraction; a line of more than `most` bytes is not read."""
    if marker.size > most:
        return Original(later=True)
    try:
        line = original_of(located.line.raw, located.entry, marker, fmt, store)
    except (OSError, BsdError):  # deleted, or an invalid ref: reading the entry reports details
        line = Missing.GONE
    if isinstance(line, Missing):
        return Original(unavailable=unavailable(line, store))
    return Original(line.entry)


def _kept(
    store: SessionStore, fmt: TranscriptFormat, row: EntryView
) -> tuple[str | None, str | None]:
    """Return a preview of the extracted values, or why they are not available."""
    if row.marker is None or row.marker.size > _LARGEST_PREVIEWED:
        return None, None
    try:
        line = store.load(row.marker.ref, row.marker.hash)
    except (OSError, BsdError):  # deleted, or an invalid ref: reading the entry reports details
        line = Missing.GONE
    if isinstance(line, Missing):
        return None, unavailable(line, store)
    entry = parse_entry(line)
    if entry is None or fmt.info(entry).id != row.id:  # reading the entry reports details
        return None, None
    return _beginning(entry, row.marker.keys), None


def _beginning(entry: Entry, keys: Iterable[str]) -> str | None:
    for path in paths_of(keys).values():
        value = value_at(entry, path)
        if isinstance(value, str):
            return preview_of(value)
        if media := media_of(value):
            return f"[{media.media_type}, {format_size(media.size)}]"
        if isinstance(value, dict) and isinstance(value.get("type"), str):
            return f"[{value['type']}]"
    return None


@dataclass(frozen=True)
class SessionDetail(SessionInList):
    """A session with the first page of its entries."""

    schema_name: ClassVar[str] = "SessionDetail"

    children: Annotated[
        list[str], Field(description="Sessions that are deleted with it, all generations")
    ]
    entries: tuple[EntryRow, ...]
    next: int | None
    previous: int | None
    damaged: Annotated[
        DamagedLines | None,
        Field(description="Damaged lines of the whole session; null if it was not read"),
    ]
    begins_in: Annotated[
        BeginsIn | None, Field(description="The session in whose file it begins"), OMIT_EMPTY
    ] = None


def show_session(
    context: ActionContext, session: SessionName, *, limit: int = FIRST_PAGE
) -> SessionDetail:
    """Return one session with the first page of its entries.

    Args:
        limit: the number of entries; 0: the session is not read.

    Raises:
        NotFound: there is no such session.
        LeftAlone: bsd does not know the format of its lines.
    """
    layout = context.layout
    page = list_entries(context, session, limit=limit) if limit else Entries((), 0, None)
    try:
        stat = stat_transcript(layout, session)
    except FileNotFoundError:
        raise layout.no_session(session) from None
    [row] = listed(layout, [catalog.describe(layout, session, stat)], time.time())
    row = replace(row, left_alone=page.left_alone or row.left_alone)
    return SessionDetail(
        **vars(row),
        children=children(layout, session),
        entries=page.entries,
        next=page.next,
        previous=page.previous,
        damaged=page.damaged,
        begins_in=page.begins_in,
    )
