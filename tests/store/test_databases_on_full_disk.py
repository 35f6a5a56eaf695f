"""On a full or nearly full disk, each database answers with an error, and no process is killed."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bsd.core.database_file import has_room, logs_ahead, without_shared_memory
from bsd.store.search import use
from bsd.store.state import StateDb
from tests.memory import plugin
from tests.small_disk import SmallDisk, small_disk

_TOP = Path(__file__).parents[2]
# A write-ahead log needs an amount between these, in steps of a block.
_ROOMS = [0, *range(4, 44, 2), 64, 128]
# A single process, since one death would end them all: each room in turn, the answers of each
# database.
_CALLS = """
import json, sys, pathlib
from bsd.core.errors import BsdError
from bsd.core.layout import SessionName
from bsd.memory import actions
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact
from bsd.store.search import use
from bsd.store.state import Left, StateDb
from bsd.transcripts.change import Written

place = pathlib.Path(sys.argv[1])
name = SessionName("main", "s")

def state():
    known = StateDb(place / "state.db")
    known.note_rests({name: Left(name, "abc", Written(1, 2, 3, 4), None)})
    list(known.rests("abc"))

def search():
    def work(index):
        with index.change():
            index.models()
            index.forget("nobody")
        index.sweep()
    use(place / "search.db", work, wait=1)

def memory(file):
    with Memory(place / file, wait=1) as facts:
        actions.store(facts, NewFact("a harbour " * 20))
        actions.recall(facts, "harbour")
        actions.prune(facts)

for line in sys.stdin:
    said = {}
    for what, call in {"state": state, "search": search, "ours": lambda: memory("facts.db"),
                       "theirs": lambda: memory("plugin.db")}.items():
        try:
            call()
            said[what] = "done"
        except BsdError as problem:
            said[what] = [problem.message, problem.hint]
        print(json.dumps(said) if what == "theirs" else "", end="", flush=True)
    print(flush=True)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path) as disk:
        yield disk


def test_no_room_is_an_error_and_never_the_end(disk: SmallDisk) -> None:
    with plugin.plugin(disk.path / "plugin.db") as db:
        plugin.create(db)
    assert logs_ahead(disk.path / "plugin.db")
    with subprocess.Popen(
        [sys.executable, "-c", _CALLS, str(disk.path)],
        cwd=_TOP,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def calls() -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("again\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line, f"it ended: {process.wait()}"
            said: dict[str, Any] = json.loads(line)
            return said

        assert set(calls().values()) == {"done"}
        for room in _ROOMS:
            disk.fill(leave=room << 10)
            for what, said in calls().items():
                assert said == "done" or (said[1] and "internal" not in said[0]), (room, what, said)
            disk.empty()
        assert set(calls().values()) == {"done"}
        process.stdin.close()
        assert process.wait() == 0
    for name in ("state.db", "search.db", "facts.db", "plugin.db"):
        with closing(sqlite3.connect(disk.path / name)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",), name


def test_nothing_is_mapped_that_processes_share(tmp_path: Path) -> None:
    StateDb(tmp_path / "state.db").note_rests({})
    use(tmp_path / "own" / "search.db", lambda index: index.models())
    for path in (tmp_path / "state.db", tmp_path / "own" / "search.db"):
        assert path.exists()
        assert not logs_ahead(path)


def test_a_file_of_an_older_version_is_changed_with_all_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (x)")
        db.execute("INSERT INTO t VALUES (7)")
        killed = {end: path.with_name(path.name + end).read_bytes() for end in ("", "-wal", "-shm")}
    for end, content in killed.items():  # as a killed process leaves them
        path.with_name(path.name + end).write_bytes(content)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        without_shared_memory(db, path)
        assert db.execute("SELECT x FROM t").fetchall() == [(7,)]
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("INSERT INTO t VALUES (8)")
        assert db.execute("SELECT x FROM t").fetchall() == [(7,), (8,)]
    assert not logs_ahead(path)
    assert [
        file.name for file in tmp_path.iterdir() if "wal" in file.name or "shm" in file.name
    ] == []


def test_one_that_another_has_open_says_that_it_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        older.execute("PRAGMA journal_mode = WAL")
        older.execute("CREATE TABLE t (x)")
        older.execute("BEGIN")
        older.execute("SELECT * FROM t").fetchall()
        with (
            closing(sqlite3.connect(path, timeout=0.05, isolation_level=None)) as db,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            without_shared_memory(db, path)
        older.execute("INSERT INTO t VALUES (7)")


def test_room_is_what_the_disk_has(disk: SmallDisk) -> None:
    assert has_room(disk.path / "a.db")
    disk.fill(leave=64 << 10)
    assert not has_room(disk.path / "a.db")
    disk.empty()
    assert has_room(disk.path / "a.db")
