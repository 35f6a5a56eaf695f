"""Claude Code's lines: values that leave them, values that stay, and when a session is idle."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE, SUBAGENT
from bsd.transcripts.agents.claude_code.program import KIND, ClaudeCodeProject
from bsd.transcripts.agents.format import NotOurs, Shape, TranscriptFormat, Turn
from bsd.transcripts.agents.program import AgentProgram
from bsd.transcripts.spans import format_path

LONG = "x" * 600
SESSION = "8463c716-a2ea-4c14-9efa-87158ebd9f20"


def line(kind: str, content: Any = None, **more: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "parentUuid": None,
        "sessionId": SESSION,
        "version": "2.1.39",
        "type": kind,
        "uuid": "u1",
        "timestamp": "2026-02-11T21:41:48.049Z",
    }
    if content is not None:
        entry["message"] = {"role": kind, "content": content}
    return entry | more


def result(content: Any, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content}
    return line("user", [block], **more)


def found(entry: dict[str, Any], at_least: int = 500) -> dict[str, tuple[str | None, bool]]:
    values = [value for value in CLAUDE_CODE.values(entry, at_least) if not value.fixed]
    return {format_path(value.path): (value.type, value.display) for value in values}


def test_results_leave_and_so_do_their_copies() -> None:
    copy = {"stdout": LONG, "stderr": "", "file": {"content": LONG, "filePath": "/a"}}
    assert found(result(LONG, toolUseResult=copy)) == {
        "message.content[0].content": ("tool_result", False),
        "toolUseResult.stdout": ("tool_result", True),
        "toolUseResult.file.content": ("tool_result", True),
    }
    blocks = [{"type": "text", "text": LONG}, {"type": "tool_reference", "name": LONG}]
    assert list(found(result(blocks))) == ["message.content[0].content[0].text"]
    assert found(result("")) == {}


def test_a_copy_that_is_a_text_stays_and_one_in_a_list_leaves() -> None:
    assert list(found(result("a", toolUseResult=LONG))) == ["message.content[0].content"]
    copy = [{"type": "text", "text": LONG}]
    assert "toolUseResult[0].text" in found(result("a", toolUseResult=copy))


def test_arguments_leave_by_their_leaves() -> None:
    call = {"type": "tool_use", "id": LONG, "name": "Edit", "input": {"a": LONG, "b": ["", LONG]}}
    assert found(line("assistant", [call])) == {
        "message.content[0].input.a": ("tool_call", False),
        "message.content[0].input.b[1]": ("tool_call", False),
    }
    assert found(line("assistant", [call | {"input": LONG}])) == {}


@pytest.mark.parametrize("kind", ["image", "document"])
def test_media_leave_as_whole_blocks(kind: str) -> None:
    block = {"type": kind, "source": {"type": "base64", "media_type": "m", "data": "A" * 40}}
    [value] = CLAUDE_CODE.values(result([block]))
    assert (value.shape, value.type, value.length) == (Shape.BLOCK, "tool_result", 40)
    [value] = CLAUDE_CODE.values(line("user", [block]))
    assert (value.shape, value.type) == (Shape.BLOCK, "user")
    block["source"] = {"type": "url", "url": LONG}
    assert found(result([block])) == {}


def test_texts_are_values_and_only_rules_that_ask_for_them_take_them() -> None:
    assert found(line("user", LONG)) == {"message.content": ("user", False)}
    text = {"type": "text", "text": LONG}
    assert found(line("assistant", [text])) == {"message.content[0].text": ("assistant", False)}


@pytest.mark.parametrize(
    "entry",
    [
        line("assistant", [{"type": "thinking", "thinking": LONG, "signature": LONG}]),
        line("assistant", [{"type": "redacted_thinking", "data": LONG}]),
        line("assistant", [{"type": "somethingNew", "text": LONG}]),
        line("user", LONG, isCompactSummary=True),
        line("user", [{"type": "text", "text": LONG}], isMeta=True),
        line("system", content=None, subtype="compact_boundary", content_=LONG),
        line("attachment", attachment={"content": LONG}),
        line("prompt_snapshot", prompt=LONG),
        {"type": "summary", "summary": LONG, "leafUuid": "u"},
        {"type": "file-history-snapshot", "messageId": LONG, "snapshot": {"a": LONG}},
        {"type": "user", "message": {"role": "user", "content": LONG}},  # no uuid, no identity
        line("progress", data={"signature": LONG, "message": {"usage": {"a": LONG}}}),
        line("assistant", message=LONG),
        line("user", [LONG, None, {"type": ["text"]}]),
    ],
)
def test_what_never_leaves(entry: dict[str, Any]) -> None:
    assert found(entry, 0) == {}


def answered(reason: str | None, *blocks: dict[str, Any]) -> dict[str, Any]:
    entry = line("assistant", list(blocks) or [{"type": "text", "text": "t"}])
    entry["message"]["stop_reason"] = reason
    return entry


def synthetic() -> dict[str, Any]:
    """The message that the program writes itself after an error of the API."""
    entry = answered("stop_sequence")
    entry["message"]["model"] = "<synthetic>"
    return entry


INTERRUPTED = "[Request interrupted by user"
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}


@pytest.mark.parametrize(
    ("entry", "turn"),
    [
        (line("user", "do it"), Turn.STARTS),
        (line("user", [{"type": "text", "text": "do it"}]), Turn.STARTS),
        (line("user", "caveat", isMeta=True), Turn.NONE),
        (line("user", "summary", isCompactSummary=True), Turn.STARTS),
        (result("r"), Turn.OPEN),
        (answered(None, CALL), Turn.OPEN),
        (answered("end_turn", CALL), Turn.OPEN),
        (answered("tool_use", CALL), Turn.OPEN),
        (answered(None), Turn.NONE),
        (answered("end_turn"), Turn.CLOSES),
        (answered("max_tokens"), Turn.CLOSES),
        (answered("refusal"), Turn.CLOSES),
        (answered("model_context_window_exceeded"), Turn.CLOSES),
        (answered("stop_sequence"), Turn.CLOSES),
        (answered("pause_turn"), Turn.NONE),
        (answered("stop_sequence") | {"isApiErrorMessage": True}, Turn.BREAKS),
        (synthetic(), Turn.BREAKS),
        (synthetic() | {"isSidechain": True}, Turn.NONE),
        (line("user", INTERRUPTED), Turn.BREAKS),
        (line("user", [{"type": "text", "text": f"{INTERRUPTED} for tool use]"}]), Turn.BREAKS),
        (line("user", f"What does {INTERRUPTED!r} mean?"), Turn.STARTS),
        (answered("end_turn") | {"isSidechain": True}, Turn.NONE),
        (line("system", subtype="turn_duration"), Turn.CLOSES),
        (line("system", subtype="stop_hook_summary"), Turn.CLOSES),
        (line("system", subtype="compact_boundary"), Turn.NONE),
        (line("progress", data={}), Turn.NONE),
        ({"type": "summary"}, Turn.NONE),
    ],
)
def test_turns(entry: dict[str, Any], turn: Turn) -> None:
    assert CLAUDE_CODE.info(entry).turn is turn


ASIDE = {"isSidechain": True, "agentId": "a1b2c3"}


@pytest.mark.parametrize(
    ("entry", "turn"),
    [
        (line("user", "do it"), Turn.STARTS),
        (line("user", "caveat", isMeta=True), Turn.NONE),
        (result("r"), Turn.OPEN),
        (answered("tool_use", CALL), Turn.OPEN),
        (answered("end_turn", CALL), Turn.OPEN),
        (answered("end_turn"), Turn.CLOSES),
        (answered(None), Turn.NONE),  # of an older version, or the rest may follow
        (answered("max_tokens"), Turn.CLOSES),
        (synthetic(), Turn.BREAKS),
        (line("attachment", attachment={}), Turn.NONE),
    ],
)
def test_turns_of_subagents(entry: dict[str, Any], turn: Turn) -> None:
    assert SUBAGENT.info(entry | ASIDE).turn is turn


def test_what_a_subagent_was_asked_is_no_prompt_among_the_lines_of_its_session() -> None:
    assert CLAUDE_CODE.info(line("user", "do it", isSidechain=True)).turn is Turn.NONE


def test_facts() -> None:
    info = CLAUDE_CODE.info(result("r"))
    assert (info.id, info.kind, info.role) == ("u1", "tool_result", "toolResult")
    assert (info.is_message, info.is_header, info.result_of) == (True, False, "toolu_1")
    assert info.time_ms == 1770846108049.0
    info = CLAUDE_CODE.info(line("assistant", [CALL]))
    assert [(call.id, call.name) for call in info.calls] == [("toolu_1", "Bash")]
    assert info.calls[0].path == ("message", "content", 0)
    assert info.is_assistant
    assert not CLAUDE_CODE.info(line("progress", data={})).is_message
    assert CLAUDE_CODE.info({"type": "summary"}).id is None
    assert CLAUDE_CODE.info({}).kind == "unknown"


def test_signatures_name_their_model() -> None:
    for block in (
        {"type": "thinking", "thinking": "", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
    ):
        entry = line("assistant", [block])
        entry["message"]["model"] = "claude-opus-5-6"
        assert CLAUDE_CODE.info(entry).signed_by == "claude-opus-5-6"
    assert CLAUDE_CODE.info(line("assistant", [CALL])).signed_by is None


SEGMENT = {"headUuid": "u7", "anchorUuid": "u1", "tailUuid": "u9"}
LISTED = {"anchorUuid": "u1", "uuids": ["u7", "u8"], "allUuids": ["u7", "u7a", "u8"]}
NOTHING, UNKNOWN = (True, (), None, None), (False, (), None, None)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"trigger": "auto"}, NOTHING),
        (None, NOTHING),
        ({"preservedSegment": SEGMENT}, (True, (), "u7", "u9")),
        ({"preservedSegment": None}, NOTHING),
        ({"preservedMessages": LISTED}, (True, ("u7", "u8"), None, None)),
        (
            {"preservedMessages": LISTED, "preservedSegment": SEGMENT},
            (True, ("u7", "u8"), None, None),
        ),
        ({"preservedMessages": LISTED | {"uuids": []}}, NOTHING),
        ({"preservedMessages": ["u7"]}, UNKNOWN),
        ({"preservedMessages": {"uuids": ["u7", 8]}}, UNKNOWN),
        ({"preservedSegment": {"headUuid": "u7"}}, UNKNOWN),
        ({"preservedSegment": "u7"}, UNKNOWN),
        ({"preservedSegment": SEGMENT, "preservedMore": [1]}, UNKNOWN),
    ],
)
def test_what_a_compaction_takes_out_of_sight(metadata: Any, expected: tuple[Any, ...]) -> None:
    info = CLAUDE_CODE.info(line("system", subtype="compact_boundary", compactMetadata=metadata))
    assert (info.is_compaction, info.kept, info.kept_from, info.kept_to) == expected


def test_from_where_a_session_may_go_on() -> None:
    entries = [line("user", "a"), result("r"), answered(None), line("attachment", attachment={})]
    entries += [line("system", subtype="compact_boundary"), line("system", subtype="turn_duration")]
    entries += [line("progress", data={}), {"type": "summary", "leafUuid": "u"}]
    found = [CLAUDE_CODE.info(entry).may_be_last for entry in entries]
    assert found == [True, True, True, False, True, False, False, False]
    aside = [entry | {"isSidechain": True} for entry in entries]
    assert not any(CLAUDE_CODE.info(entry).may_be_last for entry in aside)
    assert SUBAGENT.info(aside[0]).may_be_last


def test_an_answer_is_all_its_lines() -> None:
    entry = answered(None)
    entry["message"]["id"] = "msg_1"
    assert CLAUDE_CODE.info(entry).answer == "msg_1"
    assert CLAUDE_CODE.info(entry).is_assistant
    assert not CLAUDE_CODE.info(entry | {"isSidechain": True}).is_assistant


# --- which files ---


@pytest.fixture
def project(tmp_path: Path) -> ClaudeCodeProject:
    directory = tmp_path / ".claude" / "projects" / "-p"
    directory.mkdir(parents=True)
    return ClaudeCodeProject(directory.parent, directory)


def detected(project: ClaudeCodeProject, *entries: Any) -> TranscriptFormat | NotOurs:
    return project.detect([json.dumps(entry).encode() + b"\n" for entry in entries])


NOTE = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}


def test_sessions_are_told_by_their_messages(project: ClaudeCodeProject) -> None:
    assert detected(project, *[NOTE] * 100, line("user", "hello")) is CLAUDE_CODE
    assert detected(project, *[NOTE] * 3000, line("user", "hello")) is CLAUDE_CODE
    assert detected(project, {"type": "brandNew", "a": 1}, line("user", "hello")) is CLAUDE_CODE


def without(entry: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != key}


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [NOTE],
        [{"type": "session", "version": 3}, {"type": "message", "id": "a", "message": {}}],
        [line("user", "a"), without(line("user", "b"), "uuid")],
        [without(line("user", "a"), "sessionId")],
        [without(line("user", "a"), "parentUuid")],
        [line("user", "a", parentUuid=5)],
        [line("user", "a", version="3.0.0")],
        [line("user", "a", version=None)],
        [line("user", {"text": "a"})],
        [line("user", "a", message={"role": "assistant", "content": "a"})],
        [line("user", "a"), {"uuid": "u"}],
    ],
)
def test_what_is_not_known_is_left_alone(
    project: ClaudeCodeProject, entries: list[dict[str, Any]]
) -> None:
    assert isinstance(detected(project, *entries), NotOurs)


@pytest.mark.parametrize(
    ("entries", "is_read"),
    [
        ([{"no": "type"}, line("user", "a")], True),
        ([line("user", "a"), without(line("user", "b"), "uuid")], True),
        ([line("user", "a", version="3.0.0")], True),
        ([NOTE] * 5, True),
        ([], False),
        ([{"no": "type"}] * 500 + [line("user", "a")], False),
        ([line("user", {"text": "a"})], False),
    ],
)
def test_lines_that_are_understood_are_read_all_the_same(
    project: ClaudeCodeProject, entries: list[dict[str, Any]], *, is_read: bool
) -> None:
    found = detected(project, *entries)
    assert isinstance(found, NotOurs)
    assert found.reads is (CLAUDE_CODE if is_read else None)


def test_a_foreign_file_is_not_read_to_its_end(project: ClaudeCodeProject) -> None:
    def endless() -> Iterator[bytes]:
        yield from [b'{"no":"type"}\n'] * 500
        raise AssertionError("read on")

    assert isinstance(project.detect(endless()), NotOurs)


@pytest.mark.parametrize(
    ("name", "is_session"),
    [
        (f"{SESSION}.jsonl", True),
        (SESSION, False),
        (f"{SESSION}.jsonl.bak", False),
        (f"{SESSION}.compact.tmp.jsonl", False),
        ("agent-a1b2c3.jsonl", False),
        ("journal.jsonl", False),
        (f".{SESSION}.jsonl", False),
        (f"{SESSION.upper()}.jsonl", False),
    ],
)
def test_names(project: ClaudeCodeProject, name: str, is_session: bool) -> None:
    assert project.is_session_file(name) is is_session


@pytest.fixture(params=["subagents", "subagents/workflows/wf_1"])
def subagents(request: pytest.FixtureRequest, project: ClaudeCodeProject) -> AgentProgram:
    directory = project.directory / SESSION / request.param
    directory.mkdir(parents=True)
    return KIND.program(project.projects, directory)


def test_the_directory_tells_whose_files_they_are(
    project: ClaudeCodeProject, subagents: AgentProgram
) -> None:
    assert KIND.program(project.projects, project.directory) == project
    names = ["agent-a1b2c3.jsonl", "agent-acompact-1f.jsonl", "agent-aname@team-1f.jsonl"]
    assert all(map(subagents.is_session_file, names))
    others = [f"{SESSION}.jsonl", "agent-a1.meta.json", "journal.jsonl", "agent-a1.x.jsonl"]
    assert not any(map(subagents.is_session_file, others))


@pytest.mark.parametrize("missing", [None, "isSidechain", "agentId", "sessionId"])
def test_subagents_are_told_by_their_messages(subagents: AgentProgram, missing: str | None) -> None:
    odd = without(line("user", "b") | ASIDE, missing) if missing else line("user", "b") | ASIDE
    lines = [json.dumps(each).encode() for each in (line("user", "a") | ASIDE, odd)]
    found = subagents.detect(lines)
    assert isinstance(found, NotOurs) if missing else found is SUBAGENT


# --- running processes ---


def says(project: ClaudeCodeProject, pid: int, **what: Any) -> Path:
    path = project.projects.parent / "sessions" / f"{pid}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"pid": pid, "sessionId": SESSION, **what}))
    return path


def test_a_busy_process_keeps_its_session(project: ClaudeCodeProject) -> None:
    assert project.in_use(SESSION) is None
    path = says(project, os.getpid(), status="busy")
    assert "is busy" in (project.in_use(SESSION) or "")
    assert project.in_use(SESSION.replace("8", "9")) is None
    says(project, os.getpid())  # of a version that does not record it
    assert project.in_use(SESSION)
    says(project, os.getpid(), status="idle")
    assert project.in_use(SESSION) is None
    path.write_text('{"pid')
    assert "cannot tell" in (project.in_use(SESSION) or "")
    path.write_text("[]")
    assert "cannot tell" in (project.in_use(SESSION) or "")


def test_a_living_process_keeps_its_subagents_even_if_it_is_idle(
    project: ClaudeCodeProject, subagents: AgentProgram
) -> None:
    assert subagents.in_use("agent-a1") is None
    path = says(project, os.getpid(), status="idle")
    assert "may continue" in (subagents.in_use("agent-a1") or "")
    says(project, os.getpid(), status="busy")
    assert "is busy" in (subagents.in_use("agent-a1") or "")
    path.write_text(json.dumps({"status": "idle"}))  # it does not name its session
    assert subagents.in_use("agent-a1")
    path.write_text(json.dumps({"sessionId": SESSION.replace("8", "9"), "status": "busy"}))
    assert subagents.in_use("agent-a1") is None


def test_a_process_that_is_gone_keeps_nothing(project: ClaudeCodeProject) -> None:
    says(project, 2**31 - 1, status="busy")
    (project.projects.parent / "sessions" / "notes.json").write_text("no process")
    assert project.in_use(SESSION) is None


def test_it_waits_longer_where_nobody_says_who_is_at_work(project: ClaudeCodeProject) -> None:
    before = project.quiet_seconds
    says(project, os.getpid(), status="idle")
    assert before > project.quiet_seconds >= 2
