"""The commands that bsd names continue sessions in the real programs, from any directory."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bsd.core.layout import SessionName
from bsd.maintenance.catalog import resume_command
from tests.compat import pi_program
from tests.compat.claude_code import ClaudeCode, newest
from tests.compat.codex import Codex
from tests.compat.messages_api import Model, asking
from tests.compat.pi_program import Pi
from tests.compat.provider import provider
from tests.compat.terminal import in_terminal
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.compat


def called(name: str, program: Sequence[str], top: Path) -> Path:
    """Make a program available under its name on PATH; return the directory."""
    directory = top / "bin"
    directory.mkdir(exist_ok=True)
    script = directory / name
    script.write_text(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n')
    script.chmod(0o755)
    return directory


def shell(
    command: str, *more: str, path: Path, cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a copied command as a person does, with further arguments."""
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} {shlex.join(more)}"],
        cwd=cwd,
        env={**env, "PATH": f"{path}{os.pathsep}{env.get('PATH', os.defpath)}"},
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
    return done


def commands(beside: Any) -> dict[str, str]:
    """Return the commands that `bsd sessions --json` shows, by session."""
    found = beside.bsd("sessions")["sessions"]
    return {one["session"]: one["resume"] for one in found}


def test_claude_code_goes_on_from_another_directory(
    claude: ClaudeCode, session: str, tmp_path: Path
) -> None:
    beside, path = claude.beside, claude.path(session)
    [command] = commands(beside).values()
    assert command.endswith(f"claude --resume {session}")
    before = path.read_bytes()
    directory = called("claude", newest(), tmp_path)
    done = shell(
        command,
        *("-p", "And now?", "--output-format", "json", "--dangerously-skip-permissions"),
        path=directory,
        cwd=tmp_path,
        env=beside.environment,
    )
    assert json.loads(done.stdout)["session_id"] == session
    assert path.read_bytes().startswith(before)
    assert b"And now?" in path.read_bytes()[len(before) :]


@pytest.mark.soak
def test_claude_code_goes_on_with_a_session_that_was_gone(
    claude: ClaudeCode, session: str, tmp_path: Path
) -> None:
    beside, path = claude.beside, claude.path(session)
    beside.rest()
    beside.bsd("archive", "keep")
    path.unlink()
    [gone] = beside.bsd("archive", "list")["sessions"]
    back = beside.bsd("archive", "bring-back", gone["id"])
    assert back["resume"] == gone["resume"]
    before = path.read_bytes()
    shell(
        gone["resume"],
        *("-p", "And now?", "--dangerously-skip-permissions"),
        path=called("claude", newest(), tmp_path),
        cwd=tmp_path,
        env=beside.environment,
    )
    assert path.read_bytes().startswith(before)
    assert len(path.read_bytes()) > len(before)


@pytest.mark.soak
def test_a_subagents_command_is_that_of_its_session(claude: ClaudeCode, session: str) -> None:
    count = ("Bash", {"command": "seq 2000 2600", "description": "Count"})
    agent = {"description": "Count", "prompt": asking("Count.", count), "run_in_background": False}
    task = ("Task", agent | {"subagent_type": "general-purpose"})
    claude.run(asking("Let somebody count.", task), "--resume", session)
    found = commands(claude.beside)
    assert len(found) == 2, "the session and its subagent"
    assert len(set(found.values())) == 1


@pytest.mark.soak
def test_pi_goes_on_from_another_directory(programs: str, model: Model, tmp_path: Path) -> None:
    beside = pi_program.home(tmp_path / "pi", tmp_path / "a work place", model)
    pi = Pi(beside, pi_program.newest(programs))
    pi.run("Hello.")
    [path] = beside.files()
    [command] = commands(beside).values()
    before = path.read_bytes()
    shell(
        command,
        *("-p", "--provider", "anthropic", "--model", "claude-opus-4-5", "And now?"),
        path=called("pi", pi.program, tmp_path),
        cwd=tmp_path,
        env=beside.environment,
    )
    assert beside.files() == [path], "nothing else was made"
    assert path.read_bytes().startswith(before)
    assert b"And now?" in path.read_bytes()[len(before) :]
    assert str(beside.work).encode() in path.read_bytes().splitlines()[0]


def test_codex_goes_on_from_another_directory(codex_program: str, tmp_path: Path) -> None:
    with provider() as made:
        codex = Codex.at(codex_program, tmp_path, made)
        thread = codex.legacy_thread(turns=1)
        name = SessionName.parse(str(codex.name(thread)))
        command = resume_command(codex.layout, name)
        assert command == f"codex resume {thread}"
        before, asked = codex.file(thread).read_bytes(), len(made.requests)
        directory = called("codex", codex.command(), tmp_path)
        env = {**codex.environment, "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"}
        words = f"{command} -c check_for_update_on_startup=false"
        with in_terminal(["/bin/sh", "-c", words], codex.top / "work", env) as terminal:
            terminal.wait_for(lambda: "answer" in terminal.tail(), "the thread to be shown")
            terminal.type("And now?")
            terminal.wait_for(lambda: len(made.requests) > asked, "the thread to go on")
            terminal.wait_for(
                lambda: b"And now?" in codex.file(thread).read_bytes()[len(before) :],
                "the file to grow",
            )
        assert codex.file(thread).read_bytes().startswith(before)
