"""oh-my-pi: the line with the title, signed blocks, its directories, and its running processes."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from bsd.core import processes
from bsd.transcripts.agents.format import NotOurs, Rank, Title
from bsd.transcripts.agents.oh_my_pi import KIND, OH_MY_PI
from bsd.transcripts.agents.program import Process
from tests.transcripts.agents.sources import OH_MY_PI as SAMPLE
from tests.transcripts.agents.sources.oh_my_pi import oh_my_pi_lines, title_line
from tests.transcripts.agents.sources.pi import pi_entry, pi_lines
from tests.transcripts.agents.sources.tree import LONG, raw
from tests.waiting import wait_for


def test_the_line_with_the_title_is_optional_and_never_edited() -> None:
    program = KIND.program(Path("/s"), Path("/s/-p"))
    for lines in (oh_my_pi_lines(), pi_lines()):
        assert program.detect(raw(lines).splitlines()) is OH_MY_PI
    line = title_line("Ducks", source="user")
    assert OH_MY_PI.info(line).is_header
    assert OH_MY_PI.values(line) == []
    assert OH_MY_PI.title(line) == Title("Ducks", Rank.GIVEN)
    assert OH_MY_PI.title(title_line("Ducks", source="auto")) == Title("Ducks", Rank.MADE)
    found = program.detect(raw([title_line(), {**pi_lines()[0], "version": 4}]).splitlines())
    assert isinstance(found, NotOurs)
    assert found.is_unknown_form


def test_thinking_and_signed_blocks_stay_and_a_reset_begins_a_new_context() -> None:
    call = {"type": "toolCall", "id": "c", "name": "write", "arguments": {"text": LONG}}
    text = {"type": "text", "text": LONG, "textSignature": "x"}
    signed = {**call, "thoughtSignature": "x"}
    thinking = {"type": "thinking", "thinking": LONG, "thinkingSignature": "x"}
    content = [{"type": "text", "text": LONG}, text, call, signed, thinking]
    line = pi_entry(3, "message", message={"role": "assistant", "content": content})
    assert [value.fixed for value in OH_MY_PI.values(line, 1)] == [False, True, False, True, True]
    assert OH_MY_PI.info(pi_entry(4, "reset_boundary")).is_compaction


def test_sub_agents_are_parts_of_a_session() -> None:
    sessions = Path("/s")
    parts = KIND.program(sessions, sessions / "-p" / SAMPLE.session / "0-Scout")
    assert parts.part_of == sessions / "-p" / f"{SAMPLE.session}.jsonl"
    assert parts.is_session_file("0-Scout.0-Child.jsonl")
    command = KIND.program(sessions, sessions / "-p").resume_command(SAMPLE.session, "/home/p q")
    assert command == f"cd '/home/p q' && omp --resume /s/-p/{SAMPLE.session}.jsonl"


def test_a_directory_is_named_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    name = KIND.project_directory
    assert name is not None
    assert [*map(name, ("/home/me", "/home/me/a/b", "/tmp/a", "/srv/a"))] == [
        *("-", "-a-b", "-tmp-a", "--srv-a--")
    ]


def test_sessions_of_a_project_are_in_use_while_it_runs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    work, sessions = tmp_path / "work", tmp_path / "sessions"
    path = sessions / "-tmp-work" / f"{SAMPLE.session}.jsonl"
    for directory in (work, path.parent):
        directory.mkdir(parents=True)
    program, other = (KIND.program(sessions, sessions / name) for name in ("-tmp-work", "-x"))
    assert program.in_use(SAMPLE.session) is None
    with subprocess.Popen(["omp", "60"], executable="/bin/sleep", cwd=work) as process:
        wait_for(lambda: bool(processes.argv(process.pid)), "the program to run")
        why = program.in_use(SAMPLE.session)
        beside = other.in_use(SAMPLE.session)
        process.kill()
    assert why == f"process {process.pid} may have it open"
    assert beside is None
    path.touch()
    at_work = Process(process.pid, begun=os.stat(path).st_mtime, cwd=work, argv=("bun", "/b/omp"))
    assert [*KIND.at_work(sessions, at_work)] == [path]
    assert [*KIND.at_work(sessions, at_work.__class__(1, begun=0.0, cwd=work))] == []
