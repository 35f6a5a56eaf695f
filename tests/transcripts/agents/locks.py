"""Files and processes for tests of OpenClaw's locks, and a time that only sleeping moves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bsd.transcripts.agents.openclaw.lock import SessionLock, lock_path
from tests.openclaw_tree import set_idle

HALF_AN_HOUR = 30 * 60.0
CHECKOUT = Path(__file__).parents[3]


class FakeTime:
    """A clock that only sleeping advances; `then` is called during the first sleep."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.sleeps: list[float] = []
        self.then: Callable[[], object] = lambda: None

    def clock(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.seconds += seconds
        if len(self.sleeps) == 1:
            self.then()


def written(session: Path, **words: object) -> Path:
    return written_raw(session, json.dumps(words, indent=2).encode())


def written_raw(session: Path, content: bytes, *, age: float = 0.0) -> Path:
    path = lock_path(session)
    path.write_bytes(content)
    set_idle(path, age)
    return path


def replaced(path: Path, content: bytes) -> int:
    """Another file takes the name, as when another process removes and retakes the lock; returns
    its inode.
    """
    fresh = path.with_name("fresh")
    fresh.write_bytes(content)
    fresh.replace(path)
    return path.stat().st_ino


def names(session: Path) -> set[str]:
    return {path.name for path in session.parent.iterdir()}


def try_once(session: Path, **more: Any) -> None:
    with SessionLock(session, timeout=0, **more):
        pass
