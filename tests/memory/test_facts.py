"""Storing, finding, confirming, forgetting, superseding; checkpoints."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.core.answers import as_json
from bsd.core.errors import Busy, Invalid, NotFound
from bsd.memory import actions, decay
from bsd.memory.actions import ConfirmedFact, ForgottenFact
from bsd.memory.database import Database, normalized_hash, storable
from bsd.memory.facts import FactFilter, expression, extend, freshness
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact
from tests.logs import capture_logs
from tests.memory.memories import DAY, HOUR, NOW, Clock, change, rows, store
from tests.refusing import raising


def test_a_fact_is_kept_with_all_that_was_said(memory: Memory) -> None:
    fact = store(
        memory,
        "Ada likes tea",
        entity="Ada",
        key="drink",
        value="tea",
        category="preference",
        source="cli",
        summary="tea",
        tags=("Tea ", "tea", "", "drinks"),
        confidence=0.5,
        importance=0.9,
        source_date=NOW - DAY,
    )
    assert as_json(fact) == {
        "id": fact.id,
        "text": "Ada likes tea",
        "category": "preference",
        "importance": 0.9,
        "entity": "Ada",
        "key": "drink",
        "value": "tea",
        "source": "cli",
        "created_at": NOW,
        "decay_class": "stable",
        "expires_at": NOW + 90 * DAY,
        "last_confirmed_at": NOW,
        "confidence": 0.5,
        "summary": "tea",
        "source_date": NOW - DAY,
        "tags": "tea,drinks",
        "recall_count": 0,
        "last_accessed": None,
        "superseded_at": None,
        "superseded_by": None,
        "valid_from": NOW - DAY,
        "valid_until": None,
        "supersedes_id": None,
    }
    assert actions.get(memory, fact.id) == fact


def test_what_was_not_said_is_as_the_plugin_has_it(memory: Memory) -> None:
    fact = store(memory, "We decided to use tabs")
    assert (fact.category, fact.importance, fact.source) == ("other", 0.7, "conversation")
    assert (fact.decay_class, fact.expires_at, fact.confidence) == ("permanent", None, 1.0)


def test_class_and_expiry_can_be_said(memory: Memory) -> None:
    assert store(memory, "we decided", decay_class="session").expires_at == NOW + 24 * HOUR
    assert store(memory, "todo", expires_at=NOW + 5).expires_at == NOW + 5


@pytest.mark.parametrize(
    ("new", "field"),
    [
        (NewFact(" \n"), "text"),
        (NewFact("x", confidence=1.1), "confidence"),
        (NewFact("x", confidence=float("nan")), "confidence"),
        (NewFact("x", importance=-0.1), "importance"),
        (NewFact("x", expires_at=NOW * 1000), "expires_at"),
        (NewFact("x", source_date=NOW * 1000), "source_date"),
    ],
)
def test_what_cannot_be_is_refused(memory: Memory, new: NewFact, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        actions.store(memory, new)
    assert [error.field for error in caught.value.errors] == [field]
    with pytest.raises(Invalid, match="no decay class"):
        actions.store(memory, NewFact("x", decay_class="eternal"))
    assert not memory.exists(), "nothing was made for it"
    with pytest.raises(Invalid, match="too large"):
        actions.store(memory, NewFact("x", source_date=1 << 70))


def test_the_files_are_private(memory: Memory) -> None:
    store(memory, "x y")
    assert stat.S_IMODE(memory.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(memory.path.parent.stat().st_mode) == 0o700


# --- the same fact twice ---


def test_the_same_text_is_kept_once(memory: Memory) -> None:
    first = store(memory, "Ada likes tea")
    again = actions.store(memory, NewFact("  ada LIKES\n tea"))
    assert not again.created
    assert again.id == first.id
    assert rows(memory.path, "SELECT COUNT(*) FROM facts") == [(1,)]


def test_what_is_expired_or_superseded_may_be_said_again(memory: Memory, clock: Clock) -> None:
    store(memory, "right now", decay_class="session")
    clock.now += 24 * HOUR  # expires this second: not pruned yet, but no longer visible
    store(memory, "right now", decay_class="session")
    old = store(memory, "tabs")
    new = store(memory, "spaces", supersedes=old.id)
    store(memory, "Tabs", supersedes=new.id)


# --- superseding ---


def test_a_fact_takes_the_place_of_another(memory: Memory, clock: Clock) -> None:
    old = store(memory, "Ada drinks tea", entity="Ada")
    clock.now += 100
    new = store(memory, "Ada drinks coffee", entity="Ada", supersedes=old.id)
    assert new.supersedes_id == old.id
    was = actions.get(memory, old.id)
    assert (was.superseded_at, was.superseded_by) == (NOW + 100, new.id)
    assert was.valid_until == new.valid_from == NOW + 100
    assert rows(
        memory.path, "SELECT source_fact_id, target_fact_id, link_type FROM memory_links"
    ) == [(new.id, old.id, "SUPERSEDES")]
    ids = [one.id for one in actions.recall(memory, "drinks").results]
    assert ids == [new.id]
    assert [one.id for one in actions.lookup(memory, "ada").results] == [new.id]
    both = actions.recall(memory, "drinks", only=FactFilter(include_superseded=True)).results
    assert {one.id for one in both} == {new.id, old.id}
    for moment, held in ((NOW - 1, []), (NOW, [old.id]), (NOW + 99, [old.id]), (NOW + 100, ids)):
        found = actions.recall(memory, "drinks", only=FactFilter(as_of=moment)).results
        assert [one.id for one in found] == held


def test_what_held_is_asked_by_when_it_began_to_be_true(memory: Memory, clock: Clock) -> None:
    old = store(memory, "Ada drinks tea")
    clock.now += 100
    store(memory, "Ada drinks coffee", supersedes=old.id, source_date=NOW + 10)
    assert actions.get(memory, old.id).valid_until == NOW + 10
    change(memory.path, "UPDATE facts SET valid_from = NULL")  # a state that the plugin may leave
    for moment, held in (
        (NOW - 1, []),
        (NOW + 9, ["tea"]),
        (NOW + 10, []),
        (NOW + 100, ["coffee"]),
    ):
        found = actions.recall(memory, "drinks", only=FactFilter(as_of=moment)).results
        assert [one.text.split()[-1] for one in found] == held


def test_the_same_words_may_supersede_and_what_is_missing_cannot(memory: Memory) -> None:
    old = store(memory, "tabs")
    assert store(memory, "tabs", supersedes=old.id).id != old.id
    with pytest.raises(NotFound, match="there is no fact nope"):
        actions.store(memory, NewFact("spaces", supersedes="nope"))
    assert rows(memory.path, "SELECT COUNT(*) FROM facts WHERE text = 'spaces'") == [(0,)]


# --- recall ---


def test_recall_ranks_by_words_freshness_and_confidence(memory: Memory) -> None:
    best = store(memory, "harbour harbour", decay_class="permanent")
    dull = store(memory, "the harbour is far away from here", decay_class="permanent")
    found = actions.recall(memory, "harbour", refresh=False).results
    assert [one.id for one in found] == [best.id, dull.id]
    assert [round(one.score, 9) for one in found] == [1.0, 0.4]


def test_twice_as_many_as_wanted_are_weighed(memory: Memory) -> None:
    """A fact that matches a little less, but is certain and lasting, comes before a fact that is
    neither.
    """
    store(memory, "harbour", decay_class="permanent")
    weak = store(memory, "harbour one two three four", expires_at=NOW + 1, confidence=0.0)
    sure = store(memory, "harbour one two three four five", decay_class="permanent")
    store(memory, "harbour one two three four five six seven", decay_class="permanent")
    found = list(actions.recall(memory, "harbour", limit=2, refresh=False).results)
    assert [fact.id for fact in found][1] == sure.id
    assert weak.id not in {fact.id for fact in found}


def test_2_2_9_nothing_counts_as_nothing(memory: Memory, clock: Clock) -> None:
    """The plugin's `|| 1.0` treated a confidence or freshness of zero as full."""
    store(memory, "harbour a", decay_class="permanent", confidence=0.0)
    store(memory, "harbour b", expires_at=NOW, confidence=1.0)
    found = actions.recall(
        memory, "harbour", only=FactFilter(include_expired=True), refresh=False
    ).results
    scores = {one.text[-1]: one.score for one in found}
    assert scores["a"] == pytest.approx(0.6 + 0.25)
    assert scores["b"] == pytest.approx(0.6 + 0.15)
    assert freshness(NOW - DAY, NOW) == 0.0
    assert freshness(NOW + 7 * DAY, NOW) == freshness(None, NOW) == 1.0
    assert freshness(NOW + 7 * DAY // 2, NOW) == 0.5


def test_of_equals_the_newest_comes_first(memory: Memory, clock: Clock) -> None:
    store(memory, "harbour x", decay_class="permanent", source_date=NOW - DAY)
    store(memory, "harbour y", decay_class="permanent")
    store(memory, "harbour z", decay_class="permanent", source_date=NOW + DAY)
    found = actions.recall(memory, "harbour", refresh=False).results
    assert [one.text[-1] for one in found] == ["z", "y", "x"]


def test_recall_finds_any_of_the_words_in_all_text_columns(memory: Memory) -> None:
    store(memory, "one", entity="harbour")
    store(memory, "two", key="harbours")  # by its stem
    store(memory, "three", value="Harbour")
    store(memory, "four", category="harbour")
    store(memory, "five")
    assert len(actions.recall(memory, "harbour five nowhere", limit=10).results) == 5
    assert len(actions.recall(memory, "harbour", limit=2).results) == 2
    assert actions.recall(memory, "h a r").results == actions.recall(memory, "").results == []


def test_recall_can_be_narrowed(memory: Memory) -> None:
    store(memory, "harbour one", entity="Ada", tags=("blue", "red"))
    store(memory, "harbour two", entity="Bob", tags=("redder",))
    assert [
        x.text for x in actions.recall(memory, "harbour", only=FactFilter(entity="ada")).results
    ] == ["harbour one"]
    assert [
        x.text for x in actions.recall(memory, "harbour", only=FactFilter(tag=" Red ")).results
    ] == ["harbour one"]


@given(query=st.text(max_size=30))
@settings(max_examples=25, deadline=None)
def test_no_query_is_an_error(query: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "queries" / "facts.db"
    with Memory(path) as memory:
        if not memory.exists():
            store(memory, "harbour")
        actions.recall(memory, query)
        actions.lookup(memory, query, query)


def test_2_2_5_what_expires_this_second_is_not_seen_but_still_there(
    memory: Memory, clock: Clock
) -> None:
    """`> now` to be seen, `< now` to be deleted."""
    fact = store(memory, "harbour", entity="x", decay_class="session")
    clock.now = NOW + 24 * HOUR - 1
    assert actions.recall(memory, "harbour").results
    clock.now += 1
    assert actions.recall(memory, "harbour").results == []
    assert actions.lookup(memory, "x").results == []
    assert actions.prune(memory, soft=False).expired == 0
    assert actions.get(memory, fact.id).decay_class == "session"
    clock.now += 1
    assert actions.prune(memory, soft=False).expired == 1


# --- renewal of lives ---


@pytest.mark.parametrize(
    ("name", "lives_on"),
    [
        ("permanent", False),
        ("stable", True),
        ("active", True),
        ("session", False),
        ("checkpoint", False),
    ],
)
def test_recall_refreshes_stable_and_active(
    memory: Memory, clock: Clock, name: str, lives_on: bool
) -> None:
    fact = store(memory, "harbour", entity="x", decay_class=name)
    clock.now += 2 * HOUR
    (found,) = actions.recall(memory, "harbour").results
    if lives_on:
        assert found.last_confirmed_at == clock.now
        assert found.expires_at == (fact.expires_at or 0) + 2 * HOUR
    else:
        assert found.last_confirmed_at == NOW
        assert found.expires_at == fact.expires_at
    assert (found.recall_count, found.last_accessed) == (1, clock.now)
    clock.now += 1
    (looked_up,) = actions.lookup(memory, "x").results
    assert (looked_up.recall_count, looked_up.last_accessed) == (2, clock.now)
    assert actions.get(memory, fact.id) == looked_up


def test_who_only_looks_keeps_nothing_alive(memory: Memory, clock: Clock) -> None:
    fact = store(memory, "harbour", entity="x")
    memory.close()
    clock.now += HOUR
    before = memory.path.read_bytes()
    assert actions.recall(memory, "harbour", refresh=False).results
    assert actions.lookup(memory, "x", refresh=False).results == [fact]
    memory.close()
    assert memory.path.read_bytes() == before
    assert [one.name for one in memory.path.parent.iterdir()] == ["facts.db"]


def test_2_2_8_recall_brings_back_the_confidence_of_before(memory: Memory, clock: Clock) -> None:
    """In the plugin a half-faded fact stayed half-faded after any number of recalls."""
    fact = store(memory, "harbour", confidence=0.8)
    clock.now += 68 * DAY
    change(memory.path, "UPDATE facts SET last_confirmed_at = last_confirmed_at + ?", [DAY // 2])
    clock.now = NOW + DAY // 2 + (90 * DAY - DAY // 2) * 3 / 4 + 1
    assert actions.prune(memory).decayed == 1
    assert actions.get(memory, fact.id).confidence == 0.4
    assert actions.recall(memory, "harbour").results[0].confidence == 0.8
    assert actions.prune(memory).decayed == 0


def test_confirming_begins_anew_with_full_confidence(memory: Memory, clock: Clock) -> None:
    fact = store(memory, "right now", decay_class="session", confidence=0.5)
    clock.now += 18 * HOUR + 1
    assert actions.prune(memory).decayed == 1
    confirmed = actions.confirm(memory, fact.id)
    assert (confirmed.confidence, confirmed.last_confirmed_at) == (1.0, clock.now)
    assert confirmed.expires_at == clock.now + 24 * HOUR
    assert extend(ConfirmedFact, actions.get(memory, fact.id)) == confirmed
    clock.now += 18 * HOUR + 1
    assert actions.prune(memory).decayed == 1
    assert actions.get(memory, fact.id).confidence == 0.5, "it fades from its new confidence"
    with pytest.raises(NotFound, match="there is no fact nope"):
        actions.confirm(memory, "nope")


def test_forgetting_is_for_good(memory: Memory) -> None:
    fact = store(memory, "harbour", entity="x")
    assert actions.forget(memory, fact.id) == extend(ForgottenFact, fact)
    assert actions.recall(memory, "harbour").results == []
    with pytest.raises(NotFound):
        actions.forget(memory, fact.id)


def test_what_was_forgotten_stands_nowhere_in_the_file(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decay, "_PAGES", 1)
    steps = 0

    def counted(db: Database, pages: int) -> bool:
        nonlocal steps
        steps += 1
        return merge(db, pages)

    merge = decay._merge
    monkeypatch.setattr(decay, "_merge", counted)
    secret = store(memory, "the password is zebra42", entity="x")
    for number in range(60):
        words = (hashlib.sha256(b"%d %d" % (number, n)).hexdigest() for n in range(12))
        store(memory, f"harbour {' '.join(words)}", entity="x")
    # Many builds of the library do this by default.
    memory.open(write=True).run("PRAGMA secure_delete = OFF")
    actions.forget(memory, secret.id)
    assert steps > 3  # short changes, in sequence
    assert len(actions.recall(memory, "harbour", limit=50).results) == 50
    memory.close()
    assert b"zebra42" not in memory.path.read_bytes()


def test_what_cannot_leave_the_index_yet_is_forgotten_all_the_same(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decay, "_merge", raising(Busy("the gateway writes")))
    fact = store(memory, "the password is zebra42")
    with capture_logs() as logs:
        assert actions.forget(memory, fact.id).id == fact.id
    assert [line["problem"] for line in logs if "problem" in line] == ["the gateway writes"]
    assert actions.recall(memory, "zebra42").results == []


def test_lookup_ignores_case_and_knows_keys(memory: Memory, clock: Clock) -> None:
    store(memory, "one", entity="Ada", key="Drink", confidence=0.5)
    clock.now += 1
    store(memory, "two", entity="ada", key="food")
    store(memory, "three", entity="ADA", key="drink", source_date=NOW - DAY)
    store(memory, "four", entity="Adam")
    assert [one.text for one in actions.lookup(memory, "aDA").results] == ["two", "three", "one"]
    assert [one.text for one in actions.lookup(memory, "ada", "DRINK").results] == ["three", "one"]
    assert [one.text for one in actions.lookup(memory, "ada", limit=1).results] == ["two"]


# --- equality of texts, and values that no database stores ---


def test_case_and_spaces_make_no_difference() -> None:
    expected = hashlib.sha256(b"ada likes tea").hexdigest()
    assert normalized_hash("  Ada\n likes\tTEA ") == expected
    assert normalized_hash("Ada likes teas") != expected
    assert normalized_hash(None) is None


def test_what_cannot_be_stored_is_replaced() -> None:
    assert storable("a\0b\ud800c é") == "a b?c é"


def test_a_query_is_any_of_its_words() -> None:
    assert expression("tea 'or' \"coffee\" I x AND") == '"tea" OR "or" OR "coffee" OR "AND"'
    assert expression('"" \' a') == ""
    assert expression("xx " * 5000) == expression("xx " * 1000), "or FTS5 would take minutes"


# --- when a fact counts as a repetition, and its effect ---


FACT: dict[str, Any] = {"entity": "Ada", "key": "drink", "value": "tea"}


@pytest.mark.parametrize("name", list(FACT))
@pytest.mark.parametrize("other", ["other", "", None])
def test_another_entity_key_or_value_is_another_fact(
    name: str, other: str | None, memory: Memory
) -> None:
    with memory:
        first = store(memory, "Ada likes tea", **FACT)
        second = store(memory, "Ada likes tea", **{**FACT, name: other})
        assert first.id != second.id
        assert not actions.store(memory, NewFact("ada  likes TEA", **FACT)).created
        assert actions.store(memory, NewFact("Ada likes coffee", **FACT)).created


def test_nothing_and_an_empty_text_say_the_same(memory: Memory) -> None:
    with memory:
        store(memory, "Ada likes tea", entity="")
        assert not actions.store(memory, NewFact("Ada likes tea", key="")).created


def test_a_class_that_is_named_is_the_facts_from_then_on(memory: Memory) -> None:
    with memory:
        first = store(memory, "Ada likes tea", decay_class="session", **FACT)
        again = actions.store(memory, NewFact("Ada likes tea", decay_class="permanent", **FACT))
        assert (again.created, again.id) == (False, first.id)
        assert (again.decay_class, again.expires_at) == ("permanent", None)
        unnamed = actions.store(memory, NewFact("Ada likes tea", **FACT))
        assert unnamed == again
    kept = rows(memory.path, "SELECT decay_class, expires_at FROM facts")
    assert kept == [("permanent", None)]


# --- an agent's next action: saved, and returned unchanged ---


def test_a_checkpoint_comes_back_as_it_was_saved(memory: Memory, clock: Clock) -> None:
    assert actions.restore_checkpoint(memory).checkpoint is None
    clock.now += 0.25
    fact = actions.save_checkpoint(
        memory,
        "rename " + "x" * 200,
        "half done",
        expected_outcome="all green",
        working_files=["a.py", "b.py"],
    )
    said = {
        "intent": "rename " + "x" * 200,
        "state": "half done",
        "expectedOutcome": "all green",
        "workingFiles": ["a.py", "b.py"],
        "savedAt": "2027-01-15T08:00:00.250Z",
    }
    assert json.loads(fact.text) == said
    assert (fact.entity, fact.key) == ("system", f"checkpoint:{NOW * 1000 + 250}")
    assert fact.value == ("rename " + "x" * 200)[:100]
    assert (fact.decay_class, fact.importance, fact.category) == ("checkpoint", 0.9, "other")
    assert actions.restore_checkpoint(memory).checkpoint == {
        "id": fact.id,
        **said,
        "expires_at": NOW + 4 * HOUR,
    }
    clock.now = NOW + 4 * HOUR
    assert actions.restore_checkpoint(memory).checkpoint is None


def test_of_several_checkpoints_in_one_second_the_last_counts(memory: Memory) -> None:
    for number in range(5):  # in the same millisecond, even
        actions.save_checkpoint(memory, f"intent {number}", "same")
    change(memory.path, "DELETE FROM facts WHERE value = 'intent 4'")
    actions.save_checkpoint(memory, "the last", "same")
    found = actions.restore_checkpoint(memory).checkpoint
    assert found is not None
    assert found["intent"] == "the last"


def test_a_checkpoint_needs_something_to_say(memory: Memory) -> None:
    with pytest.raises(Invalid, match="an intent and a state"):
        actions.save_checkpoint(memory, "x", " ")


def test_a_checkpoint_by_another_hand_is_shown_as_it_is(memory: Memory) -> None:
    actions.save_checkpoint(memory, "x", "y")
    change(memory.path, "UPDATE facts SET text = 'not JSON'")
    found = actions.restore_checkpoint(memory).checkpoint
    assert found is not None
    assert found["text"] == "not JSON"


# --- no query that runs by the clock, or for each call, reads the whole table ---


# Statements that read all rows on purpose.
_ALL = ("GROUP BY", "rowid > ?")


@pytest.fixture
def plans(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """SQLite's plans for every statement about facts from now on."""
    store(memory, "harbour", entity="x")
    found: list[tuple[str, str]] = []

    def explaining(name: str) -> None:
        original = getattr(Database, name)

        def explained(self: Database, sql: str, parameters: Sequence[Any] = ()) -> Any:
            if re.match(r"\s*(SELECT|UPDATE|DELETE|CREATE TEMP)\b.*\bfacts\b", sql, re.DOTALL):
                plan = self._db.execute(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
                found.extend((sql, row["detail"]) for row in plan)
            return original(self, sql, parameters)

        monkeypatch.setattr(Database, name, explained)

    for name in ("all", "one", "value", "run"):
        explaining(name)
    return found


def test_each_query_has_its_index(
    memory: Memory, plans: list[tuple[str, str]], clock: Clock
) -> None:
    fact = store(memory, "right now", entity="x", key="y")
    actions.recall(memory, "harbour now")
    actions.lookup(memory, "x")
    actions.lookup(memory, "x", "y")
    actions.confirm(memory, fact.id)
    actions.forget(memory, fact.id)
    actions.save_checkpoint(memory, "a", "b")
    actions.restore_checkpoint(memory)
    clock.now += 80 * DAY
    actions.prune(memory, dry_run=True)
    actions.prune(memory)
    actions.backfill(memory)
    actions.stats(memory)
    assert len(plans) > 40
    whole = {
        sql
        for sql, detail in plans
        # an index of words, and lists passed as parameters, are rightly scanned
        if re.match(r"SCAN facts(?! VIRTUAL)\b(?!_fts)", detail)
        and "COVERING INDEX" not in detail
        and not any(word in sql for word in _ALL)
    }
    assert whole == set()
    # few facts are faint, so their index is as good
    by_age = [
        (sql, detail)
        for sql, detail in plans
        if "3 * expires_at <=" in sql and "rowid IN" not in sql and "facts" in detail
    ]
    assert by_age
    for sql, detail in by_age:
        faint = "WHERE confidence < 0.1" in sql and "bsd_facts_faint" in detail
        assert faint or "USING INDEX bsd_facts_fading" in detail, sql
    classes = {sql for sql, detail in plans if "idx_facts_decay" in detail}
    assert all("GROUP BY" in sql for sql in classes), "each class is large"
