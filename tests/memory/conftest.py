"""A memory in a directory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.memory.memory import Memory
from tests.memory.memories import Clock, sound


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def memory(tmp_path: Path, clock: Clock) -> Iterator[Memory]:
    """An empty memory; after any test, the fixture checks that the database is whole."""
    path = tmp_path / "memory" / "facts.db"
    with Memory(path, clock=clock, wait=0.05) as opened:
        yield opened
    if path.exists():
        sound(path)
