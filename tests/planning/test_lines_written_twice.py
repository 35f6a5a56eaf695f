"""Lines of one id: repeated writes of the same entry leave and come back alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bsd.core.errors import Conflict
from bsd.planning.copies import are_copies
from bsd.planning.extract import plan_extraction
from bsd.planning.view import extracted_content
from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from tests.planning.in_memory import NOW, Session, config
from tests.session_files import jsonl
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import LONG, raw, without_restored
from tests.transcripts.agents.test_claude_code_lines import result

ALL = {"keep_recent": 0, "min_value_length": 200}
# Entries 3 of the first turn: a result and its copy.
RESULT = "00000000-0000-4000-8000-000000000003"


def copied(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines as a branch has them."""
    return [
        one | {"forkedFrom": {"sessionId": "s", "messageUuid": one["uuid"]}}
        for one in lines
        if "uuid" in one
    ]


def twice(*, branch: bool) -> Session:
    lines = claude_code_lines()
    first = copied(lines) if branch else lines
    return Session(raw([*first, *lines, *claude_code_turn_after(lines)]), CLAUDE_CODE)


def claude_code_turn_after(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    last = lines[-1]
    prompt = {**lines[1], "uuid": "p", "parentUuid": last["uuid"]}
    answer = {**last, "uuid": "a", "parentUuid": "p"}
    return [prompt, answer]


@pytest.mark.parametrize("branch", [True, False], ids=["branch", "replay"])
def test_both_lines_leave_and_each_comes_back_exactly(*, branch: bool) -> None:
    session = twice(branch=branch)
    old = session.raw
    plan = session.extract(**ALL)
    assert plan.report.reasons["duplicate_entry_id"] == 0
    lines = [at for at, one in enumerate(session.raw.splitlines()) if RESULT.encode() in one]
    marked = [at for at in lines if "_extracted" in session.entry(at)]
    assert len(marked) == 2
    refs = {session.entry(at)["_extracted"]["ref"] for at in marked}
    assert len(refs) == 2, "each has a stored line of its own"
    lean = session.raw
    answer = session.restore(RESULT)
    assert (answer.restored, answer.entry_id, answer.index) == (True, RESULT, marked[0])
    assert all("_restored" in session.entry(at) for at in marked)
    session.raw = lean
    session.restore(f"#{marked[1]}")
    assert ["_restored" in session.entry(at) for at in marked] == [False, True]
    session.restore(RESULT)
    session.restore_all()
    assert without_restored(session.raw) == old
    again = session.extract(now=NOW + 700, **ALL)
    assert again.report.entries == plan.report.entries
    session.restore_all(now=NOW + 800)
    assert without_restored(session.raw) == old


def test_their_content_can_be_read_by_the_id() -> None:
    session = twice(branch=True)
    session.extract(**ALL)
    found = extracted_content(session.source, CLAUDE_CODE, RESULT, session.shelf)
    assert found.content["toolUseResult.stdout"] == LONG
    assert found.display == {"toolUseResult.stdout"}


@pytest.mark.parametrize(
    "change",
    [
        {"message": {"role": "user", "content": [{"type": "text", "text": LONG}]}},
        {"toolUseResult": {"stdout": "other" * 200, "stderr": ""}},
        {"toolUseResult": {"stdout": LONG, "stderr": "", "more": 1}},
        {"parentUuid": "another"},
        {"sessionId": "another"},
    ],
)
def test_lines_that_say_different_things_stay(change: dict[str, Any]) -> None:
    lines = claude_code_lines()
    [at] = [at for at, one in enumerate(lines) if one.get("uuid") == RESULT]
    session = Session(
        raw([*lines, lines[at] | change, *claude_code_turn_after(lines)]), CLAUDE_CODE
    )
    plan = session.extract(**ALL)
    assert plan.report.reasons["duplicate_entry_id"] == 2
    assert "_extracted" not in session.entry(at)


def test_a_line_leaves_later_than_its_copy() -> None:
    lines = claude_code_lines()
    session = Session(raw(lines), CLAUDE_CODE)
    session.extract(**ALL)
    [at] = [at for at, one in enumerate(lines) if one.get("uuid") == RESULT]
    added = raw([*copied(lines), *claude_code_turn_after(lines)])
    whole = raw(lines) + added
    session.raw += added
    plan = session.extract(**ALL)
    assert plan.report.entries > 0
    assert plan.report.reasons["duplicate_entry_id"] == 0
    assert at not in [one.index for one in plan.touched]
    session.restore_all()
    assert without_restored(session.raw) == whole


def test_a_line_after_the_checkpoint_is_compared_with_its_copy_before() -> None:
    lines = claude_code_lines()
    session = Session(raw([*lines, *claude_code_turn_after(lines)]), CLAUDE_CODE)
    since = session.extract(**ALL).checkpoint
    assert since is not None
    branch = copied(lines)
    after = [one | {"uuid": f"{one['uuid']}2"} for one in claude_code_turn_after(lines)]
    session.raw += raw([*branch, *after])
    plan = plan_extraction(
        session.source, CLAUDE_CODE, config(**ALL), NOW, session.shelf, since=since
    )
    assert plan.report.entries > 0
    assert plan.report.reasons["duplicate_entry_id"] == 0


def test_other_programs_lines_leave_if_they_are_the_same_byte_for_byte() -> None:
    def entry(number: int, role: str, text: str, **more: Any) -> dict[str, Any]:
        message = {"role": role, "content": text, **more}
        return {"type": "message", "id": f"e{number}", "message": message}

    header = {"type": "session", "version": 3, "id": "s"}
    turn = [entry(1, "user", "hi"), entry(2, "toolResult", LONG), entry(3, "assistant", "x")]
    end = [entry(4, "user", "hi"), entry(5, "assistant", "x", stopReason="stop")]
    session = Session(jsonl(header, *turn, *turn, *end), OPENCLAW)
    old = session.raw
    assert session.extract(**ALL).report.entries == 2
    assert session.restore("e2").restored
    assert without_restored(session.raw) == old
    other = entry(2, "toolResult", LONG + "!")
    session = Session(jsonl(header, *turn, other, *end), OPENCLAW)
    assert session.extract(**ALL).report.entries == 0


def test_what_makes_lines_copies() -> None:
    one = result(LONG, toolUseResult={"stdout": LONG})
    away = json.loads(json.dumps(one))
    away["message"]["content"][0]["content"] = "kept [[extracted-u1]]"
    away |= {"_extracted": {}, "_restored": "now", "_extractable": False}
    other = result(LONG + "!", toolUseResult={"stdout": LONG})
    deep: Any = "x"
    for _ in range(400):
        deep = [deep]
    assert are_copies([one, one | {"forkedFrom": {"sessionId": "a"}}], CLAUDE_CODE)
    assert are_copies([one, away, one], CLAUDE_CODE)
    assert not are_copies([one, away, other], CLAUDE_CODE), "though both are like the second"
    named = [each | {"uuid": "u2"} for each in (one, away)]
    assert not are_copies(named, CLAUDE_CODE), "the placeholder names another entry"
    assert not are_copies([one, one | {"uuid": "u2"}], CLAUDE_CODE)
    assert not are_copies([one, one | {"origin": 1}], CLAUDE_CODE)
    assert not are_copies([one | {"deep": deep}, one | {"deep": deep}], CLAUDE_CODE)
    assert not are_copies([one | {"n": 1}, one | {"n": True}], CLAUDE_CODE)
    flat = {"id": "a", "type": "text", "text": "[[extracted-a]]", "n": 1}
    assert are_copies([flat, flat | {"text": LONG}], FLAT)
    assert not are_copies([flat, flat | {"text": LONG, "n": 2}], FLAT)
    picture = {"type": "image", "source": {"type": "base64", "data": LONG}}
    stand_in = {"type": "text", "text": "[[extracted-u1]]"}
    assert are_copies([result([picture]), result([stand_in])], CLAUDE_CODE)


def test_lines_that_differ_are_still_named_by_their_numbers() -> None:
    lines = claude_code_lines()
    session = Session(raw(lines), CLAUDE_CODE)
    session.extract(**ALL)
    [at] = [at for at, one in enumerate(lines) if one.get("uuid") == RESULT]
    line = session.entry(at)
    line["message"]["role"] = "assistant"
    session.raw += raw([line])
    with pytest.raises(Conflict, match="several entries"):
        session.restore(RESULT)
