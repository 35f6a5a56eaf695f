"""Fixtures of the commit's tests: a scene in which leases prove that a file is unused, and
children to kill.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.core.filesystem import strength
from bsd.sessions.commit import exchange
from tests.needs import require_linux
from tests.sessions.commit.children import Children
from tests.sessions.commit.scene import Scene
from tests.waiting import DEADLINE_SECONDS


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A session and its commits, with time limits for a busy machine."""
    for limit in ("_DRAIN_SECONDS", "_PUT_BACK_SECONDS"):
        monkeypatch.setattr(exchange, limit, DEADLINE_SECONDS)
    if strength(tmp_path).level != "strong":
        pytest.skip("needs a file system with leases for the temporary directory")
    made = Scene(tmp_path / "root")
    yield made
    for child in made.children:
        child.kill()
        child.communicate()


@pytest.fixture
def holders_exceed_the_limit(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """bsd waits only 0.05 s for a process that keeps the displaced file open."""
    monkeypatch.setattr(exchange, "_DRAIN_SECONDS", 0.05)


@pytest.fixture(scope="session")
def children() -> Iterator[Children]:
    """One server of children per worker."""
    require_linux()  # leases, and a kernel that lists the processes waiting for a lease
    with Children() as server:
        yield server
