"""Faults of the file: reported in plain words, and no change is half done."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bsd.core.errors import BsdError, Busy, Conflict, Forbidden, NotFound, Unavailable
from bsd.memory import actions
from bsd.memory.database import Database, problem_of
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact
from tests.memory.memories import Clock, rows, sound, store
from tests.waiting import DEADLINE_SECONDS

OPERATIONS: dict[str, Callable[[Memory], object]] = {
    "store": lambda memory: actions.store(memory, NewFact("another harbour")),
    "recall": lambda memory: actions.recall(memory, "harbour").results,
    "look": lambda memory: actions.recall(memory, "harbour", refresh=False).results,
    "lookup": lambda memory: actions.lookup(memory, "ada").results,
    "confirm": lambda memory: actions.confirm(memory, "x"),
    "forget": lambda memory: actions.forget(memory, "x"),
    "prune": actions.prune,
    "dry-run": lambda memory: actions.prune(memory, dry_run=True),
    "backfill": lambda memory: actions.backfill(memory).reclassified,
    "stats": actions.stats,
    "checkpoint": lambda memory: actions.save_checkpoint(memory, "a", "b"),
    "restore": lambda memory: actions.restore_checkpoint(memory).checkpoint,
}
CREATING = {"store", "checkpoint"}


def open_memory(path: Path) -> Memory:
    return Memory(path, clock=Clock(), wait=0.05)


def refusals(path: Path) -> dict[str, BsdError]:
    """The error of each operation."""
    found = {}
    for name, operation in OPERATIONS.items():
        with open_memory(path) as memory, pytest.raises(BsdError) as caught:
            operation(memory)
        assert caught.value.hint, name
        assert str(path) in caught.value.message, name
        found[name] = caught.value
    return found


def test_where_there_is_no_database_only_storing_makes_one(tmp_path: Path) -> None:
    for name, operation in OPERATIONS.items():
        path = tmp_path / name / "facts.db"
        with open_memory(path) as memory:
            if name == "restore":
                assert operation(memory) is None
            elif name in CREATING:
                operation(memory)
            else:
                with pytest.raises(NotFound, match="there is no database"):
                    operation(memory)
        assert path.exists() is (name in CREATING), name


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    path.write_text("this is not SQLite at all, by any means\n" * 100)
    before = path.read_bytes()
    for problem in refusals(path).values():
        assert isinstance(problem, Unavailable)
        assert "is not a database" in problem.message
    assert path.read_bytes() == before


def test_a_database_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE sessions (id INTEGER PRIMARY KEY)")
    before = path.read_bytes()
    for problem in refusals(path).values():
        assert isinstance(problem, Conflict)
        assert "belongs to another program" in problem.message
    assert path.read_bytes() == before


def test_a_table_called_facts_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE facts (id INTEGER PRIMARY KEY, year INTEGER)")
    before = path.read_bytes()
    assert {type(problem) for problem in refusals(path).values()} == {Conflict}
    assert path.read_bytes() == before


def test_a_damaged_database(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    with open_memory(path) as memory:
        for number in range(300):
            store(memory, f"harbour {number} " + "x" * 200, entity="ada")
    size = path.stat().st_size
    with path.open("r+b") as file:  # all but the schema
        file.seek(8 * 4096)
        file.write(os.urandom(size - 8 * 4096))
    seen: list[BsdError] = []
    for operation in OPERATIONS.values():
        with open_memory(path) as memory:
            try:
                operation(memory)
            except BsdError as problem:  # any other error is a defect; some touch no damaged page
                seen.append(problem)
    damaged = [problem for problem in seen if "is damaged" in problem.message]
    assert damaged
    assert all(".recover" in (problem.hint or "") for problem in damaged)


def test_a_directory_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    path.mkdir()
    with open_memory(path) as memory, pytest.raises(Unavailable, match="is not a file"):
        actions.stats(memory)


def test_somebody_else_writes_too_long(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    with open_memory(path) as memory:
        fact = store(memory, "harbour", entity="ada")
        store(memory, "expired", expires_at=1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for name in ("store", "recall", "lookup", "prune", "confirm", "forget", "checkpoint"):
            with open_memory(path) as memory, pytest.raises(Busy, match="in use") as caught:
                OPERATIONS[name](memory)
            assert caught.value.exit_code == 4
        with open_memory(path) as memory:  # a reader need not wait
            assert actions.get(memory, fact.id) == fact
            assert actions.recall(memory, "harbour", refresh=False).results
            assert actions.stats(memory).facts == 2
        other.execute("ROLLBACK")
    with open_memory(path) as memory:
        assert actions.recall(memory, "harbour").results


def test_a_full_disk_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    with open_memory(path) as memory:
        store(memory, "harbour")
        db = memory.open(write=True)
        pages = db.value("PRAGMA page_count")
        db.run(f"PRAGMA max_page_count = {pages}")  # SQLite's error is then that of a full disk
        with pytest.raises(Unavailable, match="disk is full") as caught:
            store(memory, "ship " * 50_000)
        assert caught.value.hint == (
            "free some space on this disk, then repeat the command; the database is intact"
        )
        assert [one.text for one in actions.recall(memory, "harbour ship").results] == ["harbour"]
    sound(path)


def test_where_nothing_fits_it_is_said_although_sqlite_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot even make the file that its processes share, and calls that an I/O error."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    assert "disk I/O error" in problem_of(error, tmp_path / "facts.db").message
    full = shutil.disk_usage(tmp_path)._replace(free=4096)
    monkeypatch.setattr("shutil.disk_usage", lambda _: full)
    assert "disk is full" in problem_of(error, tmp_path / "facts.db").message


def test_a_file_in_which_nothing_was_stored_yet_is_no_database(tmp_path: Path) -> None:
    """As a full disk or a kill may leave it."""
    path = tmp_path / "facts.db"
    path.touch()
    with open_memory(path) as memory:
        assert actions.restore_checkpoint(memory).checkpoint is None
        with pytest.raises(NotFound, match="there is no database"):
            actions.stats(memory)
        store(memory, "harbour")
        assert memory.is_ours()


def only_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user other than the owner; the tests may run as root."""
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)


def test_who_may_only_read_leaves_nothing_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of the write-ahead log with a wrong owner would keep the gateway from writing."""
    path = tmp_path / "facts.db"
    with open_memory(path) as memory:
        fact = store(memory, "harbour")
        with open_memory(path) as second, monkeypatch.context() as patch:
            only_readable(patch)
            assert actions.get(second, fact.id) == fact, "while somebody has it open, too"
    only_readable(monkeypatch)
    for name, operation in OPERATIONS.items():
        with open_memory(path) as memory:
            if name in {"look", "dry-run", "stats", "restore"}:
                operation(memory)
            else:
                with pytest.raises(Forbidden, match="cannot be written"):
                    operation(memory)
        assert os.listdir(tmp_path) == ["facts.db"], name


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DROP TABLE facts_fts", "has no index of words"),
        ("DELETE FROM facts_fts_docsize", "is damaged"),
    ],
)
def test_trouble_of_the_index_alone_is_said(tmp_path: Path, damage: str, said: str) -> None:
    path = tmp_path / "facts.db"
    with open_memory(path) as memory:
        store(memory, "harbour")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(damage)
    with open_memory(path) as memory:
        assert actions.stats(memory).facts == 1
        with pytest.raises(BsdError, match=said) as caught:
            actions.recall(memory, "harbour", refresh=False)
    if "rebuild" in (caught.value.hint or ""):
        statement = (caught.value.hint or "").split('"')[1]
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(statement)
    with open_memory(path) as memory:
        assert actions.recall(memory, "harbour").results
    sound(path)


def test_what_another_program_forbids_is_told_as_that(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    with open_memory(path) as memory:
        fact = store(memory, "harbour")
        for statement in (
            "CREATE TABLE verified (id TEXT REFERENCES facts (id))",
            f"INSERT INTO verified VALUES ('{fact.id}')",
        ):
            memory.open(write=True).run(statement)
        with pytest.raises(Conflict, match="refuses this change: FOREIGN KEY") as caught:
            actions.forget(memory, fact.id)
        assert "another program" in (caught.value.hint or "")
        assert actions.get(memory, fact.id) == fact


def test_errors_of_sqlite_become_ours() -> None:
    def problem(code: int, text: str = "it says so") -> BsdError:
        error = sqlite3.OperationalError(text)
        error.sqlite_errorcode = code
        return problem_of(error, Path("/facts.db"))

    assert isinstance(problem(sqlite3.SQLITE_READONLY), Forbidden)
    assert isinstance(problem(sqlite3.SQLITE_IOERR | 10 << 8), Unavailable)
    assert isinstance(problem(sqlite3.SQLITE_CANTOPEN), Unavailable)
    assert isinstance(problem(sqlite3.SQLITE_LOCKED), Busy)
    assert isinstance(problem(sqlite3.SQLITE_ERROR, "no such column: x"), Conflict)
    assert "FTS5" in problem(sqlite3.SQLITE_ERROR, "no such module: fts5").message
    assert all(problem(code).hint for code in range(1, 27))


def break_off(db: Database) -> None:
    with db.change():
        db.run("DELETE FROM facts")
        db.run("DELETE FROM elsewhere")


def test_a_change_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    with open_memory(path) as memory:
        store(memory, "harbour")
        db = memory.open(write=True)
        with pytest.raises(Conflict, match="no such table: elsewhere"):
            break_off(db)
        assert rows(path, "SELECT COUNT(*) FROM facts") == [(1,)]
        store(memory, "and it goes on")


# --- two processes write at once: no fact is lost or doubled ---


_COUNT = 60
# Each stores facts of its own and facts that both have, and prunes and recalls between.
_CHILD = """
import sys
from pathlib import Path
from bsd.memory import actions
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact

path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    with Memory(path, wait=60.0) as memory:
        actions.store(memory, NewFact(f"{name} says {number}"))
        actions.store(memory, NewFact(f"all say {number}"))
        if number % 10 == 0:
            actions.prune(memory)
            actions.recall(memory, "say", limit=20)
"""


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"  # not even made yet
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(path), name, str(_COUNT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.close()
    for child in children:
        assert child.wait(DEADLINE_SECONDS) == 0
        assert child.stdout is not None
        child.stdout.close()
    found = [text for (text,) in rows(path, "SELECT text FROM facts")]
    expected = {f"{who} {number}" for number in range(_COUNT) for who in ("one says", "two says")}
    expected |= {f"all say {number}" for number in range(_COUNT)}
    assert len(found) == len(set(found))
    assert set(found) == expected
    sound(path)
    with Memory(path) as memory:
        assert memory.is_ours()
