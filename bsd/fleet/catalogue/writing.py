"""Writes rows of sessions into the tables: batches, each one transaction with its watermarks.

A batch is copied into a temporary table, from which the server makes its index of words, and then
inserted. A batch that is interrupted leaves nothing behind. The revision of a session's watermark
shows whether another process has written the session meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import bsd
from bsd.core.errors import TemporaryFailure
from bsd.core.layout import SessionName
from bsd.fleet.catalogue.connection import library, transaction
from bsd.fleet.catalogue.words import for_index
from bsd.fleet.host import HostDirectory
from bsd.fleet.rows import EntryFacts, SessionFacts
from bsd.fleet.session_rows import RowsPart, Watermark

if TYPE_CHECKING:
    from psycopg import Connection

_MOST_ROWS, _MOST_TEXT, _MOST_SESSIONS = 10_000, 8 << 20, 200  # of a batch
_EARLIEST, _DAY = 1.4e9, 86_400.0  # epoch seconds
_LARGEST = (1 << 31) - 1

_STAGING = """
CREATE TEMP TABLE bsd_staging (
    time double precision, session integer, line integer, size integer, tokens integer,
    digest uuid, input_tokens integer, output_tokens integer, cache_read_tokens integer,
    cache_write_tokens integer, extracted_size integer, saved integer, cost double precision,
    extracted_at double precision, entry text, role text, tool text, model text, provider text,
    stored bytea, text text
) ON COMMIT DROP
"""
_COPY = "COPY bsd_staging FROM STDIN"
_COLUMNS = (
    "session, line, size, tokens, digest, input_tokens, output_tokens, cache_read_tokens,"
    " cache_write_tokens, extracted_size, saved, cost, entry, role, tool, model, provider, stored"
)
_INSERT = (
    f"INSERT INTO bsd.entries (time, extracted_at, words, {_COLUMNS})"  # noqa: S608 - no input
    f" SELECT to_timestamp(time), to_timestamp(extracted_at), to_tsvector('simple', text),"
    f" {_COLUMNS} FROM bsd_staging ON CONFLICT DO NOTHING"
)
_SESSION = """
INSERT INTO bsd.sessions (host, agent, session, program, title, directory, parent, created,
    updated, size, entries, calls, cost, saved, models, deleted_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, to_timestamp(%s), to_timestamp(%s), %s, %s, %s, %s, %s, %s,
    to_timestamp(%s))
ON CONFLICT (host, agent, session) DO UPDATE SET program = excluded.program,
    title = excluded.title, directory = excluded.directory, parent = excluded.parent,
    created = excluded.created, updated = excluded.updated, size = excluded.size,
    entries = excluded.entries, calls = excluded.calls, cost = excluded.cost,
    saved = excluded.saved, models = excluded.models, deleted_at = excluded.deleted_at
RETURNING id
"""
_MARK = """
INSERT INTO bsd.watermarks AS mark (session, file, read_to, lines, guard, state, stale, revision,
    first_time, last_time)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, to_timestamp(%s), to_timestamp(%s))
ON CONFLICT (session) DO UPDATE SET file = excluded.file, read_to = excluded.read_to,
    lines = excluded.lines, guard = excluded.guard, state = excluded.state,
    stale = excluded.stale, revision = excluded.revision, first_time = excluded.first_time,
    last_time = excluded.last_time
    WHERE mark.revision = excluded.revision - 1
"""


_OF_SESSION = "session = %s AND time >= to_timestamp(%s) AND time <= to_timestamp(%s)"
_DELETE = f"DELETE FROM bsd.entries WHERE {_OF_SESSION} AND {{}}"  # noqa: S608 - no input


class KnownSession(NamedTuple):
    """A session in the catalogue."""

    id: int
    file: tuple[int, ...]  # as in its watermark; empty: it has none
    revision: int  # of its watermark; 0: it has none
    deleted: bool
    # Times of its rows, in epoch seconds: only the partitions of these months are locked.
    first: float
    last: float

    @property
    def place(self) -> tuple[int, float, float]:
        """The parameters of `_OF_SESSION`."""
        if not self.last:  # it has no rows
            return self.id, 0.0, 0.0
        return self.id, self.first - 1.0, self.last + 1.0


@dataclass(slots=True)
class _Pending:
    """The rows of one session in a batch."""

    facts: SessionFacts
    mark: Watermark
    stale: bool = False  # rows behind the watermark may be of an earlier form of the session
    rows: list[EntryFacts] = field(default_factory=list)
    obsolete: list[int] = field(default_factory=list)  # lines whose rows are replaced or gone
    gone_from: int | None = None  # all rows from this line on are gone


class _Mark(NamedTuple):
    """A watermark as it is written, and the session as it is known then."""

    row: tuple[object, ...]
    known: KnownSession


class CatalogueWriter:
    """Writes the rows of one host. Raises psycopg.Error, and TemporaryFailure if it is overtaken.

    Attributes:
        failed: sessions whose rows the database refuses, with the reason.
        rows: the number of rows that were written.
    """

    def __init__(
        self, connection: Connection, host: HostDirectory, *, version: str | None = None
    ) -> None:
        """Begin to write; reads which sessions of the host the catalogue has.

        Args:
            connection: in autocommit mode, with a schema of this version.
            host: whose rows are written.
            version: of bsd on a host that the catalogue does not know yet; None: this bsd's.
        """
        self._connection = connection
        self._batch: dict[SessionName, _Pending] = {}
        self._text = self._count = 0
        self._months: set[str] = set()
        self.failed: list[str] = []
        self.rows = 0
        with transaction(connection):
            self.host: int = self._value(
                "INSERT INTO bsd.hosts AS host (name, key, version) VALUES (%s, %s, %s)"
                " ON CONFLICT (name, key) DO UPDATE SET version = host.version RETURNING id",
                host.host,
                host.id,
                version or bsd.__version__,
            )
            self._latest = self._value("SELECT extract(epoch FROM now())::float8") + _DAY
            self.known = self._read_known()

    def _value(self, query: str, *args: object) -> Any:
        row = self._connection.execute(query.encode(), args).fetchone()
        return row[0] if row else None

    def _read_known(self) -> dict[str, KnownSession]:
        rows = self._connection.execute(
            "SELECT s.agent, s.session, s.id, w.file, coalesce(w.revision, 0),"
            " s.deleted_at IS NOT NULL, extract(epoch FROM w.first_time)::float8,"
            " extract(epoch FROM w.last_time)::float8 FROM bsd.sessions s"
            " LEFT JOIN bsd.watermarks w ON w.session = s.id WHERE s.host = %s",
            (self.host,),
        )
        return {
            f"{agent}/{session}": KnownSession(
                id_, tuple(file or ()), revision, deleted, first or inf, last or 0.0
            )
            for agent, session, id_, file, revision, deleted, first, last in rows
        }

    def watermark(self, name: SessionName) -> tuple[Watermark | None, bool]:
        """Return a session's watermark, if it has one, and whether it is stale."""
        known = self.known.get(str(name))
        if known is None:
            return None, False
        with transaction(self._connection):
            row = self._connection.execute(
                "SELECT file, read_to, lines, guard, state, stale FROM bsd.watermarks"
                " WHERE session = %s",
                (known.id,),
            ).fetchone()
        if row is None:
            return None, False
        file, offset, lines, guard, state, stale = row
        return Watermark(tuple(file), offset, lines, bytes(guard), state), stale

    # --- writing ---

    def add(
        self, name: SessionName, facts: SessionFacts, part: RowsPart | Watermark, *, stale: bool
    ) -> None:
        """Add a part of a session to the batch, and write the batch if it is large enough.

        Args:
            name: of the session.
            facts: as far as they are known after this part.
            part: its rows; only a watermark: there are no new rows.
            stale: the catalogue may have other rows of these lines, and of later ones.
        """
        mark = part if isinstance(part, Watermark) else part.mark
        pending = self._batch.setdefault(name, _Pending(facts, mark))
        pending.facts, pending.mark, pending.stale = facts, mark, False
        if isinstance(part, RowsPart):
            rows = part.rows
            if part.first == 0:
                pending.rows.clear()  # the session was rewritten while it was read
            known = self.known.get(str(name))
            if stale and known is not None:
                rows = self._compare(pending, part, known)
                pending.stale = part.more
            pending.rows += rows
            self._count += len(rows)
            self._text += sum(len(row.text or "") for row in rows)
        full = self._count >= _MOST_ROWS or self._text >= _MOST_TEXT
        if full or len(self._batch) >= _MOST_SESSIONS:
            self.flush()

    def _compare(self, pending: _Pending, part: RowsPart, known: KnownSession) -> list[EntryFacts]:
        """Return the rows that differ from those in the catalogue, and note the others there."""
        end = part.mark.lines
        with transaction(self._connection):
            found = self._connection.execute(
                f"SELECT line, digest FROM bsd.entries WHERE {_OF_SESSION}"  # noqa: S608
                " AND line >= %s AND line < %s",
                (*known.place, part.first, end),
            ).fetchall()
        there = {line: digest.bytes for line, digest in found}
        now = {row.line: row.digest for row in part.rows}
        pending.obsolete += [line for line, digest in there.items() if now.get(line) != digest]
        if not part.more:
            pending.gone_from = end
        return [row for row in part.rows if there.get(row.line) != row.digest]

    def flush(self) -> None:
        """Write the batch."""
        errors = library().errors
        batch, self._batch = self._batch, {}
        self._count = self._text = 0
        try:
            self._write(batch)
        except (errors.DataError, errors.ProgramLimitExceeded, errors.IntegrityError):
            for name, pending in batch.items():
                try:
                    self._write({name: pending})
                except (errors.DataError, errors.ProgramLimitExceeded) as error:
                    self.failed.append(f"{name}: {error.diag.message_primary}")

    def _write(self, batch: dict[SessionName, _Pending]) -> None:
        if not batch:
            return
        names = sorted(batch)  # one order, so that two processes do not wait for each other
        self._make_partitions(row.time for each in batch.values() for row in each.rows)
        with transaction(self._connection), self._connection.cursor() as cursor:
            ids = self._write_sessions(cursor, [batch[name].facts for name in names])
            marks = [self._mark(id_, batch[name]) for id_, name in zip(ids, names, strict=True)]
            cursor.executemany(_MARK, [mark.row for mark in marks])
            if cursor.rowcount != len(marks):
                raise TemporaryFailure(
                    "another process writes this host's sessions into the catalogue",
                    hint="let it finish; bsd tries again",
                )
            self._delete(cursor, zip(marks, (batch[name] for name in names), strict=True))
            cursor.execute(_STAGING.encode())
            with cursor.copy(_COPY) as copy:
                for id_, name in zip(ids, names, strict=True):
                    for row in batch[name].rows:
                        copy.write_row(self._values(id_, row))
            cursor.execute(_INSERT.encode())
            written = cursor.rowcount
        self.rows += written
        for mark, name in zip(marks, names, strict=True):
            self.known[str(name)] = mark.known

    def _write_sessions(self, cursor: Any, facts: list[SessionFacts]) -> list[int]:
        cursor.executemany(
            _SESSION,
            [
                (
                    *(self.host, each.agent, each.session, each.program, each.title),
                    *(each.directory, each.parent, self._sane(each.created)),
                    *(self._sane(each.updated) or 0.0, each.size, each.lines, each.calls),
                    *(each.cost, each.saved, list(each.models), self._sane(each.deleted_at)),
                )
                for each in facts
            ],
            returning=True,
        )
        ids = []
        while True:
            ids.append(cursor.fetchone()[0])
            if not cursor.nextset():
                return ids

    def _mark(self, id_: int, pending: _Pending) -> _Mark:
        mark, known = pending.mark, self.known.get(pending.facts.name)
        times = [self._sane(row.time) or _EARLIEST for row in pending.rows]
        now = KnownSession(
            id_,
            mark.file,
            (known.revision if known else 0) + 1,
            pending.facts.deleted_at is not None,
            min([*times, known.first if known else inf]),
            max([*times, known.last if known else 0.0]),
        )
        span = (now.first, now.last) if now.last else (None, None)
        row = (
            *(id_, list(mark.file), mark.offset, mark.lines, mark.guard, mark.state),
            *(pending.stale, now.revision, *span),
        )
        return _Mark(row, now)

    @staticmethod
    def _delete(cursor: Any, batch: Iterable[tuple[_Mark, _Pending]]) -> None:
        for mark, pending in batch:
            place = mark.known.place
            if pending.obsolete:
                which = "line = ANY(%s)"
                cursor.execute(_DELETE.format(which).encode(), (*place, pending.obsolete))
            if pending.gone_from is not None:
                cursor.execute(_DELETE.format("line >= %s").encode(), (*place, pending.gone_from))

    def _values(self, session: int, row: EntryFacts) -> tuple[object, ...]:
        return (
            self._sane(row.time) or _EARLIEST,
            session,
            row.line,
            min(row.size, _LARGEST),
            min(row.tokens, _LARGEST),
            row.digest.hex(),
            *map(_count, (row.input_tokens, row.output_tokens)),
            *map(_count, (row.cache_read_tokens, row.cache_write_tokens)),
            min(row.extracted_size, _LARGEST) or None,
            min(row.saved, _LARGEST) or None,
            row.cost,
            row.extracted_at,
            row.entry,
            row.role,
            row.tool,
            row.model,
            row.provider,
            row.stored,
            for_index(row.text) if row.text else None,
        )

    def _sane(self, time: float | None) -> float | None:
        """Return a time between 2014 and tomorrow by the clock of the server."""
        return None if time is None else round(min(max(time, _EARLIEST), self._latest), 3)

    def _make_partitions(self, times: Iterable[float]) -> None:
        days = {(self._sane(time) or _EARLIEST) // _DAY for time in times}
        months = {datetime.fromtimestamp(day * _DAY, UTC).strftime("%Y-%m-01") for day in days}
        for month in sorted(months - self._months):
            with transaction(self._connection):
                self._connection.execute("SELECT bsd.make_partition(%s)", (month,))
            self._months.add(month)

    # --- sessions that are gone ---

    def mark_deleted(self, ids: Collection[int]) -> int:
        """Mark sessions as deleted now, by the clock of the server; return how many were not."""
        if not ids:
            return 0
        with transaction(self._connection):
            return self._connection.execute(
                "UPDATE bsd.sessions SET deleted_at = now()"
                " WHERE id = ANY(%s) AND deleted_at IS NULL",
                (list(ids),),
            ).rowcount

    def remove(self, ids: Collection[int]) -> None:
        """Remove sessions with all of their rows."""
        if ids:
            with transaction(self._connection):
                for table, column in (("entries", "session"), ("sessions", "id")):
                    self._connection.execute(
                        f"DELETE FROM bsd.{table} WHERE {column} = ANY(%s)".encode(),  # noqa: S608
                        (list(ids),),
                    )

    def tell(self, behind: tuple[int, int, float | None], problems: list[str]) -> None:
        """Write the row of the host: that it was here, and how far it is behind."""
        error = problems[0] if problems else None
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE bsd.hosts SET version = %s, last_seen = now(), behind_files = %s,"
                " behind_bytes = %s, behind_seconds = %s, errors = %s, last_error = %s"
                " WHERE id = %s",
                (bsd.__version__, *behind, len(problems), error, self.host),
            )


def _count(tokens: int | None) -> int | None:
    return None if tokens is None else min(tokens, _LARGEST)
