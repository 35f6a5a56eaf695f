"""OpenClaw's database of an agent: `agents/<agent>/agent/openclaw-agent.sqlite`.

OpenClaw keeps sessions there from 2026.8 on. An event is a row of `transcript_events`: a line of
the format that `format` reads, as text or compressed. A session that OpenClaw has moved to cold
storage is one compressed file in `sessions/cold/`, or a value in the database.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from bsd.core.errors import Unavailable
from bsd.core.files import plain_file
from bsd.core.zstd import zstd
from bsd.transcripts.agents.database import (
    BATCH_BYTES,
    DatabaseFill,
    ImportedFile,
    SessionDatabase,
    SessionVersion,
    columns_of,
    shared_database,
    tables_of,
    text_in,
)
from bsd.transcripts.agents.format import in_short
from bsd.transcripts.agents.program import Registered, Registry
from bsd.transcripts.reader import parse_entry

FILE = "agent/openclaw-agent.sqlite"
NEWEST_SCHEMA = 23  # OpenClaw 2026.9.6
_LARGEST_COMPRESSED = 4 << 20  # OpenClaw compresses no larger event
_LARGEST_COLD = 256 << 20  # OpenClaw's limit is 64 MB

_EVENTS = "transcript_events"
# Few calls need this module, which imports this one.
_BESIDE = "bsd.transcripts.agents.openclaw.imported"
_REQUIRED = {"session_id", "seq", "event_json", "created_at"}
_LISTED = {
    *("session_key", "current_session_id", "status", "parent_session_key"),
    *("fork_source_session_id", "spawned_by", "label", "display_name"),
}
_NODES = (
    "SELECT session_key, current_session_id, status, parent_session_key, fork_source_session_id,"
    " spawned_by, label, display_name FROM session_nodes"
)
_COMPRESSED = "event_zstd"  # the column that older schemas lack
_COLD = "cold "  # begins the token of a session in cold storage

_OF_A_SESSION = " FROM transcript_events WHERE session_id = ? AND seq > ? AND seq <= ? ORDER BY seq"
# octet_length would be quicker, but SQLite has it only from 3.43 on.
_PLAIN_SIZES = "SELECT seq, length(CAST(event_json AS BLOB))" + _OF_A_SESSION
_SIZES = (
    "SELECT seq, coalesce(length(CAST(event_json AS BLOB)),"
    " CASE WHEN event_utf8_bytes BETWEEN 1 AND 4194304 THEN event_utf8_bytes END)" + _OF_A_SESSION
)
_PLAIN_ROWS = "SELECT seq, CAST(event_json AS BLOB), NULL, NULL" + _OF_A_SESSION
_ROWS = "SELECT seq, CAST(event_json AS BLOB), event_zstd, event_utf8_bytes" + _OF_A_SESSION


class OpenClawDatabase(SessionDatabase):
    """The sessions of one agent of OpenClaw."""

    left_alone = "no other program than OpenClaw may write to it"

    def find_problem(self, connection: sqlite3.Connection) -> str | None:
        columns = columns_of(connection, _EVENTS)
        if "schema_meta" in tables_of(connection):
            row = connection.execute("SELECT max(schema_version) FROM schema_meta").fetchone()
            if row is not None and isinstance(row[0], int) and row[0] > NEWEST_SCHEMA:
                return (
                    f"{self.path} has schema {row[0]}, and this bsd knows schemas up to"
                    f" {NEWEST_SCHEMA}: update bsd"
                )
        if missing := _REQUIRED - columns:
            names = ", ".join(sorted(missing))
            return f"{self.path} has a schema that bsd does not know: {_EVENTS} has no {names}"
        return None

    def versions(self, connection: sqlite3.Connection) -> Iterator[SessionVersion]:
        tables = tables_of(connection)
        generations: dict[bytes, bytes] = {}
        if "transcript_rewrite_watermarks" in tables:
            query = "SELECT session_id, generation FROM transcript_rewrite_watermarks"
            generations = dict(connection.execute(query).fetchall())
        cold: dict[bytes, tuple[bytes, int, int]] = {}
        if "session_transcript_cold_archives" in tables:
            query = (
                "SELECT session_id, archive_sha256, last_seq, archived_at"
                " FROM session_transcript_cold_archives"
            )
            cold = {
                session: (digest, last, at)
                for session, digest, last, at in connection.execute(query)
                if isinstance(last, int)
            }
        newest = "SELECT session_id, max(seq) FROM transcript_events GROUP BY session_id"
        at = "SELECT created_at FROM transcript_events WHERE session_id = ? AND seq = ?"
        for session, last in connection.execute(newest).fetchall():
            if session not in cold and isinstance(last, int):
                name, token = text_in(session), text_in(generations.get(session))
                row = connection.execute(at, (name, last)).fetchone()
                yield SessionVersion(name, last, token, _milliseconds(row and row[0]))
        for session, (digest, last, archived_at) in cold.items():
            token = f"{_COLD}{text_in(digest)}"
            yield SessionVersion(text_in(session), last, token, _milliseconds(archived_at))

    def read_list(self, connection: sqlite3.Connection) -> Registry:
        if not columns_of(connection, "session_nodes") >= _LISTED:
            return Registry()
        rows = connection.execute(_NODES).fetchall()
        session_of = {text_in(row[0]): text_in(row[1]) for row in rows}
        return Registry(
            Registered(
                text_in(key),
                session_id=text_in(session) or None,
                session_file=None,
                status=text_in(status) or None,
                parent=text_in(origin) or session_of.get(text_in(parent)),
                title=in_short(text_in(label) or text_in(name)),
                started_by=text_in(spawned_by) or None,
            )
            for key, session, status, parent, origin, spawned_by, label, name in rows
        )

    def fills(self) -> Iterator[DatabaseFill]:
        return import_module(_BESIDE).fills(self)  # type: ignore[no-any-return]

    def imported(self) -> Iterator[ImportedFile]:
        return import_module(_BESIDE).imported_files(self)  # type: ignore[no-any-return]

    def running(self, session: str) -> str | None:
        """Return why a session counts as in use; None if it does not."""
        for record in self.registry().find(session):
            if record.status == "running":
                return f"OpenClaw's database says that {record.key} is running"
        return None

    def measure(
        self, connection: sqlite3.Connection, version: SessionVersion, after: int | None
    ) -> int:
        if version.token.startswith(_COLD):
            try:
                return sum(map(len, self._cold_lines(connection, version)))
            except Unavailable:  # `lines` tells it, of this session alone
                return 0
        query = _SIZES if _COMPRESSED in columns_of(connection, _EVENTS) else _PLAIN_SIZES
        rows = _in_batches(connection, query, version, after, lambda row: row[1] or 0)
        return sum(size + 1 for _, size in rows if size is not None)

    def lines(self, connection: sqlite3.Connection, version: SessionVersion) -> Iterator[bytes]:
        if version.token.startswith(_COLD):
            yield from self._cold_lines(connection, version)
            return
        query = _ROWS if _COMPRESSED in columns_of(connection, _EVENTS) else _PLAIN_ROWS

        def size_of(row: Any) -> int:
            return len(row[1] or b"") + (row[3] if isinstance(row[3], int) else 0)

        for _, event, packed, size in _in_batches(connection, query, version, None, size_of):
            text = _unpacked(packed, size) if event is None else event
            if text is not None:
                yield _line(text)

    def _cold_lines(
        self, connection: sqlite3.Connection, version: SessionVersion
    ) -> Iterator[bytes]:
        query = (
            "SELECT archive_name, archive_blob FROM session_transcript_cold_archives"
            " WHERE session_id = ?"
        )
        row = connection.execute(query, (version.session,)).fetchone()
        if row is None:
            return
        for record in self._cold_archive(version.session, *row).split(b"\n"):
            entry = parse_entry(record) or {}
            event = entry.get("row")
            if entry.get("kind") == "event" and isinstance(event, dict):
                text = event.get("event_json")
                if isinstance(text, str):
                    yield _line(text.encode("utf-8", "surrogatepass"))

    def _cold_archive(self, session: str, name: object, blob: object) -> bytes:
        """Return the content of an archive in cold storage; raises Unavailable."""
        path = self._cold_directory / Path(text_in(name)).name
        content, text = zstd.ZstdDecompressor(), b""
        try:
            if blob is None:
                with plain_file(path) as file:
                    blob = file.read(_LARGEST_COLD)
            if isinstance(blob, bytes):
                text = content.decompress(blob, max_length=_LARGEST_COLD)
            why = "it is incomplete, or too large"
        except (OSError, ValueError, zstd.ZstdError) as error:
            why = getattr(error, "strerror", None) or str(error)
        if not content.eof:
            raise Unavailable(
                f"the session {session} is in OpenClaw's cold storage, which cannot be read: {why}",
                hint="look at it with OpenClaw; bsd never writes to it",
            )
        return text

    @cached_property
    def _cold_directory(self) -> Path:
        return self.path.parent.parent / "sessions" / "cold"


def database_of(agent_dir: Path) -> OpenClawDatabase | None:
    """Return the database of an agent; None if its sessions are only files."""
    path = agent_dir / FILE
    if not os.path.lexists(path):
        return None
    database = shared_database(OpenClawDatabase, path)
    return database if database.has_table(_EVENTS) else None


def _in_batches(
    connection: sqlite3.Connection,
    query: str,
    version: SessionVersion,
    after: int | None,
    size_of: Callable[[Any], int],
) -> Iterator[Any]:
    """Yield the rows of a session after row `after`, in batches of about `BATCH_BYTES`.

    No read transaction is open between two batches.
    """
    last = -(1 << 63) if after is None else after
    while True:
        batch: list[Any] = []
        size, more = 0, False
        with closing(connection.execute(query, (version.session, last, version.last))) as rows:
            for row in rows:
                batch.append(row)
                size += size_of(row)
                if size >= BATCH_BYTES or len(batch) >= 4096:
                    more = True
                    break
        yield from batch
        if not more:
            return
        last = batch[-1][0]


def _line(text: bytes) -> bytes:
    """Return the line of an event. A line end inside of a JSON text is white space."""
    return (text.replace(b"\n", b" ") if b"\n" in text else text) + b"\n"


def _unpacked(packed: bytes | None, size: int | None) -> bytes | None:
    """Return the text of a compressed event; blanks of its size if the row is damaged."""
    if not isinstance(size, int) or not 1 <= size <= _LARGEST_COMPRESSED:
        return None
    try:
        text = _decompress(packed or b"", size)
    except zstd.ZstdError:
        text = b""
    return text if len(text) == size else b" " * size


def _decompress(packed: bytes, most: int) -> bytes:
    return zstd.ZstdDecompressor().decompress(packed, max_length=most)


def _milliseconds(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 53 else 0
