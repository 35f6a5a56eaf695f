"""What the routes ask about sessions: whoever asks, with which patience, under which name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bsd.care.outlines import Outlines
from bsd.care.trash import Trash
from bsd.foundation.errors import BsdError, Busy, LeftAlone, NotFound
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger, traced
from bsd.foundation.pruning_config import ConfigService
from bsd.session.rest import Patience
from bsd.session.surgeon import Surgeon
from bsd.surgery.result import SessionResult, Status
from bsd.verbs.list_sessions import SearchState

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
    # Does verbs that change something, in another process: verb, session, arguments, actor, wait.
    send: Callable[[str, SessionName | None, Any, str, float], Any] | None = None
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
        )

    def trash(self, actor: str = "api") -> Trash:
        """The trash."""
        return Trash(
            self.layout,
            self.config.current.trash_retention,
            actor=actor,
            patience=self.patience,
        )

    def named(self, agent: str, session: str) -> SessionName:
        """A session that is there; raises Invalid, NotFound, Forbidden."""
        name = SessionName(agent, session)
        if max(len(agent), len(session)) > _LONGEST_NAME:
            raise NotFound("there is no session of so long a name", hint="/api/sessions lists them")
        self.layout.session_file(name)
        return name

    def searched(self) -> SearchState:
        """How far the index of words follows the sessions."""
        if self.search_state is None:
            return SearchState(complete=False, waiting=0, problem="nobody keeps an index here")
        return SearchState(**self.search_state())


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
