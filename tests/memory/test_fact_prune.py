"""Hard prune, soft decay, dry runs, backfill, statistics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.core.answers import as_json
from bsd.core.audit import AuditLog
from bsd.memory import actions
from bsd.memory.classes import Classes, Classifier, rules_for
from bsd.memory.decay import PrunedFacts
from bsd.memory.memory import Memory
from tests.memory import plugin
from tests.memory.memories import DAY, HOUR, NOW, Clock, change, rows, store, texts


def timed(memory: Memory, text: str, **columns: Any) -> str:
    """Store a fact with exactly these columns; return its id."""
    fact = store(memory, text)
    for name, value in columns.items():
        change(memory.path, f"UPDATE facts SET {name} = ? WHERE id = ?", [value, fact.id])
    return fact.id


def test_hard_prune_deletes_what_has_expired_and_no_more(memory: Memory) -> None:
    timed(memory, "expired", expires_at=NOW - 1)
    timed(memory, "just now", expires_at=NOW, last_confirmed_at=None)
    timed(memory, "later", expires_at=NOW + DAY, last_confirmed_at=None)
    timed(memory, "never", expires_at=None)
    assert actions.prune(memory, soft=False) == PrunedFacts(expired=1)
    assert texts(memory.path) == {"just now", "later", "never"}
    assert actions.recall(memory, "expired").results == [], "its words went, too"


def test_soft_decay_halves_what_is_past_three_quarters(memory: Memory) -> None:
    """Seed 002's formula, on both sides of each of its conditions."""
    end = NOW + 10 * HOUR
    fading = timed(memory, "past it", last_confirmed_at=NOW - 30 * HOUR - 4, expires_at=end)
    timed(memory, "at it", last_confirmed_at=NOW - 30 * HOUR, expires_at=end)
    timed(memory, "expired", last_confirmed_at=NOW - 30 * HOUR, expires_at=NOW - 1)
    timed(memory, "never confirmed", last_confirmed_at=None, expires_at=end)
    timed(memory, "never expires", last_confirmed_at=0, expires_at=None)
    faint = timed(
        memory,
        "faint",
        last_confirmed_at=NOW - 31 * HOUR,
        expires_at=NOW + 9 * HOUR,
        confidence=0.1,
    )
    timed(memory, "too faint", expires_at=None, confidence=0.0999)
    assert actions.prune(memory, hard=False) == PrunedFacts(decayed=1, deleted=1)
    assert actions.get(memory, fading).confidence == 0.5
    assert actions.get(memory, faint).confidence == 0.1
    left = dict(rows(memory.path, "SELECT text, confidence FROM facts"))
    assert left == {
        "past it": 0.5,
        "at it": 1.0,
        "expired": 1.0,
        "never confirmed": 1.0,
        "never expires": 1.0,
        "faint": 0.1,
    }


def test_2_2_6_only_more_than_three_quarters_counts_and_the_faintest_stays(
    memory: Memory, clock: Clock
) -> None:
    """Strict `>`; 0.1 exactly is neither halved nor deleted; below it even permanent facts go."""
    fact = store(memory, "right now", decay_class="session")
    low = store(memory, "faint right now", decay_class="session", confidence=0.1)
    store(memory, "we decided", confidence=0.09)
    clock.now += 18 * HOUR
    assert actions.prune(memory) == PrunedFacts(deleted=1)
    clock.now += 1
    assert actions.prune(memory) == PrunedFacts(decayed=1)
    assert actions.get(memory, fact.id).confidence == 0.5
    assert actions.get(memory, low.id).confidence == 0.1


def test_2_2_7_what_was_never_confirmed_does_not_fade(memory: Memory, clock: Clock) -> None:
    timed(memory, "x y", last_confirmed_at=None, expires_at=NOW + HOUR)
    clock.now += HOUR
    assert actions.prune(memory) == PrunedFacts()
    clock.now += 1
    assert actions.prune(memory) == PrunedFacts(expired=1)


def test_2_2_11_what_is_recalled_does_not_fade_if_its_class_lives_on(
    memory: Memory, clock: Clock
) -> None:
    """True only of stable and active facts, although the seed's wording seems wider."""
    kept = store(memory, "harbour todo", decay_class="active")
    lost = store(memory, "harbour now", decay_class="session")
    for _ in range(20):
        clock.now += 5 * HOUR
        actions.recall(memory, "harbour")
        actions.prune(memory)
    assert actions.get(memory, kept.id).confidence == 1.0
    assert lost.text not in texts(memory.path)


@pytest.mark.parametrize("prunes", [1, 2, 40])
def test_fading_is_a_matter_of_age_not_of_ticks(memory: Memory, clock: Clock, prunes: int) -> None:
    """The plugin halves once per tick: four calls in a minute delete a fact."""
    fact = store(memory, "right now", decay_class="session")
    clock.now += 18 * HOUR + 1
    for _ in range(prunes):
        actions.prune(memory)
        clock.now += 1
    assert actions.get(memory, fact.id).confidence == 0.5
    clock.now = NOW + 19 * HOUR
    for _ in range(prunes):
        actions.prune(memory)
    assert actions.get(memory, fact.id).confidence == 0.25
    clock.now = NOW + 21 * HOUR
    assert actions.prune(memory) == PrunedFacts(deleted=1), "1/16 is less than 0.1"


def test_what_expires_this_second_has_faded_by_its_age(memory: Memory) -> None:
    """The seed's formula leaves it out: whether it was halved would depend on an earlier tick."""
    last = timed(memory, "right now", last_confirmed_at=NOW - HOUR, expires_at=NOW)
    assert actions.prune(memory, dry_run=True) == PrunedFacts(decayed=1, dry_run=True)
    assert actions.prune(memory) == PrunedFacts(decayed=1)
    assert actions.get(memory, last).confidence == 0.5


def test_a_raised_confidence_is_the_new_base_and_a_missing_one_the_first_seen(
    memory: Memory, clock: Clock
) -> None:
    """The plugin knows no base confidence: it may confirm, or have halved before bsd did."""
    half = timed(memory, "half", last_confirmed_at=NOW, expires_at=NOW + 40 * HOUR, confidence=0.5)
    clock.now += 30 * HOUR + 1
    actions.prune(memory)
    assert actions.get(memory, half).confidence == 0.25
    change(memory.path, "UPDATE facts SET confidence = 1.0")
    actions.prune(memory)
    assert actions.get(memory, half).confidence == 0.5
    change(memory.path, "UPDATE facts SET confidence = confidence * 0.5")  # by the plugin's tick
    actions.prune(memory)
    assert actions.get(memory, half).confidence == 0.5


def test_modes_do_what_they_say(memory: Memory) -> None:
    timed(memory, "expired", expires_at=NOW - 1)
    timed(memory, "faint", expires_at=None, confidence=0.05)
    assert actions.prune(memory, hard=False) == PrunedFacts(deleted=1)
    assert actions.prune(memory, soft=False) == PrunedFacts(expired=1)


facts = st.lists(
    st.tuples(
        st.sampled_from([None, -5, 0, 1, 3 * HOUR, 200 * HOUR]) | st.integers(-9000, 400_000),
        st.none() | st.integers(-900_000, 9000),
        st.sampled_from([1.0, 0.8, 0.5, 0.2, 0.1, 0.09, 0.0]),
        st.none() | st.sampled_from([1.0, 0.4, 0.1]),
    ),
    max_size=30,
)


@given(facts=facts, hard=st.booleans(), soft=st.booleans())
@settings(max_examples=12, deadline=None)
def test_2_2_10_a_dry_run_predicts_exactly_and_writes_nothing(
    facts: list[tuple[int | None, int | None, float, float | None]],
    hard: bool,
    soft: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The plugin's version reports only expired facts, for any request."""
    path = tmp_path_factory.mktemp("dry") / "facts.db"
    with Memory(path, clock=Clock()) as memory:
        for number, (expires, confirmed, confidence, base) in enumerate(facts):
            fact = store(memory, f"fact {number}")
            memory.open(write=True).run(
                "UPDATE facts SET expires_at = ?, last_confirmed_at = ?, confidence = ?,"
                " bsd_base_confidence = ? WHERE id = ?",
                (
                    None if expires is None else NOW + expires,
                    None if confirmed is None else NOW + confirmed,
                    confidence,
                    base,
                    fact.id,
                ),
            )
        if not facts:
            store(memory, "one")
        memory.close()
        before = path.read_bytes()
        predicted = actions.prune(memory, hard=hard, soft=soft, dry_run=True)
        memory.close()
        assert path.read_bytes() == before
        done = actions.prune(memory, hard=hard, soft=soft)
        assert replace(predicted, dry_run=False) == done
        assert actions.prune(memory, hard=hard, soft=soft) == PrunedFacts(), (
            "and then there is no more to do"
        )


def test_2_2_10_a_dry_run_knows_every_boundary(memory: Memory) -> None:
    """Facts by name: confidence, base, seconds since the end of three quarters of their time."""
    cases = {
        "has faded already": (0.5, 1.0, 1),
        "down to the faintest": (0.2, None, 1),
        "below it": (0.3, None, HOUR),
        "halved too often by somebody": (0.05, 0.4, 1),
        "faint, and not due yet": (0.05, 0.4, 0),
    }
    for text, (confidence, base, late) in cases.items():
        timed(
            memory,
            text,
            confidence=confidence,
            bsd_base_confidence=base,
            last_confirmed_at=NOW - late - 30 * HOUR,
            expires_at=NOW - late + 10 * HOUR,
        )
    timed(memory, "faint and expired", confidence=0.05, expires_at=NOW - 1)
    predicted = actions.prune(memory, dry_run=True)
    assert predicted == PrunedFacts(expired=1, decayed=2, deleted=2, dry_run=True)
    assert actions.prune(memory) == replace(predicted, dry_run=False)
    assert dict(rows(memory.path, "SELECT text, confidence FROM facts")) == {
        "has faded already": 0.5,
        "down to the faintest": 0.1,
        "halved too often by somebody": 0.2,
    }
    assert actions.prune(memory, dry_run=True) == PrunedFacts(dry_run=True)


def test_a_confirmed_fact_fades_from_full_confidence_whatever_it_had(
    memory: Memory, clock: Clock
) -> None:
    """Other programs write confidences outside 0 to 1."""
    past = {"last_confirmed_at": NOW - 31 * HOUR, "expires_at": NOW + 9 * HOUR}
    fact = timed(memory, "surer than sure", confidence=4.0, **past)
    actions.prune(memory, hard=False)
    assert actions.get(memory, fact).confidence == 1.0
    assert actions.confirm(memory, fact).confidence == 1.0
    change(
        memory.path,
        "UPDATE facts SET last_confirmed_at = ?, expires_at = ? WHERE id = ?",
        [*past.values(), fact],
    )
    actions.prune(memory, hard=False)
    assert actions.get(memory, fact).confidence == 0.25


def test_many_are_deleted_in_batches_and_a_stop_comes_between(tmp_path: Path, clock: Clock) -> None:
    asked: list[int] = []
    many = 12_000

    def stopping() -> bool:
        asked.append(1)
        return len(asked) > 1

    with Memory(tmp_path / "facts.db", clock=clock, stopping=stopping) as memory:
        store(memory, "one")
        db = memory.open(write=True)
        with db.change():
            db.run_many(
                "INSERT INTO facts (id, text, created_at, expires_at) VALUES (?, 'x', 1, 1)",
                ((str(number),) for number in range(many)),
            )
        first = actions.prune(memory, soft=False).expired
    assert 0 < first < many, "the gateway gets its turn"
    with Memory(tmp_path / "facts.db", clock=clock) as memory:
        assert actions.prune(memory, soft=False).expired == many - first


def test_many_fade_in_batches_each_of_them_once(
    memory: Memory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsd.memory.decay._FADED_AT_ONCE", 3)
    for number in range(20):
        store(memory, f"right now {number}", decay_class="session")
        clock.now += (number % 3 and 1) or 0
    for number in range(5):
        store(memory, f"at the same moment {number}", decay_class="session")
    clock.now = NOW + 19 * HOUR - 5  # on both sides of an hour
    done = actions.prune(memory)
    assert done == PrunedFacts(decayed=25)
    assert rows(memory.path, "SELECT confidence, COUNT(*) FROM facts GROUP BY 1") == [(0.5, 25)]
    assert actions.prune(memory) == PrunedFacts()


def test_all_batches_are_deleted_at_once(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bsd.memory.decay._DELETED_AT_ONCE", 3)
    for number in range(10):
        store(memory, f"expired {number}", expires_at=NOW - 1)
    assert actions.prune(memory) == PrunedFacts(expired=10)


def test_what_was_done_is_audited(tmp_path: Path, clock: Clock) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", clock)
    with Memory(tmp_path / "facts.db", clock=clock, audit=audit, actor="ada") as memory:
        fact = store(memory, "todo")
        actions.confirm(memory, fact.id)
        actions.prune(memory)
        actions.forget(memory, store(memory, "x").id)
        clock.now += 15 * DAY
        actions.prune(memory)
    told = list(audit.search(b""))
    assert [one["action"] for one in told] == [
        *("memory_store", "memory_confirm", "memory_store", "memory_forget", "memory_prune")
    ]
    assert {one["actor"] for one in told} == {"ada"}
    assert told[-1] | {"expired": 1, "deleted": 0} == told[-1]


# --- backfill ---


def test_backfill_classifies_all_but_superseded_facts(memory: Memory, clock: Clock) -> None:
    old = timed(memory, "we decided", decay_class="active", expires_at=NOW + 5)
    unconfirmed = timed(
        memory, "currently debugging", decay_class="stable", created_at=NOW - 7, expires_at=None
    )
    change(memory.path, "UPDATE facts SET last_confirmed_at = NULL WHERE id = ?", [unconfirmed])
    confirmed = timed(memory, "todo: tea", decay_class="stable", created_at=NOW - 9 * DAY)
    right = store(memory, "likes tea")
    gone = timed(memory, "todo", decay_class="stable", superseded_at=NOW)
    checkpoint = actions.save_checkpoint(memory, "decided", "the architecture")
    clock.now += DAY
    assert actions.backfill(memory).reclassified == {"active": 1, "permanent": 1, "session": 1}
    assert actions.get(memory, confirmed).expires_at == NOW + 14 * DAY, "from its last confirmation"
    assert (actions.get(memory, old).decay_class, actions.get(memory, old).expires_at) == (
        "permanent",
        None,
    )
    assert actions.get(memory, old).last_confirmed_at == NOW
    assert actions.get(memory, unconfirmed).expires_at == NOW - 7 + 24 * HOUR, "from its creation"
    assert actions.get(memory, right.id) == right
    assert actions.get(memory, gone).decay_class == "stable"
    assert actions.get(memory, checkpoint.id).decay_class == checkpoint.decay_class
    assert actions.backfill(memory).reclassified == {}


def test_backfill_follows_other_lifetimes_and_words(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "facts.db"
    with Memory(path, clock=clock) as memory:
        fact = store(memory, "the code is 1234", key="otp")
    classes = Classes({**Classes().lifetimes, "ephemeral": HOUR, "stable": DAY})
    rules = rules_for(words={"ephemeral": (("otp",), (), ())})
    with Memory(path, clock=clock, classes=classes, classifier=Classifier(rules)) as memory:
        assert actions.backfill(memory).reclassified == {"ephemeral": 1}
        assert actions.get(memory, fact.id).expires_at == NOW + HOUR
        clock.now += HOUR - 1
        assert actions.stats(memory).by_class == {"ephemeral": 1}
    with Memory(path, clock=clock) as memory:  # by a program that does not know that class
        assert actions.recall(memory, "code").results
        assert actions.confirm(memory, fact.id).expires_at == clock.now + HOUR, "as long again"
        assert actions.backfill(memory).reclassified == {"stable": 1}


def test_what_faded_in_the_wrong_class_is_whole_again(memory: Memory, clock: Clock) -> None:
    wrong = store(memory, "likes tea", decay_class="session")
    clock.now += 19 * HOUR
    actions.prune(memory)
    assert actions.get(memory, wrong.id).confidence == 0.25
    actions.backfill(memory)
    assert actions.get(memory, wrong.id).confidence == 1.0


# --- statistics ---


def test_statistics_count_by_class(memory: Memory, clock: Clock) -> None:
    store(memory, "we decided")
    store(memory, "right now")
    store(memory, "right now, again")
    clock.now += 24 * HOUR + 1
    assert as_json(actions.stats(memory)) == {
        "database": str(memory.path),
        "created_by_bsd": True,
        "facts": 3,
        "vectors": None,
        "vectors_problem": None,
        "by_class": {"permanent": 1, "session": 2},
        "expired": 2,
    }


@pytest.mark.parametrize(
    "protect",
    [
        "UPDATE facts SET pinned_at = 1 WHERE id = :id",
        f"UPDATE facts SET decay_freeze_until = {NOW + HOUR} WHERE id = :id",
        "INSERT INTO verified_facts VALUES (:id, :id)",
    ],
)
def test_what_a_later_plugin_protects_neither_fades_nor_goes(
    tmp_path: Path, clock: Clock, protect: str
) -> None:
    facts_db = tmp_path / "facts.db"
    past = {"last_confirmed_at": NOW - 31 * HOUR, "expires_at": NOW + 9 * HOUR}
    over = {"last_confirmed_at": NOW - 31 * HOUR, "expires_at": NOW - 1}
    lives: dict[str, dict[str, Any]] = {
        "fading": past,
        "gone": {"last_confirmed_at": NOW - 39 * HOUR, "expires_at": NOW + HOUR},
        "expired": over,
        "faint": {"expires_at": None, "confidence": 0.05},
    }
    with plugin.plugin(facts_db) as db:
        plugin.create(db)
        for name, columns in lives.items():
            for text in (name, f"{name}, protected"):
                plugin.insert(db, id=text, text=text, created_at=NOW - 40 * HOUR, **columns)
                if text != name:
                    db.execute(protect, {"id": text})
        before = db.execute("SELECT * FROM facts WHERE id LIKE '%protected'").fetchall()
    with Memory(facts_db, clock=clock) as memory:
        foreseen = actions.prune(memory, dry_run=True)
        assert actions.prune(memory) == replace(foreseen, dry_run=False)
        assert (foreseen.expired, foreseen.decayed, foreseen.deleted) == (1, 1, 2)
        assert actions.count_expired(memory) == 0
    known = "id, confidence, last_confirmed_at, expires_at"
    left = rows(facts_db, f"SELECT {known} FROM facts WHERE id LIKE '%protected' ORDER BY id")
    assert len(left) == len(before) == 4
    assert {row[0]: row[1] for row in left} == {
        "expired, protected": 1.0,
        "fading, protected": 1.0,
        "faint, protected": 0.05,
        "gone, protected": 1.0,
    }
    clock.now += 2 * HOUR  # no longer frozen; pinned and verified facts stay frozen
    with Memory(facts_db, clock=clock) as memory:
        actions.prune(memory)
    left = rows(facts_db, "SELECT id FROM facts WHERE id LIKE '%protected'")
    assert (len(left) < 4) is ("freeze" in protect)
