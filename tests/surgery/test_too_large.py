"""Lines that would take too much memory: left alone, counted, and in nobody's way."""

from __future__ import annotations

import json

import pytest

from bsd.agents.openclaw.dialect import OPENCLAW
from bsd.foundation.errors import Conflict
from bsd.surgery.locate import locate
from tests.surgery.calls import Talk, call, text
from tests.surgery.test_extract import LONG, message, session, turn
from tests.surgery.test_redact import consume
from tests.surgery.test_undo import Patient

_MANY = b"[]," * 400_000
HEAVY = b'{"type":"message","id":"heavy","parentId":"e1","message":{"details":[%b0]}}\n' % _MANY


def test_a_line_that_is_too_large_is_left_alone_with_its_reason() -> None:
    old = session(message("e1", "toolResult", LONG), HEAVY, *turn(2), *turn(3))
    before = old.raw.splitlines(keepends=True)
    plan = old.extract(keep_recent=2)
    after = old.raw.splitlines(keepends=True)
    assert plan.report.reasons["too_large_in_memory"] == 1
    assert plan.report.unreadable == 0
    assert before[2] == after[2] == HEAVY
    assert b"[[extracted-e1]]" in after[1]
    assert plan.report.partial is False
    old.restore("e1")
    assert old.raw.splitlines()[2] + b"\n" == HEAVY


def test_a_signature_in_it_holds_what_is_before_it() -> None:
    signed = HEAVY.replace(b'"details"', b'"thinkingSignature":"s","details"')
    for line, leaves in ((HEAVY, 1), (signed, 0)):
        old = session(message("e1", "toolResult", LONG), line, *turn(2), *turn(3))
        plan = old.extract(keep_recent=2, prefix_bound_models=["opus-5"])
        assert plan.report.entries >= leaves
        assert (b"[[extracted-e1]]" in old.raw) is bool(leaves)
        assert plan.report.reasons["prefix_bound"] >= 1 - leaves
    free = session(message("e1", "toolResult", LONG), signed, *turn(2), *turn(3))
    free.extract(keep_recent=2, prefix_bound="extract")
    assert b"[[extracted-e1]]" in free.raw


def test_whoever_names_it_learns_why_it_cannot_be_had() -> None:
    old = session(message("e1", "toolResult", LONG), HEAVY)
    for name in ("heavy", "#2", "2"):
        with pytest.raises(Conflict, match="line 2 would take too much memory"):
            locate(old.source, OPENCLAW, name)
    assert locate(old.source, OPENCLAW, "e1").line.index == 1


def test_a_call_is_not_taken_out_where_something_may_follow_it_unread() -> None:
    talk = Talk()
    talk.user()
    talk.says(call("c1", session="s", entry="e0"))
    talk.answers("c1", LONG)
    talk.says(text("done"))
    patient = Patient(talk.raw + HEAVY.replace(b'"e1"', b'"e3"'), OPENCLAW)
    answer = consume(patient, "c1")
    assert [one.how for one in answer.redacted] == ["marked"]
    assert answer.entries_removed == ()
    assert json.loads(patient.raw.splitlines()[2])["id"] == "e2"
