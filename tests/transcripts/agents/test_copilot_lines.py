"""Events of Copilot CLI: values, turns, compactions, sub-agents, damage; signs of a process."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bsd.cli.names import session_named
from bsd.core.errors import Busy, Invalid, NotFound
from bsd.core.layout import SessionName
from bsd.maintenance.catalog import find_session, resume_command
from bsd.planning.context_window import ContextWindow, LastTurn
from bsd.planning.result import Status
from bsd.store.statistics import Statistics
from bsd.transcripts.agents.copilot.format import COPILOT, detect
from bsd.transcripts.agents.copilot.program import KIND
from bsd.transcripts.agents.entry import Usage
from bsd.transcripts.agents.format import NotOurs, Rank, Title, Turn
from bsd.transcripts.agents.program import AgentProgram, Process
from tests.actions import performed
from tests.maintenance.keeping import bring_back, keep
from tests.openclaw_tree import set_idle
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources import COPILOT as SAMPLE
from tests.transcripts.agents.sources.copilot import (
    copilot_answer,
    copilot_call,
    copilot_event,
    copilot_header,
    copilot_lines,
    copilot_prompt,
    copilot_result,
)
from tests.transcripts.agents.sources.tree import EVERYTHING, LONG, Home, raw, without_restored


def kinds_of(line: dict[str, Any]) -> set[tuple[str, str | None, bool, bool]]:
    return {
        (".".join(map(str, value.path[1:])), value.type, value.display, value.fixed)
        for value in COPILOT.values(line, 40)
    }


def test_what_leaves_a_session_and_what_stays() -> None:
    found = {each for line in copilot_lines(1) for each in kinds_of(line)}
    assert {each for each in found if each[0] != "content"} == {
        ("transformedContent", "user", False, False),
        ("toolRequests.0.arguments.text", "tool_call", False, False),
        ("reasoningText", "thinking", True, False),
        ("reasoningBlocks.blocks.0.thinking", "thinking", False, True),
        ("arguments.text", "tool_call", True, False),
        ("result.content", "tool_result", False, False),
        ("result.detailedContent", "tool_result", True, False),
    }
    assert {each for each in found if each[0] == "content"} == {
        ("content", "tool_result", True, False),  # of system.message
        ("content", "user", True, True),
        ("content", "assistant", False, False),
    }
    shown: dict[str, Any] = {"content": "c", "contents": [{"type": "text", "text": LONG}]}
    shown["structuredContent"] = {"a": LONG}
    assert {each[0] for each in kinds_of(copilot_result(1, "c", result=shown)) if each[2]} == {
        "result.contents.0.text",
        "result.structuredContent.a",
    }
    failed = copilot_result(1, "c", success=False, result=None, error={"message": LONG})
    assert kinds_of(failed) == {("error.message", "tool_result", False, False)}
    assert list(COPILOT.error_flags(failed)) == [(("data", "success"), True)]
    record = copilot_event(1, "model.messages_snapshot", {"messages": [{"content": LONG}]})
    assert kinds_of(record) == {("messages", "tool_result", True, False)}
    for kind, key in (
        ("system.notification", "content"),
        ("session.compaction_complete", "summaryContent"),
    ):
        assert kinds_of(copilot_event(1, kind, {key: LONG})) == {(key, "system", False, True)}


def test_an_answer_stays_whole_if_the_program_compares_its_blocks() -> None:
    call = copilot_call("write_file", "c", {"text": LONG})
    ordered = {"provider": "p", "blocks": [], "orderedBlocks": [{"type": "text", "text": LONG}]}
    line = copilot_answer(1, LONG, call, reasoningBlocks=ordered)
    assert kinds_of(line) == {("content", "assistant", False, True)}
    custom = copilot_answer(1, "", copilot_call("apply_patch", "c", LONG))
    assert kinds_of(custom) == {("toolRequests.0.arguments", "tool_call", False, False)}


def test_all_of_a_sub_agent_is_never_sent_and_its_tokens_count() -> None:
    usage = {"model": "m", "inputTokens": 900, "outputTokens": 7, "cacheReadTokens": 800}
    aside = {"agentId": "16e9947e-c139-4415-bef8-29154d8ac059"}
    lines = [
        copilot_prompt(1, LONG) | aside,
        copilot_answer(2, LONG, copilot_call("view", "c", {"text": LONG})) | aside,
        copilot_result(3, "c") | aside,
        copilot_event(4, "session.usage_record", {"usage": usage}) | aside,
    ]
    assert all(each[2] for line in lines for each in kinds_of(line))
    infos = [COPILOT.info(line) for line in lines]
    assert not any(info.is_assistant or info.may_be_last or info.cache for info in infos)
    assert [COPILOT.title(line) for line in lines] == [None] * 4
    statistics = Statistics()
    for line, info in zip(lines, infos, strict=True):
        statistics.take(line, info, None, 1)
    counted = {"input": 100, "output": 7, "cache_read": 800, "cache_write": 0, "total": 907}
    assert statistics.tokens == counted
    cache = COPILOT.info(copilot_event(4, "session.usage_record", {"usage": usage})).cache
    assert cache is not None
    assert (cache.model, cache.in_use, cache.provider) == ("m", True, "github-copilot")
    assert cache.usage == Usage(100, 800, 0, 7)


def in_context(lines: list[dict[str, Any]]) -> list[int]:
    window = ContextWindow()
    for number, line in enumerate(lines):
        window.follow(number, COPILOT.info(line))
    return [number for number in range(len(lines)) if window.sent(number)]


@pytest.mark.parametrize("attempt", [{"compactionAttemptId": "a"}, {}])
def test_what_follows_the_start_of_a_compaction_stays_in_context(attempt: dict[str, Any]) -> None:
    begins = copilot_event(3, "session.compaction_start", attempt)
    done = {"success": True, "preCompactionTokens": 9, **attempt}
    ends = copilot_event(5, "session.compaction_complete", done)
    ends["parentId"] = begins["id"]
    before = [copilot_header(), copilot_prompt(1, "do it"), copilot_result(2, "c")]
    lines = [*before, begins, copilot_result(4, "d"), ends, copilot_prompt(6, "go on")]
    assert in_context(lines) == [3, 4, 5, 6]
    assert COPILOT.tokens_before(ends) == 9
    ends["data"]["success"] = False
    assert in_context(lines) == [*range(7)]
    cleared = copilot_event(7, "session.context_cleared", {"messagesCleared": 3})
    assert in_context([*lines, cleared, copilot_prompt(8, "again")]) == [7, 8]


def is_open(*lines: dict[str, Any]) -> bool:
    turn = LastTurn()
    for number, line in enumerate(lines):
        turn.follow(number, COPILOT.info(line))
    return turn.open_from is not None


def test_turns() -> None:
    prompt, call = copilot_prompt(1, "do it"), copilot_call("view", "c", {})
    asked, answered = copilot_answer(2, "", call), copilot_result(3, "c")
    ended = copilot_event(4, "assistant.turn_end", {"turnId": "0"})
    assert is_open(prompt)
    assert is_open(prompt, asked, answered, ended), "the model has not answered"
    assert is_open(prompt, asked, copilot_event(5, "session.shutdown", {})), "a call waits"
    done = copilot_answer(5, "done")
    assert not is_open(prompt, asked, answered, ended, done)
    assert is_open(prompt, copilot_answer(5, "part", chunkIndex=0, chunkCount=2))
    again = copilot_event(6, "assistant.turn_start", {"turnId": "1"})
    assert is_open(prompt, done, again), "a hook lets it go on"
    assert not is_open(prompt, asked, copilot_event(6, "abort", {"reason": "user"}))
    steering = copilot_prompt(6, "mind this", delivery="steering")
    assert COPILOT.info(steering).turn is Turn.OPEN


def test_titles_and_directories() -> None:
    assert COPILOT.title(copilot_prompt(1, "Ducks")) == Title("Ducks", Rank.PROMPT)
    assert COPILOT.directory(copilot_header()) == "/home/me/project"
    moved = copilot_event(1, "session.context_changed", {"context": {"cwd": "/other"}})
    assert COPILOT.directory(moved) == "/other"
    assert COPILOT.directory(copilot_prompt(1, "x", context={"cwd": "/no"})) is None


def test_other_forms_are_not_edited() -> None:
    newer = detect(raw([copilot_header(2)]).splitlines())
    assert isinstance(newer, NotOurs)
    assert newer.is_unknown_form
    assert "unknown version 2, by Copilot CLI '1.0.102'" in newer.reason
    assert newer.reads is COPILOT
    assert COPILOT.why_unknown_form(copilot_header(2)) == newer.reason
    for lines in (copilot_lines(1)[1:], [copilot_header(), {"type": "x"}], []):
        found = detect(raw(lines).splitlines())
        assert isinstance(found, NotOurs)
        assert not found.is_unknown_form


def test_lines_that_old_versions_or_crashes_have_damaged_stay_as_they_are(
    tmp_path: Path,
) -> None:
    lines = raw(copilot_lines()).splitlines(keepends=True)
    whole = json.dumps(copilot_result(90, "x", result={"content": LONG}))
    odd = [
        f"{whole[:200]}\n{whole[200:]}\n".encode(),  # a line end within a text
        f"{whole[:300]}{whole}\n".encode(),  # cut off, and the next event on the same line
        f"{whole}{whole}\n".encode(),
        b"\0" * 500 + b"\n",
    ]
    separator = lines[6].replace(b"long old", "long\u2028old".encode())
    content = b"".join([*lines[:6], separator, *lines[7:10], *odd, *lines[10:], b"\0" * 40])
    home = Home.of(SAMPLE, tmp_path, [])
    home.path.write_bytes(content)
    os.utime(home.path, (1, 1))
    caller = make_caller(home.layout, Clock())
    assert caller.extract(home.name, overrides=EVERYTHING).status is Status.EXTRACTED
    lean = home.path.read_bytes()
    assert b"".join(odd) in lean
    assert "\u2028".encode() not in lean
    assert lean.endswith(b"\0" * 40)
    assert performed.restore_all(caller, home.name).status is Status.RESTORED
    assert without_restored(home.path.read_bytes()) == content


# --- the program's directory ---


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.of(SAMPLE, tmp_path, copilot_lines(1))


@pytest.fixture
def program(home: Home) -> AgentProgram:
    return KIND.program(home.source, home.path.parent)


@contextmanager
def locking(path: Path) -> Iterator[None]:
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_a_session_that_is_open_is_in_use(home: Home, program: AgentProgram) -> None:
    directory = home.path.parent
    lock = directory / f"inuse.{os.getpid()}.lock"
    assert program.in_use("events") is None
    lock.write_text(str(os.getpid()))
    assert program.in_use("events"), "an older version without a .hold"
    hold = lock.with_suffix(".hold")
    with locking(hold):
        assert program.in_use("events")
        with pytest.raises(Busy, match="open"), program.lock(home.name, home.path):
            pass
        assert [*KIND.at_work(home.source, Process(os.getpid()))] == [home.path]
    assert program.in_use("events") is None, "its process was killed"
    with program.lock(home.name, home.path):
        pass
    hold.unlink()
    os.utime(lock, (1, 1))
    assert program.in_use("events") is None, "another process has its number"
    assert [*KIND.at_work(home.source, Process(os.getpid()))] == []


def test_no_process_opens_a_session_while_it_is_edited(home: Home, program: AgentProgram) -> None:
    operation = home.source / ".session-operation-locks" / f"{home.path.parent.name}.lock"
    with program.lock(home.name, home.path):
        assert not operation.exists(), "bsd creates no lock of the program"
    assert program.quiet_seconds > 30
    with locking(operation):
        assert program.quiet_seconds == 10
        assert program.in_use("events") is None
        with pytest.raises(Busy, match="opening"), program.lock(home.name, home.path):
            pass
    with (
        program.lock(home.name, home.path),
        operation.open() as file,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_process_with_several_sessions_calls_from_the_one_that_it_names(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = home.other_place() / "events.jsonl"
    for path in (home.path, other):
        path.parent.mkdir(exist_ok=True)
        (path.parent / f"inuse.{os.getpid()}.lock").touch()
    here = Process(os.getpid())
    assert {*KIND.at_work(home.source, here)} == {home.path, other}
    monkeypatch.setenv("COPILOT_AGENT_SESSION_ID", other.parent.name)
    assert [*KIND.at_work(home.source, here)] == [other]
    monkeypatch.setenv("COPILOT_AGENT_SESSION_ID", "another")
    assert {*KIND.at_work(home.source, here)} == {home.path, other}


def test_its_files_belong_to_it_and_locks_do_not(home: Home, program: AgentProgram) -> None:
    kept = ["checkpoints/001.md", "files/a.jsonl", "files/events.jsonl", "session.db"]
    kept += ["workspace.yaml"]
    for name in (*kept, "inuse.7.lock", "inuse.7.hold", ".workspace-fork.lock", "session.db-wal"):
        path = home.path.parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    found = [str(path.relative_to(home.path.parent)) for path in program.belongings("events")]
    assert sorted(found) == kept


def test_the_name_of_its_directory_names_it(home: Home) -> None:
    name, session = home.path.parent.name, SessionName(home.name.agent, "events")
    assert resume_command(home.layout, home.name) == f"copilot --resume={name}"
    assert find_session(home.layout, name) == session
    assert session_named(home.layout, name[:4]) == session
    assert session_named(home.layout, "events") == session
    other = home.other_place()
    other.mkdir()
    (other / "events.jsonl").write_bytes(home.path.read_bytes())
    with pytest.raises(Invalid, match="2 sessions begin with"):
        session_named(home.layout, name[:4])
    assert session_named(home.layout, name) == session
    with pytest.raises(NotFound):
        find_session(home.layout, name[:4])


def test_all_files_come_back_from_the_archive_with_a_deleted_session(home: Home) -> None:
    directory, old = home.path.parent, home.path.read_bytes()
    beside = {directory / "workspace.yaml": b"cwd: /p\n", directory / "files" / "a.jsonl": b"{}\n"}
    for path, content in beside.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    set_idle(home.path, 2 * 86_400)
    clock = Clock()
    keep(home.layout, clock)
    [copy] = home.layout.archive.glob("*/session-*/copy.json")
    shutil.rmtree(directory)
    brought = bring_back(home.layout, str(home.name), clock)
    assert brought.files == 3
    assert {path: path.read_bytes() for path in (home.path, *beside)} == {home.path: old, **beside}
    assert copy.exists()
