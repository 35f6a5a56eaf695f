"""Claude Code with bsd's hooks, and with its plugin, with a daemon and without."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.compat.beside import Beside, placeholders
from tests.compat.claude_code import ClaudeCode
from tests.compat.messages_api import Json, Model, asking
from tests.compat.test_own_session import parted
from tests.compat.test_restoring_in_session import entry_with
from tests.daemon.running import Running, running
from tests.setup.patient_hook import SCRIPT, patient
from tests.waiting import wait_for

pytestmark = pytest.mark.compat

PLUGIN = Path(__file__).parents[2] / "contrib" / "claude-code"
OURS = "bsd keeps large old values of"  # the sentence's beginning


def at(claude: ClaudeCode, **env: str) -> ClaudeCode:
    """Return the same with more environment variables."""
    return replace(claude, beside=replace(claude.beside, env={**claude.beside.env, **env}))


def with_plugin(claude: ClaudeCode, top: Path) -> ClaudeCode:
    """Claude Code after a person has installed the plugin as in contrib/claude-code/README.md."""
    copy = top / "plugin"
    shutil.copytree(PLUGIN, copy)
    patient(copy / "hooks" / "claude_hook.py", 30.0)
    bsd = top / "bin" / "bsd"
    bsd.parent.mkdir()
    words = " ".join(claude.beside.bsd_command())
    bsd.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    bsd.chmod(0o755)
    path = claude.beside.environment["PATH"]
    claude = at(claude, PATH=f"{bsd.parent}:{path}")
    run = claude.beside.run
    run(*claude.program, "plugin", "validate", str(copy))
    run(*claude.program, "plugin", "marketplace", "add", str(copy))
    run(*claude.program, "plugin", "install", "bsd@brainsurgeond")
    return claude


@contextmanager
def a_daemon(beside: Beside, tmp_path: Path) -> Iterator[Running]:
    """A daemon that waits for an hour of quiet, unless a hook reports that a session is idle."""
    environ = {"XDG_CONFIG_HOME": str(beside.home / ".config")}
    with running(beside.root, tmp_path, **environ, BRAINSURGEON_QUIET_SECONDS="3600") as daemon:
        yield daemon


def extracted(daemon: Running, session: str) -> int:
    """Return the number of entries with extracted values, as the daemon has counted."""
    daemon.must_run()
    listed: list[dict[str, Any]] = daemon.ask("sessions")["sessions"]
    [found] = [one for one in listed if one["id"] == session]
    return int(found["extracted_entries"] or 0) if found["counted"] else 0


def results_out(claude: ClaudeCode, daemon: Running, session: str) -> int:
    """The number of extracted tool results of a session, once the daemon has counted them."""
    if not extracted(daemon, session):
        return 0
    lines = claude.path(session).read_bytes().splitlines()
    return sum(b'"tool_result"' in line and b"[[extracted-" in line for line in lines)


def told(model: Model) -> int:
    """Return how often the newest request names the restorable values for the model."""
    return json.dumps(newest(model)["messages"]).count(OURS)


def resumed_and_told(claude: ClaudeCode, model: Model, session: str) -> bool:
    """Resume a session; return whether the hook answered within its 25 ms (if busy, it may not)."""
    claude.run("And now?", "--resume", session)
    return told(model) > 0


def newest(model: Model) -> Json:
    return [request for request in model.requests if request.get("tools")][-1]


@pytest.mark.soak
def test_in_ten_turns_values_leave_at_once_and_a_long_one_is_shown_whole(
    claude: ClaudeCode, model: Model, tmp_path: Path
) -> None:
    claude = with_plugin(claude, tmp_path)
    book = claude.beside.work / "long.txt"
    numbered = "\n".join(f"{n}\t{n:05} a line of a long file" for n in range(1, 2500))[:60_000]
    book.write_text("\n".join(line.partition("\t")[2] for line in numbered.split("\n")))
    with a_daemon(claude.beside, tmp_path) as daemon:
        claude = at(claude, BRAINSURGEON_SOCKET=str(daemon.socket))
        session = claude.run(asking("Read it.", ("Read", {"file_path": str(book)})))
        assert model.results()[-1] == numbered, "60,000 characters"

        def has_left(turns: int) -> bool:
            return results_out(claude, daemon, session) == turns

        for turn in range(1, 9):
            # The session was just written: without the hook, bsd would leave it alone.
            wait_for(partial(has_left, turn), f"the values of turn {turn} to leave")
            call = {"command": f"seq {turn}0000 {turn}4000", "description": "Count"}
            claude.run(asking("Count on.", ("Bash", call)), "--resume", session)
        wait_for(partial(has_left, 9), "those of the ninth turn to leave")
        entry = entry_with(claude.path(session), "Read")
        call = {"entry_id": entry}
        prompt = asking("What was in it?", ("mcp__plugin_bsd_bsd__restore", call))
        assert claude.run(prompt, "--resume", session) == session
    assert not model.refused
    assert model.results()[0].startswith("[[extracted-"), "it had left"
    # Once for each resume; on an overloaded machine a hook may not wait for the answer.
    assert 1 <= told(model) <= 9
    answers = [text for text in model.results() if text.startswith("{")]
    said, given = parted(answers[-1])
    assert said["entry_id"] == entry
    assert given == numbered, "all of it"


def test_a_session_that_ends_is_lean_soon_and_its_model_is_told_when_it_goes_on(
    claude: ClaudeCode, session: str, model: Model, tmp_path: Path
) -> None:
    claude = with_plugin(claude, tmp_path)
    with a_daemon(claude.beside, tmp_path) as daemon:
        claude.path(session).touch()
        claude = at(claude, BRAINSURGEON_SOCKET=str(daemon.socket))
        claude.run("Go on.", "--resume", session)
        assert told(model) == 0, "nothing is out yet"
        wait_for(lambda: extracted(daemon, session), "the values to leave")
        wait_for(partial(resumed_and_told, claude, model, session), "the model to be told")
        claude.run("Something else.")
        assert told(model) == 0


@pytest.mark.soak
def test_a_model_is_told_after_a_compaction(
    claude: ClaudeCode, session: str, model: Model, tmp_path: Path
) -> None:
    claude = with_plugin(claude, tmp_path)
    claude.beside.extract()
    with a_daemon(claude.beside, tmp_path) as daemon:
        claude = at(claude, BRAINSURGEON_SOCKET=str(daemon.socket))
        wait_for(lambda: extracted(daemon, session), "the daemon to count")
        claude.run("/compact", "--resume", session)
        wait_for(partial(resumed_and_told, claude, model, session), "the model to be told")


@pytest.mark.soak
def test_in_a_terminal_values_leave_while_the_program_is_idle(
    claude: ClaudeCode, session: str, tmp_path: Path
) -> None:
    claude = with_plugin(claude, tmp_path)
    with a_daemon(claude.beside, tmp_path) as daemon:
        claude = at(claude, BRAINSURGEON_SOCKET=str(daemon.socket))
        claude.path(session).touch()
        with claude.opened("--resume", session) as terminal:
            assert placeholders(claude.path(session).read_bytes()) == 0
            terminal.type("Go on.")
            terminal.wait_for(
                lambda: placeholders(claude.path(session).read_bytes()), "values to leave"
            )


@pytest.mark.parametrize(
    "hangs",
    [pytest.param(False, marks=pytest.mark.soak), True],
    ids=["no daemon", "one that hangs"],
)
def test_without_a_daemon_all_is_as_without_hooks(
    claude: ClaudeCode, session: str, model: Model, tmp_path: Path, *, hangs: bool
) -> None:
    """`setup/test_claude_hook.py` tries a missing socket; with the program, `make soak` does."""
    asked = []
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        if hangs:
            listening.bind(str(path))
            listening.listen()
        for hooked in (True, False):
            home = ClaudeCode(claude.beside.copy_to(tmp_path / f"{hooked}"), claude.program)
            if hooked:
                command = f"{sys.executable} -I -S {SCRIPT} --socket {path}"
                hook = [{"hooks": [{"type": "command", "command": command, "timeout": 5}]}]
                events = dict.fromkeys(("Stop", "SessionEnd", "SessionStart"), hook)
                settings = home.beside.source.parent / "settings.json"
                settings.write_text(json.dumps({"hooks": events}))
            done = home.beside.run(*home.program, "-p", "Go on.", "--resume", session)
            assert done.stderr == ""
            asked.append((done.stdout, newest(model)))
            content = home.path(session).read_bytes()
            assert (b'"stop_hook_summary"' in content) == hooked
            assert b"hook_non_blocking_error" not in content
    (said, with_hooks), (said_without, without) = asked
    number = re.compile(r"\d+")
    assert number.sub("", said) == number.sub("", said_without)
    for part in ("messages", "system", "tools"):
        texts = [number.sub("", json.dumps(one[part])) for one in (with_hooks, without)]
        assert texts[0].replace("True", "False") == texts[1], part
