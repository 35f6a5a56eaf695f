"""list_entries: one page of a session's entries, with the beginnings of what is out of them.

And show_session: a session as the list has it, with the first page of its entries; show:
entries as they stand, whole ones, or one value, for the command line. Nothing is put back.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any, ClassVar

from bsd.actions.list_sessions import SessionInList, listed
from bsd.actions.read_extracted import held_by
from bsd.actions.verb import Meanwhile, Server, Verb, argument, no_one_waits, route
from bsd.core.definition import INTERNAL, Answer, contract
from bsd.core.errors import BsdError, Invalid, NotFound
from bsd.core.formatting import format_size
from bsd.core.layout import SessionName
from bsd.maintenance import catalog
from bsd.maintenance.catalog import children
from bsd.planning.plan import Means
from bsd.planning.restore import unavailable
from bsd.planning.view import EntryView, Outline, extracted_content, outline_of, preview_of, views
from bsd.sessions.session import Session
from bsd.store.extracted import Missing, SessionStore, Stored
from bsd.transcripts.agents.entry import Entry
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.values import media_of
from bsd.transcripts.reader import BytesTranscript, Transcript, TranscriptFile, parse_entry
from bsd.transcripts.spans import paths_of, value_at

# Of larger lines a list shows no beginning: a page of them would take its time.
_LARGEST_PREVIEWED = 256 * 1024  # bytes
_LAST_LINE = 10**9
FIRST_PAGE, MOST_ENTRIES = 100, 1000


@dataclass(frozen=True, slots=True)
class ListEntries:
    """Which entries: the first from line `start` on, or the last before line `before`."""

    start: int = field(
        default=0, metadata=argument(least=0, most=_LAST_LINE, names={"http": "from"})
    )
    before: int | None = field(
        default=None,
        metadata=argument("The last ones before this line, not `from`", least=0, most=_LAST_LINE),
    )
    limit: int = field(default=FIRST_PAGE, metadata=argument(least=1, most=MOST_ENTRIES))
    types: str = field(
        default="",
        metadata=argument("Only these types: a,b", most=1000, names={"http": "type"}),
    )
    extracted: bool | None = field(
        default=None, metadata=argument("Only those that are (or are not) extracted")
    )

    def of(self, outline: Outline, lines: range) -> Iterator[int]:
        """The numbers of those lines that are to be shown, wherever they stand."""
        types = frozenset(filter(None, self.types.split(",")))
        return outline.entries(lines, types=types, extracted=self.extracted)


@dataclass(frozen=True, slots=True)
class EntryRow(EntryView):
    """One entry; `index` is its 0-based line number."""

    extracted_preview: str | None = field(
        default=None,
        metadata=contract("The first 200 characters of what is away; null if that is large"),
    )
    unavailable: str | None = field(
        default=None, metadata=contract("Why what is away cannot be had")
    )


@dataclass(frozen=True, slots=True)
class Entries(Answer):
    """A page, and where there are more."""

    entries: tuple[EntryRow, ...]
    next: int | None = field(metadata=contract("The `from` of the next page"))
    previous: int | None = field(metadata=contract("The `before` of the page before this one"))


def list_entries(
    server: Server, name: SessionName, asked: ListEntries, _: Meanwhile = no_one_waits
) -> Entries:
    """One page; raises NotFound, LeftAlone."""
    store = SessionStore(server.layout, name)
    source, fmt = Session(server.layout, name).open()
    with source:
        outline = server.outlines.of(name, source, fmt)
        pick = _from if asked.before is None else _before
        found, next_, previous = pick(outline, asked)
        rows = outline.views(source, fmt, found)
        return Entries(tuple(entry_row(store, fmt, row) for row in rows), next_, previous)


_Page = tuple[list[int], int | None, int | None]


def _from(outline: Outline, asked: ListEntries) -> _Page:
    lines = range(asked.start, outline.lines)
    found = list(islice(asked.of(outline, lines), asked.limit + 1))
    more = found[asked.limit] if len(found) > asked.limit else None
    # Whether anything stands before is not known; to look there is free of harm.
    return found[: asked.limit], more, asked.start or None


def _before(outline: Outline, asked: ListEntries) -> _Page:
    end = min(asked.before or 0, outline.lines)
    found = list(islice(asked.of(outline, range(end - 1, -1, -1)), asked.limit + 1))[::-1]
    after = next(asked.of(outline, range(end, outline.lines)), None)
    if len(found) > asked.limit:
        return found[1:], after, found[1]
    return found, after, None


def entry_row(store: SessionStore, fmt: TranscriptFormat, view: EntryView) -> EntryRow:
    """An entry, with the beginning of what is away of it."""
    beginning, why_not = _kept(store, fmt, view)
    known = {one.name: getattr(view, one.name) for one in fields(EntryView)}
    return EntryRow(**known, extracted_preview=beginning, unavailable=why_not)


def _kept(
    store: SessionStore, fmt: TranscriptFormat, row: EntryView
) -> tuple[str | None, str | None]:
    """The beginning of what is away, or why it cannot be had."""
    if row.marker is None or row.marker.size > _LARGEST_PREVIEWED:
        return None, None
    try:
        line = store.load(row.marker.ref, row.marker.hash)
    except (OSError, BsdError):  # gone, or a ref that names no file: reading it will say more
        line = Missing.GONE
    if isinstance(line, Missing):
        return None, unavailable(line, store)
    entry = parse_entry(line)
    if entry is None or fmt.info(entry).id != row.id:  # reading it says more
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


LIST_ENTRIES = Verb(
    name="list_entries",
    arguments=ListEntries,
    answer=Entries,
    act=list_entries,
    route=route(
        "GET …/entries", "entries", "Entries from a line on, or the last ones before a line."
    ),
)


# --- show_session ---


@dataclass(frozen=True, slots=True)
class ShowSession:
    """With a `limit` of 0 the session need not be read."""

    limit: int = field(default=FIRST_PAGE, metadata=argument("Entries", least=0, most=MOST_ENTRIES))


@dataclass(frozen=True)
class SessionDetail(SessionInList):
    """A session with the first page of its entries."""

    schema_name: ClassVar[str] = "SessionDetail"

    children: list[str] = field(metadata=contract("What would be deleted with it, all generations"))
    entries: tuple[EntryRow, ...]
    next: int | None
    previous: int | None


def _show(server: Server, name: SessionName, asked: ShowSession, _: Meanwhile) -> SessionDetail:
    layout = server.layout
    page = Entries((), 0, None)
    if asked.limit:
        page = list_entries(server, name, ListEntries(limit=asked.limit))
    try:
        stat = layout.session_file(name).lstat()
    except FileNotFoundError:
        raise layout.no_session(name) from None
    [row] = listed(layout, [catalog.describe(layout, name, stat)], time.time())
    return SessionDetail(
        **vars(row),
        children=children(layout, name),
        entries=page.entries,
        next=page.next,
        previous=page.previous,
    )


SHOW_SESSION = Verb(
    name="show_session",
    arguments=ShowSession,
    answer=SessionDetail,
    act=_show,
    route=route(
        "GET …",
        "session",
        "One session with the first page of its entries; with none it need not be read.",
    ),
)


# --- show ---


@dataclass(frozen=True, slots=True)
class Show:
    """All entries from a line on, or one entry; or one value of that."""

    entry: str | None = field(default=None, metadata=argument("Only this entry.", metavar="ENTRY"))
    start: int = field(
        default=0, metadata=argument("First line number.", least=0, names={"cli": "from"})
    )
    limit: int | None = field(
        default=None, metadata=argument("No more than so many entries.", least=1)
    )
    full: bool = field(
        default=False, metadata=argument("Whole texts, extracted ones from the store.")
    )
    key: str | None = field(
        default=None,
        metadata=argument("Only this value of ENTRY: a path, or a segment of it.", metavar="KEY"),
    )


@dataclass(frozen=True, slots=True)
class WholeEntry(EntryView):
    """An entry, its line, and what was taken out of that."""

    line: str = field(default="", metadata=contract("As it stands there"))
    content: dict[str, Any] = field(default_factory=dict)  # by key, as it was
    unavailable: dict[str, str] = field(default_factory=dict)  # key → why it cannot be had


class Shown(Answer):
    """Entries, or a value."""


@dataclass(frozen=True, slots=True)
class ShownEntries(Shown):
    """In their order; whole ones if one was asked for, or all of them `full`."""

    session: str
    entries: tuple[EntryView, ...]
    full: bool = field(metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class ShownValue(Shown):
    """One value, wherever it is."""

    session: str
    entry_id: str
    key: str
    value: Any


def _query(source: Transcript, fmt: TranscriptFormat, asked: Show, means: Means) -> Shown:
    name = str(means.name)
    if asked.key is not None:
        if asked.entry is None:
            hint = f"bsd show {name} --entry ID --key {asked.key}"
            raise Invalid("--key needs --entry", hint=hint)
        held = held_by(source, fmt, asked.entry, means.stored)
        return ShownValue(name, asked.entry, *held.value(asked.key))
    if asked.entry is not None:
        found = [_entry(source, fmt, asked.entry, name)]
    else:
        found = list(views(source, fmt, start=asked.start, limit=asked.limit))
    if asked.full or asked.entry is not None:
        return ShownEntries(name, tuple(_whole(source, fmt, found, means.stored)), asked.full)
    return ShownEntries(name, tuple(found), asked.full)


def _entry(source: Transcript, fmt: TranscriptFormat, wanted: str, session: str) -> EntryView:
    """The entry by id, else by line number: the first of several with the same id."""
    by_index = wanted.removeprefix("#")
    index = int(by_index) if by_index.isascii() and by_index.isdigit() else None
    at_index = None
    for view in views(source, fmt):
        if view.id == wanted and not wanted.startswith("#"):
            return view
        if view.index == index:
            at_index = view
    if at_index is None:
        hint = f"`bsd show {session}` lists them"
        raise NotFound(f"there is no entry {wanted} in {session}", hint=hint)
    return at_index


def _whole(
    source: Transcript, fmt: TranscriptFormat, found: Sequence[EntryView], stored: Stored
) -> Iterator[WholeEntry]:
    wanted = {view.index: view for view in found}
    for line in source.lines():
        if (view := wanted.get(line.index)) is None:
            continue
        away: dict[str, Any] = {}
        if view.extracted:
            taken = extracted_content(BytesTranscript(line.raw), fmt, "#0", stored)
            away = {"content": taken.content, "unavailable": taken.unavailable}
        known = {one.name: getattr(view, one.name) for one in fields(EntryView)}
        text = line.raw.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
        yield WholeEntry(**known, line=text, **away)


SHOW = Verb(
    name="show",
    arguments=Show,
    answer=Shown,
    query=_query,
    about="""
    📎 marks an entry that values were taken out of. --full prints whole lines, and what was taken
    out of them from the store; --key prints the text of one value and nothing else, to read or to
    pipe. Nothing is put back. ENTRY is an id or a line number; #N is always the line number,
    counted from 0.
    """,
    examples=(
        "bsd show main/4f2a --from 100 --limit 20",
        "bsd show main/4f2a --entry 1c556fa0",
        "bsd show main/4f2a --entry '#45' --full --json",
        "bsd show main/4f2a --entry 1c556fa0 --key output | less",
    ),
)


# --- the outlines of sessions that somebody looks at: kept meanwhile, within bounds ---


MOST_BYTES = 16 << 20


class Outlines:
    """Those asked for last stay; may be called from any thread."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[SessionName, Outline] = OrderedDict()
        self._drawing: dict[SessionName, _Drawing] = {}

    @property
    def memory(self) -> int:
        """About how many bytes they hold."""
        with self._lock:
            return sum(outline.memory for outline in self._kept.values())

    def of(self, name: SessionName, source: TranscriptFile, fmt: TranscriptFormat) -> Outline:
        """The outline of a session as it was opened; reads what is not known of it."""
        with self._alone_with(name):
            known = self._known(name)
            if known is not None and known.is_of(source):
                return known
            begun = known if known is not None and known.is_begun_of(source) else None
            outline = outline_of(source, fmt, begun)
            self._keep(name, outline)
            return outline

    @contextmanager
    def _alone_with(self, name: SessionName) -> Iterator[None]:
        """Two who want the same one shall not read it twice."""
        with self._lock:
            drawing = self._drawing.setdefault(name, _Drawing())
            drawing.wanted_by += 1
        try:
            with drawing.lock:
                yield
        finally:
            with self._lock:
                drawing.wanted_by -= 1
                if not drawing.wanted_by:
                    del self._drawing[name]

    def _known(self, name: SessionName) -> Outline | None:
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
            return self._kept.get(name)

    def _keep(self, name: SessionName, outline: Outline) -> None:
        with self._lock:
            self._kept[name] = outline
            self._kept.move_to_end(name)
            total = sum(each.memory for each in self._kept.values())
            while total > self._most_bytes:
                _, gone = self._kept.popitem(last=False)
                total -= gone.memory


class _Drawing:
    """Somebody reads a session; the others wait for what he finds."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wanted_by = 0
