"""What the routes ask about sessions: whoever asks, with which patience, under which name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bsd.agents.marker import EXTRACTABLE, RESTORED, Marker
from bsd.care import catalog, summary
from bsd.care.search import FindText, by_title, search_as_it_is
from bsd.care.trash import Trash
from bsd.doors.http.entry_page import EntryFilter, entry_page
from bsd.doors.http.listing import Filter, check_agent, described, page
from bsd.doors.http.outlines import Outlines
from bsd.foundation.errors import BsdError, Busy, LeftAlone, NotFound
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger, traced
from bsd.foundation.pruning_config import ConfigService
from bsd.session.commit.exchangers import Exchanger
from bsd.session.operate import Noticed
from bsd.session.rest import Patience
from bsd.session.session import Session
from bsd.session.surgeon import Surgeon
from bsd.surgery.locate import locate
from bsd.surgery.result import SessionResult, Status

_log = get_logger("api")

# Nobody waits for an answer longer than this because a session is in use.
WAIT_SECONDS = 5.0
# A file name may have 255 bytes; the longest one of a session ends in `.jsonl.bsd-…`.
_LONGEST_NAME = 240
_LONGEST_ENTRY = 1000  # characters


@traced(_log)
@dataclass(frozen=True, slots=True)
class Desk:
    """Everything that work on sessions needs, for whoever comes through the API."""

    layout: Layout
    config: ConfigService
    patience: Patience = field(default_factory=lambda: Patience(wait=WAIT_SECONDS))
    exchanger: Exchanger | None = None
    noticed: Noticed | None = None
    find_text: FindText | None = None
    cleaned: Callable[[], None] = lambda: None  # told when something was deleted for good
    outlines: Outlines = field(default_factory=Outlines)
    search_state: Callable[[], dict[str, Any]] | None = None  # `bsd.daemon.status`

    def surgeon(self, actor: str = "api") -> Surgeon:
        """Whoever does it."""
        return Surgeon(
            self.layout,
            self.config,
            actor=actor,
            patience=self.patience,
            exchanger=self.exchanger,
            noticed=self.noticed,
        )

    def trash(self, actor: str = "api") -> Trash:
        """The trash."""
        return Trash(
            self.layout,
            self.config.current.trash_retention,
            actor=actor,
            patience=self.patience,
            exchanger=self.exchanger,
        )

    def named(self, agent: str, session: str) -> SessionName:
        """A session that is there; raises Invalid, NotFound, Forbidden."""
        name = SessionName(agent, session)
        if max(len(agent), len(session)) > _LONGEST_NAME:
            raise NotFound("there is no session of so long a name", hint="/api/sessions lists them")
        self.layout.session_file(name)
        return name

    def describe(self, name: SessionName) -> dict[str, Any]:
        """One session as the list shows it."""
        try:
            stat = self.layout.session_file(name).lstat()
        except FileNotFoundError:
            raise NotFound(f"there is no session {name}", hint="/api/sessions lists them") from None
        info = catalog.describe(self.layout, name, stat)
        return described(self.layout, [info], self.patience.clock())[0]

    def page(self, wanted: Filter, limit: int, cursor: str | None) -> dict[str, Any]:
        """{sessions, next, search}; with words `search` tells how far their text is known."""
        now = self.patience.clock()
        found = page(self.layout, wanted, limit, cursor, self.find_text, now)
        problem = found.pop("problem")
        return found | {"search": self.searched(problem) if wanted.words else None}

    def search(self, words: str, agent: str | None, limit: int) -> dict[str, Any]:
        """{query, results, search}: the best entries with all the words, in what is indexed."""
        if agent is not None:
            check_agent(self.layout, agent)
        hits = search_as_it_is(self.layout, words, agent=agent, limit=limit)
        called = by_title(
            self.layout, words, agent=agent, limit=limit, but={hit.session for hit in hits}
        )
        return {
            "query": words,
            "sessions": [{"session": str(name), "title": title} for name, title in called],
            "results": [hit.as_json() for hit in hits],
            "search": self.searched(),
        }

    def searched(self, problem: str | None = None) -> dict[str, Any]:
        """How far the index of words follows the sessions."""
        state = {"complete": False, "waiting": 0, "problem": "nobody keeps an index here"}
        if self.search_state:
            state = self.search_state()
        return state | ({"problem": problem} if problem else {})

    def summary(self, name: SessionName) -> dict[str, Any]:
        """What a session was about."""
        return summary.document(name, summary.summarize(self.layout, name), self.patience.clock())

    def entries(self, name: SessionName, wanted: EntryFilter) -> dict[str, Any]:
        """{entries, next, previous}: one page of a session's entries."""
        return entry_page(self.layout, name, self.outlines, wanted)

    def meta(self, name: SessionName, entry: str) -> dict[str, Any]:
        """What bsd and people have noted on an entry."""
        source, fmt = Session(self.layout, name).open()
        with source:
            located = locate(source, fmt, entry, header=True)
        marker = Marker.of(located.entry)
        return {
            "entry_id": located.facts.id,
            "index": located.line.index,
            EXTRACTABLE: located.entry.get(EXTRACTABLE),
            RESTORED: located.entry.get(RESTORED),
            "extracted": bool(marker and marker.keys),
            "keys": list(marker.keys) if marker else [],
        }


def entry_name(entry: str) -> str:
    """An entry as somebody names it; raises NotFound for what no entry can be called."""
    if len(entry) > _LONGEST_ENTRY:
        raise NotFound("there is no entry of so long a name")
    if entry.startswith("#") and not entry.isascii():  # digits of other scripts
        raise NotFound(f"there is no entry {entry}")
    return entry


def trash_name(id: str) -> str:
    """An id of the trash as somebody names it; raises NotFound for what none can be."""
    if len(id) > _LONGEST_NAME or "/" in id:
        raise NotFound("there is nothing of this name in the trash", hint="/api/trash lists it")
    return id


def raise_unless_done(result: SessionResult) -> None:
    """Raise Busy, LeftAlone, or what it failed of, unless that was done which was asked for."""
    reason = result.reason or f"{result.session}: {result.status}"
    match result.status:
        case Status.BUSY:
            raise Busy(reason, hint=result.hint)
        case Status.LEFT_ALONE:
            raise LeftAlone(reason, hint=result.hint)
        case Status.FAILED:
            # A full disk is not a missing right: each error has its own status.
            raise (result.error or BsdError)(reason, hint=result.hint)
