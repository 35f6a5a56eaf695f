"""An OpenClaw directory as its gateway leaves it: agents, sessions idle, sessions.json."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

from bsd.sample import session_lines

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"
_AT_REST_SECONDS = 3600.0


def add_session(root: Path, name: str, content: Path | bytes) -> Path:
    """Add a transcript at OpenClaw's path for it, last written an hour ago; return the path."""
    agent, _, session = name.partition("/")
    path = root / "agents" / agent / "sessions" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, path)
    else:
        path.write_bytes(content)
    set_idle(path)
    return path


def set_idle(path: Path, seconds: float = _AT_REST_SECONDS) -> None:
    """Set the time of a file's last write to this many seconds ago (default: an hour)."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def set_status(root: Path, name: str, status: str) -> None:
    """Set the state of the session's run in the agent's sessions.json: running, done, …"""
    agent, _, session = name.partition("/")
    path = root / "agents" / agent / "sessions" / "sessions.json"
    known = json.loads(path.read_bytes()) if path.exists() else {}
    known[f"agent:{agent}:{session}"] = {
        "sessionId": session,
        "updatedAt": int((time.time() - _AT_REST_SECONDS) * 1000),
        "status": status,
    }
    path.write_text(json.dumps(known, indent=2))


def fill(root: Path) -> Path:
    """Make a root with two generated sessions and, if available, the real sessions."""
    sessions: dict[str, Path | bytes] = {
        "main/sample": b"".join(session_lines(turns=12, seed=1)),
        "other_agent/sample": b"".join(session_lines(turns=4, seed=2)),
    }
    for path in sorted(SHARED_DATA.glob("openclaw-v3-*.jsonl")):
        sessions[f"main/{path.stem.removeprefix('openclaw-v3-')}"] = path
    for name, content in sessions.items():
        add_session(root, name, content)
        set_status(root, name, "done")
    return root


def grow_old(root: Path, days: float = 3) -> None:
    """Make stored lines and transcripts days old, so that displaced versions expire."""
    for file in (*root.glob("extracted/*/[0-9]*.json"), *root.glob("agents/*/sessions/*.jsonl")):
        set_idle(file, days * 86400)
    for file in root.glob(".brainsurgeon/inflight/*"):
        file.unlink()
