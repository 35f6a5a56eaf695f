"""A turn ended in an error, or a person says that it is over: its program continues all the
same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

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
from tests.transcripts.agents.sources.tree import EVERYTHING, without_restored

pytestmark = pytest.mark.compat

COMMANDS = ("seq 1 600", "seq 1000 1400")


@pytest.fixture
def failing(model: Model) -> Iterator[Model]:
    """A model that fails when a prompt has two results."""
    model.fails_at = 2
    yield model
    model.fails_at = None


def sent(model: Model) -> str:
    return json.dumps(model.requests[-1]["messages"])


@pytest.fixture
def claude(programs: str, failing: Model, tmp_path: Path) -> ClaudeCode:
    """A home with a session, whose only turn has ended in an error."""
    assert programs
    beside = claude_code.home(tmp_path / "claude", tmp_path / "work", failing)
    made = ClaudeCode(beside, claude_code.newest())
    calls = [("Bash", {"command": command, "description": "Count"}) for command in COMMANDS]
    options = ("--output-format", "json", "--verbose", "--dangerously-skip-permissions")
    made.beside.run(*made.program, "-p", asking("Count.", *calls), *options, ok=False)
    failing.fails_at = None
    return made


def test_claude_code_goes_on_after_an_error_in_its_only_turn(
    claude: ClaudeCode, failing: Model
) -> None:
    [path] = claude.beside.files()
    original = path.read_bytes()
    assert b'"isApiErrorMessage":true' in original
    assert b'"stop_reason":"end_turn"' not in original
    claude.beside.extract()
    lean = path.read_bytes()
    assert placeholders(lean) == 4  # two results, and their copies
    claude.run("Go on.", "--resume", path.stem)
    assert failing.refused == []
    assert sent(failing).count("[[extracted-") == 2
    grown = path.read_bytes()
    assert grown.startswith(lean)
    claude.beside.restore_all()
    assert path.read_bytes() == original + grown[len(lean) :]
    claude.run("And with all of it?", "--resume", path.stem)
    assert failing.refused == []
    assert "[[extracted-" not in sent(failing)


@pytest.mark.soak
def test_claude_code_goes_on_with_a_turn_that_a_person_said_is_over(
    claude: ClaudeCode, failing: Model
) -> None:
    """The program was killed: there is no error, and the last result has no answer."""
    [path] = claude.beside.files()
    lines = path.read_bytes().splitlines(keepends=True)
    end = next(n for n, line in enumerate(lines) if b'"isApiErrorMessage":true' in line)
    path.write_bytes(killed := b"".join(lines[:end]))
    claude.beside.rest()
    [done] = claude.beside.bsd("extract")["sessions"]
    assert (done["status"], placeholders(path.read_bytes())) == ("unchanged", 0)
    [done] = claude.beside.bsd("extract", done["session"], "--turn-over")["sessions"]
    assert (done["status"], placeholders(lean := path.read_bytes())) == ("extracted", 4)
    claude.run("Go on.", "--resume", path.stem)
    assert failing.refused == []
    assert sent(failing).count("[[extracted-") == 2
    grown = path.read_bytes()
    assert grown.startswith(lean)
    claude.beside.restore_all()
    assert path.read_bytes() == killed + grown[len(lean) :]


@pytest.mark.soak
def test_pi_goes_on_after_an_error_in_its_only_turn(
    programs: str, failing: Model, tmp_path: Path
) -> None:
    beside = pi_program.home(tmp_path / "pi", tmp_path / "work", failing)
    pi = Pi(beside, pi_program.newest(programs))
    calls = [("bash", {"command": command}) for command in COMMANDS]
    prompt = asking("Count.", *calls)
    options = ("--provider", "anthropic", "--model", "claude-opus-4-5")
    beside.run(*pi.program, "-p", *options, prompt, ok=False)
    failing.fails_at = None
    [path] = beside.files()
    original = path.read_bytes()
    assert b'"stopReason":"error"' in original
    assert b'"stopReason":"stop"' not in original
    beside.extract()
    lean = path.read_bytes()
    assert placeholders(lean) == 2
    pi.run("Go on.", "--continue")
    assert failing.refused == []
    assert sent(failing).count("[[extracted-") == 2
    grown = path.read_bytes()
    assert grown.startswith(lean)
    beside.restore_all()
    assert path.read_bytes() == original + grown[len(lean) :]


@pytest.fixture
def codex(codex_program: str, tmp_path: Path) -> Iterator[Codex]:
    with provider() as made:
        yield Codex.at(codex_program, tmp_path, made)


def test_codex_goes_on_with_a_thread_whose_only_turn_was_aborted(codex: Codex) -> None:
    thread = codex.legacy_thread(turns=1)
    path, name = codex.file(thread), codex.name(thread)
    lines = path.read_bytes().splitlines(keepends=True)
    end = next(n for n, line in enumerate(lines) if b'"task_complete"' in line)
    done = json.loads(lines[end])
    aborted = {"type": "turn_aborted", "reason": "interrupted"}
    aborted["turn_id"] = done["payload"].get("turn_id")
    lines[end] = json.dumps(done | {"payload": aborted}).encode() + b"\n"
    path.write_bytes(original := b"".join(lines[: end + 1]))
    codex.rest()
    caller = Caller(layout=codex.layout, config=ConfigService(codex.layout.config_file))
    assert caller.extract(name, overrides=EVERYTHING).status is Status.EXTRACTED
    lean = path.read_bytes()
    codex.run("exec", "--skip-git-repo-check", "resume", thread, "go on")
    asked = codex.provider.requests[-1]["input"]
    calls = {one["call_id"] for one in asked if one["type"] == "function_call"}
    results = {one["call_id"]: one for one in asked if one["type"] == "function_call_output"}
    assert results.keys() == calls
    assert json.dumps(list(results.values())).count("[[extracted-") == 1
    codex.rest()
    grown = path.read_bytes()
    assert grown.startswith(lean)
    performed.restore_all(caller, name)
    assert without_restored(path.read_bytes()) == original + grown[len(lean) :]
