"""A project is forgotten as a whole: all its sessions, subagents, copies, and its memory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.forget_project import ForgottenProject, forget_whole_project
from bsd.core.errors import Invalid, NotFound
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.search import search
from tests.maintenance.keeping import DAY, ClaudeHome, extract, keep
from tests.maintenance.remembering import id_of, prompt, write_history
from tests.maintenance.test_forgetting import LEAVING, said, secret_session
from tests.maintenance.trashing import trash_of
from tests.openclaw_tree import set_idle
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources.codex import CODEX, codex_lines
from tests.transcripts.agents.sources.pi import PI, pi_lines
from tests.transcripts.agents.sources.tree import Home, Kind

PROJECT = "/home/me/project"
OTHER = "00000063-a2ea-4c14-9efa-87158ebd9f20"


@pytest.fixture
def home(tmp_path: Path, clock: Clock) -> ClaudeHome:
    """Two sessions of a project with all kinds of files that bsd keeps of them, and one of
    another project.
    """
    home = ClaudeHome.of(tmp_path, 2)
    other = home.source / "-home-me-project-b" / f"{OTHER}.jsonl"
    other.parent.mkdir()
    first = home.layout.session_file(home.names[0]).read_bytes()
    other.write_bytes(
        first.replace(home.names[0].session.encode(), OTHER.encode())
        .replace(b"00000000-0000-4000", b"00000063-0000-4000")
        .replace(b"w0ord", b"w99ord")
    )
    set_idle(other, 2 * DAY)
    notes = home.source / "-home-me-project" / "memory" / "MEMORY.md"
    notes.parent.mkdir()
    notes.write_text("w0ord and w1ord are remembered")
    for name in home.names:
        for each in (name, *home.subagents(name)):
            extract(home.layout, each, clock)
    extract(home.layout, SessionName("claude-code:-home-me-project-b", OTHER), clock)
    keep(home.layout, clock)
    for file in home.layout.extracted.glob("*_00000001*/0*"):  # half of it is packed
        set_idle(file, 3 * DAY)
    RetentionRun(home.layout, actor="test").clean_store("24h", into_archive=True)
    search(home.layout, "w0ord")
    assert said(home.layout, "w0ord")
    return home


def forget(home: ClaudeHome, clock: Clock, project: str = PROJECT, **more: Any) -> ForgottenProject:
    return forget_whole_project(make_caller(home.layout, clock), project, **more)


@pytest.mark.parametrize("called", [PROJECT, f"{PROJECT}/", "claude-code:-home-me-project"])
def test_no_word_of_it_is_left_and_all_of_another(
    home: ClaudeHome, clock: Clock, called: str
) -> None:
    shutil.rmtree(home.source / "-home-me-project")
    keep(home.layout, clock)
    done = forget(home, clock, called)
    assert done.agents == ("claude-code:-home-me-project",)
    assert len(done.sessions) == 2 * 4
    assert (done.memory_files, done.in_place, done.failed, done.kept_by) == (1, 0, 0, ())
    for word in ("w0ord", "w1ord"):
        assert said(home.layout, word) == []
    stores = [*home.layout.extracted.iterdir(), *home.layout.archive.iterdir()]
    assert {store.name for store in stores} == {f"claude-code:-home-me-project-b_{OTHER}"}
    with pytest.raises(NotFound, match="stores no data"):
        forget(home, clock, called)


def test_sessions_in_their_place_stay_and_are_told(home: ClaudeHome, clock: Clock) -> None:
    files = home.now()
    write_history(home.source, prompt("look", home.names[0].session), prompt("x", id_of(1), "/b"))
    done = forget(home, clock)
    assert (done.in_place, done.prompts) == (8, 1)
    assert home.now() == files
    assert not list(home.layout.extracted.glob("claude-code:-home-me-project[_:]*"))


def test_a_dry_run_says_the_same_and_changes_nothing(home: ClaudeHome, clock: Clock) -> None:
    before = tree(home.layout.root)
    told = forget(home, clock, dry_run=True)
    assert tree(home.layout.root) == before
    done = forget(home, clock)
    assert {one.session for one in told.sessions} == {one.session for one in done.sessions}
    assert told.memory_files == done.memory_files
    assert told.bytes >= done.bytes > 0


def tree(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.soak
def test_one_that_is_worked_on_stops_no_other(home: ClaudeHome, clock: Clock) -> None:
    busy = home.names[0]
    with own_lock(home.layout, busy, 0.0):
        done = forget_whole_project(make_caller(home.layout, clock, wait=0.1), PROJECT)
    assert done.failed == 1
    [failed] = [one for one in done.sessions if one.error]
    assert failed.session == str(busy)
    assert {one.session for one in done.sessions} >= {str(home.names[1])}
    assert home.layout.store_dir(busy).exists()
    assert forget(home, clock).failed == 0
    assert said(home.layout, "w0ord") == []


def test_what_another_project_has_of_it_is_named(home: ClaudeHome, clock: Clock) -> None:
    """A fork that was begun elsewhere has the same lines."""
    fork = home.source / "-home-me-project-b" / f"{id_of(7)}.jsonl"
    path = home.layout.session_file(home.names[0])
    fork.write_bytes(path.read_bytes().replace(home.names[0].session.encode(), id_of(7).encode()))
    set_idle(fork, 2 * DAY)
    done = forget(home, clock)
    assert done.kept_by == (f"claude-code:-home-me-project-b/{id_of(7)}",)


@pytest.mark.parametrize("text", ["nobody", "claude-code", "claude-code:-home-me"])
def test_a_name_of_no_project_is_refused(home: ClaudeHome, clock: Clock, text: str) -> None:
    before = tree(home.layout.root)
    with pytest.raises(NotFound):
        forget(home, clock, text)
    assert tree(home.layout.root) == before


def test_another_directory_of_the_same_name_to_the_program_is_not_taken(
    home: ClaudeHome, clock: Clock
) -> None:
    """Claude Code writes both as `-home-me-project`."""
    lines = home.layout.session_file(home.names[0]).read_bytes()
    began = {PROJECT: id_of(8), "/home/me-project": id_of(9)}
    for directory, session in began.items():
        path = home.source / "-home-me-project" / f"{session}.jsonl"
        own = lines.replace(home.names[0].session.encode(), session.encode())
        path.write_bytes(
            own.replace(b'"sessionId"', b'"cwd": "%b", "sessionId"' % directory.encode())
        )
        set_idle(path, 2 * DAY)
    keep(home.layout, clock)
    for directory, session in began.items():
        told = forget(home, clock, f"{directory}/", dry_run=True).sessions
        taken = {one.session.rpartition("/")[2] for one in told}
        assert taken & {*began.values()} == {session}


def test_a_name_that_none_can_have_is_refused(home: ClaudeHome, clock: Clock) -> None:
    with pytest.raises(Invalid):
        forget(home, clock, "a b")
    before = tree(home.layout.root)
    for everything in ("/", "//", "/home/..", "///./"):
        with pytest.raises(Invalid, match="no directory of a project"):
            forget(home, clock, everything)
    assert tree(home.layout.root) == before


def test_a_directory_that_is_no_project_is_refused(home: ClaudeHome, clock: Clock) -> None:
    with pytest.raises(NotFound, match="-home-me-nothing"):
        forget(home, clock, "/home/me/nothing")


def test_an_agent_of_openclaw_is_forgotten_with_its_trash(layout: Layout, clock: Clock) -> None:
    names = [SessionName.parse(name) for name in ("main/s1", "main/s2", "main_b/s1")]
    for name in names:
        secret_session(layout, name)
        extract(layout, name, clock, trigger_types=LEAVING)
    keep(layout, clock)
    trash_of(layout, clock=clock.now).delete(names[1])
    assert any(layout.trash_dir().iterdir())
    done = forget_whole_project(make_caller(layout, clock), "main")
    assert {one.session for one in done.sessions} == {"main/s1", "main/s2"}
    assert not any(layout.trash_dir().iterdir())
    assert [store.name for store in layout.extracted.iterdir()] == ["main~b_s1"]


@pytest.mark.parametrize("kind", [CODEX, PI], ids=["codex", "pi"])
def test_a_project_is_known_by_the_directory_in_which_its_sessions_began(
    tmp_path: Path, clock: Clock, kind: Kind
) -> None:
    lines = codex_lines(3) if kind is CODEX else pi_lines(3)
    home = Home.of(kind, tmp_path, lines)
    other = home.path.with_name(home.path.name.replace(home.name.session[-4:], "beef"))
    other.write_bytes(home.path.read_bytes().replace(b'"cwd": "/p"', b'"cwd": "/p-2"'))
    set_idle(other, 2 * DAY)
    names = (home.name, SessionName(home.name.agent, other.stem))
    for name in names:
        set_idle(home.layout.session_file(name), 2 * DAY)
        extract(home.layout, name, clock)
    keep(home.layout, clock)
    if kind is PI:
        home.path.unlink()  # its copy says it
    caller = make_caller(home.layout, clock)
    with pytest.raises(NotFound):
        forget_whole_project(caller, "/p/q")
    done = forget_whole_project(caller, "/p/")
    assert [one.session for one in done.sessions] == [str(home.name)]
    assert done.agents == (home.name.agent,)
    stores = [store.name for store in home.layout.extracted.iterdir()]
    assert stores == [home.layout.store_name(names[1])]
