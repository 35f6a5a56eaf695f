"""What an undo would change is foreseen, for one operation and for several, and nothing happens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.core.errors import Conflict
from bsd.planning.edited_transcript import EditedTranscript
from bsd.planning.foresee_undo import foresee_undo
from bsd.planning.undo import NothingToUndo, plan_undo
from bsd.planning.undo_effect import UndoEffect, sum_of
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import BytesTranscript, Transcript
from tests.planning.in_memory import NOW
from tests.planning.sessions import sessions
from tests.planning.test_undo import Patient, conversation, something
from tests.transcripts import nasty


@pytest.fixture
def session() -> Patient:
    return Patient(conversation(), OPENCLAW)


def foreseen(session: Patient, *numbers: int | None) -> UndoEffect:
    before = session.raw
    _, effect = foresee_undo(
        session.source, session.fmt, numbers, session.memory, session.shelf, NOW
    )
    assert session.raw == before
    return effect


def test_what_comes_back_and_what_a_model_reads_more(session: Patient) -> None:
    session.extract(keep_recent=0)
    before = len(session.raw)
    effect = foreseen(session, None)
    session.undo()
    assert (effect.operations, effect.entries, effect.values_back) == ((1,), 3, 3)
    assert (effect.bytes_before, effect.bytes_after) == (before, len(session.raw))
    assert 3 * 680 // 4 < effect.tokens <= 3 * 700 // 4
    grown = (len(session.raw) - before) / 1024
    assert effect.consequence == (
        f"3 values come back into the session; it grows by {grown:.1f} KB.",
        f"A model that continues the session reads about {effect.tokens} tokens more.",
    )


def test_what_was_restored_meanwhile_stays_and_the_rest_comes_back(session: Patient) -> None:
    session.extract(keep_recent=0)
    session.restore("e2")
    restored = session.entry(2)
    effect = foreseen(session, 1)
    assert (effect.values_back, effect.stays) == (2, 1)
    assert "1 entry was restored meanwhile and stays." in effect.consequence
    answer = session.undo(1)
    assert (answer.entries, answer.stays) == (("e1", "e3"), ("e2",))
    assert session.entry(2) == restored
    assert session.states()[1] == "partly_undone"
    with pytest.raises(NothingToUndo, match="the values of e2 were restored since"):
        session.undo(1)
    session.undo_all()
    assert session.raw == conversation()


def test_a_value_that_is_away_again_stands_in_the_way(session: Patient) -> None:
    session.extract(keep_recent=0)
    session.restore("e2")
    session.extract(NOW + 700, keep_recent=0)
    with pytest.raises(Conflict, match="changed e2 afterwards"):
        foreseen(session, 1)
    effect = foreseen(session, 3)
    assert (effect.values_back, effect.stays) == (1, 0)


def test_of_a_restore_values_leave_again_and_of_an_edit_the_text_is_lost(session: Patient) -> None:
    session.extract(keep_recent=0)
    session.restore("e1")
    effect = foreseen(session, None)
    assert (effect.values_out, effect.values_back) == (1, 0)
    assert effect.tokens < 0
    assert effect.consequence[0].startswith("1 value leaves the session again; it shrinks by ")
    session.edit("e4", "note", "mine")
    effect = foreseen(session, None)
    assert effect.rewritten == 1
    assert "the present text is lost from the session" in effect.consequence[0]


def test_several_are_foreseen_each_on_what_the_one_before_leaves(session: Patient) -> None:
    session.extract(keep_recent=2)
    session.extract(NOW + 1, keep_recent=0)
    assert [operation.entries for operation in session.memory.operations()] == [2, 1]
    effect = foreseen(session, 2, 1)
    assert (effect.operations, effect.values_back) == ((2, 1), 3)
    assert effect.bytes_after == len(conversation())
    session.pin("e1", False)  # what a person did since stands in the way of the older one alone
    assert foreseen(session, 2).values_back == 1
    with pytest.raises(Conflict, match="set_extractable"):
        foreseen(session, 2, 1)


def test_an_operation_of_which_nothing_is_left_is_passed_over(session: Patient) -> None:
    session.extract(keep_recent=2)
    session.extract(NOW + 1, keep_recent=0)
    session.restore("e3")
    assert foreseen(session, 2, 1).operations == (1,)
    with pytest.raises(NothingToUndo):
        foreseen(session, 2)


def test_effects_of_sessions_add_up() -> None:
    one = UndoEffect(operations=(1,), values_back=2, bytes_before=10, bytes_after=30, tokens=5)
    total = sum_of([one, one])
    assert (total.values_back, total.bytes_after, total.tokens) == (4, 60, 10)
    assert total.consequence[0] == "4 values come back into their sessions; they grow by 40 B."
    assert sum_of([]).consequence == ("Nothing changes.",)


@settings(nasty.unhurried, max_examples=25)
@given(sessions(), st.data())
def test_what_is_foreseen_of_all_is_what_undoing_all_does(
    given: tuple[bytes, TranscriptFormat], data: st.DataObject
) -> None:
    session = Patient(*given)
    for step in range(data.draw(st.integers(1, 6))):
        something(session, data.draw, NOW + 700 * step)
    numbers = [one.number for one in reversed(session.standing()) if one.act.undoes is None]
    if not numbers:
        return
    effect = foreseen(session, *numbers)
    session.undo_all()
    assert effect.bytes_after == len(session.raw)
    assert effect.operations == tuple(numbers)


def joined(source: Transcript) -> bytes:
    return b"".join(line.raw for line in source.lines())


@settings(nasty.unhurried, max_examples=40)
@given(st.data())
def test_edited_lines_stand_where_they_will_stand(data: st.DataObject) -> None:
    lines = st.lists(st.sampled_from([b"a\n", b"\n", b"bcd\r\n", b"\xe2\x80\xa8\n"]), max_size=6)
    raw = b"".join(data.draw(lines))
    edited = EditedTranscript(BytesTranscript(raw))
    for _ in range(data.draw(st.integers(1, 3))):
        edits, expected, end = [], b"", 0
        for line in edited.lines():
            if data.draw(st.booleans()):
                new = b"".join(data.draw(lines))
                edits.append(Edit(line.offset, 0, new))
                expected += new
            if data.draw(st.booleans()):
                new = data.draw(st.sampled_from([b"", b"x\n", b"longer\n"]))
                edits.append(Edit(line.offset, len(line.raw), new))
                expected += new
            else:
                expected += line.raw
            end = line.offset + len(line.raw)
        edits.append(Edit(end, 0, b"last\n"))
        expected += b"last\n"
        edited = edited.after(edits)
        assert joined(edited) == expected
        assert edited.identity.size == len(expected)
        plain = BytesTranscript(expected)
        assert [(one.index, one.offset, one.raw) for one in edited.lines()] == [
            (one.index, one.offset, one.raw) for one in plain.lines()
        ]
        start = data.draw(st.integers(0, len(expected)))
        length = data.draw(st.integers(0, len(expected) - start))
        assert edited.read(start, length) == expected[start : start + length]


def test_planning_on_an_edited_session_is_planning_on_the_session(session: Patient) -> None:
    session.extract(keep_recent=0)
    edited = EditedTranscript(session.source).after([])
    here, _ = plan_undo(session.source, session.fmt, None, session.memory, session.shelf)
    there, _ = plan_undo(edited, session.fmt, None, session.memory, session.shelf)
    assert here == there
