"""One prompt, answered without a terminal: the last turn is the only one, and most of it may
leave.

Its program continues with the rest, and its provider accepts it: calls have their results, and
thoughts are unchanged under their signatures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config_file import ConfigService
from bsd.planning.result import Status
from tests.actions import performed
from tests.actions.performed import Caller
from tests.compat import claude_code, pi_program
from tests.compat.beside import placeholders
from tests.compat.claude_code import ClaudeCode
from tests.compat.codex import Codex
from tests.compat.messages_api import Model, asking
from tests.compat.pi_program import Pi
from tests.compat.provider import provider
from tests.transcripts.agents.sources.tree import EVERYTHING, away, without_restored

pytestmark = pytest.mark.compat

COUNT = {"command": "seq 1 600", "description": "Count"}
COUNT_ON = {"command": "seq 1000 1400", "description": "Count on"}


@pytest.fixture
def thinking(model: Model) -> Iterator[Model]:
    """A model that thinks before each call and answer."""
    model.thinks = True
    yield model
    model.thinks = False  # the next module's first fixture may come before the reset


def entries_of(content: bytes) -> list[Any]:
    return [json.loads(line) for line in content.splitlines()]


@pytest.fixture
def claude_home(programs: str, thinking: Model, tmp_path: Path) -> ClaudeCode:
    """A home of Claude Code without a session."""
    assert programs
    beside = claude_code.home(tmp_path / "claude", tmp_path / "work", thinking)
    return ClaudeCode(beside, claude_code.newest())


@pytest.fixture
def headless(claude_home: ClaudeCode) -> str:
    """The id of a session of one prompt."""
    return claude_home.run(asking("Count.", ("Bash", COUNT), ("Bash", COUNT_ON)))


def test_claude_code_resumes_a_session_of_one_prompt(
    claude_home: ClaudeCode, headless: str, thinking: Model
) -> None:
    path = claude_home.path(headless)
    original = path.read_bytes()
    claude_home.beside.extract()
    lean = path.read_bytes()
    assert placeholders(lean) == 4  # two results, and their copies
    for old, new in zip(original.splitlines(), lean.splitlines(), strict=True):
        kind = json.loads(old)["type"]
        assert old == new or kind == "user" or kind.startswith("api-request")
    assert claude_home.run("And now?", "--resume", headless) == headless
    assert thinking.refused == []
    sent = json.dumps(thinking.requests[-1]["messages"])
    assert sent.count("[[extracted-") == 2
    assert sent.count('"signed-') >= 3
    assert claude_home.run(asking("Once more.", ("Bash", COUNT)), "--resume", headless) == headless
    assert thinking.refused == []
    grown = path.read_bytes()
    assert grown.startswith(lean)
    claude_home.beside.restore_all()
    assert path.read_bytes() == original + grown[len(lean) :]
    claude_home.run("And with all of it?", "--resume", headless)
    assert thinking.refused == []
    assert "[[extracted-" not in json.dumps(thinking.requests[-1]["messages"])


@pytest.mark.soak
def test_a_turn_of_claude_code_that_ended_in_its_midst_stays(
    claude_home: ClaudeCode, headless: str, thinking: Model
) -> None:
    path = claude_home.path(headless)
    lines = path.read_bytes().splitlines(keepends=True)
    results = [n for n, line in enumerate(lines) if b'"tool_result"' in line and b'"user"' in line]
    for end in (results[-1] + 1, results[-1]):  # with the last result, and without it
        path.write_bytes(b"".join(lines[:end]))
        claude_home.beside.rest()
        [done] = claude_home.beside.bsd("extract")["sessions"]
        assert (done["status"], done["reasons"].get("extract")) == ("unchanged", None)
        assert done["reasons"]["turn_open"] > 0
    claude_home.run("And now?", "--resume", headless)
    assert thinking.refused == []
    claude_home.beside.extract()  # a new prompt does not wait for it
    claude_home.run("And then?", "--resume", headless)
    assert thinking.refused == []


@pytest.mark.soak
def test_pi_goes_on_with_a_session_of_one_prompt(
    programs: str, thinking: Model, tmp_path: Path
) -> None:
    beside = pi_program.home(tmp_path / "pi", tmp_path / "work", thinking)
    pi = Pi(beside, pi_program.newest(programs))
    pi.run(
        asking("Count.", *(("bash", {"command": one["command"]}) for one in (COUNT, COUNT_ON))),
        "--thinking",
        "high",
    )
    [path] = beside.files()
    original = path.read_bytes()
    assert b'"thinkingSignature":"signed-' in original
    beside.extract()
    lean = path.read_bytes()
    assert placeholders(lean) == 2
    assert lean.count(b'"thinkingSignature":"signed-') == original.count(
        b'"thinkingSignature":"signed-'
    )
    pi.run("And now?", "--continue")
    assert thinking.refused == []
    assert json.dumps(thinking.requests[-1]["messages"]).count("[[extracted-") == 2
    grown = path.read_bytes()
    assert grown.startswith(lean)
    beside.restore_all()
    assert path.read_bytes() == original + grown[len(lean) :]


@pytest.fixture
def codex(codex_program: str, tmp_path: Path) -> Iterator[Codex]:
    with provider() as made:
        yield Codex.at(codex_program, tmp_path, made)


def test_codex_resumes_a_thread_of_one_prompt(codex: Codex) -> None:
    thread = codex.legacy_thread(turns=1)
    path, name = codex.file(thread), codex.name(thread)
    original = path.read_bytes()
    assert any(e["payload"].get("type") == "task_complete" for e in entries_of(original))
    caller = Caller(layout=codex.layout, config=ConfigService(codex.layout.config_file))
    assert caller.extract(name, overrides=EVERYTHING).status is Status.EXTRACTED
    lean = path.read_bytes()
    assert away(original, lean) >= 2
    reasoning = [line for line in original.splitlines() if b'"encrypted_content":"gAAA' in line]
    assert set(reasoning) <= set(lean.splitlines())
    codex.run("exec", "--skip-git-repo-check", "resume", thread, "go on")
    sent = codex.provider.requests[-1]["input"]
    calls = {one["call_id"] for one in sent if one["type"] == "function_call"}
    results = {one["call_id"]: one for one in sent if one["type"] == "function_call_output"}
    assert results.keys() == calls
    assert json.dumps(list(results.values())).count("[[extracted-") == 1
    assert sum(one["type"] == "reasoning" for one in sent) == 2
    codex.rest()
    grown = path.read_bytes()
    assert grown.startswith(lean)
    performed.restore_all(caller, name)
    assert without_restored(path.read_bytes()) == original + grown[len(lean) :]


@pytest.mark.soak
def test_a_turn_of_codex_that_is_not_complete_stays(codex: Codex) -> None:
    thread = codex.legacy_thread(turns=1)
    path, name = codex.file(thread), codex.name(thread)
    lines = path.read_bytes().splitlines(keepends=True)
    end = next(n for n, line in enumerate(lines) if b'"task_complete"' in line)
    path.write_bytes(b"".join(lines[:end]))
    codex.rest()
    caller = Caller(layout=codex.layout, config=ConfigService(codex.layout.config_file))
    done = caller.extract(name, overrides=EVERYTHING)
    assert (done.status, done.reasons["turn_open"] > 0) == (Status.UNCHANGED, True)
