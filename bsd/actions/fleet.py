"""Sessions of all machines that share a catalogue: a list, and a search in all of them.

Nothing here is for agents: an agent reaches the sessions of its own machine only.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.core.errors import BsdError, ConfigError, Invalid
from bsd.core.fleet_settings import FleetSettings
from bsd.core.formatting import MINUTE, WEEK, parse_duration
from bsd.core.layout import Layout, SessionName
from bsd.fleet.catalogue.answers import FleetHit, FleetSession
from bsd.fleet.catalogue.queries import Catalogue, open_catalogue
from bsd.fleet.host import this_host
from bsd.maintenance.deleted_sessions import is_deleted

EVERY_HOST = "*"
SEARCHED_ROLES = ("user", "assistant")  # the catalogue has no words of tools' results
_LONGEST_AGE = 5200 * WEEK  # milliseconds
BEGIN = "contrib/docs/fleet.md says how to begin; `[fleet]` of bsd.toml has the settings"

Here = Annotated[bool, Field(description="True if it is a session of this machine")]
Command = Annotated[
    str, Field(description="The command that shows it here, or brings it back to this machine")
]
Next = Annotated[str | None, Field(description="`after` of the next page, if there is one")]


class NoCatalogue(ConfigError):
    """The settings name no database."""

    status = 404


@dataclass(frozen=True, slots=True)
class SessionOnHost(FleetSession):
    """A session of any host, and how to get it."""

    here: Here
    command: Command


@dataclass(frozen=True, slots=True)
class SessionsOnHosts:
    """A page of sessions, the last changed first."""

    sessions: tuple[SessionOnHost, ...]
    next: Next


@dataclass(frozen=True, slots=True)
class EntryOnHost(FleetHit):
    """An entry of any host that contains all the words, and how to get it."""

    here: Here
    gone: Annotated[
        bool, Field(description="True if it is of a session here that its program has deleted")
    ]
    command: Command


@dataclass(frozen=True, slots=True)
class FoundOnHosts:
    """A page of entries that contain all the words, the newest first."""

    query: str
    results: tuple[EntryOnHost, ...]
    next: Next


@dataclass(frozen=True, slots=True)
class FleetFilter:
    """Conditions that an entry must meet; None: no condition."""

    host: str | None = None  # `NAME` or `NAME~ID`; `*`: no condition
    agent: str | None = None
    role: str | None = None  # one of `SEARCHED_ROLES`
    tool: str | None = None  # only calls of this tool
    since: float | None = None  # epoch seconds; earliest time
    until: float | None = None  # epoch seconds; entries from this time on are left out


NO_CONDITION = FleetFilter()


def search_fleet(
    context: ActionContext,
    words: str,
    wanted: FleetFilter = NO_CONDITION,
    *,
    limit: int = 20,
    after: str | None = None,
) -> FoundOnHosts:
    """Find the entries of all hosts that contain all the words, the newest first.

    The catalogue has the words of users and assistants, names of tools, and paths in their calls.

    Args:
        words: words, "phrases", beginnings*, and -words that an entry must not contain.
        wanted: conditions that entries must meet.
        after: `next` of the page before.

    Raises:
        NoCatalogue: the settings name no database.
        Invalid: there are no words, or a filter is not valid.
        BsdError: the database cannot be used.
    """
    if not words.strip():
        raise Invalid("no words to search for", hint='bsd search --fleet "two words" another')
    with _catalogue(context.fleet) as catalogue:
        page = catalogue.search(
            words,
            host=_only(wanted.host),
            agent=wanted.agent,
            role=wanted.role,
            tool=wanted.tool,
            since=wanted.since,
            until=wanted.until,
            limit=limit,
            after=after,
        )
    commands = _Commands(context)
    results = tuple(
        EntryOnHost(
            **asdict(hit),
            here=commands.is_here(hit.host),
            gone=commands.is_gone(hit.host, hit.session),
            command=commands.of(hit.host, hit.session, hit.entry or str(hit.line)),
        )
        for hit in page.results
    )
    return FoundOnHosts(page.query, results, page.next)


def list_fleet_sessions(
    context: ActionContext,
    *,
    host: str | None = None,
    agent: str | None = None,
    directory: str | None = None,
    untouched: str | None = None,
    limit: int = 50,
    after: str | None = None,
) -> SessionsOnHosts:
    """List the sessions of all hosts, the last changed first.

    Args:
        host: only of this host; None or `*`: of all.
        directory: only sessions that began in this directory.
        untouched: only sessions that have not changed for so long: `12h`, `30d`.
        after: `next` of the page before.

    Raises:
        NoCatalogue: the settings name no database.
        Invalid: a filter is not valid.
        BsdError: the database cannot be used.
    """
    age = None
    if untouched is not None:
        age = parse_duration(untouched, minimum=MINUTE, maximum=_LONGEST_AGE) / 1000
    with _catalogue(context.fleet) as catalogue:
        page = catalogue.sessions(
            host=_only(host),
            agent=agent,
            directory=directory,
            untouched_seconds=age,
            limit=limit,
            after=after,
        )
    commands = _Commands(context)
    sessions = tuple(
        SessionOnHost(
            **asdict(row),
            here=commands.is_here(row.host),
            command=commands.of(row.host, row.session),
        )
        for row in page.sessions
    )
    return SessionsOnHosts(sessions, page.next)


@contextmanager
def _catalogue(settings: FleetSettings) -> Iterator[Catalogue]:
    if settings.database is None:
        raise NoCatalogue("this machine has no catalogue of several machines", hint=BEGIN)
    with closing(open_catalogue(settings)) as catalogue:
        yield catalogue


def _only(host: str | None) -> str | None:
    return None if host == EVERY_HOST else host


class _Commands:
    """The commands that show sessions of this machine, and bring back those of others."""

    def __init__(self, context: ActionContext) -> None:
        self._layout: Layout = context.layout
        # Lists call a host `HOST~ID` if another one has the same name.
        self._names = {context.fleet.host}
        with suppress(BsdError):  # without an id, the name alone counts
            self._names.add(str(this_host(context.layout, context.fleet)))

    def is_here(self, host: str) -> bool:
        return host in self._names

    def of(self, host: str, session: str, entry: str | None = None) -> str:
        """Return the command for a session; names come from other machines, so they are quoted."""
        if not self.is_here(host):
            return f"bsd archive bring-back {shlex.quote(f'{host}:{session}')}"
        if self.is_gone(host, session):
            return f"bsd archive show {shlex.quote(session)}"
        return shlex.join(["bsd", "show", session, *([entry] if entry is not None else [])])

    def is_gone(self, host: str, session: str) -> bool:
        """Return True if it is a session of this machine that its program has deleted."""
        with suppress(BsdError):
            return self.is_here(host) and is_deleted(self._layout, SessionName.parse(session))
        return False
