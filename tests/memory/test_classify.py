"""Seed 002, "How decay class is chosen", row by row, with the decisions of SPEC §10."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from bsd.core.errors import Invalid
from bsd.core.formatting import LANGUAGES
from bsd.memory.classes import RULES, TRANSLATIONS, Classes, Classifier, rules_for
from bsd.memory.decay import FADED, FADING

PERMANENT_KEYS = (
    *("name", "email", "api_key", "api_endpoint", "architecture", "decision", "birthday"),
    *("born", "phone", "language", "location"),
)
SESSION_KEYS = ("current_file", "temp", "debug", "working_on_right_now")
ACTIVE_KEYS = ("task", "todo", "wip", "branch", "sprint", "blocker")

classify = Classifier().classify


def by_key(key: str) -> str:
    return classify("ada", key, "it is so")


def by_text(text: str) -> str:
    return classify("ada", None, text)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (PERMANENT_KEYS, "permanent"),
        (SESSION_KEYS, "session"),
        (ACTIVE_KEYS, "active"),
        (("checkpoint", "preflight"), "checkpoint"),
        (("colour", ""), "stable"),
    ],
)
def test_a_key_decides(keys: tuple[str, ...], expected: str) -> None:
    assert {key: by_key(key) for key in keys} == dict.fromkeys(keys, expected)
    assert {key: by_key(key.upper()) for key in keys} == dict.fromkeys(keys, expected)


@pytest.mark.parametrize(
    ("phrases", "expected"),
    [
        (("decided", "architecture", "always use", "never use"), "permanent"),
        (("currently debugging", "right now", "this session"), "session"),
        (("working on", "need to", "todo", "blocker", "sprint"), "active"),
        (("checkpoint", "preflight"), "checkpoint"),
        (("likes tea",), "stable"),
    ],
)
def test_a_phrase_in_the_text_decides(phrases: tuple[str, ...], expected: str) -> None:
    found = {phrase: by_text(f"Ada: {phrase.title()}, she said") for phrase in phrases}
    assert found == dict.fromkeys(phrases, expected)


@pytest.mark.parametrize("entity", ["decision", "convention"])
def test_two_entities_decide(entity: str) -> None:
    assert classify(entity, None, "tabs") == "permanent"


def test_an_entity_counts_as_its_whole_name_with_its_case() -> None:
    assert classify("Convention", None, "tabs") == "stable"
    assert classify("conventions", None, "tabs") == "stable"


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("temp", "we decided", "permanent"),
        ("task", "right now", "session"),
        ("checkpoint", "todo", "active"),
        ("name_of_task", "right now", "permanent"),
        ("debug_task", "", "session"),
        ("preflight_todo", "", "active"),
        ("checkpoint", "likes tea", "checkpoint"),
        (None, "a checkpoint of the sprint", "active"),
    ],
)
def test_the_first_rule_that_fits_decides(key: str | None, text: str, expected: str) -> None:
    assert classify(None, key, text) == expected


def test_2_2_1_the_entity_is_compared_with_the_permanent_keys_too() -> None:
    """The plugin's code ignores seed 002's rule for the entity; SPEC §10 follows the seed."""
    assert classify("email", "work", "ada@example.org") == "permanent"
    assert classify("Ada's Phone", None, "+44") == "permanent"
    assert classify("todo", None, "x") == "stable", "only the keys of the first rule"


def test_2_2_2_checkpoint_looks_at_the_text_too_but_last() -> None:
    """The plugin's code looks at the key only; SPEC §10 follows the seed."""
    assert by_text("checkpoint saved before deploy") == "checkpoint"
    assert by_text("Preflight state") == "checkpoint"
    assert by_text("need to save a checkpoint") == "active"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (("username", "filename", "branchname", "reborn"), "permanent"),
        (("template", "attempt_count", "tempo"), "session"),
        (("swipe", "multitasking"), "active"),
    ],
)
def test_2_2_3_words_are_looked_for_anywhere_in_keys(keys: tuple[str, ...], expected: str) -> None:
    assert {by_key(key) for key in keys} == {expected}


@pytest.mark.parametrize(
    "text",
    [
        *("undecided", "architectures", "todos", "sprinting", "always  use", "right-now"),
        *("to-do", "needed to"),
    ],
)
def test_2_2_4_phrases_are_whole_words_with_single_spaces(text: str) -> None:
    assert by_text(f"it is {text} here") == "stable"


def test_the_value_says_nothing_and_nothing_may_be_missing() -> None:
    assert classify(None, None, "") == "stable"


def test_languages_are_added_only_when_asked_for() -> None:
    assert set(TRANSLATIONS) == set(LANGUAGES)
    assert classify(None, "aufgabe", "x") == "stable"
    german = Classifier(rules_for(["de"])).classify
    assert german(None, "Aufgabe", "x") == "active"
    assert german(None, "Geburtsdatum", "x") == "permanent"
    assert german("entscheidung", None, "x") == "permanent"
    assert german(None, None, "Wir haben es entschieden.") == "permanent"
    assert german(None, None, "unentschieden") == "stable"
    assert german(None, None, "always use tabs") == "permanent", "English always counts"
    french = Classifier(rules_for(["de", "fr"])).classify
    assert french(None, None, "c'est une TÂCHE") == "active"
    assert french(None, "kontrollpunkt", "x") == "checkpoint"


def test_users_add_words_to_classes_and_classes_of_their_own() -> None:
    rules = rules_for(
        words={
            "ephemeral": (("otp",), ("one-time code",), ("clipboard",)),
            "active": (("ticket",), (), ()),
            "stable": ((), ("for the record",), ()),
        }
    )
    added = Classifier(rules).classify
    assert added(None, "api_key_otp", "x") == "ephemeral", "they are looked at first"
    assert added(None, None, "Your One-Time Code is 4") == "ephemeral"
    assert added("clipboard", None, "x") == "ephemeral"
    assert added(None, "ticket", "x") == "active"
    assert added(None, "ticket", "right now") == "session", "the seed's order stays"
    assert added(None, None, "for the record: todo") == "stable"
    assert rules_for() == RULES


# --- lifetimes, and which facts have faded how far ---


HOUR, DAY = 3600, 86_400


@pytest.mark.parametrize(
    ("name", "lifetime"),
    [
        ("permanent", None),
        ("stable", 90 * DAY),
        ("active", 14 * DAY),
        ("session", 24 * HOUR),
        ("checkpoint", 4 * HOUR),
    ],
)
def test_the_lifetimes_of_the_seed(name: str, lifetime: int | None) -> None:
    expected = None if lifetime is None else 1000 + lifetime
    assert Classes().expiry(name, 1000) == expected


def test_only_stable_and_active_facts_live_on() -> None:
    assert Classes().refreshed_lifetimes() == {"stable": 90 * DAY, "active": 14 * DAY}


def test_classes_of_the_user_count_as_well() -> None:
    classes = Classes({"ephemeral": HOUR, "for_ever": None}, frozenset({"ephemeral", "for_ever"}))
    assert classes.expiry("ephemeral", 10) == 10 + HOUR
    assert classes.refreshed_lifetimes() == {"ephemeral": HOUR, "for_ever": None}


def test_an_unknown_class_is_refused_with_the_nearest() -> None:
    with pytest.raises(Invalid, match="did you mean stable") as caught:
        Classes().check("stabel")
    assert "permanent, stable, active" in (caught.value.hint or "")


@pytest.mark.parametrize("now", [0, 1_800_000_001])
def test_every_moment_past_three_quarters_fades(now: int) -> None:
    """A fact of confidence 1, confirmed at 0, that expires at `end`."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(
            "CREATE TABLE facts (last_confirmed_at, expires_at, confidence, bsd_base_confidence)"
        )
        for late in (-1, 0, 1, HOUR - 1, HOUR, HOUR + 1, 2 * HOUR, 3 * HOUR, 9 * HOUR, 99 * HOUR):
            # 75 % was passed `late` seconds ago
            confirmed, expires = now - late - 300 * HOUR, now - late + 100 * HOUR
            db.execute("DELETE FROM facts")
            db.execute("INSERT INTO facts VALUES (?, ?, 1.0, NULL)", (confirmed, expires))
            left = db.execute(f"SELECT {FADED} FROM facts WHERE {FADING}", {"now": now}).fetchall()
            assert left == ([(0.5 ** min(1 + late // HOUR, 62),)] if 0 < late <= 100 * HOUR else [])
