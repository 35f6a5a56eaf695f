"""Links, flat and nested directories, and copies of sync programs: served, or named with a
reason.

Some cases are shaped after reports; where those are available, they are used unchanged.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.daemon.directories import Trouble, find_directories
from bsd.daemon.scan import Scan
from bsd.maintenance import catalog
from bsd.maintenance.doctor import examine
from bsd.planning.result import Status
from bsd.sessions.idle import RetryBudget
from bsd.sessions.session import Session
from bsd.transcripts.agents.program import is_sync_copy
from bsd.transcripts.agents.programs import layout_of, program_of
from tests.actions import performed
from tests.actions.performed import Caller
from tests.openclaw_tree import SHARED_DATA, add_session, set_idle
from tests.session_files import sample
from tests.transcripts.agents.sources import CLAUDE_CODE, PI
from tests.transcripts.agents.sources.tree import EVERYTHING, Home, Kind, raw, without_restored

REPORTS = SHARED_DATA / "reports"


def names_in(layout: Layout) -> list[str]:
    """All sessions that lists show; the daemon finds the same."""
    names = sorted(map(str, catalog.names(layout)))
    assert sorted(str(name) for name, _ in Scan(layout).step()) == names
    return names


def comes_and_goes(layout: Layout, name: SessionName) -> None:
    """A session is found by its only name, extracted, and restored whole."""
    path = layout.session_file(name)
    before = path.read_bytes()
    set_idle(path)
    config = ConfigService(layout.config_file)
    caller = Caller(layout=layout, config=config, budget=RetryBudget(wait=0))
    assert caller.extract(name, overrides=EVERYTHING).status is Status.EXTRACTED
    set_idle(path)
    assert performed.restore_all(caller, name).status is Status.RESTORED
    assert without_restored(path.read_bytes()) == before


def notes(layout: Layout) -> dict[str, str | None]:
    return {each.name: each.note for each in (*catalog.agents(layout), *catalog.links(layout))}


def write(path: Path, kind: Kind = PI) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw(kind.lines()))
    set_idle(path)
    return path


# --- flat ---


@pytest.fixture
def pi(tmp_path: Path) -> Layout:
    (tmp_path / "root").mkdir()
    (tmp_path / "pi").mkdir()
    return layout_of(tmp_path / "root", [SourceSettings(kind="pi", path=tmp_path / "pi")])


def test_a_flat_directory_of_pi_is_served(pi: Layout) -> None:
    top = pi.sources[0].path
    assert (names_in(pi), catalog.agents(pi)) == ([], [])
    write(top / f"{PI.session}.jsonl")
    write(top / PI.directory / f"{PI.session}.jsonl")
    flat = SessionName("pi:.", PI.session)
    other = SessionName(pi.sources[0].agent(PI.directory), PI.session)
    assert names_in(pi) == sorted([str(flat), str(other)])
    assert notes(pi) == {"pi:.": None, other.agent: None}
    assert pi.session_file(flat).parent == top
    assert pi.sources[0].agent_at(top) == "pi:."
    comes_and_goes(pi, flat)
    comes_and_goes(pi, other)


def test_an_agent_of_openclaw_may_be_called_as_a_source(pi: Layout) -> None:
    write(pi.sources[0].path / f"{PI.session}.jsonl")
    add_session(pi.root, "pi/alpha", sample(turns=2, seed=1))
    assert names_in(pi) == ["pi/alpha", f"pi:./{PI.session}"]


def test_no_other_program_has_sessions_in_its_top_directory(tmp_path: Path) -> None:
    home = Home.of(CLAUDE_CODE, tmp_path, CLAUDE_CODE.lines())
    write(home.source / f"{CLAUDE_CODE.session}.jsonl", CLAUDE_CODE)
    assert names_in(home.layout) == [str(home.name)]
    with pytest.raises(Exception, match="no agent"):
        home.layout.sessions_dir("claude-code:.")


# --- nested ---


def test_runs_below_a_session_of_pi_are_parts_of_it(pi: Layout) -> None:
    project = pi.sources[0].path / "--home-ada-claw--"
    stem = "2026-11-20T08-00-00-000Z_11111111-2222-4333-8444-555555555555"
    head = write(project / f"{stem}.jsonl")
    write(project / stem / "51b4cf4d" / "run-0" / "session.jsonl")
    write(project / stem / "tasks" / f"{PI.session}.jsonl")
    write(project / stem / "51b4cf4d" / "other" / "session.jsonl")
    write(project / "notes" / "tasks" / "x.jsonl")
    agent = "pi:--home-ada-claw--"
    assert names_in(pi) == [
        f"{agent}/{stem}",
        f"{agent}:{stem}/{PI.session}",
        f"{agent}:{stem}:51b4cf4d:run-0/session",
    ]
    for part in (f"{agent}:{stem}", f"{agent}:{stem}:51b4cf4d:run-0"):
        assert program_of(pi, part).part_of == head
    comes_and_goes(pi, SessionName(f"{agent}:{stem}:51b4cf4d:run-0", "session"))
    comes_and_goes(pi, SessionName(f"{agent}:{stem}", PI.session))


def test_below_other_directories_no_runs_are_looked_for(pi: Layout) -> None:
    """A flat directory may be any directory, with all of a user's files below it."""
    write(pi.sources[0].path / "web" / "node_modules" / "a" / "run-1" / "session.jsonl")
    assert names_in(pi) == []
    assert {each.name for each in catalog.agents(pi)} == {"pi:web"}


# --- links ---


@pytest.fixture
def linked(tmp_path: Path) -> Home:
    """Claude Code's projects, one of which is a link to another directory called projects."""
    home = Home.of(CLAUDE_CODE, tmp_path, CLAUDE_CODE.lines())
    target = tmp_path / "shared" / "projects" / "-home-ada-shared"
    write(target / f"{CLAUDE_CODE.session}.jsonl", CLAUDE_CODE)
    (home.source / target.name).symlink_to(target)
    return home


def test_a_link_is_named_with_what_helps_and_not_followed(linked: Home, tmp_path: Path) -> None:
    layout = linked.layout
    link = linked.source / "-home-ada-shared"
    assert names_in(layout) == [str(linked.name)]
    note = notes(layout)["claude-code:-home-ada-shared"]
    assert note is not None
    assert f"{link} is a symbolic link to {tmp_path}/shared/projects/-home-ada-shared" in note
    assert f"name {tmp_path}/shared/projects as a source of its own" in note
    problems = [each.kind for each in find_directories(layout).problems]
    assert problems.count(Trouble.LINK) == 1
    assert [each.level for each in examine(layout) if str(link) in each.message] == ["warn"]


def test_what_the_note_says_helps(linked: Home, tmp_path: Path) -> None:
    sources = [
        SourceSettings(kind="claude-code", path=linked.source),
        SourceSettings(kind="claude-code", path=tmp_path / "shared" / "projects", name="shared"),
    ]
    layout = layout_of(tmp_path / "root", sources)
    assert names_in(layout) == [str(linked.name), f"shared:-home-ada-shared/{CLAUDE_CODE.session}"]
    assert set(notes(layout).values()) == {None}, "each directory has one name"


def test_a_link_to_what_is_served_and_one_that_is_excluded_need_no_word(
    linked: Home, tmp_path: Path
) -> None:
    layout = linked.layout
    (linked.source / "-alias").symlink_to(linked.path.parent)
    (linked.path.parent / "memory").symlink_to(tmp_path / "shared")
    (linked.source / "-dangling").symlink_to(tmp_path / "nothing")
    (linked.source / "-file").symlink_to(linked.path)
    assert [each.name for each in catalog.links(layout)] == ["claude-code:-home-ada-shared"]
    ConfigService(layout.config_file).update({"exclude": ["claude-code:-home-ada-shared"]})
    assert list(catalog.links(layout)) == []
    problems = {each.kind for each in find_directories(layout).problems}
    assert Trouble.LINK not in problems


@pytest.mark.parametrize("below", ["", "subagents"])
def test_linked_directories_of_subagents_are_named(tmp_path: Path, below: str) -> None:
    home = Home.of(CLAUDE_CODE, tmp_path, CLAUDE_CODE.lines())
    target = tmp_path / "elsewhere"
    write(target / ("subagents" if not below else "") / "agent-a1.jsonl", CLAUDE_CODE)
    link = home.path.with_suffix("") / below
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(target)
    assert names_in(home.layout) == [str(home.name)]
    [found] = catalog.links(home.layout)
    assert found.name == f"{home.name.agent}:{CLAUDE_CODE.session}"
    assert found.note is not None
    assert f"{link} is a symbolic link" in found.note
    assert "replace the link with the directory itself" in found.note
    assert "[[sources]]" not in found.note


def test_a_source_that_is_itself_a_link_is_served(tmp_path: Path) -> None:
    home = Home.of(CLAUDE_CODE, tmp_path, CLAUDE_CODE.lines())
    moved = tmp_path / "dotfiles" / "projects"
    moved.parent.mkdir()
    home.source.rename(moved)
    home.source.symlink_to(moved)
    assert names_in(home.layout) == [str(home.name)]
    comes_and_goes(home.layout, home.name)


# --- copies of sync programs ---

COPIES = [
    "{}.sync-conflict-20261101-100237-ABCDEF7.jsonl",
    "{} (conflicted copy 2026-11-01).jsonl",
    "{} (Ada's conflicted copy 2026-11-01).jsonl",
]


@pytest.mark.parametrize("name", COPIES)
def test_what_is_a_copy(name: str) -> None:
    assert is_sync_copy(name.format("x"))
    assert not is_sync_copy("x.jsonl")
    assert not is_sync_copy(name.format("x").removesuffix(".jsonl") + ".txt")


@pytest.mark.parametrize("kind", ["openclaw", "pi", "claude-code"])
def test_copies_are_left_alone_and_named(tmp_path: Path, kind: str) -> None:
    if kind == "openclaw":
        path = add_session(tmp_path / "root", "main/alpha", sample(turns=8, seed=1))
        layout, name = Layout(tmp_path / "root"), SessionName("main", "alpha")
    else:
        of = PI if kind == "pi" else CLAUDE_CODE
        home = Home.of(of, tmp_path, of.lines())
        path, layout, name = home.path, home.layout, home.name
    for copy in COPIES:
        shutil.copy2(path, path.with_name(copy.format(path.stem)))
    assert names_in(layout) == [str(name)]
    note = notes(layout)[name.agent]
    assert note is not None
    assert "3 files are left alone" in note
    assert "it is a sync program's copy" in note
    assert [each.level for each in examine(layout) if "sync program" in each.message] == ["warn"]
    scan = Scan(layout)
    list(scan.step())
    [problem] = [each for each in scan.problems if each.kind is Trouble.SYNC_COPY]
    assert "and 2 more" in problem.text
    copied = SessionName(name.agent, f"{name.session}.sync-conflict-20261101-100237-ABCDEF7")
    with pytest.raises(Exception, match="it is a sync program's copy"):
        Session(layout, copied).refuse_no_session()


# --- as reported ---


def reported(case: str, top: Path) -> Layout:
    """Make the directories of a case shaped after a report, or skip."""
    if not (REPORTS / "cases.py").is_file():
        pytest.skip("needs the cases shaped after reports")
    command = [sys.executable, str(REPORTS / "cases.py"), str(top), case]
    environ = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(command, check=True, capture_output=True, env=environ)
    settings = tomllib.loads((top / case / "bsd.toml").read_text())
    sources = [SourceSettings(**each) for each in settings["sources"]]
    return layout_of(Path(settings["root"]), sources)


@pytest.mark.parametrize(
    ("case", "sessions", "noted"),
    [("links", 1, 1), ("linktop", 1, 0), ("piflat", 1, 0), ("pinest", 3, 0)],
)
def test_as_reported(tmp_path: Path, case: str, sessions: int, noted: int) -> None:
    layout = reported(case, tmp_path)
    names = names_in(layout)
    assert len(names) == sessions
    assert len([note for note in notes(layout).values() if note]) == noted
    for name in names:
        comes_and_goes(layout, SessionName.parse(name))
