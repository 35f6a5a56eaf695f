"""End a commit at one of its steps, as a crash does, and examine the files that are left."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import pytest

from bsd.sessions.commit.displaced import Recovered, State
from bsd.sessions.commit.exchange import Step
from bsd.sessions.commit.late import list_orphans
from tests.refusing import raising
from tests.sessions.commit.scene import (
    Scene,
    line,
    once_at,
)

LATE = line(90)
LATER = line(91)
NEXT = line(92)


class Crash(BaseException):
    """The process ends here."""


def crash_at(step: str) -> Step:
    return once_at(step, raising(Crash))


def crash(scene: Scene, step: str) -> None:
    """Let a process of its own commit, and end it without cleanup after `step`."""
    with warnings.catch_warnings():
        # Later Pythons warn of a fork beside threads; this child takes no locks of others.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        scene.commit(after_step=once_at(step, lambda: os._exit(42)))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42


def crash_while_appending(scene: Scene, step: str) -> None:
    """End an exchange after `step`, while another process's append waits on it.

    An exception is enough: the exchange closes its files and stops.
    """
    end = crash_at(step)

    def after_step(name: str) -> None:
        if name == "verified":
            scene.append_blocked(LATE)
        end(name)

    with pytest.raises(Crash):
        scene.commit(after_step=after_step)
    scene.finish_children()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def states(results: list[Recovered]) -> list[State]:
    return [one.state for one in results]


def displaced(scene: Scene) -> Path:
    (file,) = scene.in_flight()
    return file


def assert_orphan(scene: Scene, data: bytes, reason: str) -> None:
    (orphan,) = list_orphans(scene.layout)
    assert orphan.file.read_bytes() == data
    assert reason in orphan.reason
    assert (orphan.session, orphan.target) == ("main/s1", str(scene.path))
    assert orphan.size == len(data)
    assert orphan.file.stat().st_mode & 0o777 == 0o600
    assert json.dumps(orphan.as_json())
