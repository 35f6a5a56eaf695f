"""Sessions of which only the prompts are left, in the history of their program."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from bsd.core.layout import SessionName
from bsd.core.settings import SourceSettings
from bsd.maintenance.vanished import Vanished, prompts_of, prompts_of_agents, vanished_sessions
from bsd.transcripts.agents.programs import layout_of, take
from tests.maintenance.keeping import ClaudeHome, keep
from tests.maintenance.remembering import HOUR_MS, LATE_2026, id_of, prompt, write_history
from tests.session_files import Clock

NOW = (LATE_2026 + 1000 * HOUR_MS) / 1000


@pytest.fixture
def home(tmp_path: Path) -> ClaudeHome:
    return ClaudeHome.of(tmp_path, 3, small=True)


def vanished(home: ClaudeHome, now: float = NOW) -> Vanished:
    return vanished_sessions(home.layout, now)


def test_only_sessions_without_transcript_and_copy_have_vanished(
    home: ClaudeHome, clock: Clock
) -> None:
    there, copied, lost = home.names
    write_history(
        home.source,
        *(prompt("look", name.session, hours=hour) for hour, name in enumerate(home.names)),
        prompt("/model", id_of(1), hours=3),
        prompt("/exit", id_of(2), project="/home/ada/shop", hours=4),
        prompt("first\n  of all ", id_of(3), project="/home/ada/shop", hours=5),
        prompt("then", id_of(3), project="/home/ada/shop", hours=7),
    )
    assert [each.name.session for each in vanished(home).sessions] == [id_of(3)]
    assert keep(home.layout, clock).sessions == 6
    for name in (copied, lost):
        home.layout.session_file(name).unlink()
    shutil.rmtree(home.layout.archive_dir(lost))
    first, second = vanished(home).sessions
    assert first.name == SessionName("claude-code:-home-ada-shop", id_of(3))
    assert (first.project, first.prompts, first.title) == ("/home/ada/shop", 2, "first of all")
    assert (first.last - first.first) == 2 * 3600
    assert second.name == lost
    assert there not in {first.name, second.name}


def test_a_session_in_the_trash_has_not_vanished(home: ClaudeHome) -> None:
    name = home.names[0]
    write_history(home.source, prompt("look", name.session))
    trash = home.layout.trash_dir()
    trash.mkdir(parents=True)
    store = home.layout.store_name(name)
    home.layout.session_file(name).rename(trash / f"{store}_20261101T000000.000Z.jsonl")
    assert vanished(home).sessions == []
    for path in trash.iterdir():
        path.unlink()
    assert [each.name for each in vanished(home).sessions] == [name]


def test_a_session_that_has_just_begun_has_not_vanished(home: ClaudeHome) -> None:
    write_history(home.source, prompt("look", id_of(1)))
    assert vanished(home, LATE_2026 / 1000 + 30).sessions == []
    assert len(vanished(home, LATE_2026 / 1000 + 90).sessions) == 1


def test_one_that_was_continued_from_another_directory_is_one(home: ClaudeHome) -> None:
    write_history(
        home.source,
        prompt("look", id_of(1), project="/home/ada/shop"),
        prompt("on", id_of(1), project="/home/ada/shop/basket", hours=1),
    )
    [session] = vanished(home).sessions
    assert (session.name.agent, session.prompts) == ("claude-code:-home-ada-shop", 2)


def test_it_belongs_to_the_project_in_which_it_began_whichever_is_asked_for(
    home: ClaudeHome,
) -> None:
    write_history(
        home.source,
        prompt("look", id_of(1), project="/home/ada/shop"),
        prompt("on", id_of(1), project="/home/ada/shop/basket", hours=1),
    )
    assert vanished_sessions(home.layout, NOW, "claude-code:-home-ada-shop-basket").sessions == []
    assert len(vanished_sessions(home.layout, NOW, "claude-code:-home-ada-shop").sessions) == 1


@pytest.mark.parametrize("project", ["", "../..", "-", "." * 5000, "/a\nb", "/\x1b[2J"])
def test_a_project_that_is_no_directory_is_told(home: ClaudeHome, project: str) -> None:
    write_history(home.source, prompt("look", id_of(1), project=project))
    found = vanished(home)
    assert (found.sessions, len(found.problems)) == ([], 1)
    assert found.problems[0].endswith("its project is not a directory")


def test_prompts_come_in_their_order(home: ClaudeHome) -> None:
    texts = ["look", "/model", "and on"]
    lines = [prompt(text, id_of(1), hours=hour) for hour, text in enumerate(texts)]
    write_history(home.source, *lines, prompt("another", id_of(2)))
    name = SessionName(home.names[0].agent, id_of(1))
    _, prompts = prompts_of(home.layout, name, NOW)
    assert [each.text for each in prompts] == texts
    assert prompts_of_agents(home.layout, {name.agent}) == 4
    assert prompts_of_agents(home.layout, {"claude-code:-elsewhere"}) == 0


def test_what_cannot_be_read_is_told(home: ClaudeHome) -> None:
    write_history(home.source, prompt("look", id_of(1)), b"{\n", b"\0\0\n", prompt("old", None))
    found = vanished(home)
    assert len(found.sessions) == 1
    torn, unnamed = found.problems
    assert "2 lines" in torn
    assert "torn" in torn
    assert "1 line of" in unnamed
    (home.source.parent / "history.jsonl").unlink()
    os.mkfifo(home.source.parent / "history.jsonl")
    found = vanished(home)
    assert found.sessions == []
    [problem] = found.problems
    assert "history.jsonl" in problem


def test_where_another_root_has_the_copies_none_are_listed(
    home: ClaudeHome, tmp_path: Path
) -> None:
    write_history(home.source, prompt("look", id_of(1)))
    other = tmp_path / "other-root"
    other.mkdir()
    take(
        layout_of(other, [SourceSettings(kind="claude-code", path=home.source)]),
        home.layout.sources[0],
    )
    assert vanished(home).sessions == []
    take(home.layout, home.layout.sources[0])
    assert len(vanished(home).sessions) == 1


def test_a_history_of_another_agent_is_read_for_no_other(home: ClaudeHome) -> None:
    write_history(home.source, prompt("look", id_of(1)))
    assert vanished_sessions(home.layout, NOW, "main").sessions == []
    assert vanished_sessions(home.layout, NOW, home.names[0].agent).sessions


def test_a_session_that_is_excluded_has_not_vanished(home: ClaudeHome) -> None:
    gone = SessionName(home.names[0].agent, id_of(1))
    write_history(home.source, *(prompt("look", each.session) for each in (*home.names, gone)))
    exclude = {"exclude": [str(home.names[0]), str(gone)]}
    home.layout.config_file.parent.mkdir(parents=True, exist_ok=True)
    home.layout.config_file.write_text(json.dumps(exclude))
    assert vanished(home).sessions == []
    home.layout.config_file.write_text("{}")
    assert [each.name for each in vanished(home).sessions] == [gone]


def test_a_session_behind_a_link_has_not_vanished(home: ClaudeHome) -> None:
    write_history(home.source, *(prompt("look", each.session) for each in home.names))
    project = home.layout.session_file(home.names[0]).parent
    elsewhere = project.rename(home.source.parent / "elsewhere")
    project.symlink_to(elsewhere)
    assert vanished(home).sessions == []
    project.unlink()
    assert {each.name for each in vanished(home).sessions} == set(home.names)


def test_a_session_whose_directory_cannot_be_read_has_not_vanished(
    home: ClaudeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_history(home.source, *(prompt("look", each.session) for each in home.names))
    project = home.layout.session_file(home.names[0]).parent

    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    shutil.move(project, home.source.parent / "elsewhere")
    assert len(vanished(home).sessions) == len(home.names)
    monkeypatch.setattr("bsd.maintenance.vanished.is_there", refuse)
    assert vanished(home).sessions == []
