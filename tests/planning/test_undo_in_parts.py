"""Undo that needs several plans, parts that must stay together, and the state after each part."""

from __future__ import annotations

import pytest

from bsd.core.errors import Conflict
from bsd.planning.undo import plan_undo
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from tests.planning.soundness import faults
from tests.planning.test_redact import LONG, consume
from tests.planning.test_undo import Patient, conversation
from tests.session_files import Talk, call, text

LEAST = 1  # byte that a plan may write: one line


def first_part(session: Patient) -> list[str | None]:
    """Undo the newest operation as far as one plan reaches, and then end the process."""
    plan, _ = plan_undo(session.source, session.fmt, None, session.memory, session.shelf, LEAST)
    assert not plan.complete
    session.carry_out(plan)
    return [one.entry_id for one in plan.touched]


def redacted() -> tuple[Patient, bytes]:
    """Three calls with long results are consumed: some lines are removed, others change because
    of it.
    """
    talk = Talk()
    talk.user()
    # Changed entries come before removed entries.
    talk.says(text("I look"), call("c0"), call("r0", "read", path="a"))
    talk.answers("c0", LONG)
    talk.answers("r0", "file", "read")
    for name in ("c1", "c2"):
        talk.says(text(f"I look at {name}"), call(name))
        talk.answers(name, LONG)
    talk.says(text("done"))
    session = Patient(talk.raw, OPENCLAW)
    before = session.raw
    consume(session, "c0", "c1", "c2")
    assert len(session.raw) < len(before) / 2
    return session, before


def test_lines_that_went_together_come_back_in_one_plan_whatever_its_budget() -> None:
    session, before = redacted()
    (operation,) = session.memory.operations()
    plan, _ = plan_undo(session.source, session.fmt, None, session.memory, session.shelf, LEAST)
    assert (plan.complete, len(plan.edits)) == (True, operation.entries)
    session.carry_out(plan)
    assert session.raw == before
    assert faults(session.raw) == []
    assert session.states()[1] == "undone"


def test_lines_that_came_back_together_go_again_in_one_plan() -> None:
    session, before = redacted()
    after = session.raw
    session.undo(budget=LEAST)
    assert session.raw == before
    session.undo(2, budget=LEAST)
    assert session.raw == after
    assert [one.act.undoes for one in session.memory.operations()] == [None, 1, 2]


def test_what_a_later_operation_no_longer_changes_can_be_undone() -> None:
    session = Patient(conversation(), OPENCLAW)
    session.edit("e1", "note", 1)
    session.edit("e3", "note", 3)
    session.extract(keep_recent=0)
    assert first_part(session) == ["e1"]
    assert session.states()[3] == "partly_undone"
    with pytest.raises(Conflict, match=r"operation 3 \(extract, t3\) changed e3 afterwards"):
        session.undo(2)
    session.undo(1)
    assert b'"note": 1' not in session.raw.replace(b'":1', b'": 1')
    session.undo(3, budget=LEAST)
    session.undo(2)
    assert session.raw == conversation()


def test_what_stands_in_the_way_names_only_what_is_not_undone() -> None:
    session = Patient(conversation(), OPENCLAW)
    session.extract(keep_recent=0)
    session.undo()
    session.undo(2)  # done again: the third operation now covers it
    third = session.memory.operations()[-1]
    assert third.act.undoes == 2
    assert first_part(session) == ["e1"]
    assert session.states()[1] == "partly_undone"
    with pytest.raises(Conflict) as problem:
        session.undo(2)
    assert "e1" not in problem.value.message.partition("changed")[2]
    session.undo(1, budget=LEAST)
    assert session.raw == conversation()
