"""show_session: one session as the list has it, with the first page of its entries."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar

from bsd.care import catalog
from bsd.care.catalog import children
from bsd.foundation.answers import contract
from bsd.foundation.errors import NotFound
from bsd.foundation.layout import SessionName
from bsd.verbs.list_entries import (
    FIRST_PAGE,
    MOST_ENTRIES,
    Entries,
    EntryRow,
    ListEntries,
    list_entries,
)
from bsd.verbs.list_sessions import SessionInList, listed
from bsd.verbs.verb import Meanwhile, Route, Server, Verb, argument


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


def _act(server: Server, name: SessionName, asked: ShowSession, _: Meanwhile) -> SessionDetail:
    layout = server.layout
    page = Entries((), 0, None)
    if asked.limit:
        page = list_entries(server, name, ListEntries(limit=asked.limit))
    try:
        stat = layout.session_file(name).lstat()
    except FileNotFoundError:
        raise NotFound(f"there is no session {name}", hint="/api/sessions lists them") from None
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
    act=_act,
    route=Route(
        "GET",
        "/api/sessions/{agent}/{session}",
        "session",
        "One session with the first page of its entries; with none it need not be read.",
    ),
)
