"""The directories that are watched: the root's, and those of sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsd.core.layout import Layout, SessionName
from bsd.core.sources import Source
from bsd.daemon.directories import Trouble, find_directories
from bsd.daemon.scan import Scan

SESSION = "8463c716-a2ea-4c14-9efa-87158ebd9f20"
NAME = SessionName("claude:-p", SESSION)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / "root").mkdir()
    project = tmp_path / "real" / "projects" / "-p"
    project.mkdir(parents=True)
    (project / f"{SESSION}.jsonl").write_text("{}\n")
    (project / "agent-a1.jsonl").write_text("{}\n")
    (tmp_path / "home").symlink_to(tmp_path / "real")
    source = Source("claude", "claude-code", tmp_path / "home" / "projects", ((None,),))
    return Layout(tmp_path / "root", (source,))


def test_sources_are_enough(layout: Layout, tmp_path: Path) -> None:
    found = find_directories(layout)
    projects = tmp_path / "real" / "projects"
    assert found.sessions == {projects / "-p": ("claude:-p",)}
    assert projects in found.outer
    assert (found.complete, found.problems) == (True, [])


def test_an_agent_of_the_root_that_is_called_like_one_of_a_source_is_not_seen(
    layout: Layout,
) -> None:
    for name in ("claude:-p", "claude:-q", "claude"):
        (layout.agents / name / "sessions").mkdir(parents=True)
    assert sorted(agents for agents in find_directories(layout).sessions.values()) == [
        ("claude",),
        ("claude:-p",),
    ]


def test_a_source_that_is_not_there_is_told_and_its_sessions_count_as_they_were(
    layout: Layout, tmp_path: Path
) -> None:
    scan = Scan(layout)
    assert [name for name, _ in scan.step()] == [NAME]
    assert scan.changed(NAME)
    (tmp_path / "home").unlink()
    assert list(scan.step()) == []
    assert [problem.kind for problem in scan.problems] == [Trouble.SOURCE_MISSING]
    (tmp_path / "home").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "projects" / "-p" / f"{SESSION}.jsonl").unlink()
    assert list(scan.step()) == [(NAME, None)]
