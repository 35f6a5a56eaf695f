"""Lines of Qwen Code: turns, compactions, sub-agents, signatures, versions; signs of a process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bsd.transcripts.agents.entry import usage_of
from bsd.transcripts.agents.format import NotOurs, Rank, StartedSubagent, Title, Turn
from bsd.transcripts.agents.program import Process
from bsd.transcripts.agents.qwen import KIND, QWEN, QwenProject
from tests.transcripts.agents.sources import QWEN as SAMPLE
from tests.transcripts.agents.sources.qwen import qwen_line, qwen_lines, qwen_note
from tests.transcripts.agents.sources.tree import LONG, raw


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"message": {"role": "user", "parts": [*parts]}}


def test_what_leaves_a_session_and_what_stays() -> None:
    kinds = {
        (".".join(map(str, value.path[-2:])), value.type, value.display, value.fixed)
        for line in qwen_lines(1)
        for value in QWEN.values(line, 40)
        if value.length > 40
    }
    assert kinds == {
        ("0.text", "thinking", False, True),
        ("args.content", "tool_call", False, False),
        ("function_args.content", "tool_result", True, False),
        ("response.output", "tool_result", False, False),
        ("resultDisplay.newContent", "tool_result", True, False),
        ("resultDisplay.fileDiff", "tool_result", True, False),
        ("toolCallResult.resultDisplay", "tool_result", True, False),
    }


def test_a_call_with_a_signature_stays_and_a_picture_in_a_result_may_leave() -> None:
    call = {"functionCall": {"id": "c", "name": "n", "args": {"text": LONG}}}
    assert QWEN.values(qwen_line(1, "assistant", **message(call)), 1)
    signed = qwen_line(1, "assistant", model="m", **message({**call, "thoughtSignature": "x"}))
    assert QWEN.values(signed, 1) == []
    assert QWEN.info(signed).signed_by == "m"
    picture = {"inlineData": {"mimeType": "image/png", "data": "A" * 900}}
    answer = {"id": "c", "name": "n", "response": {"output": "a picture"}, "parts": [picture]}
    values = QWEN.values(qwen_line(2, "tool_result", **message({"functionResponse": answer})))
    assert [(value.length, value.fixed) for value in values] == [(9, False), (900, False)]


def test_texts_of_a_compaction_and_of_the_program_stay() -> None:
    result = {"functionResponse": {"id": "c", "name": "n", "response": {"output": LONG}}}
    history = [{"role": "user", "parts": [{"text": LONG}, result]}]
    info = {"originalTokenCount": 9000}
    line = qwen_note(4, "chat_compression", {"info": info, "compressedHistory": history})
    assert QWEN.info(line).is_compaction
    assert QWEN.tokens_before(line) == 9000
    assert [value.fixed for value in QWEN.values(line)] == [True, False]
    assert not QWEN.info(qwen_note(4, "chat_compression", {"info": info})).is_compaction
    report = qwen_line(5, "user", subtype="notification", **message({"text": LONG}))
    assert [value.fixed for value in QWEN.values(report)] == [True]
    assert QWEN.title(report) is None


def test_turns_and_usage() -> None:
    turns = [QWEN.info(line).turn for line in qwen_lines(1)[:-1]]
    assert turns == [
        *(Turn.STARTS, Turn.NONE, Turn.OPEN, Turn.NONE, Turn.OPEN, Turn.OPEN, Turn.CLOSES)
    ]
    told = {"promptTokenCount": 900, "cachedContentTokenCount": 800, "candidatesTokenCount": 20}
    line = qwen_line(1, "assistant", usageMetadata={**told, "totalTokenCount": 950}, **message())
    assert usage_of(line) == (100, 800, 0, 50), "thinking is output"
    cache = QWEN.info({**line, "model": "m"}).cache
    assert cache is not None
    assert (cache.model, cache.in_use) == ("m", True)


def test_titles_and_times_of_calls() -> None:
    first = qwen_line(0, "user", **message({"text": "<system-reminder>a</system-reminder>Ducks"}))
    assert QWEN.title(first) == Title("Ducks", Rank.PROMPT)
    named = qwen_note(3, "custom_title", {"customTitle": "Birds", "titleSource": "auto"})
    assert QWEN.title(named) == Title("Birds", Rank.MADE)
    assert QWEN.title(qwen_note(3, "custom_title", {"customTitle": "B"})) == Title("B", Rank.GIVEN)
    assert QWEN.call_seconds(qwen_lines(1)[3]) == ("toolu_0", 0.019)


def test_a_sub_agent_has_a_session_of_its_own_and_its_parts_belong_to_one(tmp_path: Path) -> None:
    shown = {"type": "task_execution", "subagentName": "my agent", "taskPrompt": LONG}
    line = qwen_line(3, "tool_result", toolCallResult={"callId": "c1", "resultDisplay": shown})
    assert QWEN.subagent(line) == StartedSubagent("c1", "agent-my_agent-c1")
    directory = tmp_path / "-p" / "subagents" / SAMPLE.session
    program = KIND.program(tmp_path, directory)
    assert program.part_of == tmp_path / "-p" / "chats" / f"{SAMPLE.session}.jsonl"
    assert program.is_session_file("agent-my_agent-c1.jsonl")
    assert not program.is_session_file(f"{SAMPLE.session}.jsonl")
    assert program.why_no_session("x.jsonl")
    assert program.resume_command("agent-my_agent-c1", "/p") == (
        f"cd /p && qwen --resume {SAMPLE.session}"
    )


@pytest.mark.parametrize(
    ("change", "why", "is_unknown_form"),
    [
        ({"version": "1.0.0"}, "version '1.0.0'", True),
        ({"message": {"role": "user", "content": "x"}}, "a message without parts", False),
        ({"parentUuid": 7}, "without uuid or parentUuid", False),
        ({"type": "model"}, "unknown type", False),
    ],
)
def test_other_forms_are_not_edited(
    change: dict[str, Any], why: str, is_unknown_form: bool
) -> None:
    lines = [line | change for line in qwen_lines(1)[:1]]
    found = QwenProject(Path(), Path()).detect(raw(lines).splitlines())
    assert isinstance(found, NotOurs)
    assert why in found.reason
    assert found.is_unknown_form is is_unknown_form
    assert QWEN.why_unknown_form(lines[0]) == (found.reason if is_unknown_form else None)


def test_the_session_of_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    projects = tmp_path / "projects"
    path = projects / SAMPLE.directory / f"{SAMPLE.session}.jsonl"
    path.parent.mkdir(parents=True)
    path.touch()
    node = Process(7, 500, argv=("node", "--max-old-space-size=9", "/x/@qwen-code/qwen-code/c.js"))
    assert [*KIND.at_work(projects, node)] == []
    monkeypatch.setenv("QWEN_CODE_SESSION_ID", SAMPLE.session)
    assert [*KIND.at_work(projects, node)] == [path]
    assert [*KIND.at_work(projects, Process(8, 500, argv=("bash",)))] == []
    monkeypatch.delenv("QWEN_CODE_SESSION_ID")
    records = tmp_path / "sessions"
    records.mkdir()
    record = {"pid": 7, "procStart": "boot:500", "sessionId": SAMPLE.session}
    (records / "7.json").write_text(json.dumps(record))
    assert [*KIND.at_work(projects, node)] == [path]
    assert [*KIND.at_work(projects, Process(7, 501))] == [], "an earlier process"


def test_a_lease_of_an_editor_and_a_process_with_sub_agents_count_as_in_use(tmp_path: Path) -> None:
    projects = tmp_path / "projects"
    program = QwenProject(projects, projects / "-p" / "chats")
    lease = tmp_path / "tmp" / "session-writer-locks" / f"{SAMPLE.session}.lock"
    assert program.in_use(SAMPLE.session) is None
    lease.parent.mkdir(parents=True)
    for content, why in ((f'{{"pid":{os.getpid()}}}', "has it open"), ("", "cannot tell")):
        lease.write_text(content)
        assert why in (program.in_use(SAMPLE.session) or "")
    lease.unlink()
    parts = KIND.program(projects, projects / "-p" / "subagents" / SAMPLE.session)
    assert parts.in_use("agent-a") is None
    record = tmp_path / "sessions" / f"{os.getpid()}.json"
    record.parent.mkdir()
    record.write_text(json.dumps({"sessionId": SAMPLE.session}))
    assert "may continue it" in (parts.in_use("agent-a") or "")
    assert program.in_use(SAMPLE.session) is None
