"""Sessions whose program keeps byte offsets: whatever bsd does, no line moves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.core.errors import Conflict
from bsd.planning.edit import plan_edit, plan_set_extractable, setting
from bsd.planning.extract import NOT_SENT
from bsd.planning.redact_text import SecretText, TextRedactor, plan_text_redaction
from bsd.planning.restore import plan_remark, restored_copy
from bsd.planning.rules import Reason
from bsd.transcripts.agents.entry import MARKER, Marker
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from bsd.transcripts.reader import BytesTranscript, parse_entry
from bsd.transcripts.spans import parse_path
from bsd.transcripts.splice import NoRoom, with_length
from tests.planning.in_memory import NOW, Session
from tests.planning.sessions import sessions
from tests.planning.test_all_operations import EXAMPLES, Surgery, flat, talk
from tests.planning.test_properties import policies
from tests.session_files import jsonl
from tests.transcripts import nasty

LONG = "old words, " * 60


class _Flat(type(FLAT)):  # type: ignore[misc]
    keeps_length = True


class _OpenClaw(type(OPENCLAW)):  # type: ignore[misc]
    keeps_length = True


KEEPING: dict[TranscriptFormat, TranscriptFormat] = {FLAT: _Flat(), OPENCLAW: _OpenClaw()}


def places(raw: bytes) -> list[tuple[int, int]]:
    return [(line.offset, len(line.raw)) for line in BytesTranscript(raw).lines()]


def session(*entries: dict[str, Any]) -> Session:
    return Session(jsonl(*entries), KEEPING[FLAT])


def result(entry_id: str, **values: Any) -> dict[str, Any]:
    return {"__id": entry_id, "type": "tool_result", **values}


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(sessions(), policies)
def test_only_values_and_marker_change_and_all_comes_back(
    given: tuple[bytes, TranscriptFormat], fields: dict[str, Any]
) -> None:
    old, fmt = given
    mine = Session(old, KEEPING[fmt])
    plan = mine.extract(**fields)
    assert places(mine.raw) == places(old)
    assert plan.report.bytes_saved == 0
    assert all(saving.bytes == 0 for saving in plan.report.savings.values())
    changed = {edit.offset for edit in plan.edits}
    for before, after in zip(
        BytesTranscript(old).lines(), BytesTranscript(mine.raw).lines(), strict=True
    ):
        assert (before.raw != after.raw) is (before.offset in changed)
        if before.offset in changed:
            _differ_by_marker(before.raw, after.raw)
    assert mine.extract(**fields).edits == ()
    copy = bytearray()
    assert restored_copy(mine.source, mine.fmt, mine.shelf, copy.extend)[1] == {}
    mine.restore_all()
    assert mine.raw == bytes(copy) == old


def _differ_by_marker(before: bytes, after: bytes) -> None:
    """Put the values back by their paths: the entries are the same then."""
    was, now = parse_entry(before), parse_entry(after)
    assert was is not None
    assert now is not None
    for key in now.pop(MARKER)["keys"]:
        *above, last = parse_path(key)
        one: Any = was
        other: Any = now
        for step in above:
            one, other = one[step], other[step]
        other[last] = one[last]
        if last == "thinking":
            other.update({k: v for k, v in one.items() if k not in other})
    assert was == now


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(st.randoms(use_true_random=False))
@pytest.mark.parametrize(("write", "fmt"), [(talk, OPENCLAW), (flat, FLAT)])
def test_any_operations_move_no_line_and_are_undone(
    write: Callable[[Random], bytes], fmt: TranscriptFormat, chance: Random
) -> None:
    surgery = Surgery(write(chance), KEEPING[fmt], chance)
    for _ in range(chance.randrange(1, 12)):
        surgery.step()
        assert places(surgery.session.raw) == places(surgery.original)
    surgery.undo_all()


def test_a_value_that_is_shorter_than_marker_and_placeholder_stays() -> None:
    mine = session(result("e1", output="x" * 100), result("e2", output="x" * 900))
    old = mine.raw
    plan = mine.extract(min_value_length=50, keep_recent=0)
    assert plan.report.reasons == {Reason.EXTRACT: 1, Reason.VALUES_TOO_SMALL: 1}
    assert mine.raw.splitlines()[0] == old.splitlines()[0]


def test_a_value_that_is_no_longer_sent_stays() -> None:
    mine = session(
        result("e1", output=LONG), {"__id": "k", "type": "compaction"}, result("e2", output=LONG)
    )
    assert mine.extract(keep_recent=0).report.reasons == {
        NOT_SENT: 1,
        Reason.TYPE_NOT_MATCHED: 1,
        Reason.EXTRACT: 1,
    }
    assert LONG in mine.entry(0)["output"]


def test_values_come_back_one_by_one_while_the_marker_has_room() -> None:
    mine = session(result("e1", output=LONG, text=LONG + "!"))
    old = mine.raw
    mine.extract(keep_recent=0)
    assert mine.restore("e1", ["text"]).keys_restored == ("text",)
    assert places(mine.raw) == places(old)
    assert Marker.of(mine.entry(0)) is not None
    mine.restore("e1")
    assert mine.raw == old


def test_a_marker_without_room_refuses_a_part_and_not_the_whole() -> None:
    mine = session(result("e1", output=LONG, text="y" * 60))
    old = mine.raw
    mine.extract(keep_recent=0, min_value_length=20)
    lean = mine.raw
    with pytest.raises(Conflict, match="longer") as refused:
        mine.restore("e1", ["output"])
    assert "all values" in (refused.value.hint or "")
    assert mine.raw == lean
    mine.restore("e1")
    assert mine.raw == old


def test_the_room_of_extracted_values_is_not_given_away() -> None:
    mine = session(result("e1", output=LONG, note="abc"), result("e2", note="abc"))
    mine.extract(keep_recent=0)
    for entry in ("e1", "e2"):
        for plan in (
            lambda entry=entry: plan_set_extractable(mine.source, mine.fmt, entry, value=False),
            lambda entry=entry: plan_edit(
                mine.source, mine.fmt, entry, setting([(("note",), "abcd")])
            ),
        ):
            with pytest.raises(NoRoom):
                plan()
    shorter, _ = plan_edit(mine.source, mine.fmt, "e1", setting([(("note",), "a")]))
    mine.carry_out(shorter)
    mine.restore("e1")
    assert mine.entry(0) == result("e1", output=LONG, note="a")


def test_a_password_leaves_line_and_original_and_a_longer_word_is_refused() -> None:
    def redacted(word: str) -> tuple[Session, TextRedactor]:
        mine = session(result("e1", output=LONG + "pass-1234", note="my pass-1234"))
        mine.extract(keep_recent=0)
        redactor = TextRedactor(
            "s", SecretText("pass-1234", word), mine.fmt, mine.shelf, _hashes(mine)
        )
        plan = plan_text_redaction(mine.source, redactor)
        for keep in plan.keeps:
            assert isinstance(keep.line, bytes)
            mine.shelf.files[keep.ref] = keep.line
        mine.carry_out(replace(plan, keeps=()))
        return mine, redactor

    mine, redactor = redacted("[gone]")
    assert redactor.left == []
    mine.restore("e1")
    assert mine.entry(0) == result("e1", output=LONG + "[gone]", note="my [gone]")
    mine, redactor = redacted("[the password is gone]")
    assert {place.entry for place in redactor.left} == {"e1"}
    assert b"pass-1234" in mine.raw


def _hashes(mine: Session) -> frozenset[str]:
    marker = Marker.of(mine.entry(0))
    assert marker is not None
    return frozenset((marker.hash,))


def test_a_program_that_dropped_the_marker_left_no_room_for_it() -> None:
    mine = session(result("e1", output=LONG))
    mine.extract(keep_recent=0)
    entry = mine.entry(0)
    del entry[MARKER]
    mine.raw = jsonl(entry)
    assert plan_remark(mine.source, mine.fmt, mine.shelf)[1] == ()
    [answer] = mine.restore_all()
    assert "longer" in answer.unavailable["output"]
    assert mine.raw == jsonl(entry)
    copy = bytearray()
    restored_copy(mine.source, mine.fmt, mine.shelf, copy.extend)
    assert json.loads(copy) == result("e1", output=LONG)


def test_a_restored_entry_is_protected_by_its_note() -> None:
    mine = session(result("e1", output=LONG))
    mine.extract(keep_recent=0)
    mine.restore("e1")
    mine.restored = {"e1": NOW * 1000 - 1000}
    assert mine.extract(keep_recent=0).report.reasons == {Reason.RECENTLY_RESTORED: 1}
    mine.restored = {"e1": NOW * 1000 - 601e3}
    assert mine.extract(keep_recent=0).edits


@pytest.mark.parametrize("line", [b'{"a":1}', b'{"a":1}\n', b'{"a":1\t }\r\n', b"{}"])
def test_white_space_goes_before_the_last_brace(line: bytes) -> None:
    longer = with_length(line, len(line) + 3)
    assert longer == line.replace(b"}", b"   }")
    assert with_length(longer, len(line)) == line
    with pytest.raises(NoRoom):
        with_length(line, len(line) - 2)
