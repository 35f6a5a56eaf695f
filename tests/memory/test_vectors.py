"""Vectors in the plugin's LanceDB table go when their facts go; with the real library."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bsd.core.errors import Conflict, Unavailable
from bsd.memory import actions
from bsd.memory.database import normalized_hash
from bsd.memory.memory import Memory
from bsd.memory.vectors import Vectors
from tests.memory.memories import DAY, NOW, Clock, change, rows, store

_OLD = (NOW - DAY) * 1000

# LanceDB starts threads that do not end, so its work is done in a process of its own.
_REAL = """
import io, json, sys
import lancedb
from bsd.memory.vectors import use_lance

place = sys.argv[1]
rows = [
    {"id": "a'b", "text": "Quoted", "vector": [0.1, 0.2], "importance": 0.7, "category": "other",
     "createdAt": 5},
    *({"id": f"f{n}", "text": f"text {n}", "vector": [0.1, 0.2], "importance": 0.7,
       "category": "other", "createdAt": 6} for n in range(1200)),
]
for name in ("scenario", "whole"):
    lancedb.connect(f"{place}/{name}").create_table("memories", rows)

def ask(verb, told=""):
    out = io.TextIOWrapper(io.BytesIO())
    sys.stdin, real, sys.stdout = io.StringIO(told), sys.stdout, out
    try:
        use_lance(f"{place}/scenario", verb)
    finally:
        sys.stdout = real
    out.flush()
    return [json.loads(line) for line in out.buffer.getvalue().splitlines()]

print(json.dumps({
    "count": ask("count"),
    "first": sorted(ask("list"))[:2],
    "deleted": ask("delete", json.dumps(["a'b", "nobody", *(f"f{n}" for n in range(1100))])),
    "again": ask("delete", json.dumps(["a'b"])),
    "left": ask("count"),
    "last": sorted(row[0] for row in ask("list"))[-1],
}))
"""


@dataclass(frozen=True)
class Real:
    """Tables of the real library, and the result of bsd's work on one of them."""

    place: Path
    said: dict[str, object]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    if importlib.util.find_spec("lancedb") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("needs LanceDB, which CI must provide", pytrace=False)
        pytest.skip("needs LanceDB: pip install 'brainsurgeond[lancedb]'")
    place = tmp_path_factory.mktemp("lance")
    done = subprocess.run(
        [sys.executable, "-c", _REAL, str(place)], check=True, capture_output=True, text=True
    )
    return Real(place, json.loads(done.stdout.splitlines()[-1]))


def test_our_program_counts_lists_and_deletes(real: Real) -> None:
    assert real.said == {
        "count": [1201],
        "first": [
            ["a'b", 5, normalized_hash("Quoted")],
            ["f0", 6, normalized_hash("text 0")],
        ],
        "deleted": [1101],
        "again": [0],
        "left": [100],
        "last": "f1199",
    }


def test_vectors_of_pruned_facts_are_deleted_with_them(real: Real, tmp_path: Path) -> None:
    clock = Clock()
    with Memory(
        tmp_path / "facts.db", clock=clock, vectors_directory=real.place / "whole"
    ) as memory:
        for number in range(3):
            fact = store(memory, f"text {number}", decay_class="session")
            change(memory.path, "UPDATE facts SET id = ? WHERE id = ?", [f"f{number}", fact.id])
        clock.now += 2 * DAY
        done = actions.prune(memory)
        assert (done.expired, done.vectors_deleted, done.vectors_pending) == (3, 3, 0)
        assert rows(memory.path, "SELECT * FROM bsd_vectors_due") == []


# --- the order of calls, with a table that gives prepared answers ---


@dataclass
class Table:
    """Stands in for the program: rows of [id, created, hash], and perhaps a failure."""

    rows: list[list[object]] = field(default_factory=list)
    failing: bool = False

    def run(self, verb: str, told: str = "") -> str:
        if self.failing:
            raise Unavailable("the vectors cannot be used: it is broken", hint="mend it")
        if verb == "count":
            return str(len(self.rows))
        if verb == "list":
            return "".join(json.dumps(row) + "\n" for row in self.rows)
        ids = json.loads(told)
        before = len(self.rows)
        self.rows = [row for row in self.rows if row[0] not in ids]
        return str(before - len(self.rows))


@pytest.fixture
def table(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table for the memory of the test."""
    (memory.vectors.directory / "memories.lance").mkdir(parents=True)
    table = Table()
    monkeypatch.setattr(Vectors, "_run", table.run)
    return table


Adding = Callable[..., str]


@pytest.fixture
def add(memory: Memory, table: Table) -> Adding:
    """Store a fact that has a vector; return its id."""

    def added(text: str, **fields: object) -> str:
        fact = store(memory, text, **fields)
        table.rows.append([fact.id, _OLD, normalized_hash(text)])
        return fact.id

    return added


def test_a_forgotten_fact_has_no_vector(memory: Memory, table: Table, add: Adding) -> None:
    actions.forget(memory, add("harbour"))
    assert table.rows == []


def test_what_could_not_be_deleted_is_tried_again(
    memory: Memory, table: Table, add: Adding, clock: Clock
) -> None:
    gone = add("harbour", decay_class="session")
    add("ship")
    clock.now += 2 * DAY
    table.failing = True
    done = actions.prune(memory)
    assert (done.expired, done.vectors_deleted, done.vectors_pending) == (1, 0, 1)
    assert rows(memory.path, "SELECT fact_id FROM bsd_vectors_due") == [(gone,)]
    memory.close()  # and by another process, after a restart
    table.failing = False
    done = actions.prune(memory)
    assert (done.expired, done.vectors_deleted, done.vectors_pending) == (0, 1, 0)
    assert len(table.rows) == 1
    assert actions.prune(memory).vectors_deleted == 0


def test_orphans_are_found_and_deleted_when_asked_for(
    memory: Memory, table: Table, add: Adding
) -> None:
    add("harbour")
    store(memory, "known by its text")
    table.rows += [
        ["other-id", _OLD, normalized_hash("Known by its TEXT")],
        ["orphan", _OLD, normalized_hash("nobody knows")],
        ["unknown age", None, None],
        ["young", NOW * 1000, normalized_hash("still to come")],
    ]
    assert actions.prune(memory).vectors_orphaned is None
    assert actions.prune(memory, vectors=True, dry_run=True).vectors_orphaned == 2
    assert len(table.rows) == 5
    done = actions.prune(memory, vectors=True)
    assert (done.vectors_orphaned, done.vectors_deleted) == (2, 2)
    assert [row[0] for row in table.rows][1:] == ["other-id", "young"]


def test_a_table_of_something_else_is_left_alone(memory: Memory, table: Table) -> None:
    store(memory, "harbour")
    table.rows += [["x", _OLD, None], ["y", _OLD, None]]
    with pytest.raises(Conflict, match="none of the 2 vectors") as caught:
        actions.prune(memory, vectors=True)
    assert "no vector was deleted" in (caught.value.hint or "")
    assert len(table.rows) == 2


def test_statistics_count_vectors_or_say_why_not(memory: Memory, table: Table, add: Adding) -> None:
    add("harbour")
    assert actions.stats(memory).vectors == 1
    table.failing = True
    found = actions.stats(memory)
    assert (found.facts, found.vectors) == (1, None)
    assert found.vectors_problem == "the vectors cannot be used: it is broken"


def test_without_a_table_nothing_is_noted(memory: Memory) -> None:
    actions.forget(memory, store(memory, "harbour").id)
    assert rows(memory.path, "SELECT * FROM bsd_vectors_due") == []
    assert actions.prune(memory, vectors=True).vectors_orphaned == 0


def test_without_the_library_it_is_said_what_is_missing(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (memory.vectors.directory / "memories.lance").mkdir(parents=True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    fact = store(memory, "harbour")
    actions.forget(memory, fact.id)
    assert rows(memory.path, "SELECT fact_id FROM bsd_vectors_due") == [(fact.id,)]
    assert "not installed" in (actions.stats(memory).vectors_problem or "")
    with pytest.raises(Unavailable) as caught:
        actions.prune(memory, vectors=True)
    assert "brainsurgeond[lancedb]" in (caught.value.hint or "")


def test_a_program_that_fails_is_quoted(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys; sys.exit('Traceback of it\\nit is broken')"
    monkeypatch.setattr("bsd.memory.vectors._PROGRAM", program)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    with pytest.raises(Unavailable, match=r"cannot be used: it is broken$"):
        memory.vectors.count()


def test_a_program_that_takes_long_is_broken_off_when_bsd_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsd.memory.vectors._PROGRAM", "import time; time.sleep(600)")
    monkeypatch.setattr("bsd.memory.vectors._LOOK_SECONDS", 0.01)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    with pytest.raises(Unavailable, match="took too long"):
        Vectors(tmp_path, stopping=lambda: True).count()
