"""A session that can be locked, and the other processes around it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transcripts.agents.locks import FakeTime


@pytest.fixture
def fake() -> FakeTime:
    return FakeTime()


@pytest.fixture
def no_leftover_descriptors() -> Iterator[None]:
    """Fail a test that leaves a file open."""
    own = Path("/proc/self/fd")
    before = set(os.listdir(own)) if own.exists() else set()
    yield
    assert not own.exists() or set(os.listdir(own)) <= before


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / "sessions" / "abc.jsonl"
    path.parent.mkdir()
    path.write_bytes(b"{}\n")
    return path


@pytest.fixture
def stranger() -> Iterator[int]:
    """The id of a living process that is neither bsd's nor OpenClaw's."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield child.pid
    finally:
        child.communicate()


@pytest.fixture(scope="module")
def dead() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid
