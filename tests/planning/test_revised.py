"""Several planners on one plan: each sees the changes planned before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.planning.plan import Plan, Report, Revised
from bsd.store.history import Gap, Neighbour, TouchedLine
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import BytesTranscript, Line


def planned(line: Line, new: bytes, revised: Revised, values: int = 1) -> Plan:
    return Plan(
        revised.identity,
        (Edit(line.offset, len(line.raw), new),),
        Report("x", values=values),
        touched=(TouchedLine(line.index, None),),
    )


def applied(content: bytes, plan: Plan) -> bytes:
    for edit in reversed(plan.edits):
        content = content[: edit.offset] + edit.new + content[edit.offset + edit.length :]
    return content


def test_a_line_that_is_changed_twice_is_one_edit() -> None:
    content = b"one\ntwo\nthree\n"
    revised = Revised(BytesTranscript(content), OPENCLAW)
    _, second, _ = revised.lines()
    revised.take(planned(second, b"TWO and more\n", revised))
    _, second, third = revised.lines()
    assert second == Line(1, 4, b"TWO and more\n")
    assert revised.read(second.offset, len(second.raw)) == second.raw
    assert revised.read(third.offset, len(third.raw)) == b"three\n"
    revised.take(planned(second, b"2\n", revised))
    plan = revised.plan("both")
    assert plan.edits == (Edit(4, 4, b"2\n"),)
    assert plan.touched == (TouchedLine(1, None),)
    assert (plan.report.action, plan.report.values) == ("both", 2)
    assert plan.report.bytes_after == len(applied(content, plan))


def test_a_line_that_is_gone_is_not_listed_and_the_others_keep_their_numbers() -> None:
    revised = Revised(BytesTranscript(b"one\ntwo\nthree\n"), OPENCLAW)
    first, *_ = revised.lines()
    revised.take(planned(first, b"", revised))
    assert [(line.index, line.raw) for line in revised.lines()] == [(1, b"two\n"), (2, b"three\n")]
    assert applied(b"one\ntwo\nthree\n", revised.plan("x")) == b"two\nthree\n"


def test_a_line_that_was_changed_before_it_went_can_be_put_back() -> None:
    revised = Revised(BytesTranscript(b"one\ntwo\nthree\n"), OPENCLAW)
    _, second, _ = revised.lines()
    revised.take(planned(second, b"2\n", revised))
    gap = Gap(Neighbour(None, "one"), Neighbour(None, "three"))
    edit = Edit(second.offset, len(b"2\n"), b"")
    going = Plan(revised.identity, (edit,), Report("x"), touched=(TouchedLine(1, None, gap=gap),))
    revised.take(going)
    plan = revised.plan("both")
    assert plan.edits == (Edit(4, 4, b""),)
    assert plan.touched == (TouchedLine(1, None, gap=gap),)


def test_a_plan_on_an_older_state_is_refused() -> None:
    revised = Revised(BytesTranscript(b"one\ntwo\n"), OPENCLAW)
    first, _ = revised.lines()
    revised.take(planned(first, b"longer\n", revised))
    with pytest.raises(ValueError, match="byte 0"):
        revised.take(planned(first, b"again\n", revised))


@given(
    st.lists(st.binary(max_size=4).map(lambda b: b.replace(b"\n", b"") + b"\n"), max_size=6),
    st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=9)), max_size=8),
)
def test_the_one_plan_does_what_all_of_them_did(
    lines: list[bytes], changes: list[tuple[int, bytes]]
) -> None:
    content = b"".join(lines)
    revised = Revised(BytesTranscript(content), OPENCLAW)
    for number, text in changes:
        there = list(revised.lines())
        if there:
            new = text.replace(b"\n", b"") + b"\n" if text else b""
            revised.take(planned(there[number % len(there)], new, revised))
    left = b"".join(line.raw for line in revised.lines())
    assert applied(content, revised.plan("x")) == left
