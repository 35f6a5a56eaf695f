"""The vectors of facts in the plugin's LanceDB table, which are deleted with their facts.

The transaction that deletes facts also records the ids of their vectors as due. The vectors are
deleted right afterwards. If that fails, the next operation that deletes vectors tries again.

LanceDB starts threads that never end and takes hundreds of megabytes of memory, so it runs in a
process of its own (`use_lance`).
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import structlog

from bsd.core.errors import BsdError, Conflict, Unavailable
from bsd.core.extras import require_extra
from bsd.memory.database import Database, normalized_hash

_log = structlog.stdlib.get_logger(module="memory")

_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); from bsd.memory.vectors import use_lance;"
    " use_lance(*sys.argv[1:])"
)
_HOME = str(Path(__file__).parents[2])
_DEADLINE_SECONDS = 300.0
_LOOK_SECONDS = 0.5
_BATCH = 1000
# The plugin may write a vector before its fact, and repairs crashes some minutes later.
_YOUNG_SECONDS = 600


def note_due(db: Database, ids: Sequence[str]) -> None:
    """Record, within a transaction, that the vectors of these facts are to be deleted."""
    db.run_many("INSERT OR IGNORE INTO bsd_vectors_due VALUES (?)", ((one,) for one in ids))


@dataclass(frozen=True, slots=True)
class Vectors:
    """The table of vectors in a directory, which may be missing.

    `stopping`: called during long operations; True cancels them.
    """

    directory: Path
    stopping: Callable[[], bool] = lambda: False

    @property
    def exist(self) -> bool:
        try:
            return table_directory(self.directory).is_dir()
        except OSError:  # unreadable: using the table reports it, and due ids are recorded
            return True

    def count(self) -> int:
        """Return the number of vectors; raises Unavailable."""
        return int(json.loads(self._run("count")))

    def delete_due(self, db: Database) -> tuple[int, int]:
        """Delete the due vectors; return the numbers of deleted and of still due vectors.

        A failure is logged, and the next call tries again.
        """
        due = [row[0] for row in db.all("SELECT fact_id FROM bsd_vectors_due")]
        if not due:
            return 0, 0
        try:
            deleted = self.delete(due) if self.exist else 0
        except BsdError as problem:
            _log.warning(
                "Vectors of deleted facts could not be deleted; the next prune tries again",
                vectors=len(due),
                problem=problem.message,
                hint=problem.hint,
            )
            return 0, len(due)
        with db.change():
            db.run_many("DELETE FROM bsd_vectors_due WHERE fact_id = ?", ((one,) for one in due))
        return deleted, 0

    def delete(self, ids: Sequence[str]) -> int:
        """Delete vectors by id; return how many of them existed. Raises Unavailable."""
        return int(json.loads(self._run("delete", json.dumps(ids))))

    def orphans(self, db: Database, now: int) -> list[str]:
        """Return the ids of vectors that match no fact, neither by id nor by text.

        Vectors of the last ten minutes are left out, because the plugin may still write their
        facts. `now`: epoch seconds.

        Raises:
            Unavailable: the vectors cannot be read.
            Conflict: none of the vectors belongs to a fact.
        """
        if not self.exist:
            return []
        found: list[Any] = []
        total = 0
        rows = iter(self._run("list").splitlines())
        while batch := [json.loads(line) for line in islice(rows, _BATCH)]:
            total += len(batch)
            found += _without_fact(db, batch)
        if total and len(found) == total:
            raise Conflict(
                f"none of the {total} vectors in {self.directory} belongs to a fact in {db.path}",
                hint="check the paths under [memory] in bsd.toml; no vector was deleted",
            )
        young = (now - _YOUNG_SECONDS) * 1000  # the plugin writes milliseconds
        return [one for one, created, _ in found if created is None or created < young]

    def _run(self, verb: str, told: str = "") -> str:
        require_extra("lancedb", f"the table of vectors in {self.directory}")
        program = [sys.executable, "-P", "-c", _PROGRAM, _HOME, str(self.directory), verb]
        try:
            with subprocess.Popen(
                program,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
            ) as child:
                said, errors = self._wait(child, told)
        except OSError as error:
            raise _unavailable(self.directory, str(error)) from error
        if child.returncode:
            last = errors.strip().rpartition("\n")[2]
            raise _unavailable(self.directory, last or f"exit code {child.returncode}")
        return said

    def _wait(self, child: subprocess.Popen[str], told: str) -> tuple[str, str]:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        rest: str | None = told
        while True:
            try:
                return child.communicate(rest, timeout=_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                rest = None  # do not send the input twice
                if self.stopping() or time.monotonic() > deadline:
                    child.kill()
                    child.communicate()
                    raise _unavailable(self.directory, "it took too long") from None


def _without_fact(db: Database, batch: list[Any]) -> Iterator[Any]:
    known_ids = _known(db, "id", [one for one, _, _ in batch])
    known_texts = _known(db, "normalized_hash", [text for _, _, text in batch if text])
    return (row for row in batch if row[0] not in known_ids and row[2] not in known_texts)


def _known(db: Database, column: str, values: list[str]) -> set[str]:
    rows = db.all(
        f"SELECT {column} FROM facts WHERE {column} IN (SELECT value FROM json_each(?))",  # noqa: S608
        (json.dumps(values),),
    )
    return {row[0] for row in rows}


def _unavailable(directory: Path, what: str) -> Unavailable:
    return Unavailable(
        f"the vectors in {directory} cannot be used: {what}",
        hint="set `vectors` in [memory] of bsd.toml to the directory of the plugin's LanceDB",
    )


# --- the program that loads LanceDB: DIRECTORY count|delete|list ---

TABLE = "memories"  # the plugin's name of the table
_AT_ONCE = 500  # ids per statement
_ROWS = 1000


def use_lance(directory: str, verb: str) -> None:
    """Answer one request on stdout; if it fails, the last line of stderr names the problem.

    `count` writes the number of vectors. `delete` reads a JSON list of ids from stdin and writes
    how many of them existed. `list` writes a line per vector:
    `[id, created_at or null, hash of the text or null]`.
    """
    import lancedb  # noqa: PLC0415 - `table_directory` must not cost seconds

    table = lancedb.connect(directory).open_table(TABLE)
    match verb:
        case "count":
            _answer(table.count_rows())
        case "delete":
            _answer(_delete(table, json.load(sys.stdin)))
        case _:
            for row in _rows(table):
                _answer(row)


def table_directory(directory: Path) -> Path:
    """Return the directory in which LanceDB keeps the table."""
    return directory / f"{TABLE}.lance"


def _delete(table: Any, ids: list[str]) -> int:
    before = int(table.count_rows())
    for start in range(0, len(ids), _AT_ONCE):
        listed = ", ".join("'" + one.replace("'", "''") + "'" for one in ids[start:][:_AT_ONCE])
        table.delete(f"id IN ({listed})")
    return max(0, before - int(table.count_rows()))


def _rows(table: Any) -> Iterator[list[Any]]:
    columns = [name for name in ("id", "text", "createdAt") if name in table.schema.names]
    for batch in table.search(None).select(columns).to_batches(batch_size=_ROWS):
        for row in batch.to_pylist():
            yield [row["id"], row.get("createdAt"), normalized_hash(row.get("text"))]


def _answer(document: Any) -> None:
    sys.stdout.buffer.write(json.dumps(document).encode() + b"\n")
