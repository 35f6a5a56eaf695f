"""How many messages must follow before a value leaves, independent of earlier looks at the
session.

A session that is looked at again and again lies on disk: its checkpoint is in a database.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout
from bsd.sessions.idle import RetryBudget
from bsd.store.state import StateDb
from tests.actions.performed import Caller
from tests.commands import Commands
from tests.openclaw_tree import add_session, set_idle
from tests.planning.in_memory import Session
from tests.session_files import HEADER, LONG, NAME, entry, jsonl, text

SESSION = "main/s1"
PLACEHOLDER = b"[[extracted-e1]]"
HOUR = 3600.0
# No checkpoint is stored for a small session: it is read from its beginning each time.
LARGE = entry(0, "user", "look " * 100_000)


@pytest.fixture
def bsd(root: Path) -> Commands:
    return Commands(root)


def following(count: int) -> list[dict[str, Any]]:
    return [entry(10 + number, "assistant", "seen") for number in range(count)]


def grow(root: Path, path: Path, *entries: dict[str, Any]) -> None:
    """The program continues; then a while passes."""
    with path.open("ab") as file:
        file.write(jsonl(*entries))
    set_idle(path, HOUR)
    for displaced in root.glob(".brainsurgeon/inflight/*"):
        displaced.unlink()


def look(root: Path) -> None:
    """Extract as the daemon does: final outcomes are stored, and those lines are not read again."""
    layout = Layout(root)
    config, state = ConfigService(layout.config_file), StateDb(layout.state_db)
    Caller(layout=layout, config=config, budget=RetryBudget(wait=0.0), state=state).extract(NAME)


def away(session: Session) -> list[bool]:
    """Whether a value left, for each line."""
    return [b"[[extracted-" in line for line in session.raw.splitlines()]


def result(**more: Any) -> dict[str, Any]:
    return entry(1, "toolResult", LONG, **more)


# From 101 messages on, further messages make no difference.
WINDOWS = [*range(1, 8), 99, 100]


@pytest.mark.parametrize("window", WINDOWS)
def test_a_value_leaves_with_as_many_following_messages_as_the_setting_says(window: int) -> None:
    """Each session has a message more than the last."""
    found = {}
    for count in range(max(1, window - 2), window + 3):
        entries = [HEADER, entry(0, "user", "look"), result(), *following(count)]
        found[count] = Session(jsonl(*entries)).extract(keep_recent=window).report.entries
    assert found == {count: int(count >= window) for count in found}
    assert len(found) > 2


@pytest.mark.parametrize("window", WINDOWS)
def test_of_many_values_of_one_session_those_leave_that_have_so_many_messages_after_them(
    window: int,
) -> None:
    """They are all alike, which makes no difference."""
    results = [entry(number, "toolResult", LONG) for number in range(1, 110)]
    entries = [HEADER, entry(0, "user", "look"), *results, entry(200, "assistant", "seen")]
    session = Session(jsonl(*entries))
    session.extract(keep_recent=window)
    assert away(session)[2:-1] == [len(results) - number >= window for number in range(109)]


@pytest.mark.parametrize("window", range(1, 8))
def test_a_value_leaves_with_the_very_message_that_is_the_last_to_be_waited_for(
    bsd: Commands, root: Path, window: int
) -> None:
    """A growing session is looked at again and again, and is not read from its beginning."""
    bsd("config", "set", "keep_recent", str(window))
    path = add_session(root, SESSION, jsonl(HEADER, LARGE, result()))
    for count in range(1, window + 2):
        grow(root, path, entry(10 + count, "assistant", "seen"))
        look(root)
        assert (PLACEHOLDER in path.read_bytes()) is (count >= window), count


@pytest.mark.parametrize("window", range(1, 8))
def test_an_entry_may_say_itself_how_many_messages_are_waited_for(
    bsd: Commands, root: Path, window: int
) -> None:
    bsd("config", "set", "keep_recent", "2")
    own = result(_extractable=window)
    path = add_session(root, SESSION, jsonl(HEADER, LARGE, own))
    for count in range(1, window + 2):
        grow(root, path, entry(10 + count, "assistant", "seen"))
        look(root)
        assert (PLACEHOLDER in path.read_bytes()) is (count >= window), count


def test_what_an_entry_says_itself_counts_however_many_messages_follow() -> None:
    """Equal entries on both sides of the window that they ask for."""
    results = [entry(number, "toolResult", LONG, _extractable=130) for number in range(1, 161)]
    session = Session(jsonl(HEADER, LARGE, *results, *following_after(160)[:1]))
    session.extract(keep_recent=2)
    assert away(session)[2:-1] == [len(results) - number >= 130 for number in range(160)]


@pytest.mark.parametrize(("near", "far"), [(1, 4), (2, 7), (5, 6)])
def test_the_rule_with_the_longest_window_has_its_say_when_that_is_over(
    bsd: Commands, root: Path, near: int, far: int
) -> None:
    """A short value is too small for a rule whose window ends before: no outcome is final
    because of it.
    """
    rules = [
        {"type": "assistant", "keep_recent": near, "min_length": 300},
        {"type": "tool_call", "keep_recent": far, "min_length": 300},
    ]
    bsd("config", "set", "trigger_rules", json.dumps(rules))
    said = entry(1, "assistant", "a short text")
    said["message"]["content"] += [
        {"type": "toolCall", "id": "c", "name": "write", "arguments": {"text": LONG}}
    ]
    answer = entry(2, "toolResult", "ok")
    answer["message"]["toolCallId"] = "c"
    path = add_session(root, SESSION, jsonl(HEADER, LARGE, said))
    grow(root, path, answer)
    for count in range(2, far + 2):  # the answer is a message, too
        grow(root, path, entry(10 + count, "assistant", "seen"))
        look(root)
        assert (PLACEHOLDER in path.read_bytes()) is (count >= far), count


@pytest.mark.parametrize("keep_chars", [0, 7, 50])
@pytest.mark.parametrize("of_rule", [None, 0, 20])
def test_of_a_forced_value_stays_what_the_rule_says_that_fits_it(
    keep_chars: int, of_rule: int | None
) -> None:
    """`keep_chars` of the settings applies to rules without their own, and not where no rule
    matches.
    """
    rule: dict[str, Any] = {"type": "tool_result", "keep_recent": 50, "min_length": 100}
    rule |= {} if of_rule is None else {"keep_chars": of_rule}
    words = "".join(chr(97 + number % 26) for number in range(700))
    fitting = entry(1, "toolResult", words, _extractable=True)
    other = entry(2, "user", words, _extractable=True)
    session = Session(jsonl(HEADER, entry(0, "user", "look"), fitting, other, *following(3)))
    plan = session.extract(keep_chars=keep_chars, trigger_rules=[rule])
    assert plan.report.entries == 2
    kept = keep_chars if of_rule is None else of_rule
    assert [session.entry(index)["message"]["content"] for index in (2, 3)] == [
        [text(f"{words[:kept]}[[extracted-e1]]")],
        [text("[[extracted-e2]]")],
    ]


@pytest.mark.parametrize("by", ["settings", "a rule"])
@pytest.mark.parametrize(("shortest", "keep_chars"), [(200, 300), (300, 200), (300, 300), (1, 0)])
def test_of_many_values_of_one_session_those_leave_that_are_long_enough(
    shortest: int, keep_chars: int, by: str
) -> None:
    """A value that the characters before its placeholder would keep whole is too short, too."""
    fields: dict[str, Any] = {"min_value_length": shortest, "keep_chars": keep_chars}
    if by == "a rule":
        rule = {"type": "tool_result", "min_length": shortest, "keep_chars": keep_chars}
        fields = {"trigger_rules": [rule | {"keep_recent": 2}]}
    lengths = [
        max(1, limit + more) for limit in (shortest, keep_chars) for more in (-50, -1, 0, 1, 2, 50)
    ]
    results = [entry(number, "toolResult", "x" * many) for number, many in enumerate(lengths, 1)]
    entries = [HEADER, entry(0, "user", "look"), *results, *following_after(len(lengths))]
    session = Session(jsonl(*entries))
    session.extract(**fields)
    assert away(session)[2:-5] == [many >= shortest and many > keep_chars for many in lengths]


def following_after(number: int) -> list[dict[str, Any]]:
    return [entry(number + more, "assistant", "seen") for more in range(1, 6)]
