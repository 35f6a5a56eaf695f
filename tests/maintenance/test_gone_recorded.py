"""Recorded sessions of four programs: packed and copied, then deleted, and brought back
unchanged.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bsd.core.layout import Layout
from bsd.core.settings import SourceSettings
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import deleted_sessions
from bsd.maintenance.retention import RetentionRun
from bsd.transcripts.agents.programs import layout_of
from tests.maintenance.keeping import DAY, bring_back, keep
from tests.openclaw_tree import set_idle
from tests.session_files import Clock, make_caller

_ID = "{:08x}-a2ea-4c14-9efa-87158ebd9f20"
# By the names of the recordings: each program's place for its sessions, and their names.
_PLACES = {
    "claude": ("claude-code", ".claude/projects", "-p", f"{_ID}.jsonl"),
    "codex": ("codex", ".codex/sessions", "2026/01/01", f"rollout-2026-01-01T00-00-00-{_ID}.jsonl"),
    "pi": ("pi", ".pi/agent/sessions", "--p--", f"2026-01-01T00-00-00-000Z_{_ID}.jsonl"),
}


@pytest.fixture
def recorded(tmp_path: Path, shared_data: Path) -> tuple[Layout, dict[Path, bytes]]:
    """All sessions in their places, and the content of each file."""
    root, home = tmp_path / "root", tmp_path / "home"
    own = root / "agents" / "main" / "sessions"
    own.mkdir(parents=True)
    files = {}
    for number, file in enumerate(sorted(shared_data.rglob("*.jsonl"))):
        program = file.name.partition("-")[0]
        target = own / f"{file.parent.name}-{file.name}"
        if program in _PLACES:
            _, sessions, directory, name = _PLACES[program]
            target = home / sessions / directory / name.format(number)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        set_idle(target, 3 * DAY)
        files[target] = target.read_bytes()
    sources = [
        SourceSettings(kind=kind, path=home / sessions) for kind, sessions, *_ in _PLACES.values()
    ]
    return layout_of(root, sources), files


@pytest.mark.soak
@pytest.mark.slow
def test_packs_and_copies_are_about_a_fifth_and_all_comes_back(
    recorded: tuple[Layout, dict[Path, bytes]], clock: Clock
) -> None:
    layout, files = recorded
    caller = make_caller(layout, clock)
    for name in list(catalog.names(layout)):
        if "no-ids" not in name.session:
            caller.extract(name)
    clock.ahead += 120
    make_caller(layout, clock).recover()
    assert sum(path.stat().st_size for path in files) < 0.7 * sum(map(len, files.values()))
    for path in (*files, *layout.extracted.rglob("0*.json")):
        set_idle(path, 2 * DAY)
    RetentionRun(layout, actor="test").clean_store("24h", into_archive=True)
    assert keep(layout, clock).sessions == len(files)
    kept = sum(path.stat().st_size for path in layout.archive.rglob("*") if path.is_file())
    # Pictures, of which Codex's sessions hold copies, cannot be compressed.
    assert kept < 0.21 * sum(map(len, files.values()))
    assert not list(layout.extracted.rglob("0*.json"))

    for path in files:
        path.unlink()
    assert len(keep(layout, clock).gone) == len(files)
    for copy in deleted_sessions(layout):
        assert not bring_back(layout, copy.id, clock).unavailable
    assert {path: path.read_bytes() for path in files} == files
