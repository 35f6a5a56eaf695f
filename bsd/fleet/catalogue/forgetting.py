"""Removes sessions and entries from the catalogue so that no word of them is left in its files.

A deleted row stays in the files of PostgreSQL until it is vacuumed, and the index of words keeps
its words even then. So the tables that had such rows are written anew. PostgreSQL's own log of
changes and its backups keep the words until they expire.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import SessionName
from bsd.fleet.catalogue.connection import connected, library
from bsd.fleet.catalogue.migrating import require_writable

if TYPE_CHECKING:
    from psycopg import Connection

_log = structlog.stdlib.get_logger(module="fleet")
_SECONDS = 1800.0  # limit of writing a partition anew


@dataclass(frozen=True, slots=True)
class ForgottenRows:
    """What was removed; `left`: tables that still hold the words in their files, each with why."""

    entries: int
    sessions: int
    left: tuple[str, ...] = ()


def forget_rows(
    settings: FleetSettings,
    *,
    session: SessionName | None,
    entry: str | None,
    hashes: Collection[bytes],
    host: tuple[str, str] | None = None,
) -> ForgottenRows:
    """Delete a session or an entry, on all hosts, and all entries with these stored lines.

    Titles of sessions that lose an entry are removed, since they may come from it; each host writes
    its sessions' titles again with the next run.

    Args:
        settings: with the database.
        session: the session; None: only the hashes count.
        entry: id of the entry in it; None: the whole session.
        hashes: SHA-256 of stored lines.
        host: name and id of the only host that has the session; the hashes count on all.

    Raises:
        TemporaryFailure, Unavailable, Forbidden, ConfigError.
    """
    with connected(settings, seconds=_SECONDS) as connection:
        require_writable(connection, settings)
        with connection.transaction():
            tables: set[str] = set()
            entries = sessions = 0
            touched: set[int] = set()
            if hashes:
                rows = connection.execute(
                    "DELETE FROM bsd.entries WHERE stored = ANY(%s)"
                    " RETURNING tableoid::regclass::text, session",
                    (list(hashes),),
                ).fetchall()
                entries += len(rows)
                tables |= {table for table, _ in rows}
                touched |= {id_ for _, id_ in rows}
            if session is not None:
                ids = _ids_of(connection, session, host)
                rows = connection.execute(
                    "DELETE FROM bsd.entries WHERE session = ANY(%s)"
                    " AND (%s::text IS NULL OR entry = %s) RETURNING tableoid::regclass::text",
                    (ids, entry, entry),
                ).fetchall()
                entries += len(rows)
                tables |= {table for (table,) in rows}
                touched |= set(ids)
                if entry is None:
                    sessions = connection.execute(
                        "DELETE FROM bsd.sessions WHERE id = ANY(%s)", (ids,)
                    ).rowcount
                    touched -= set(ids)
                if ids:
                    tables |= {"bsd.sessions", "bsd.watermarks"}
            if touched:
                _forget_titles(connection, list(touched))
                tables |= {"bsd.sessions", "bsd.watermarks"}
        left = tuple(_write_anew(connection, sorted(tables)))
    for each in left:
        _log.warning("Forgotten words are still in files of the database", problem=each)
    return ForgottenRows(entries, sessions, left)


def _ids_of(
    connection: Connection, session: SessionName, host: tuple[str, str] | None
) -> list[int]:
    name, key = host or (None, None)
    rows = connection.execute(
        "SELECT s.id FROM bsd.sessions s JOIN bsd.hosts h ON h.id = s.host WHERE s.agent = %s"
        " AND s.session = %s AND (%s::text IS NULL OR (h.name = %s AND h.key = %s))",
        (session.agent, session.session, name, name, key),
    )
    return [id_ for (id_,) in rows]


def _forget_titles(connection: Connection, ids: list[int]) -> None:
    """Remove titles, and have the sessions read anew, since watermarks hold titles, too."""
    connection.execute("UPDATE bsd.sessions SET title = NULL WHERE id = ANY(%s)", (ids,))
    connection.execute(
        "UPDATE bsd.watermarks SET file = '{}', read_to = 0, lines = 0, guard = '', state = '',"
        " stale = true, revision = revision + 1 WHERE session = ANY(%s)",
        (ids,),
    )


def _write_anew(connection: Connection, tables: list[str]) -> list[str]:
    """Write tables and their indexes anew; return those for which that is not possible now."""
    errors = library().errors
    left = []
    for table in tables:
        try:
            connection.execute(f"VACUUM (FULL, ANALYZE) {table}".encode())
        except errors.InsufficientPrivilege as error:
            left.append(f"{table}: {error.diag.message_primary}")
        except (errors.LockNotAvailable, errors.QueryCanceled):
            left.append(f"{table}: it is in use; run VACUUM (FULL) {table} later")
    return left
