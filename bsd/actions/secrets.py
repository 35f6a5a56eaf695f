"""List the keys and passwords in sessions, in their stores and in the archive.

`find_secrets` reads everything in one call, for the command line. `secrets_page` searches for a
moment and returns a cursor. No answer contains a secret: a secret is named by the beginning of its
hash.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.actions.list_sessions import check_agent
from bsd.actions.search import UnreadSession
from bsd.core.answers import OMIT_EMPTY
from bsd.core.errors import BsdError
from bsd.core.layout import SessionName
from bsd.maintenance.scan import ScanPosition
from bsd.maintenance.secret_patterns import rules_version
from bsd.maintenance.secrets import FoundSecret, SecretPlace, SecretSearch
from bsd.maintenance.stored_lines import TextPlace

_PAGE_SECONDS = 0.5  # time for one page of a search


@dataclass(frozen=True, slots=True)
class ListedPlace:
    """One entry that contains a secret."""

    session: str
    entry_id: str | None
    index: Annotated[
        int, Field(description="Line number; for extracted text: at the time of the extraction")
    ]
    where: TextPlace
    keys: Annotated[
        tuple[str, ...],
        Field(description="Paths of the values; empty: the secret is in no value of the entry"),
    ]


@dataclass(frozen=True, slots=True)
class ListedSecret:
    """One secret, and the entries that contain it."""

    hash: Annotated[str, Field(description="The first 16 hex digits of its SHA-256")]
    rule: Annotated[str, Field(description="The rule that found it, by its name in gitleaks")]
    masked: Annotated[str, Field(description="Its first characters and its length")]
    count: Annotated[int, Field(description="Number of entries that contain it")]
    sessions: Annotated[int, Field(description="Number of sessions in `places`")]
    places: tuple[ListedPlace, ...]


@dataclass(frozen=True, slots=True)
class SecretList:
    """The secrets that were found, those in the most entries first."""

    secrets: tuple[ListedSecret, ...]
    places: Annotated[int, Field(description="Sum of `count` over all secrets")]
    rules: Annotated[str, Field(description="The version of gitleaks' rules")]
    scanned: Annotated[int, Field(description="Bytes that were searched")]
    total: Annotated[int, Field(description="Bytes of all text")]
    cursor: Annotated[
        str | None, Field(description="Cursor of the next page, if there is one"), OMIT_EMPTY
    ] = None
    unread: Annotated[tuple[UnreadSession, ...], OMIT_EMPTY] = ()
    unlisted: Annotated[
        int | None,
        Field(description="Entries with further secrets, which are too many to list"),
        OMIT_EMPTY,
    ] = None
    stopped: Annotated[
        bool | None, Field(description="True if the search ended early"), OMIT_EMPTY
    ] = None


def find_secrets(
    context: ActionContext, sessions: Sequence[SessionName] = (), *, agent: str | None = None
) -> SecretList:
    """Find keys and passwords in all text, or in the text of some sessions.

    No data leaves this machine. If `context.stopping()` becomes true, the answer has the secrets
    found so far. The answer names the sessions that cannot be read.

    Args:
        sessions: only these sessions; empty: all.
        agent: only the sessions of this agent.

    Raises:
        NotFound: there is no such agent.
        LeftAlone: a session is excluded.
    """
    layout = context.layout
    if agent is not None:
        check_agent(layout, agent, "`bsd sessions` lists all of them")
    for name in sessions:
        layout.refuse_excluded(name)
    unread: list[UnreadSession] = []
    search = SecretSearch(
        layout,
        agent,
        sessions,
        progress=context.progress,
        stopping=context.stopping,
        failed=lambda name, why: unread.append(_unread(name, why)),
    )
    position = search.run()
    return _listed(search, position, unread, stopped=position.scanned < position.total)


def secrets_page(
    context: ActionContext, *, agent: str | None = None, cursor: str | None = None
) -> SecretList:
    """Search for half a second from `cursor` on; the other arguments are those of `find_secrets`.

    Raises:
        Invalid: the cursor is not valid.
        NotFound: there is no such agent.
    """
    if agent is not None:
        check_agent(context.layout, agent)
    until = time.monotonic() + _PAGE_SECONDS
    unread: list[UnreadSession] = []
    search = SecretSearch(
        context.layout,
        agent,
        stopping=lambda: time.monotonic() >= until,
        failed=lambda name, why: unread.append(_unread(name, why)),
    )
    position = search.run(ScanPosition.loads(cursor) if cursor else None)
    more = position.dumps() if position.scanned < position.total else None
    return _listed(search, position, unread, cursor=more)


def _unread(name: SessionName, why: BsdError) -> UnreadSession:
    return UnreadSession(str(name), why.message, why)


def _listed(
    search: SecretSearch,
    position: ScanPosition,
    unread: Sequence[UnreadSession],
    *,
    cursor: str | None = None,
    stopped: bool = False,
) -> SecretList:
    """Return the secrets of a search as an answer."""
    secrets = sorted(
        map(_secret, search.found.values()), key=lambda each: (-each.count, each.rule, each.hash)
    )
    return SecretList(
        tuple(secrets),
        sum(each.count for each in secrets),
        rules_version(),
        position.scanned,
        position.total,
        cursor,
        tuple(unread),
        search.unlisted or None,
        stopped or None,
    )


def _secret(found: FoundSecret) -> ListedSecret:
    secret = found.secret
    return ListedSecret(
        secret.hash,
        secret.rule,
        secret.masked,
        len(found.places) + found.more,
        len({place.session for place in found.places}),
        tuple(map(_place, found.places)),
    )


def _place(place: SecretPlace) -> ListedPlace:
    return ListedPlace(str(place.session), place.entry_id, place.index, place.where, place.keys)
