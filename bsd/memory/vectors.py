"""The vectors of facts in the plugin's LanceDB table, which go when their facts go.

Which vectors are due is noted in the transaction that deletes the facts; they are deleted right
after it, and if that fails, with the next operation that deletes.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from bsd.core.errors import BsdError, Conflict, Unavailable
from bsd.core.logs import get_logger
from bsd.memory.database import Database, normalized_hash

_log = get_logger("memory")

_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); from bsd.memory.vectors import use_lance;"
    " use_lance(*sys.argv[1:])"
)
_HOME = str(Path(__file__).parents[2])
_DEADLINE_SECONDS = 300.0
_LOOK_SECONDS = 0.5
_BATCH = 1000
# The plugin may write a vector before its fact, and makes up for crashes some minutes later.
_YOUNG_SECONDS = 600


def note_due(db: Database, ids: Sequence[str]) -> None:
    """Note, within a change, that these vectors are to be deleted."""
    db.run_many("INSERT OR IGNORE INTO bsd_vectors_due VALUES (?)", ((one,) for one in ids))


@dataclass(frozen=True, slots=True)
class Vectors:
    """The table in one directory, which need not be there."""

    directory: Path
    stopping: Callable[[], bool] = lambda: False  # break off what takes long

    @property
    def exist(self) -> bool:
        try:
            return table_directory(self.directory).is_dir()
        except OSError:  # nobody may look: whoever uses them says so, and what is due is noted
            return True

    def count(self) -> int:
        """How many there are; raises Unavailable."""
        return int(json.loads(self._run("count")))

    def delete_due(self, db: Database) -> tuple[int, int]:
        """Delete what is due; returns how many that were, and how many could not be deleted.

        A failure is logged and tried again next time.
        """
        due = [row[0] for row in db.all("SELECT fact_id FROM bsd_vectors_due")]
        if not due:
            return 0, 0
        try:
            deleted = self.delete(due) if self.exist else 0
        except BsdError as problem:
            _log.warning(
                "Vectors of deleted facts could not be deleted; tried again with the next prune",
                vectors=len(due),
                problem=problem.message,
                hint=problem.hint,
            )
            return 0, len(due)
        with db.change():
            db.run_many("DELETE FROM bsd_vectors_due WHERE fact_id = ?", ((one,) for one in due))
        return deleted, 0

    def delete(self, ids: Sequence[str]) -> int:
        """Delete these; returns how many there were. Raises Unavailable."""
        return int(json.loads(self._run("delete", json.dumps(ids))))

    def orphans(self, db: Database, now: int) -> list[str]:
        """Vectors that belong to no fact, by id or by text; very young ones may still get one.

        Raises Unavailable, and Conflict if none at all belongs to a fact.
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
                hint="see whether [memory] in bsd.toml names the right ones; nothing was deleted",
            )
        young = (now - _YOUNG_SECONDS) * 1000  # the plugin writes milliseconds
        return [one for one, created, _ in found if created is None or created < young]

    def _run(self, verb: str, told: str = "") -> str:
        if importlib.util.find_spec("lancedb") is None:
            raise Unavailable(
                f"the vectors in {self.directory} need LanceDB, which is not installed",
                hint="install it with bsd: pip install 'brainsurgeond[lancedb]'",
            )
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
                rest = None  # it goes on with what it was given
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
        hint="is it the directory of the plugin's LanceDB? `vectors` in [memory] of bsd.toml says",
    )


# --- the one program that loads LanceDB: DIRECTORY count|delete|list ---
#
# LanceDB brings threads that never end and hundreds of megabytes; neither belongs into a daemon
# that needs it once an hour. `delete` reads ids from stdin, a JSON list. `list` writes a line for
# each vector, `[id, created_at or null, hash of its text or null]`; the others one number: how many
# there are, how many were deleted. The problem, if there is one, is the last line of stderr.

TABLE = "memories"  # as the plugin calls it
_AT_ONCE = 500  # ids in one statement
_ROWS = 1000


def use_lance(directory: str, verb: str) -> None:
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
    """Where LanceDB keeps the table."""
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
    # Not through print: stdout belongs to whoever asked.
    sys.stdout.buffer.write(json.dumps(document).encode() + b"\n")
