"""The rows from which Parquet files are made, in a DuckDB database of this root.

`<root>/.brainsurgeon/fleet/parquet1.duckdb` has, for each session, its facts, its calls and its
extracted entries, without any text, and the version of the session's file. So an export reads only
sessions that have changed since the last one. The database can be deleted at any time: the next
export makes it anew. DuckDB has one thread and little memory here, loads no extensions, and uses no
network.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsd.core.errors import Unavailable, os_problem
from bsd.core.extras import require_extra
from bsd.core.layout import SessionName
from bsd.fleet.rows import EntryFacts, SessionFacts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_VERSION = 1  # of the tables below; another version is made anew
_LIMITS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "256MB",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_BATCH = 50_000  # rows that are written at a time
_LAST_SECOND = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def _columns(text: str) -> dict[str, str]:
    """Return the types of columns by their names, from `name TYPE, …`."""
    pairs = (column.split() for column in text.split(","))
    return {name: kind for name, kind in pairs}  # noqa: C416 - it checks that there are two


_SESSION = _columns(
    "agent VARCHAR, session VARCHAR, program VARCHAR, directory VARCHAR, parent VARCHAR,"
    "created DOUBLE, updated DOUBLE, deleted_at DOUBLE, size BIGINT, lines BIGINT,"
    "models VARCHAR[], date DATE, version VARCHAR"
)
_ENTRY = _columns(
    "agent VARCHAR, session VARCHAR, line BIGINT, entry VARCHAR, time DOUBLE, date DATE,"
    "model VARCHAR, provider VARCHAR, input_tokens BIGINT, output_tokens BIGINT,"
    "cache_read_tokens BIGINT, cache_write_tokens BIGINT, cost DOUBLE,"
    "extracted_on DATE, extracted_size BIGINT, saved BIGINT"
)
_WRITTEN = _columns("target VARCHAR, name VARCHAR, hash VARCHAR")
_TABLES = {"sessions": _SESSION, "entries": _ENTRY, "written": _WRITTEN}

# The kinds of files. `date` becomes the partition. Sums of dollars are rounded, so that the order
# of the rows makes no difference.
KINDS = ("sessions", "calls", "usage", "savings")
_VIEWS = """
CREATE TEMP VIEW files_calls AS
    SELECT entries.date, agent, session, program, line, entry, to_timestamp(time) AS time,
        model, provider, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost
    FROM entries JOIN sessions USING (agent, session)
    WHERE input_tokens IS NOT NULL;

CREATE TEMP VIEW files_usage AS
    SELECT date, agent, program, provider, model,
        count(DISTINCT session) AS sessions, count(*) AS calls,
        sum(input_tokens)::BIGINT AS input_tokens,
        sum(output_tokens)::BIGINT AS output_tokens,
        sum(cache_read_tokens)::BIGINT AS cache_read_tokens,
        sum(cache_write_tokens)::BIGINT AS cache_write_tokens,
        round(sum(cost), 9) AS cost
    FROM files_calls
    GROUP BY ALL;

CREATE TEMP VIEW files_savings AS
    SELECT extracted_on AS date, agent, program,
        count(DISTINCT session) AS sessions, count(*) AS entries,
        sum(extracted_size)::BIGINT AS original_bytes, sum(saved)::BIGINT AS saved_bytes
    FROM entries JOIN sessions USING (agent, session)
    WHERE extracted_on IS NOT NULL
    GROUP BY ALL;

CREATE TEMP VIEW files_sessions AS
    WITH sums AS (
        SELECT agent, session, count(input_tokens) AS calls,
            sum(input_tokens)::BIGINT AS input_tokens,
            sum(output_tokens)::BIGINT AS output_tokens,
            sum(cache_read_tokens)::BIGINT AS cache_read_tokens,
            sum(cache_write_tokens)::BIGINT AS cache_write_tokens,
            round(sum(cost), 9) AS cost, sum(saved)::BIGINT AS saved_bytes
        FROM entries
        GROUP BY agent, session
    )
    SELECT date, agent, session, program, directory, parent,
        to_timestamp(created) AS created, to_timestamp(updated) AS updated,
        to_timestamp(deleted_at) AS deleted_at, size, lines, models,
        coalesce(calls, 0) AS calls, input_tokens, output_tokens, cache_read_tokens,
        cache_write_tokens, cost, coalesce(saved_bytes, 0) AS saved_bytes
    FROM sessions LEFT JOIN sums USING (agent, session);
"""


class ParquetRows:
    """The database of rows; `open_rows` opens it. It has one user at a time."""

    def __init__(self, connection: DuckDBPyConnection, directory: Path) -> None:
        self._connection = connection
        self._batch = directory / "parquet.rows"  # rows on their way into the database
        self._file = directory / "parquet.part"  # the file that is being made
        self._rows: list[dict[str, Any]] = []
        self._sessions: list[dict[str, Any]] = []
        for name, columns in _TABLES.items():
            listed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({listed})")
        self._connection.execute(_VIEWS)

    def versions(self) -> dict[SessionName, str]:
        """Return the version of each session that was read."""
        found = self._connection.execute("SELECT agent, session, version FROM sessions").fetchall()
        return {SessionName(agent, session): version for agent, session, version in found}

    def replace(self, facts: SessionFacts, entries: Iterable[EntryFacts], version: str) -> None:
        """Add a session, or replace all that is known of it.

        Args:
            facts: of the session.
            entries: its rows; only those that `has_row` chooses are kept.
            version: of its file, which tells next time whether it has changed.
        """
        name = SessionName(facts.agent, facts.session)
        self._rows += [_entry_row(name, entry) for entry in entries if has_row(entry)]
        began = facts.updated if facts.created is None else facts.created
        self._sessions.append(
            {column: getattr(facts, column, None) for column in _SESSION}
            | {"date": _day(began), "version": version}
        )
        if len(self._rows) + len(self._sessions) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Write what was added, in one transaction."""
        names = [SessionName(one["agent"], one["session"]) for one in self._sessions]
        self._connection.execute("BEGIN")
        self._delete(names)
        for table, rows in (("entries", self._rows), ("sessions", self._sessions)):
            self._load(table, rows)
        self._connection.execute("COMMIT")
        self._rows.clear()
        self._sessions.clear()

    def drop(self, names: list[SessionName]) -> None:
        """Delete all rows of sessions."""
        self._connection.execute("BEGIN")
        self._delete(names)
        self._connection.execute("COMMIT")

    def _delete(self, names: list[SessionName]) -> None:
        known = self.versions().keys()
        for name in names:
            if name in known:
                for table in ("sessions", "entries"):
                    self._connection.execute(
                        f"DELETE FROM {table} WHERE agent = ? AND session = ?",  # noqa: S608
                        (name.agent, name.session),
                    )

    def _load(self, table: str, rows: list[dict[str, Any]]) -> None:
        """Insert rows through a file of JSON lines, which DuckDB reads a hundred times faster."""
        if not rows:
            return
        try:
            # A lone surrogate is no character for DuckDB.
            with self._batch.open("w", encoding="utf-8", errors="replace") as file:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            self._connection.execute(
                f"INSERT INTO {table} BY NAME SELECT * FROM read_json(?, columns = ?, "  # noqa: S608 - of _TABLES
                "format = 'newline_delimited', maximum_object_size = 67108864)",
                (str(self._batch), _TABLES[table]),
            )
        except OSError as error:
            raise os_problem(error, f"writing {self._batch}") from error
        finally:
            self._batch.unlink(missing_ok=True)

    # --- files ---

    def days(self, kind: str, since: date | None = None) -> dict[date, str]:
        """Return the days of a kind of files, each with a hash of its rows."""
        found = self._connection.execute(
            f"SELECT date, count(*) || '-' || bit_xor(hash(day)) FROM files_{kind} AS day "  # noqa: S608 - of KINDS
            "WHERE date >= ? GROUP BY date",
            (since or date.min,),
        ).fetchall()
        return dict(found)

    def parquet(self, kind: str, day: date) -> bytes:
        """Return the file of a kind and a day."""
        place = str(self._file).replace("'", "''")
        self._connection.execute(
            f"COPY (SELECT * EXCLUDE (date) FROM files_{kind} "  # noqa: S608 - of KINDS
            f"WHERE date = '{day.isoformat()}' ORDER BY ALL) "
            f"TO '{place}' (FORMAT parquet, COMPRESSION zstd)"
        )
        try:
            return self._file.read_bytes()
        except OSError as error:
            raise os_problem(error, f"reading {self._file}") from error
        finally:
            self._file.unlink(missing_ok=True)

    def written(self, target: str) -> dict[str, str]:
        """Return the files that were written to a target, each with the hash of its rows."""
        found = self._connection.execute(
            "SELECT name, hash FROM written WHERE target = ?", (target,)
        ).fetchall()
        return dict(found)

    def note_written(self, target: str, name: str, hash_of_rows: str | None) -> None:
        """Note that a file was written; None: it was deleted."""
        self._connection.execute(
            "DELETE FROM written WHERE target = ? AND name = ?", (target, name)
        )
        if hash_of_rows is not None:
            self._connection.execute(
                "INSERT INTO written VALUES (?, ?, ?)", (target, name, hash_of_rows)
            )


@contextmanager
def open_rows(directory: Path) -> Iterator[ParquetRows]:
    """Open the database in a directory; the caller sees to it that no other process does.

    A database that DuckDB cannot open, or of another version of bsd, is made anew.

    Raises:
        Unavailable: DuckDB is not installed, or a statement failed: a full disk, too little memory.
    """
    require_extra("duckdb", "an export to Parquet files")
    import duckdb  # noqa: PLC0415 - only with this extra

    path = directory / f"parquet{_VERSION}.duckdb"
    try:
        for other in directory.glob("parquet*.duckdb*"):
            if not other.name.startswith(path.name):
                other.unlink(missing_ok=True)
        try:
            connection = duckdb.connect(str(path), config=_LIMITS)
        except duckdb.Error:
            for other in directory.glob(f"{path.name}*"):
                other.unlink(missing_ok=True)
            connection = duckdb.connect(str(path), config=_LIMITS)
        with connection:
            yield ParquetRows(connection, directory)
    except duckdb.Error as error:
        raise Unavailable(
            f"DuckDB could not work on {path}: {error}",
            hint=f"make room on the disk; if it fails again, delete {path}",
        ) from error
    except OSError as error:
        raise os_problem(error, f"opening {path}") from error


def has_row(entry: EntryFacts) -> bool:
    """Return True for a call, and for an entry whose values have left the session."""
    return entry.input_tokens is not None or _is_extracted(entry)


def _is_extracted(entry: EntryFacts) -> bool:
    return entry.extracted_at is not None or entry.extracted_size > 0


def _entry_row(name: SessionName, entry: EntryFacts) -> dict[str, Any]:
    out = entry.time if entry.extracted_at is None else entry.extracted_at
    return {column: getattr(entry, column, None) for column in _ENTRY} | {
        "agent": name.agent,
        "session": name.session,
        "date": _day(entry.time),
        "extracted_on": _day(out) if _is_extracted(entry) else None,
    }


def _day(seconds: float) -> str:
    """Return the day in UTC; times that no calendar has count as the first or the last one."""
    return datetime.fromtimestamp(min(max(seconds, 0.0), _LAST_SECOND), UTC).date().isoformat()
