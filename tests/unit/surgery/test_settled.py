"""Beginning at a checkpoint finds what beginning at the first line finds."""

from __future__ import annotations

import json
from array import array
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.formats.base import Format
from bsd.formats.flat import FLAT
from bsd.formats.openclaw import OPENCLAW
from bsd.store.checkpoint import Checkpoint
from bsd.surgery.extract import plan_extraction
from bsd.surgery.policy import Policy
from bsd.surgery.rules import Reason
from bsd.surgery.settled import fingerprint
from bsd.surgery.survey import Outcome, Survey
from bsd.transcript.reader import BytesTranscript
from tests.unit.surgery.sessions import sessions
from tests.unit.surgery.test_prefix import entries
from tests.unit.surgery.test_properties import EXAMPLES, policies
from tests.unit.surgery.theatre import HEADER, NOW, Session, config, jsonl
from tests.unit.transcript import nasty

RULES: list[dict[str, Any]] = [
    {"type": "tool_result", "min_length": 10, "keep_recent": 0},
    {"type": "assistant", "min_length": 10, "keep_recent": 3},
    {"type": "*", "min_length": 30, "keep_recent": 1},
]


def extract(
    session: Session, since: Checkpoint | None, now: float, fields: dict[str, Any]
) -> Checkpoint | None:
    plan = plan_extraction(
        session.source, session.fmt, config(**fields), now, session.shelf, since=since
    )
    session.carry_out(plan)
    return plan.checkpoint


bound_sessions = entries().map(lambda some: (jsonl(HEADER, *some), OPENCLAW))
several_policies = policies | st.just({"trigger_rules": RULES}) | st.just({"min_value_length": 20})


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(
    sessions() | bound_sessions,
    several_policies,
    st.data(),
)
def test_a_checkpoint_hides_nothing(
    given: tuple[bytes, Format], fields: dict[str, Any], data: st.DataObject
) -> None:
    raw, fmt = given
    whole, by_parts = Session(b"", fmt), Session(b"", fmt)
    since: Checkpoint | None = None
    now, start = NOW, 0
    while start < len(raw):
        end = data.draw(st.integers(start + 1, len(raw)))
        for session in (whole, by_parts):
            session.raw += raw[start:end]
        start = end
        now += data.draw(st.sampled_from([1, 5000]))
        extract(whole, None, now, fields)
        since = extract(by_parts, since, now, fields)
        assert by_parts.raw == whole.raw
        if since:
            assert by_parts.raw[: since.offset].count(b"\n") == since.index
    assert by_parts.shelf.files == whole.shelf.files


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(bound_sessions, several_policies, st.data())
def test_from_a_checkpoint_on_every_entry_is_judged_as_from_the_first_line(
    given: tuple[bytes, Format], fields: dict[str, Any], data: st.DataObject
) -> None:
    raw, fmt = given
    lines = raw.splitlines(keepends=True)
    then = data.draw(st.integers(1, len(lines)))
    session = Session(b"".join(lines[:then]), fmt)
    since = extract(session, None, NOW, fields)
    session.raw += b"".join(lines[then:])

    def judged(since: Checkpoint | None) -> list[Outcome]:
        policy = Policy.of(config(**fields))
        survey = Survey.of(session.source, fmt, policy, NOW, keep_names=True, since=since)
        return list(survey.outcomes())

    first = since.index if since else 0
    whole = judged(None)
    assert judged(since) == [one for one in whole if one.index >= first]
    assert not [one for one in whole if one.index < first and one.decision.reason is Reason.EXTRACT]


def test_what_is_settled_is_not_read_again() -> None:
    entries = [
        {"type": "message", "id": f"e{n}", "message": {"role": "user", "content": "hi"}}
        for n in range(50)
    ]
    session = Session("".join(json.dumps(one) + "\n" for one in [HEADER, *entries]).encode())
    since = extract(session, None, NOW, {})
    assert since is not None
    assert since.index == 50  # of the last one the turn is open

    read: list[int] = []

    class Reader(BytesTranscript):
        def lines(self, start: int = 0, first_index: int = 0, end: int | None = None) -> Any:
            for line in super().lines(start, first_index, end):
                read.append(line.index)
                yield line

    plan_extraction(Reader(session.raw), OPENCLAW, config(), NOW, session.shelf, since=since)
    assert read == [50]


def test_an_id_used_again_after_the_checkpoint_is_seen() -> None:
    def result(number: int) -> dict[str, Any]:
        text = [{"type": "text", "text": "x" * 600}]
        return {
            "type": "message",
            "id": f"e{number}",
            "message": {"role": "toolResult", "content": text},
        }

    end = {
        "type": "message",
        "id": "a",
        "message": {"role": "assistant", "content": "", "stopReason": "stop"},
    }
    session = Session("".join(json.dumps(one) + "\n" for one in [HEADER, result(1), end]).encode())
    since = extract(session, None, NOW, {"keep_recent": 0})
    assert since is not None
    assert since.index == 2
    more = [result(1), {**end, "id": "b"}]
    session.raw += "".join(json.dumps(one) + "\n" for one in more).encode()
    plan = plan_extraction(
        session.source, OPENCLAW, config(keep_recent=0), NOW, session.shelf, since=since
    )
    assert plan.report.reasons["duplicate_entry_id"] == 1
    assert not plan.edits


def test_a_result_of_our_own_tool_is_known_whose_call_is_before_the_checkpoint() -> None:
    call = {"__id": "c", "type": "tool_call", "name": "restore", "toolCallId": "t1"}
    session = Session(jsonl(call), FLAT)
    since = extract(session, None, NOW, {"keep_recent": 0})
    assert since is not None
    assert (since.index, since.own_calls) == (1, ("t1",))
    stamp = {"timestamp": int((NOW - 10) * 1000), "output": "x" * 600}
    for number in (1, 2):  # the second answers a call of somebody else
        session.raw += jsonl(
            {"__id": f"e{number}", "type": "tool_result", "toolCallId": f"t{number}", **stamp}
        )
    extract(session, since, NOW, {"keep_recent": 0})
    assert [session.entry(line)["output"] for line in (1, 2)] == ["x" * 600, "[[extracted-e2]]"]


def test_a_checkpoint_knows_its_ids_and_the_earlier_ones() -> None:
    earlier = Checkpoint(0, 0, 0, array("Q", [1, 2]))
    checkpoint = Checkpoint(0, 0, 0, array("Q", [3, 2**64 - 1]), earlier=earlier)
    assert checkpoint.among([1, 3, 4, 2**64 - 1]) == {1, 3, 2**64 - 1}


def test_settings_that_judge_entries_differently_have_their_own_fingerprint() -> None:
    assert fingerprint(config()) == fingerprint(config(retention="7d", auto_cron="@hourly"))
    assert fingerprint(config()) != fingerprint(config(keep_recent=4))
    assert fingerprint(config()) != fingerprint(config(trigger_rules=[]))
