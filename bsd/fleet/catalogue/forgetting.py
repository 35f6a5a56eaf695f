"""Removes sessions and entries from the catalogue so that no word of them is left in its files.

A deleted row stays in the files of PostgreSQL until it is vacuumed, and the index of words keeps
its words even then. So the tables that had such rows are written anew. PostgreSQL's own log of
changes and its backups keep the words until they expire.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from bsd.bucket.objects import open_bucket
from bsd.core.errors import BsdError
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout, SessionName
from bsd.fleet.catalogue.connection import connected, library, transaction
from bsd.fleet.catalogue.migrating import require_writable
from bsd.fleet.tombstones import read_tombstones
from bsd.store.tombstone import Tombstone, store_hash

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.errors import Diagnostic

_log = structlog.stdlib.get_logger(module="fleet")
_WITH_TITLES = {"bsd.sessions", "bsd.watermarks"}
_SECONDS = 1800.0  # limit of writing a partition anew


@dataclass(frozen=True, slots=True)
class ForgottenRows:
    """The removed rows; `left`: tables whose files still hold the words, each with the reason."""

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
    with connected(settings) as connection:
        require_writable(connection, settings)
        forgetting = _Forgetting(connection)
        with transaction(connection, seconds=_SECONDS):
            forgetting.forget_lines(hashes)
            if session is not None:
                forgetting.forget(_ids_of(connection, session, host), entry)
        return forgetting.finish()


def obey_tombstones(settings: FleetSettings, tombstones: Iterable[Tombstone]) -> ForgottenRows:
    """Delete the rows that tombstones name from the catalogue; raises as `forget_rows`.

    A session that began after a tombstone was written is another one, and stays.
    """
    with connected(settings) as connection:
        require_writable(connection, settings)
        forgetting = _Forgetting(connection)
        with transaction(connection, seconds=_SECONDS):
            rows = connection.execute(
                "SELECT id, agent, session, coalesce(extract(epoch FROM created)::float8, 0)"
                " FROM bsd.sessions"
            ).fetchall()
            stores: dict[str, list[tuple[int, float]]] = {}
            for id_, agent, session, created in rows:
                store = Layout(Path("/")).store_name(SessionName(agent, session))
                stores.setdefault(store_hash(store), []).append((id_, created))
            for each in tombstones:
                forgetting.forget_lines(
                    [bytes.fromhex(hash_.removeprefix("sha256:")) for hash_ in each.hashes]
                )
                ids = [id_ for id_, created in stores.get(each.store, ()) if created <= each.at]
                if not each.lines:
                    forgetting.forget(ids, each.entry)
        return forgetting.finish()


def obey_bucket(settings: FleetSettings) -> tuple[str, ...]:
    """Delete the rows that tombstones in the bucket name, each tombstone once for all hosts.

    A host calls this before it writes its rows.

    Returns:
        What could not be read, or is still in files of the database, each with the reason.

    Raises:
        Errors of `bsd/bucket/errors.py` and of `forget_rows`.
    """
    bucket = open_bucket(settings)
    with connected(settings) as connection:
        require_writable(connection, settings)
        with transaction(connection):
            obeyed = [name for (name,) in connection.execute("SELECT object FROM bsd.tombstones")]
    problems, names, tombstones = list[str](), list[str](), list[Tombstone]()
    for name, read in read_tombstones(bucket, obeyed):
        if isinstance(read, BsdError):
            problems.append(read.message)
        else:
            names.append(name)
            tombstones += read.tombstones
    if names:
        problems += obey_tombstones(settings, tombstones).left
        with connected(settings) as connection, transaction(connection):
            connection.execute(
                "INSERT INTO bsd.tombstones (object) SELECT unnest(%s::text[])"
                " ON CONFLICT DO NOTHING",
                (names,),
            )
    return tuple(problems)


class _Forgetting:
    """Deletes rows, and then writes the tables anew that held them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tables: set[str] = set()
        self._entries = self._sessions = 0

    def forget_lines(self, hashes: Collection[bytes]) -> None:
        """Delete the entries with these stored lines, of all sessions."""
        if hashes:
            rows = self._connection.execute(
                "DELETE FROM bsd.entries WHERE stored = ANY(%s)"
                " RETURNING tableoid::regclass::text, session",
                (list(hashes),),
            ).fetchall()
            self._note([table for table, _ in rows])
            self._forget_titles([session for _, session in rows])

    def forget(self, ids: list[int], entry: str | None) -> None:
        """Delete an entry of sessions, or the sessions."""
        if not ids:
            return
        rows = self._connection.execute(
            "DELETE FROM bsd.entries WHERE session = ANY(%s)"
            " AND (%s::text IS NULL OR entry = %s) RETURNING tableoid::regclass::text",
            (ids, entry, entry),
        ).fetchall()
        self._note([table for (table,) in rows])
        if entry is not None:
            self._forget_titles(ids)
            return
        self._tables |= _WITH_TITLES
        self._sessions += self._connection.execute(
            "DELETE FROM bsd.sessions WHERE id = ANY(%s)", (ids,)
        ).rowcount

    def finish(self) -> ForgottenRows:
        """Write the tables anew, after the transaction."""
        left = tuple(_write_anew(self._connection, sorted(self._tables)))
        for each in left:
            _log.warning("Forgotten words are still in files of the database", problem=each)
        return ForgottenRows(self._entries, self._sessions, left)

    def _note(self, tables: list[str]) -> None:
        self._entries += len(tables)
        self._tables |= set(tables)

    def _forget_titles(self, ids: list[int]) -> None:
        """Remove titles, and have the sessions read anew, since watermarks hold titles, too."""
        if not ids:
            return
        self._tables |= _WITH_TITLES
        self._connection.execute("UPDATE bsd.sessions SET title = NULL WHERE id = ANY(%s)", (ids,))
        self._connection.execute(
            "UPDATE bsd.watermarks SET file = '{}', read_to = 0, lines = 0, guard = '',"
            " state = '', stale = true, revision = revision + 1 WHERE session = ANY(%s)",
            (ids,),
        )


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


def _write_anew(connection: Connection, tables: list[str]) -> list[str]:
    """Write tables and their indexes anew; return those for which that is not possible now."""
    errors = library().errors
    left = []
    for table in tables:
        try:
            with transaction(connection, seconds=_SECONDS):
                seen = _cluster(connection, table)
        except errors.InsufficientPrivilege as error:
            left.append(f"{table}: {error.diag.message_primary}")
        except (errors.LockNotAvailable, errors.QueryCanceled, errors.DeadlockDetected):
            left.append(f"{table}: it is in use; run VACUUM (FULL) {table} later")
        else:
            if seen:
                left.append(
                    f"{table}: a transaction that began before still sees {seen} of the rows; end"
                    f" it, then run VACUUM (FULL) {table}"
                )
    return left


def _cluster(connection: Connection, table: str) -> int:
    """Write a table anew; return how many deleted rows it still has for older transactions.

    CLUSTER does what VACUUM (FULL) does, but within a transaction and its limits of time.
    """
    (key,) = connection.execute(
        "SELECT quote_ident(c.relname) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " WHERE i.indrelid = %s::regclass AND i.indisprimary",
        (table,),
    ).fetchone() or ("",)
    said: list[str] = []  # in the server's language

    def note(notice: Diagnostic) -> None:
        said.append(notice.message_detail or "")

    connection.add_notice_handler(note)
    try:
        connection.execute(f"CLUSTER VERBOSE {table} USING {key}".encode())
    finally:
        connection.remove_notice_handler(note)
    connection.execute(f"ANALYZE {table}".encode())
    return next((int(found[0]) for each in said if (found := re.search(r"\d+", each))), 0)
