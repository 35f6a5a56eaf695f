"""Sessions that programs delete soon are copied when the daemon starts, not ten minutes later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bsd.store.snapshots import snapshots_of
from tests.daemon.running import configure, running
from tests.maintenance.keeping import DAY, ClaudeHome
from tests.openclaw_tree import set_idle
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import Home
from tests.waiting import wait_for

pytestmark = pytest.mark.daemon


def serve(home: Home | ClaudeHome, top: Path) -> dict[str, str]:
    """Settings with which bsd serves this directory of Claude Code; returns the environment."""
    config = top / "config" / "bsd" / "bsd.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[[sources]]\nkind = "claude-code"\npath = "{home.source}"\n')
    return {"XDG_CONFIG_HOME": str(top / "config")}


def test_sessions_that_are_deleted_soon_are_copied_at_the_start(tmp_path: Path) -> None:
    home = ClaudeHome.of(tmp_path, 8, small=True)
    (home.source.parent / "settings.json").write_text('{"cleanupPeriodDays": 1}')
    before = home.now()
    names = [each for name in home.names for each in (name, home.subagents(name)[0])]
    with running(home.layout.root, tmp_path, **serve(home, tmp_path)) as daemon:
        wait_for(
            lambda: all(snapshots_of(home.layout, name) for name in names), "copies of all sessions"
        )
        assert home.delete_older_than(1) == 8 * 3
    for name in home.names:  # the daemon would extract from them again
        done = daemon.bsd("archive", "bring-back", str(name))
        assert done.returncode == 0, done.stderr
    assert home.now() == before


def test_even_one_that_has_just_come_to_rest(tmp_path: Path) -> None:
    home = Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())
    set_idle(home.path, 3600.0)
    (home.source.parent / "settings.json").write_text(json.dumps({"cleanupPeriodDays": 2}))
    with running(home.layout.root, tmp_path, **serve(home, tmp_path)):
        wait_for(lambda: snapshots_of(home.layout, home.name), "a copy")


def test_then_what_has_been_at_rest_for_a_day(tmp_path: Path) -> None:
    """A project's own settings may tell Claude Code to delete earlier than its user's do."""
    home = Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())
    set_idle(home.path, 2 * DAY)
    with running(home.layout.root, tmp_path, **serve(home, tmp_path)):
        wait_for(lambda: snapshots_of(home.layout, home.name), "a copy")


def test_where_no_copies_are_kept_none_is_made(tmp_path: Path) -> None:
    home = Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())
    set_idle(home.path, 40 * DAY)
    configure(home.layout.root, archive_sessions="off", enabled=False)
    with running(home.layout.root, tmp_path, **serve(home, tmp_path)) as daemon:
        done = daemon.bsd("jobs", "run", "keep_sessions")
        assert done.returncode == 0, done.stderr
    assert not snapshots_of(home.layout, home.name)
