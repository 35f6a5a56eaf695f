"""SQLite keeps any value in any column; odd values of other programs cause no failure and no
loss.

Each value is in a database of the plugin, beside a correct fact.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.cli.main import run
from bsd.core.answers import as_json
from bsd.core.logs import close_logs
from bsd.memory import actions
from bsd.memory.classes import Classes
from bsd.memory.decay import PrunedFacts
from bsd.memory.facts import FactFilter
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact
from tests.memory import plugin
from tests.memory.memories import DAY, HOUR, NOW, Clock, change, rows, sound

_ANY = FactFilter(include_expired=True, include_superseded=True)
_FIRST_TABLE = (
    "CREATE TABLE facts (id TEXT PRIMARY KEY, text TEXT, category TEXT, importance REAL,"
    " entity TEXT, key TEXT, value TEXT, source TEXT, created_at INTEGER, confidence REAL,"
    " decay_class TEXT)"
)


def filled(path: Path, **odd: Any) -> None:
    """A database of the plugin with two facts, one of them with these values."""
    good = {
        **dict.fromkeys(("category", "key", "value", "source"), "x"),
        **dict.fromkeys(("created_at", "last_confirmed_at"), NOW - DAY),
        "entity": "Ada",
        "expires_at": NOW + 89 * DAY,
        "importance": 0.7,
        "confidence": 1.0,
    }
    with plugin.plugin(path) as db:
        if None in odd.values():  # a table of another program, whose columns may be empty
            db.execute(_FIRST_TABLE)
        plugin.create(db, "links")
        plugin.insert(db, **{**good, "id": "good", "text": "a good harbour"})
        plugin.insert(db, **{**good, "id": "odd", "text": "an odd harbour", **odd})


@pytest.mark.parametrize(
    "odd",
    [
        {"created_at": "2026-01-01T00:00:00Z"},
        {"created_at": None},
        {"expires_at": "2026-01-01T00:00:00Z"},
        {"expires_at": NOW + 0.5},
        {"last_confirmed_at": b"\xff"},
        {"last_confirmed_at": (1 << 63) - 1},
        {"confidence": "high", "importance": b"\xff"},
        {"confidence": None},
        {"confidence": float("inf")},
        {"text": None, "decay_class": None},
        {
            "text": b"harbour \xff",
            "category": b"\xff",
            "entity": b"Ada\xff",
            "decay_class": b"\xff",
        },
        {"source_date": "yesterday", "tags": b"a,\xff", "valid_from": b"\xff"},
    ],
)
def test_whatever_stands_in_a_column_every_operation_works(
    tmp_path: Path, clock: Clock, odd: dict[str, Any]
) -> None:
    path = tmp_path / "facts.db"
    filled(path, **odd)
    with Memory(path, clock=clock) as memory:
        actions.prune(memory, dry_run=True)
        found = actions.recall(memory, "harbour", only=_ANY, refresh=False).results
        assert "good" in {one.id for one in found}
        actions.recall(memory, "harbour", only=_ANY)
        actions.lookup(memory, "ada")
        actions.backfill(memory)
        assert json.loads(json.dumps(as_json(actions.stats(memory)), allow_nan=False))["facts"] == 2
        told = json.loads(json.dumps(as_json(actions.confirm(memory, "odd")), allow_nan=False))
        assert isinstance(told["created_at"], int)
        assert isinstance(told["text"], str)
        assert isinstance(told["confidence"], float)
        assert actions.store(memory, NewFact("another", supersedes="odd")).created
        assert actions.prune(memory) == PrunedFacts()
        actions.forget(memory, "odd")
    sound(path)


@pytest.mark.parametrize("column", ["expires_at", "last_confirmed_at", "confidence"])
def test_what_is_no_number_neither_expires_nor_fades(
    tmp_path: Path, clock: Clock, column: str
) -> None:
    """SQLite reads `2026-01-01` as 2026, long ago; and half of `high` is not a number."""
    path = tmp_path / "facts.db"
    old = {"last_confirmed_at": NOW - 90 * DAY, "expires_at": NOW + DAY}
    filled(path, **{**old, column: "2026-01-01"})
    with Memory(path, clock=clock) as memory:
        assert actions.prune(memory, dry_run=True) == PrunedFacts(dry_run=True)
        assert actions.prune(memory) == PrunedFacts()
        assert actions.get(memory, "odd").text == "an odd harbour"


def test_a_text_is_no_time_in_milliseconds(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "facts.db"
    filled(path, source_date="2026-01-01", created_at=(NOW - DAY) * 1000)
    with Memory(path, clock=clock) as memory:
        assert actions.recall(memory, "odd", refresh=False).results[0].created_at == NOW - DAY
        actions.prune(memory)
    assert rows(path, "SELECT created_at, source_date FROM facts WHERE id = 'odd'") == [
        (NOW - DAY, "2026-01-01")
    ]


def test_a_fraction_of_a_second_is_halved_once(tmp_path: Path, clock: Clock) -> None:
    """`4 * now` less an hour falls between the moments of two sets."""
    path = tmp_path / "facts.db"
    moment = 4 * NOW - 4 * HOUR + 0.5
    filled(path, last_confirmed_at=moment - 3 * (NOW + HOUR), expires_at=NOW + HOUR)
    with Memory(path, clock=clock) as memory:
        assert actions.prune(memory, dry_run=True).decayed == 1
        assert actions.prune(memory) == PrunedFacts(decayed=1)
        assert actions.get(memory, "odd").confidence == 0.5


def test_no_number_is_too_odd_to_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "memory" / "facts.db"
    path.parent.mkdir()
    filled(path, expires_at=-(1 << 63), decay_class="unknown")
    assert run(["--root", str(tmp_path), "memory", "confirm", "odd"]) == 0
    close_logs()
    assert capsys.readouterr().out == f"Confirmed: odd, until {-(1 << 63)}\n"


def test_the_age_of_a_fact_that_has_none_is_not_invented(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "facts.db"
    filled(path, created_at="?", last_confirmed_at=None, decay_class="session")
    with Memory(path, clock=clock) as memory:
        actions.backfill(memory)
        assert actions.get(memory, "odd").decay_class == "session"


def test_a_class_that_is_never_over_ends_what_was_to_expire(tmp_path: Path, clock: Clock) -> None:
    """`stable = "never"`: facts stored earlier live on as well, when they are recalled."""
    path = tmp_path / "facts.db"
    filled(path)
    lasting = Classes({**Classes().lifetimes, "stable": None})
    with Memory(path, clock=clock, classes=lasting) as memory:
        assert actions.recall(memory, "odd").results[0].expires_at is None
        assert actions.get(memory, "odd").last_confirmed_at == NOW


def test_missing_triggers_are_made_and_what_they_missed_is_found(
    tmp_path: Path, clock: Clock
) -> None:
    path = tmp_path / "facts.db"
    filled(path)
    for name in ("facts_ai", "facts_ad"):
        change(path, f"DROP TRIGGER {name}")
    change(path, "INSERT INTO facts (id, text, created_at) VALUES ('late', 'a ship', 5)")
    change(path, "DELETE FROM facts WHERE id = 'good'")
    with Memory(path, clock=clock) as memory:
        assert [one.id for one in actions.recall(memory, "ship good").results] == ["late"]
        actions.forget(memory, "late")
    sound(path)
