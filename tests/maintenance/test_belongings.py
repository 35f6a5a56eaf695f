"""All files below a Claude Code session's directory are copied with it, or named."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bsd.core.settings import SourceSettings
from bsd.maintenance.deleted_sessions import deleted_sessions
from bsd.transcripts.agents.programs import layout_of
from tests.maintenance.keeping import DAY, ClaudeHome, bring_back, keep
from tests.openclaw_tree import set_idle
from tests.session_files import Clock


@pytest.fixture
def home(tmp_path: Path) -> ClaudeHome:
    return ClaudeHome.of(tmp_path, 1)


def beside(home: ClaudeHome) -> Path:
    return home.layout.session_file(home.names[0]).with_suffix("")


def test_what_lies_behind_a_linked_directory_of_projects_comes_back(
    home: ClaudeHome, clock: Clock, tmp_path: Path
) -> None:
    """A home whose `projects` is a link to a directory of dotfiles."""
    link = tmp_path / "linked" / "projects"
    link.parent.mkdir()
    link.symlink_to(home.source)
    layout = layout_of(tmp_path / "root", [SourceSettings(kind="claude-code", path=link)])
    memory = home.source / "-home-me-project" / "memory" / "MEMORY.md"
    memory.parent.mkdir()
    memory.write_text("remembered")
    assert keep(layout, clock).sessions == 4
    shutil.rmtree(memory.parent.parent)
    done = bring_back(layout, str(home.names[0]), clock)
    assert (done.files, len(done.sessions), len(done.memory)) == (7, 4, 1)
    memory.unlink()
    assert home.now() == home.files


def test_subagents_that_are_no_sessions_by_their_place_are_copied_as_files(
    home: ClaudeHome, clock: Clock
) -> None:
    deep = beside(home) / "subagents" / "workflows" / "wf_1" / "nested"
    deep.mkdir()
    for directory in (deep, deep.parent.parent):
        (directory / "agent-c0ffee.jsonl").write_text('{"type":"user"}\n')
        set_idle(directory / "agent-c0ffee.jsonl", 2 * DAY)
    before = home.now()
    keep(home.layout, clock)
    shutil.rmtree(beside(home).parent)
    bring_back(home.layout, str(home.names[0]), clock)
    assert home.now() == before


@pytest.mark.parametrize("which", ["tool-results", ".", "subagents"])
def test_a_link_to_a_directory_is_named_and_not_followed(
    home: ClaudeHome, clock: Clock, tmp_path: Path, which: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret.txt").write_text("a secret")
    place = beside(home) / which
    shutil.rmtree(place)
    place.symlink_to(elsewhere)
    keep(home.layout, clock)
    home.layout.session_file(home.names[0]).unlink()
    [copy] = [copy for copy in deleted_sessions(home.layout) if copy.name == home.names[0]]
    assert any(str(place) in why for why in copy.left_out)
    assert not any("secret" in file.path for file in copy.files)


def test_a_directory_that_cannot_be_read_is_named(
    home: ClaudeHome, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = beside(home) / "tool-results"
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path) == str(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    keep(home.layout, clock)
    home.layout.session_file(home.names[0]).unlink()
    [copy] = [copy for copy in deleted_sessions(home.layout) if copy.name == home.names[0]]
    assert any(str(closed) in why for why in copy.left_out)
