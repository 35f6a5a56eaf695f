"""Discovery: the files of an agent's program on this machine, before bsd is set up for it."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from bsd.core.layout import Layout
from bsd.core.settings import SourceSettings
from bsd.setup.discovery import sessions_of
from bsd.transcripts.agents.programs import layout_of
from tests.openclaw_tree import add_session
from tests.session_files import sample
from tests.setup.agent_homes import add_agent, add_claude_session, add_openclaw
from tests.transcripts.agents.sources import CLAUDE_CODE, CODEX, PI
from tests.transcripts.agents.sources.tree import Kind


def layout_with(home: Path, *kinds: Kind) -> Layout:
    """Return a layout with these programs' directories as sources; its root does not exist."""
    sources = [SourceSettings(kind=kind.kind, path=home / kind.sessions) for kind in kinds]
    return layout_of(home / "root", sources)


def test_sessions_and_their_parts_are_counted(clean_environment: Path) -> None:
    for number in range(3):
        add_claude_session(clean_environment, number, days=number)
    layout = layout_with(clean_environment, CLAUDE_CODE)
    found = sessions_of(layout, CLAUDE_CODE.kind, time.time())
    assert (found.sessions, found.parts) == (3, 3)
    files = list((clean_environment / ".claude").rglob("*.jsonl"))
    assert found.bytes == sum(path.stat().st_size for path in files)
    assert found.deleted_soon == ()
    assert found.problems == ()
    assert not layout.root.exists()


def test_what_its_program_deletes_within_a_week_comes_in_that_order(
    clean_environment: Path,
) -> None:
    for number, days in enumerate((1, 24, 29, 22.9, 40)):
        add_claude_session(clean_environment, number, days=days)
    layout = layout_with(clean_environment, CLAUDE_CODE)
    found = sessions_of(layout, CLAUDE_CODE.kind, time.time())
    assert [name.session[:8] for name in found.deleted_soon] == ["00000004", "00000002", "00000001"]
    settings = clean_environment / ".claude" / "settings.json"
    settings.write_text(json.dumps({"cleanupPeriodDays": 99}))
    assert sessions_of(layout, CLAUDE_CODE.kind, time.time()).deleted_soon == ()
    settings.write_text(json.dumps({"cleanupPeriodDays": 7}))
    assert len(sessions_of(layout, CLAUDE_CODE.kind, time.time()).deleted_soon) == 5


def test_each_program_has_its_own_sessions_only(clean_environment: Path) -> None:
    add_agent(clean_environment, CODEX, days=100)
    add_agent(clean_environment, PI, days=100)
    layout = layout_with(clean_environment, CODEX, PI)
    add_session(layout.root, "main/one", sample(2))
    for source in layout.sources:
        found = sessions_of(layout, source.kind, time.time())
        assert [layout.source_of(name.agent) for name, _ in found.files] == [source]
        assert found.deleted_soon == (), "these programs delete none by age"
    found = sessions_of(layout, None, time.time())
    assert [str(name) for name, _ in found.files] == ["main/one"]


def test_the_sessions_of_the_root(clean_environment: Path) -> None:
    path = add_openclaw(clean_environment)
    found = sessions_of(Layout(clean_environment / ".openclaw"), None, time.time())
    assert (found.sessions, found.bytes) == (1, path.stat().st_size)


def test_a_directory_that_cannot_be_read_is_named(
    clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = add_claude_session(clean_environment, 1, days=1)
    layout = layout_with(clean_environment, CLAUDE_CODE)
    scandir = os.scandir

    def refusing(place: Any = ".") -> Any:
        if str(place) == str(path.parent):  # root, who may run the test, can read all files
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refusing)
    found = sessions_of(layout, CLAUDE_CODE.kind, time.time())
    assert any(str(path.parent) in problem for problem in found.problems)
    assert found.sessions == 0
