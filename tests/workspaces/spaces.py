"""Workspaces of any age, and the names left of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bsd.core.formatting import iso_utc
from bsd.workspaces import SessionMetadata, create_session_sandbox, touch_session
from bsd.workspaces.isolation import why_not_isolated
from tests.needs import require_program

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
HOUR = 3600.0


def clock() -> float:
    return NOW


def make(root: Path, session_id: str, hours: float, files: int = 1) -> Path:
    """A workspace that was last used this long ago, with some files."""
    moment = NOW - hours * HOUR
    path = create_session_sandbox(session_id, root, clock=lambda: moment).path
    for number in range(files):
        (path / f"file{number}").write_bytes(b"x" * 5000)
    return path


def age(root: Path, session_id: str, hours: float) -> None:
    """Date the last use of the workspace this long ago."""
    touch_session(session_id, root, clock=lambda: NOW - hours * HOUR)


def note(path: Path, content: Any) -> None:
    """Replace the metadata by another file, as any program might."""
    path.mkdir(parents=True, exist_ok=True)
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    (path / ".metadata.json").write_bytes(raw)


def noted(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((path / ".metadata.json").read_bytes())
    return document


def old(session_id: str = "", hours: float = 100, **fields: Any) -> dict[str, Any]:
    """Metadata as seed 004 has them, of a stale workspace; None removes a field."""
    moment = iso_utc(NOW - hours * HOUR)
    document = {"session_id": session_id, "created_at": moment, "updated_at": moment, **fields}
    if not session_id:
        del document["session_id"]
    return {name: value for name, value in document.items() if value is not None}


def names(root: Path) -> list[str]:
    """The names in a root, without bsd's own files."""
    return sorted(name for name in os.listdir(root) if name != ".bsd")


def at(metadata: SessionMetadata | None) -> float:
    assert metadata is not None
    return metadata.updated_at.timestamp()


def fake_bubblewrap(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `bwrap` that is this shell script, first in the PATH."""
    fake = directory / "bin" / "bwrap"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")


def require_isolation() -> None:
    """bubblewrap, installed and permitted to work."""
    require_program("bwrap")
    if why := why_not_isolated():
        pytest.skip(f"needs bubblewrap that works: {why}")
