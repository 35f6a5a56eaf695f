"""The command that continues a session in its program, and the working directory that it needs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.archive import GoneSession, bring_back, copy_sessions, list_archive, show_archived
from bsd.actions.list_sessions import list_all_sessions
from bsd.actions.search import search_all
from bsd.actions.show import show_entries
from bsd.actions.summary import summarize_session
from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.maintenance.catalog import resume_command
from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE as CLAUDE_CODE_FORMAT
from bsd.transcripts.agents.codex import CODEX as CODEX_FORMAT
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from bsd.transcripts.agents.programs import layout_of
from tests.actions.performed import Caller
from tests.openclaw_tree import add_session, set_idle, set_status
from tests.session_files import Clock, conversation, jsonl, make_caller
from tests.transcripts.agents.sources import CLAUDE_CODE, CODEX, PI
from tests.transcripts.agents.sources.claude_code import subagent_lines
from tests.transcripts.agents.sources.tree import Home, raw

ODD = "/home/me/it's a project"


def in_directory(lines: list[dict[str, Any]], directory: str) -> list[dict[str, Any]]:
    return [line | {"cwd": directory} if "uuid" in line else line for line in lines]


def claude_home(top: Path, directory: str = ODD) -> Home:
    return Home.of(CLAUDE_CODE, top, in_directory(CLAUDE_CODE.lines(), directory))


def caller_of(layout: Layout) -> Caller:
    return make_caller(layout, Clock())


def test_claude_code_is_run_where_the_session_began(tmp_path: Path) -> None:
    home = claude_home(tmp_path)
    command = resume_command(home.layout, home.name)
    assert command == f"cd {shlex.quote(ODD)} && claude --resume {home.name.session}"
    assert shlex.split(command)[:2] == ["cd", ODD]


def test_without_a_directory_it_is_the_command_alone(tmp_path: Path) -> None:
    home = Home.of(CLAUDE_CODE, tmp_path, CLAUDE_CODE.lines())
    assert resume_command(home.layout, home.name) == f"claude --resume {home.name.session}"


@pytest.mark.parametrize(
    "directory", ["", "-", "..", "/a\nb", "/a\x1b[2J", "/a\ud800", "/" + "x" * 5000, 7]
)
def test_a_directory_that_nobody_can_type_is_none(directory: Any) -> None:
    assert CLAUDE_CODE_FORMAT.directory({"cwd": directory}) is None
    assert CODEX_FORMAT.directory({"type": "session_meta", "payload": {"cwd": directory}}) is None
    assert OPENCLAW.directory({"type": "session", "cwd": directory}) is None
    assert FLAT.directory({"type": "session", "cwd": directory}) is None


@pytest.mark.parametrize(
    ("directory", "begins"),
    [("/home/me/project", "cd /home/me/project && "), ("/home/me/project/.worktrees/a", "")],
)
def test_a_subagent_goes_on_with_its_session(tmp_path: Path, directory: str, begins: str) -> None:
    home = claude_home(tmp_path)
    path = home.path.with_suffix("") / "subagents" / "agent-a7be2f0c41d9.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(raw(in_directory(subagent_lines(), directory)))
    set_idle(path)
    found = {row.session for row in list_all_sessions(caller_of(home.layout)).sessions}
    [name] = found - {str(home.name)}
    command = resume_command(home.layout, SessionName.parse(name))
    assert command == f"{begins}claude --resume {home.name.session}"


def test_codex_knows_a_thread_by_its_id(tmp_path: Path) -> None:
    home = Home.of(CODEX, tmp_path, CODEX.lines())
    assert resume_command(home.layout, home.name) == f"codex resume {home.name.session[-36:]}"


def test_pi_takes_a_path(tmp_path: Path) -> None:
    top = tmp_path / "it is"
    home = Home.of(PI, top, PI.lines())
    command = resume_command(home.layout, home.name)
    assert command is not None
    assert shlex.split(command) == ["pi", "--session", str(home.path)]


def test_openclaw_opens_what_it_lists(layout: Layout) -> None:
    add_session(layout.root, "main/s1", jsonl(*conversation()))
    assert resume_command(layout, SessionName("main", "s1")) is None
    set_status(layout.root, "main/s1", "done")
    command = resume_command(layout, SessionName("main", "s1"))
    assert command == "openclaw tui --session agent:main:s1"


def test_what_is_no_session_has_none(layout: Layout) -> None:
    add_session(layout.root, "main/s1.trajectory", jsonl(*conversation()))
    assert resume_command(layout, SessionName("main", "s1.trajectory")) is None


# --- where the command is shown ---


def test_every_answer_about_a_session_has_it(tmp_path: Path) -> None:
    home = claude_home(tmp_path)
    caller, expected = caller_of(home.layout), resume_command(home.layout, home.name)
    assert expected is not None
    assert show_entries(caller, home.name, limit=1).resume == expected
    assert summarize_session(caller, home.name).resume == expected
    [row] = list_all_sessions(caller).sessions
    assert row.resume == expected
    search_all(caller, "do it")  # from here on the index knows the directory
    assert home.layout.search_db.exists()
    [row] = list_all_sessions(caller).sessions
    assert row.resume == expected


def test_a_long_list_opens_no_session_that_the_index_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = claude_home(tmp_path)
    caller = caller_of(home.layout)
    search_all(caller, "do it")
    monkeypatch.setattr("bsd.maintenance.titles.open_transcript", _refuse)
    [row] = list_all_sessions(caller).sessions
    assert row.resume == f"cd {shlex.quote(ODD)} && claude --resume {home.name.session}"


def _refuse(_: object, name: object) -> None:
    raise AssertionError(f"{name} is opened")


def test_a_session_that_is_gone_has_it_too(tmp_path: Path) -> None:
    home = claude_home(tmp_path)
    caller, expected = caller_of(home.layout), resume_command(home.layout, home.name)
    assert copy_sessions(caller).copied == 1
    home.path.unlink()
    [gone] = list_archive(caller).sessions
    shown = show_archived(caller, gone.id).session
    assert isinstance(shown, GoneSession)
    assert gone.resume == shown.resume == expected
    assert bring_back(caller, gone.id).resume == expected
    assert home.path.exists()


def test_a_copy_of_an_earlier_version_names_no_directory(tmp_path: Path) -> None:
    home = claude_home(tmp_path)
    caller = caller_of(home.layout)
    copy_sessions(caller)
    [manifest] = home.layout.archive.rglob("copy.json")
    document = json.loads(manifest.read_text())
    for key in ("working_directory", "sha256"):
        del document[key]
    manifest.write_text(json.dumps(document))
    home.path.unlink()
    [gone] = list_archive(caller).sessions
    assert gone.resume == f"claude --resume {home.name.session}"


def test_a_source_under_another_name_has_it(tmp_path: Path) -> None:
    home = claude_home(tmp_path)
    source = SourceSettings(kind="claude-code", path=home.source, name="work")
    layout = layout_of(home.layout.root, [source])
    [(agent, _)] = layout.session_dirs()
    assert agent.startswith("work:")
    assert resume_command(layout, SessionName(agent, home.name.session)) is not None
