"""Questions to the catalogue: search, sessions, hosts. Each reads one page, by key.

A search looks at the newest days first, and at more of them the rarer the words are: a page of
usual words needs no sorting of all that match. Limits of time are constants of each statement, so
that the server opens no partition in vain.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from bsd.core.errors import Invalid, NotFound
from bsd.core.fleet_settings import FleetSettings
from bsd.core.formatting import iso_utc
from bsd.fleet.catalogue.answers import (
    FleetHit,
    FleetHits,
    FleetHost,
    FleetSession,
    FleetSessions,
)
from bsd.fleet.catalogue.connection import (
    connect,
    database_of,
    library,
    transaction,
    translated,
)
from bsd.fleet.catalogue.migrating import read_state, require_readable
from bsd.fleet.catalogue.words import query_of

if TYPE_CHECKING:
    from psycopg import Connection

_T = TypeVar("_T")
_SECONDS = 20  # limit of each statement
_MOST_CONNECTIONS = 4
_MOST_OF_A_PAGE = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = datetime(2010, 1, 1, tzinfo=UTC)  # no entry is older
_DAYS = (2, 8, 32, 128, 512)  # that a search looks at, one after the other, before it reads all
# From this window on, the words are rare: the index of words is read, never that of times.
_RARE = 2


class _Window(NamedTuple):
    """A range of times; the end is exclusive."""

    begin: datetime
    end: datetime
    is_rare: bool


class Catalogue:
    """A catalogue that answers questions; for several threads. Call `close` after use.

    All methods raise TemporaryFailure (not reachable, too slow), Forbidden (password, role),
    ConfigError (no catalogue, or one of another version), Unavailable.
    """

    def __init__(self, settings: FleetSettings) -> None:
        """Prepare questions; `open_catalogue` is the usual constructor."""
        self._settings = settings
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def search(  # noqa: PLR0913 - filters
        self,
        words: str,
        *,
        host: str | None = None,
        agent: str | None = None,
        role: str | None = None,
        tool: str | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> FleetHits:
        """Return the entries that contain all words, the newest first.

        Args:
            words: words, "phrases", beginnings*, and -words that an entry must not contain.
            host: name of a host, or `name~id`.
            agent: only sessions of this agent.
            role: only entries of this role.
            tool: only calls and results of this tool.
            since: epoch seconds; only entries from this time on.
            until: epoch seconds; only entries before this time.
            limit: most entries of a page, 1 to 500.
            after: `next` of the page before.

        Raises:
            Invalid: there is no word, or `after` is none of a page.
            NotFound: there is no such host.
        """
        limit = _checked(limit)
        query, key = query_of(words), _key(after, 3)
        begin = max(_FIRST, _moment(since or 0.0))
        ends = [_at(key[0]) + timedelta(microseconds=1)] if key else []
        if until is not None:
            ends.append(_moment(until))
        where, values = ["e.words @@ to_tsquery('simple', %s)"], [query]
        for column, wanted in (("role", role), ("tool", tool)):
            if wanted is not None:
                where.append(f"e.{column} = %s")
                values.append(wanted)

        def ask(connection: Connection) -> FleetHits:
            conditions, arguments = list(where), list[Any](values)
            if host is not None or agent is not None:
                which, given = _of_sessions(connection, host, agent)
                conditions.append(
                    f"e.session = ANY(ARRAY(SELECT s.id FROM bsd.sessions s WHERE {which}))"  # noqa: S608
                )
                arguments += given
            if key:
                conditions.append("(e.time, e.session, e.line) < (%s, %s, %s)")
                arguments += [_at(key[0]), *key[1:]]
            rows: list[tuple[Any, ...]] = []
            for window in _windows(begin, min([*ends, _latest(connection)])):
                rows += _hits(connection, conditions, arguments, window, limit + 1 - len(rows))
                if len(rows) > limit:
                    break
            return _page_of_hits(connection, words, rows, limit)

        return self._ask(ask)

    def sessions(
        self,
        *,
        host: str | None = None,
        agent: str | None = None,
        directory: str | None = None,
        untouched_seconds: float | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> FleetSessions:
        """Return sessions, the last changed first.

        Args:
            host: as for `search`.
            agent: only sessions of this agent.
            directory: only sessions whose first working directory is this one, or below it.
            untouched_seconds: only sessions that have not changed for so long.
            limit: most sessions of a page, 1 to 500.
            after: `next` of the page before.

        Raises:
            Invalid: `after` is none of a page.
            NotFound: there is no such host.
        """
        limit, key = _checked(limit), _key(after, 2)

        def ask(connection: Connection) -> FleetSessions:
            which, values = _of_sessions(connection, host, agent)
            conditions = [which]
            if directory is not None:
                place = directory.rstrip("/")
                conditions.append("(s.directory = %s OR starts_with(s.directory, %s))")
                values += [place or "/", f"{place}/"]
            if untouched_seconds is not None:
                conditions.append("s.updated < now() - %s * interval '1 second'")
                values.append(untouched_seconds)
            if key:
                conditions.append("(s.updated, s.id) < (%s, %s)")
                values += [_at(key[0]), key[1]]
            rows = connection.execute(
                _SESSIONS.format(where=" AND ".join(conditions)).encode(), [*values, limit + 1]
            ).fetchall()
            further = rows[limit - 1] if len(rows) > limit else None
            return FleetSessions(
                tuple(_session(row) for row in rows[:limit]),
                None if further is None else _as_key(further[8], further[0]),
            )

        return self._ask(ask)

    def hosts(self) -> tuple[FleetHost, ...]:
        """Return all hosts, by name. Hosts of one name are `name` and `name~id`."""

        def ask(connection: Connection) -> tuple[FleetHost, ...]:
            rows = connection.execute(_HOSTS.encode())
            return tuple(
                FleetHost(name, key, version, iso_utc(seen), *numbers)
                for name, key, version, seen, *numbers in rows
            )

        return self._ask(ask)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # --- connections ---

    def _ask(self, question: Callable[[Connection], _T]) -> _T:
        """Ask over an idle connection, or a new one if there is none or it was lost meanwhile."""
        with self._free, translated(self._settings):
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is not None:
                try:
                    with self._returned(connection), transaction(connection, seconds=_SECONDS):
                        return question(connection)
                except library().OperationalError:
                    if not connection.closed:
                        raise
            connection = self._connect()
            with self._returned(connection), transaction(connection, seconds=_SECONDS):
                return question(connection)

    @contextmanager
    def _returned(self, connection: Connection) -> Iterator[None]:
        try:
            yield
        finally:
            if not connection.closed:
                with self._lock:
                    self._idle.append(connection)

    def _connect(self) -> Connection:
        connection = connect(self._settings, " (query)", read_only=True)
        try:
            with transaction(connection, seconds=_SECONDS):
                require_readable(read_state(connection), self._settings)
        except BaseException:
            connection.close()
            raise
        return connection


def open_catalogue(settings: FleetSettings) -> Catalogue:
    """Open the catalogue that the settings name; it connects with the first question.

    Raises:
        ConfigError: the settings name none.
        Unavailable: the library for PostgreSQL is missing.
    """
    database_of(settings)
    return Catalogue(settings)


_SESSIONS = """
SELECT s.id, h.host, s.agent, s.session, s.program, s.title, s.directory, s.created, s.updated,
    s.size, s.entries, s.calls, s.cost, s.saved, s.models, s.deleted_at
FROM bsd.sessions s JOIN bsd.host_names h ON h.id = s.host
WHERE {where}
ORDER BY s.updated DESC, s.id DESC LIMIT %s
"""
_HOSTS = """
SELECT n.host, h.key, h.version, h.last_seen, count(s.id)::int, coalesce(sum(s.size), 0)::bigint,
    h.behind_files, h.behind_bytes, h.behind_seconds, h.errors, h.last_error
FROM bsd.hosts h JOIN bsd.host_names n ON n.id = h.id LEFT JOIN bsd.sessions s ON s.host = h.id
GROUP BY h.id, n.host ORDER BY n.host
"""
_HITS = """
SELECT e.time, e.session, e.line, e.entry, e.role, e.tool, e.size FROM bsd.entries e
WHERE {where} AND e.time >= %s AND e.time < %s
ORDER BY e.time DESC, e.session DESC, e.line DESC LIMIT %s
"""
_TITLES = """
SELECT s.id, h.host, s.agent || '/' || s.session, s.title
FROM bsd.sessions s JOIN bsd.host_names h ON h.id = s.host WHERE s.id = ANY(%s)
"""


def _of_sessions(
    connection: Connection, host: str | None, agent: str | None
) -> tuple[str, list[Any]]:
    """Return a condition for sessions of a host and an agent, and its values."""
    conditions, values = ["true"], list[Any]()
    if host is not None:
        found = connection.execute(
            "SELECT id FROM bsd.hosts WHERE name = %s OR name || '~' || key = %s", (host, host)
        ).fetchall()
        if not found:
            raise NotFound(f"the catalogue has no host {host}", hint="bsd fleet status")
        conditions.append("s.host = ANY(%s)" if len(found) > 1 else "s.host = %s")
        values.append([id_ for (id_,) in found] if len(found) > 1 else found[0][0])
    if agent is not None:
        conditions.append("s.agent = %s")
        values.append(agent)
    return " AND ".join(conditions), values


def _windows(begin: datetime, end: datetime) -> Iterator[_Window]:
    """Yield ranges of times, the newest first, each longer than the one before."""
    for number, days in enumerate((*_DAYS, None)):
        if end <= begin:
            return
        start = begin if days is None else max(begin, end - timedelta(days=days))
        yield _Window(start, end, number >= _RARE)
        end = start


def _hits(
    connection: Connection,
    conditions: Sequence[str],
    values: Sequence[Any],
    window: _Window,
    limit: int,
) -> list[tuple[Any, ...]]:
    if window.is_rare:
        connection.execute("SET LOCAL enable_indexscan = off")
        connection.execute("SET LOCAL enable_seqscan = off")
    return connection.execute(
        _HITS.format(where=" AND ".join(conditions)).encode(),
        [*values, window.begin, window.end, limit],
    ).fetchall()


def _page_of_hits(
    connection: Connection, words: str, rows: list[tuple[Any, ...]], limit: int
) -> FleetHits:
    further = rows[limit - 1] if len(rows) > limit else None
    rows = rows[:limit]
    known = {
        id_: told for id_, *told in connection.execute(_TITLES, (list({row[1] for row in rows}),))
    }
    hits = []
    for time, session, line, entry, role, tool, size in rows:
        if session in known:  # else it was removed meanwhile
            host, name, title = known[session]
            hits.append(
                FleetHit(host, name, line, entry, iso_utc(time), role, tool, size, title),
            )
    return FleetHits(words, tuple(hits), _as_key(*further[:3]) if further else None)


def _session(row: tuple[Any, ...]) -> FleetSession:
    _, host, agent, session, program, title, directory, created, updated, *rest = row
    size, entries, calls, cost, saved, models, deleted = rest
    return FleetSession(
        host=host,
        session=f"{agent}/{session}",
        agent=agent,
        program=program,
        title=title,
        directory=directory,
        created=created and iso_utc(created),
        updated=iso_utc(updated),
        size=size,
        entries=entries,
        calls=calls,
        cost=cost,
        saved=saved,
        models=tuple(models),
        deleted_at=deleted and iso_utc(deleted),
    )


def _checked(limit: int) -> int:
    if not 1 <= limit <= _MOST_OF_A_PAGE:
        raise Invalid(f"a page of {limit} is not possible", hint=f"1 to {_MOST_OF_A_PAGE}")
    return limit


# --- times and keys ---


def _as_key(time: datetime, *numbers: int) -> str:
    """Return the key of a row: microseconds since 1970, and the numbers that follow."""
    return ".".join(map(str, ((time - _EPOCH) // timedelta(microseconds=1), *numbers)))


def _key(after: str | None, length: int) -> list[int] | None:
    if after is None:
        return None
    try:
        key = [int(part) for part in after.split(".")]
        _at(key[0])
    except (ValueError, OverflowError):
        key = []
    if len(key) != length or any(not 0 <= part < 1 << 31 for part in key[1:]):
        raise Invalid(
            f"{after!r:.80} is not the end of a page", hint="pass `next` of the last page"
        )
    return key


def _at(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _moment(time: float) -> datetime:
    return _EPOCH + timedelta(seconds=min(max(time, 0.0), 4e9))


def _latest(connection: Connection) -> datetime:
    """Return a time after all entries: none is more than a day ahead of the server's clock."""
    row = connection.execute("SELECT now() + interval '2 days'").fetchone()
    latest: datetime = row[0] if row else _FIRST
    return latest
