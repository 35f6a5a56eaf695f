"""OpenClaw's directories: session files, sessions.json, the SQLite era."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bsd.transcripts.agents.openclaw.database import database_of
from bsd.transcripts.agents.openclaw.home import is_session_file
from bsd.transcripts.agents.openclaw.registry import read_registry, running

UUID = "0f0e0d0c-1111-2222-3333-444455556666"


@pytest.mark.parametrize(
    ("name", "is_session"),
    [
        (f"{UUID}.jsonl", True),
        (f"{UUID}-topic-12.jsonl", True),
        (f"2026-01-01T00-00-00-000Z_{UUID}.jsonl", True),
        ("a.b@c:d+e.jsonl", True),
        (f"{UUID}.jsonl.deleted.2026-01-01T00-00-00.000Z", False),
        (f"{UUID}.jsonl.reset.2026", False),
        (f"{UUID}.jsonl.bak.2026", False),
        (f"{UUID}.jsonl.bak-12-1700000000000", False),
        (f"{UUID}.trajectory.jsonl", False),
        (f"{UUID}.trajectory-path.json", False),
        (f"{UUID}.checkpoint.{UUID}.jsonl", False),
        (f"{UUID}.sync-conflict-20261101-100237-ABCDEF7.jsonl", False),
        (f"{UUID}.sync-conflict-notes.jsonl", True),
        (f"{UUID} (conflicted copy 2026-11-01).jsonl", False),
        (f"{UUID}.jsonl.corrupt-1.jsonl", False),
        (f"{UUID}.jsonl.repair-12.tmp", False),
        (f"{UUID}.jsonl.lock", False),
        ("sessions.json", False),
        ("sessions.json.tmp", False),
        (".jsonl", False),
        ("..jsonl", False),
        (".hidden.jsonl", False),
        ("with space.jsonl", False),
        ("a.jsonl\n", False),
    ],
)
def test_names_of_sessions(name: str, is_session: bool) -> None:
    assert is_session_file(name) is is_session


def registered(agent: Path, content: Any) -> Path:
    (agent / "sessions").mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (agent / "sessions" / "sessions.json").write_text(text)
    return agent


def test_a_session_runs_if_any_of_its_conversations_does(tmp_path: Path) -> None:
    registered(
        tmp_path,
        {
            "agent:a:main": {"sessionId": "s1", "status": "done", "updatedAt": 5},
            "agent:a:x": {"sessionId": "s1", "status": "running"},
            "agent:a:y": {"sessionId": "other", "status": "running", "sessionFile": "/p/s2.jsonl"},
            "agent:a:z": {"sessionId": "s3", "status": "failed", "parentSessionId": "s1"},
            "odd": 5,
        },
    )
    assert running(tmp_path, "s1") == "sessions.json says that agent:a:x is running"
    assert running(tmp_path, "s2") is not None
    assert running(tmp_path, "s1-topic-4") is not None
    assert running(tmp_path, "2026_s1") is not None
    assert running(tmp_path, "s3") is None
    assert running(tmp_path, "s11") is None
    registry = read_registry(tmp_path)
    assert registry.sessions[0].key == "agent:a:main"
    assert registry.sessions[3].parent == "s1"


def test_a_registry_written_twice_in_a_moment_is_read_twice(tmp_path: Path) -> None:
    """Inode, size and time can be the same, as clocks of file systems are coarse."""
    conversation = {"sessionId": "s1", "status": "stopped"}
    registered(tmp_path, {"agent:a:main": conversation})
    path = tmp_path / "sessions" / "sessions.json"
    written = path.stat()
    assert running(tmp_path, "s1") is None
    registered(tmp_path, {"agent:a:main": {**conversation, "status": "running"}})
    os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))
    assert (path.stat().st_ino, path.stat().st_size) == (written.st_ino, written.st_size)
    assert running(tmp_path, "s1") is not None


def test_no_registry_means_not_running(tmp_path: Path) -> None:
    assert running(tmp_path, "s1") is None


@pytest.mark.parametrize("content", ["{torn", "[]", "", '"x"', "[" * 100_000])
def test_a_broken_registry_counts_as_in_use(tmp_path: Path, content: str) -> None:
    reason = running(registered(tmp_path, content), "s1")
    assert reason is not None
    assert "sessions.json" in reason


def test_a_registry_that_cannot_be_read_counts_as_in_use(tmp_path: Path) -> None:
    (tmp_path / "sessions" / "sessions.json").mkdir(parents=True)
    assert "not a plain file" in (running(tmp_path, "s1") or "")


def database(agent: Path, *statements: str, wal: bool = False) -> Path:
    path = agent / "agent" / "openclaw-agent.sqlite"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection:
        if wal:
            connection.execute("PRAGMA journal_mode=WAL")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def test_an_agent_of_the_sqlite_era_is_recognised_without_a_trace(tmp_path: Path) -> None:
    table = "CREATE TABLE transcript_events (session_id, seq, event_json, created_at)"
    path = database(tmp_path / "spaced ?#%41 agent", table, wal=True)
    before = sorted(path.parent.iterdir())
    found = database_of(tmp_path / "spaced ?#%41 agent")
    assert found is not None
    assert (found.path, found.problem) == (path, None)
    assert sorted(path.parent.iterdir()) == before


def test_a_table_that_is_still_in_the_log_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "agent" / "openclaw-agent.sqlite"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE transcript_events (session_id)")
        connection.commit()
        found = database_of(tmp_path)
        assert found is not None
        assert found.path == path


def test_other_databases_and_garbage_are_not_the_sqlite_era(tmp_path: Path) -> None:
    assert database_of(tmp_path) is None
    path = database(tmp_path, "CREATE TABLE auth (x)")
    assert database_of(tmp_path) is None
    path.write_bytes(b"")
    assert database_of(tmp_path) is None
    for content in (b"garbage", b"SQLite format 3\0garbage transcript_events", None):
        if content is None:
            path.unlink()
            path.mkdir()
        else:
            path.write_bytes(content)
        found = database_of(tmp_path)
        assert found is not None
        assert found.problem is not None
