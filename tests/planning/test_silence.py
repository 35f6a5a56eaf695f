"""A turn whose end is not recorded is over after a day of silence, or when a person says so."""

from __future__ import annotations

from typing import Any

import pytest

from bsd.core.formatting import iso_utc
from bsd.planning.context_window import SILENCE_SECONDS, LastTurn
from bsd.planning.extract import plan_extraction
from bsd.planning.replace import plan_replace
from bsd.planning.rules import Policy
from bsd.planning.survey import Survey
from bsd.planning.targets import Refused, Replacement
from bsd.store.state import Checkpoint
from bsd.transcripts.agents.format import EntryInfo, Turn
from bsd.transcripts.reader import BytesTranscript
from tests.planning.in_memory import NOW, Session, config
from tests.planning.test_extract import LONG, message, turn
from tests.session_files import HEADER, jsonl

HOUR, DAY = 3600.0, 86_400.0
CALL = {"type": "toolCall", "id": "c", "name": "t", "arguments": {}}


def timed(entry: dict[str, Any], seconds_ago: float | None) -> dict[str, Any]:
    if seconds_ago is None:
        return entry
    return entry | {"timestamp": iso_utc(NOW - seconds_ago)}


def crashed(seconds_ago: float | None, more: int = 0) -> list[dict[str, Any]]:
    """A turn that ends in the result of a call; there is no next answer."""
    entries = [message("u", "user"), message("a", "assistant", [CALL], stopReason="toolUse")]
    entries += [message(f"x{n}", "toolResult", LONG, toolCallId="c") for n in range(1 + more)]
    return [timed(entry, seconds_ago) for entry in entries]


def outcomes(*entries: dict[str, Any], now: float = NOW, **how: Any) -> dict[str | None, str]:
    policy = Policy.of(config(keep_recent=0))
    source = BytesTranscript(jsonl(HEADER, *entries))
    survey = Survey.of(source, Session(b"").fmt, policy, now, keep_names=True, **how)
    return {one.row.entry_id: one.decision.reason.value for one in survey.outcomes()}


@pytest.mark.parametrize(
    ("seconds_ago", "reason"),
    [
        (DAY, "extract"),
        (30 * DAY, "extract"),
        (DAY - 1, "turn_open"),
        (0, "turn_open"),
        (-HOUR, "turn_open"),  # by a clock that is ahead
        (-400 * DAY, "turn_open"),
        (None, "turn_open"),  # the time of writing is unknown
    ],
)
def test_after_a_day_without_a_new_entry_a_turn_is_over(
    seconds_ago: float | None, reason: str
) -> None:
    found = outcomes(*turn(1), *crashed(seconds_ago))
    assert found["x0"] == reason
    assert found["a"] == "turn_open"  # the latest answer stays whole in any case


def test_the_newest_entry_of_the_turn_counts() -> None:
    entries = crashed(2 * DAY)
    entries += [timed({"type": "label", "id": "l"}, 60), timed({"type": "label", "id": "m"}, DAY)]
    assert outcomes(*entries)["x0"] == "turn_open"
    # Lines from before the turn do not count, even with a clock that was ahead.
    before = timed(message("old", "user"), -30 * DAY)
    assert outcomes(before, *turn(1), *crashed(2 * DAY))["x0"] == "extract"


def test_a_call_that_waits_for_its_result_waits_for_a_day() -> None:
    entries = crashed(2 * DAY)
    entries[1]["message"]["content"] = [CALL, CALL | {"id": "d"}]
    entries.append(timed(message("end", "assistant", "done", stopReason="stop"), 2 * DAY))
    assert outcomes(*entries)["x0"] == "extract"
    assert outcomes(*entries, now=NOW - DAY - 1)["x0"] == "turn_open"


def test_without_times_in_the_entries_the_files_own_counts() -> None:
    def last_turn(mtime: float | None) -> LastTurn:
        followed = LastTurn()
        followed.follow(0, EntryInfo(id="u", kind="user", is_message=True, turn=Turn.STARTS))
        followed.end_if_silent(NOW, mtime)
        return followed

    assert not last_turn(NOW - DAY).is_open(0)
    assert last_turn(NOW - DAY + 1).is_open(0)
    assert last_turn(None).is_open(0)


def test_a_session_in_memory_has_no_time_of_a_file() -> None:
    assert BytesTranscript(b"").identity.mtime is None


def test_the_session_becomes_due_when_the_turn_will_be_over() -> None:
    session = Session(jsonl(HEADER, *crashed(HOUR)))
    plan = session.extract(keep_recent=0)
    assert plan.edits == ()
    assert plan.due_at == pytest.approx(NOW + SILENCE_SECONDS - HOUR, abs=1)
    plan = session.extract(now=plan.due_at or 0, keep_recent=0)
    assert (len(plan.edits), plan.due_at) == (1, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"keep_recent": 3},  # then it is too recent
        {"keep_recent": 0, "min_value_length": 5000},
        {"keep_recent": 0, "trigger_types": ["thinking"]},
    ],
)
def test_it_does_not_become_due_for_nothing(fields: dict[str, Any]) -> None:
    assert Session(jsonl(HEADER, *crashed(HOUR))).extract(**fields).due_at is None


def test_a_turn_that_is_over_may_still_be_too_young() -> None:
    session = Session(jsonl(HEADER, *crashed(HOUR)))
    plan = session.extract(keep_recent=0, age_threshold_hours=100)
    assert plan.due_at == pytest.approx(NOW + 99 * HOUR, abs=1)


def test_a_clock_that_is_ahead_makes_it_due_in_a_day() -> None:
    plan = Session(jsonl(HEADER, *crashed(-300 * DAY))).extract(keep_recent=0)
    assert plan.due_at == pytest.approx(NOW + DAY, abs=1)


def extract(session: Session, since: Checkpoint | None, now: float) -> Checkpoint | None:
    fields = config(keep_recent=0)
    plan = plan_extraction(session.source, session.fmt, fields, now, session.shelf, since=since)
    session.carry_out(plan)
    return plan.checkpoint


def test_a_checkpoint_stands_before_a_turn_that_only_silence_has_ended() -> None:
    session = Session(jsonl(HEADER, *turn(1), *crashed(HOUR, more=3)))
    since = extract(session, None, NOW)
    assert since is not None
    assert since.index == 3  # behind the turn before
    later = extract(session, since, NOW + DAY)
    assert later is not None
    assert later.index == since.index
    assert session.raw.count(b"[[extracted-x") == 4


def test_a_program_may_go_on_with_a_turn_that_was_over() -> None:
    session = Session(jsonl(HEADER, *turn(1), *crashed(2 * DAY)))
    since = extract(session, None, NOW)
    assert b"[[extracted-x0]]" in session.raw
    more = message("late", "toolResult", LONG, toolCallId="c")
    session.raw += jsonl(timed(more, 10))
    since = extract(session, since, NOW)
    assert b"[[extracted-late]]" not in session.raw
    session.raw += jsonl(message("end", "assistant", "done", stopReason="stop"))
    extract(session, since, NOW)
    assert b"[[extracted-late]]" in session.raw


def test_a_person_says_that_the_turn_is_over() -> None:
    assert outcomes(*crashed(0))["x0"] == "turn_open"
    found = outcomes(*crashed(0), turn_over=True)
    assert (found["x0"], found["a"]) == ("extract", "turn_open")


def test_what_was_thought_in_a_turn_that_is_over_stays() -> None:
    thought = {"type": "thinking", "thinking": LONG, "thinkingSignature": "s" * 900}
    entries = crashed(2 * DAY)
    entries[1]["message"] |= {"content": [thought, CALL], "api": "anthropic-messages"}
    entries += [timed(message("b", "assistant", [CALL], stopReason="toolUse"), 2 * DAY)]
    found = outcomes(*entries)
    assert (found["a"], found["x0"]) == ("turn_open", "extract")


def test_the_context_tool_may_change_what_is_over() -> None:
    entries = crashed(2 * DAY)
    entries[2]["message"]["content"] = "the only text that reads like this, from here to there"
    session = Session(jsonl(HEADER, *entries))
    wanted = [Replacement(start="the only text that reads", end="to there", replacement="short")]
    with pytest.raises(Refused):
        plan_replace(session.source, session.fmt, wanted, now=NOW - 2 * DAY)
    plan, _ = plan_replace(session.source, session.fmt, wanted, now=NOW)
    assert len(plan.edits) == 1
