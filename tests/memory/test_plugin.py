"""Databases of the plugin: every version opens, works, and still works for the plugin."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from bsd.core.errors import Forbidden
from bsd.memory import actions
from bsd.memory.database import normalized_hash
from bsd.memory.decay import PrunedFacts
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact
from bsd.memory.schema import COLUMNS
from tests.memory import plugin
from tests.memory.memories import DAY, HOUR, NOW, Clock, rows, sound, store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "facts.db"


def columns(path: Path) -> dict[str, tuple[str, int, str | None]]:
    """Return type, NOT NULL and default of each column."""
    return {row[1]: (row[2], row[3], row[4]) for row in rows(path, "PRAGMA table_info(facts)")}


def objects(path: Path) -> dict[str, str]:
    return dict(rows(path, "SELECT name, sql FROM sqlite_master"))


def fill(path: Path, version: str) -> None:
    """Make a database of this version with three facts."""
    with plugin.plugin(path) as db:
        plugin.create(db, version)
        common = {"category": "other", "entity": "Ada", "source": "conversation"}
        plugin.insert(db, id="a", text="Ada likes the harbour", created_at=NOW - DAY, **common)
        plugin.insert(db, id="b", text="We decided on tabs", created_at=NOW - 100 * DAY, **common)
        if version != "first":
            plugin.insert(
                db,
                id="c",
                text="right now",
                created_at=NOW - 19 * HOUR,
                last_confirmed_at=NOW - 19 * HOUR,
                expires_at=NOW + 5 * HOUR,
                decay_class="session",
                **common,
            )


@pytest.mark.parametrize("version", plugin.VERSIONS)
def test_every_version_opens_works_and_works_for_the_plugin_afterwards(
    path: Path, clock: Clock, version: str
) -> None:
    fill(path, version)
    before = columns(path)
    with plugin.plugin(path) as theirs, Memory(path, clock=clock) as memory:  # both at once
        assert {
            one.id for one in actions.recall(memory, "harbour tabs", refresh=False).results
        } == {"a", "b"}
        assert columns(path) == before, "who only looks changes nothing"
        new = store(memory, "The ship leaves at noon", entity="Ada", tags=("ship",))
        again = actions.store(memory, NewFact("we DECIDED on  tabs", entity="Ada"))
        assert not again.created, "old texts are known"
        assert {one.id for one in actions.recall(memory, "harbour ship").results} == {"a", new.id}
        assert len(actions.lookup(memory, "ada").results) == len(rows(path, "SELECT id FROM facts"))
        assert actions.prune(memory).decayed == (version != "first")
        assert actions.confirm(memory, "b").confidence == 1.0
        assert actions.stats(memory).facts == 3 + (version != "first")
        assert not memory.is_ours()
        works_for_the_plugin(theirs, new.id)
        assert {name: columns(path)[name] for name in before} == before
        assert set(COLUMNS) <= set(columns(path))
    with plugin.plugin(path) as theirs:
        plugin.create(theirs)  # the plugin upgrades it at its next start
        works_for_the_plugin(theirs, new.id)
    with Memory(path, clock=clock) as memory:
        assert actions.get(memory, "a").text == "Ada likes the harbour"
    sound(path)


def works_for_the_plugin(db: sqlite3.Connection, id: str) -> None:
    """Run the statements that the plugin makes, in order."""
    now = {"now": NOW}
    plugin.insert(db, id="p", text="The plugin says harbour", category="fact", created_at=NOW)
    found = db.execute(plugin.SEARCH, {**now, "words": '"harbour"', "most": 10}).fetchall()
    assert {row[0] for row in found} >= {"a", "p"}
    assert db.execute(plugin.LOOKUP, {**now, "entity": "ADA"}).fetchall()
    db.execute(plugin.REFRESH, {**now, "id": id})
    db.execute(plugin.CONFIRM, {**now, "id": "p", "expires": NOW - 1})
    assert db.execute(plugin.COUNT_EXPIRED, now).fetchone() == (1,)
    assert db.execute(plugin.PRUNE_EXPIRED, now).rowcount == 1
    db.execute(plugin.DECAY, now)
    db.execute(plugin.DELETE_FAINT)
    db.execute("UPDATE facts SET text = text || ' again' WHERE id = ?", (id,))
    found = db.execute(plugin.SEARCH, {**now, "words": '"again"', "most": 10}).fetchall()
    assert [row[0] for row in found] == [id], "its triggers still follow the text"


def test_ours_has_every_column_as_the_plugin_wants_it(path: Path, clock: Clock) -> None:
    with Memory(path, clock=clock) as memory:
        new = store(memory, "The harbour", entity="Ada", source_date=NOW)
        store(memory, "Ada: a harbour", entity="Ada")
        actions.store(memory, NewFact("a new harbour", supersedes=new.id))
        wanted = path.with_name("plugin.db")
        with plugin.plugin(wanted) as db:
            plugin.create(db, "links")
        theirs, ours = columns(wanted), columns(path)
        assert {name: ours[name] for name in theirs} == theirs
        assert set(ours) - set(theirs) == {"bsd_base_confidence"}
        assert rows(path, "PRAGMA journal_mode") == [("delete",)], "the plugin makes it its own"
        missing = set(objects(wanted)) - set(objects(path))
        assert {name for name in missing if not name.startswith("sqlite_autoindex")} == set()
    with plugin.plugin(path) as db:
        plugin.create(db)
        plugin.insert(db, id="a", text="a harbour of theirs", created_at=NOW)
        works_for_the_plugin(db, "a")


def test_the_index_of_words_is_written_only_when_text_changes(path: Path, clock: Clock) -> None:
    fill(path, "links")
    with Memory(path, clock=clock) as memory:
        assert actions.prune(memory) == PrunedFacts(decayed=1)
    trigger = objects(path)["facts_au"]
    assert "AFTER UPDATE OF text, category, entity, key, value ON facts" in trigger
    with plugin.plugin(path) as db:
        before = db.total_changes
        db.execute(plugin.DECAY, {"now": NOW})
        assert db.total_changes - before == 1, "the row, and nothing of the index"


def test_times_in_milliseconds_become_seconds(path: Path, clock: Clock) -> None:
    with plugin.plugin(path) as db:
        plugin.create(db)
        plugin.insert(
            db,
            id="ms",
            text="harbour",
            created_at=(NOW - DAY) * 1000,
            last_confirmed_at=(NOW - DAY) * 1000,
            expires_at=(NOW - 1) * 1000,
        )
    with Memory(path, clock=clock) as memory:
        assert actions.prune(memory, dry_run=True).expired == 1
        assert actions.get(memory, "ms").created_at == NOW - DAY
        assert rows(path, "SELECT created_at FROM facts") == [((NOW - DAY) * 1000,)]
        assert actions.prune(memory) == PrunedFacts(expired=1)


def test_one_time_in_milliseconds_is_enough(path: Path, clock: Clock) -> None:
    with plugin.plugin(path) as db:
        plugin.create(db)
        plugin.insert(db, id="ms", text="x", created_at=NOW - DAY, expires_at=(NOW - 1) * 1000)
    with Memory(path, clock=clock) as memory:
        assert actions.prune(memory) == PrunedFacts(expired=1)


def test_what_older_versions_lack_is_filled_as_the_plugin_does(path: Path, clock: Clock) -> None:
    fill(path, "first")
    with Memory(path, clock=clock) as memory:
        actions.prune(memory)
    assert rows(
        path, "SELECT last_confirmed_at, valid_from, normalized_hash FROM facts WHERE id = 'a'"
    ) == [(NOW - DAY, NOW - DAY, normalized_hash("Ada likes the harbour"))]


def test_the_connection_is_as_the_plugin_configures_its_own(path: Path, clock: Clock) -> None:
    with Memory(path, clock=clock) as memory:
        store(memory, "x")
        db = memory.open(write=True)
        names = ("journal_mode", "busy_timeout", "synchronous", "foreign_keys")
        assert [db.value(f"PRAGMA {name}") for name in names] == ["delete", 5000, 1, 1]
        memory.close()
        with pytest.raises(Forbidden, match="readonly"):  # a reader cannot write by mistake
            memory.open(write=False).run("DELETE FROM facts")


def test_what_the_plugin_deletes_takes_its_links_along(path: Path, clock: Clock) -> None:
    with Memory(path, clock=clock) as memory:
        old = store(memory, "tabs")
        store(memory, "spaces", supersedes=old.id)
        actions.forget(memory, old.id)
    assert rows(path, "SELECT * FROM memory_links") == []


def test_the_plugin_may_refresh_and_confirm_what_fades_here(path: Path, clock: Clock) -> None:
    fill(path, "links")
    with plugin.plugin(path) as theirs, Memory(path, clock=clock) as memory:
        actions.prune(memory)
        assert actions.get(memory, "c").confidence == 0.25
        theirs.execute(plugin.CONFIRM, {"now": NOW, "id": "c", "expires": NOW + 24 * HOUR})
        assert actions.prune(memory) == PrunedFacts()
        clock.now += 18 * HOUR + 1
        actions.prune(memory)
        assert actions.get(memory, "c").confidence == 0.5


def test_only_what_bsd_created_is_its_own(path: Path, clock: Clock) -> None:
    with Memory(path, clock=clock) as memory:
        store(memory, "x")
        assert memory.is_ours()
    other = path.with_name("theirs.db")
    fill(other, "links")
    with Memory(other, clock=clock) as memory:
        assert not memory.is_ours()
        store(memory, "x")
        assert not memory.is_ours()
        memory.note("last_run", 5)
        assert memory.noted("last_run") == 5
