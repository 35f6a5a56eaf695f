"""Doctor: each possible fault is found and named, and the check changes no file."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from bsd.core.filesystem import judge
from bsd.core.layout import Layout
from bsd.core.sources import Source
from bsd.maintenance import doctor
from bsd.maintenance.doctor import Check, Level, examine
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import sample

_OVERLAYFS = 0x794C7630


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    add_session(tmp_path / "root", "main/a", sample(2))
    return Layout(tmp_path / "root")


@pytest.fixture
def inotify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernel's limits, as a directory."""
    limits = tmp_path / "inotify"
    limits.mkdir()
    (limits / "max_user_watches").write_text("1000\n")
    (limits / "max_user_instances").write_text("128\n")
    monkeypatch.setattr(doctor, "_INOTIFY", limits)
    return limits


def _checks(layout: Layout) -> dict[str, list[Check]]:
    found: dict[str, list[Check]] = {}
    for check in examine(layout):
        found.setdefault(check.name, []).append(check)
    return found


def _levels(checks: list[Check]) -> list[Level]:
    return [check.level for check in checks]


def test_a_healthy_directory(layout: Layout, inotify: Path) -> None:
    found = _checks(layout)
    wrong = [c for checks in found.values() for c in checks if c.level is Level.FAIL]
    assert wrong == []
    assert [check.message for check in found["agents"]] == ["1 agent with 1 session"]
    assert set(found) == {
        *(
            "versions",
            "root",
            "owners",
            "permissions",
            "privacy",
            "agents",
            "forms",
            "leases",
            "space",
        ),
        *("inotify", "locks", "in flight", "store"),
    }


def test_somebody_elses_directory(
    layout: Layout, inotify: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = layout.root.stat().st_uid
    for us, level in ((owner, Level.OK), (owner + 1, Level.FAIL)):
        monkeypatch.setattr(os, "geteuid", lambda us=us: us)
        (check,) = _checks(layout)["root"]
        assert check.level is level


def test_a_live_lock_is_named(layout: Layout, inotify: Path) -> None:
    lock = layout.agents / "main" / "sessions" / "a.jsonl.lock"
    lock.write_text(f'{{"pid": {os.getpid()}}}')
    set_idle(lock, 300)
    (check,) = _checks(layout)["locks"]
    assert check.level is Level.OK
    assert check.message.startswith("1 session is locked by a living process: ")
    assert f"{lock} by process {os.getpid()} (" in check.message
    assert check.message.endswith("5 min ago")


def test_what_bsd_keeps_is_open_to_others(layout: Layout, inotify: Path) -> None:
    layout.extracted.mkdir(mode=0o700)
    layout.extracted.chmod(0o755)
    (check,) = _checks(layout)["privacy"]
    assert check.level is Level.WARN
    assert check.hint == f"chmod go= {layout.extracted}"


def test_an_agent_that_moved_to_sqlite(layout: Layout, inotify: Path) -> None:
    add_session(layout.root, "new/b", b"{}\n")
    database = layout.agents / "new" / "agent" / "openclaw-agent.sqlite"
    database.parent.mkdir()
    with sqlite3.connect(database) as connection:
        connection.execute("create table transcript_events(session_id, seq, event_json)")
        connection.execute("insert into transcript_events values ('b', 0, '{}')")
    connection.close()
    _, about = _checks(layout)["agents"]
    assert about.level is Level.WARN
    assert about.message.startswith("new: ")
    assert str(database) in about.message


def test_sources(layout: Layout, inotify: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs" / "-p").mkdir(parents=True)
    found = [Source("c", "claude-code", tmp_path / name, ((None,),)) for name in ("theirs", "none")]
    layout = Layout(layout.root, tuple(found))
    one, two = _checks(layout)["sources"]
    assert (one.level, two.level) == (Level.OK, Level.WARN)
    assert str(tmp_path / "theirs") in one.message
    assert two.hint
    assert _levels(_checks(layout)["agents"]) == [Level.OK]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a directory of another user")
def test_root_serves_nobody_elses_sources_unwarned(
    layout: Layout, inotify: Path, tmp_path: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 4321, -1)
    layout = Layout(layout.root, (Source("c", "claude-code", tmp_path / "theirs", ((None,),)),))
    one, two = _checks(layout)["sources"]
    assert (one.level, two.level) == (Level.OK, Level.WARN)
    assert two.message == "c belongs to uid 4321, and bsd runs as root"


def test_files_that_nobody_will_look_at_are_named(layout: Layout, inotify: Path) -> None:
    sessions = layout.agents / "main" / "sessions"
    (sessions / "my notes.jsonl").write_text("{}")
    (sessions / "link.jsonl").symlink_to("a.jsonl")
    for usual in ("a.jsonl.bak-1", "a.trajectory.jsonl", ".hidden file.jsonl", "notes.txt"):
        (sessions / usual).write_text("{}")
    (sessions / "a directory.jsonl").mkdir()
    _, about = _checks(layout)["agents"]
    assert about.level is Level.WARN
    assert "main: 2 files are left alone: 'link.jsonl', 'my notes.jsonl'" in about.message


def test_a_directory_without_agents(tmp_path: Path, inotify: Path) -> None:
    found = _checks(Layout(tmp_path))
    assert Level.FAIL in _levels(found["access"])


def test_a_file_system_that_proves_nothing(
    layout: Layout, inotify: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "strength", lambda _: judge(_OVERLAYFS))
    (check,) = _checks(layout)["leases"]
    assert check.level is Level.WARN
    assert check.message.startswith("weak: ")
    assert "overlayfs" in check.message


def test_little_space(layout: Layout, inotify: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = (layout.agents / "main" / "sessions" / "a.jsonl").stat().st_size
    for free, level in ((largest, Level.FAIL), (1 << 29, Level.WARN), (1 << 40, Level.OK)):
        usage = type("usage", (), {"free": free})
        monkeypatch.setattr("shutil.disk_usage", lambda _, usage=usage: usage)
        (check,) = _checks(layout)["space"]
        assert check.level is level


@pytest.mark.parametrize(
    ("watches", "level"), [("1000", Level.OK), ("4", Level.WARN), ("many", Level.WARN)]
)
def test_inotify_limits(layout: Layout, inotify: Path, watches: str, level: Level) -> None:
    (inotify / "max_user_watches").write_text(watches)
    (check,) = _checks(layout)["inotify"]
    assert check.level is level


def test_foreign_locks(layout: Layout, inotify: Path) -> None:
    sessions = layout.sessions_dir("main")
    for name, content in {
        "held": f'{{"pid": {os.getpid()}, "createdAt": "2026-01-01T00:00:00Z"}}',
        "gone": '{"pid": 2147483646, "createdAt": "2026-01-01T00:00:00Z"}',
        "empty": "",
        "old": "",
    }.items():
        lock = sessions / f"{name}.jsonl.lock"
        lock.write_text(content)
        if name == "old":
            set_idle(lock, 31 * 60)
    checks = {c.message.split(":")[0]: c for c in _checks(layout)["locks"]}
    assert set(checks) == {
        f"unusable lock {sessions / 'empty.jsonl.lock'}",
        f"stale lock {sessions / 'gone.jsonl.lock'}",
        f"stale lock {sessions / 'old.jsonl.lock'}",
    }
    assert all(check.level is Level.WARN and check.hint for check in checks.values())


def test_content_that_is_missing(layout: Layout, inotify: Path) -> None:
    path = layout.agents / "main" / "sessions" / "a.jsonl"
    marker = b'"_extracted":{"ref":"0001_thinking","hash":"sha256:%s","size":9,"keys":["text"]' % (
        b"0" * 64
    )
    with path.open("ab") as file:
        file.write(
            b'{"type":"custom","id":"lost","parentId":null,"text":"[[extracted-lost]]",'
            + marker
            + b',"at":"2026-01-01T00:00:00Z"}}\n'
        )
    summary, *findings = _checks(layout)["store"]
    assert summary.level is Level.FAIL
    assert summary.hint is not None
    assert "bsd verify" in summary.hint
    assert any("lost" in finding.message for finding in findings)
