"""Killed at every step of a pruning: each workspace is whole or absent, and the next run
finishes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bsd.workspaces import create_session_sandbox, prune_sessions, touch_session
from bsd.workspaces.place import AWAY
from tests.workspaces.spaces import clock, make, names, noted

pytestmark = pytest.mark.crash

_CALLS = ("rename", "replace", "unlink", "rmdir", "mkdir", "fsync", "fchmod")
_FILES = 3


class Killed(BaseException):
    """A kill: no handler takes a step after it."""


@contextmanager
def killed_after(steps: int) -> Iterator[list[str]]:
    """Let `steps` calls that change the disk succeed, and none after them."""
    done: list[str] = []

    def dying(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **more: Any) -> Any:
            if len(done) >= steps:
                raise Killed
            done.append(name)
            return call(*arguments, **more)

        return step

    with pytest.MonkeyPatch.context() as patch:
        for name in _CALLS:
            patch.setattr(os, name, dying(name, getattr(os, name)))
        yield done


def build(root: Path) -> None:
    for number in range(3):
        path = make(root, f"stale{number}", hours=100 - number, files=_FILES)
        (path / "below").mkdir()
        (path / "below" / "file").touch()
    make(root, "fresh", hours=1, files=_FILES)


def must_be_whole(path: Path) -> None:
    assert noted(path)["session_id"] == path.name
    assert sum(1 for _ in path.glob("file*")) == _FILES


def test_pruning(tmp_path: Path) -> None:
    steps = 0
    while True:
        root = tmp_path / f"root{steps}"
        build(root)
        with killed_after(steps) as done:
            try:
                prune_sessions(24, root, clock=clock)
            except Killed:
                pass
            else:
                break
        for name in names(root):
            if not name.startswith(AWAY):
                must_be_whole(root / name)
        again = prune_sessions(24, root, clock=clock)
        assert again.errors == {}
        assert names(root) == ["fresh"]
        must_be_whole(root / "fresh")
        steps += 1
    assert steps > 20, done
    for number, step in enumerate(done):
        if step == "rename":
            assert done[number + 1] == "fsync", "durable before anything goes"


def test_creating(tmp_path: Path) -> None:
    steps = 0
    while True:
        root = tmp_path / f"root{steps}"
        root.mkdir()
        with killed_after(steps):
            try:
                create_session_sandbox("a", root, clock=clock)
            except Killed:
                pass
            else:
                break
        if "a" in os.listdir(root):
            assert noted(root / "a")["session_id"] == "a"
        create_session_sandbox("a", root, clock=clock)
        assert os.listdir(root / "a") == [".metadata.json"]
        assert not [one for one in os.listdir(root / ".bsd") if not one.startswith("lock")]
        steps += 1
    assert steps > 4


def test_noting(tmp_path: Path) -> None:
    """The metadata are the old or the new metadata, never half of them, never none."""
    steps = 0
    while True:
        root = tmp_path / f"root{steps}"
        before = noted(make(root, "a", hours=100))
        with killed_after(steps):
            try:
                touch_session("a", root, clock=clock)
            except Killed:
                pass
            else:
                break
        after = noted(root / "a")
        assert after["updated_at"] in {before["updated_at"], "2027-01-15T08:00:00.000Z"}
        steps += 1
    assert steps > 2
