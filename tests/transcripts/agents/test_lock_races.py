"""OpenClaw's lock while other processes act at the same moment, and its release."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bsd.core import processes
from bsd.core.errors import Busy, Forbidden
from bsd.transcripts.agents.openclaw import lock as openclaw_lock
from bsd.transcripts.agents.openclaw.lock import SessionLock, inspect_lock, lock_path
from bsd.transcripts.agents.program import Stale
from tests.logs import capture_logs
from tests.refusing import raising
from tests.transcripts.agents.locks import (
    HALF_AN_HOUR,
    names,
    replaced,
    try_once,
    written,
    written_raw,
)

pytestmark = pytest.mark.usefixtures("no_leftover_descriptors")


def during(monkeypatch: pytest.MonkeyPatch, step: str, event: Callable[[], object]) -> None:
    """Let `event` happen once, just after the first call of openclaw_lock's `step` is done."""
    real = getattr(openclaw_lock, step)
    events = [event]

    def interrupted(*arguments: Any, **more: Any) -> Any:
        result = real(*arguments, **more)
        if events:
            events.pop()()
        return result

    monkeypatch.setattr(openclaw_lock, step, interrupted)


# Judging is done, burying not begun; the last look is done, the rename not.
STEPS = ["judge", "temporary_name"]


@pytest.mark.parametrize("step", STEPS)
def test_a_stale_lock_that_vanishes_leaves_a_free_one(
    session: Path, dead: int, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = written(session, pid=dead)
    during(monkeypatch, step, path.unlink)
    with SessionLock(session, timeout=0):
        assert json.loads(path.read_bytes())["pid"] == os.getpid()


@pytest.mark.parametrize("step", STEPS)
def test_a_fresh_lock_that_replaces_the_stale_one_survives(
    session: Path, dead: int, stranger: int, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = written(session, pid=dead)
    fresh = json.dumps({"pid": stranger}).encode()
    inodes: list[int] = []
    during(monkeypatch, step, lambda: inodes.append(replaced(path, fresh)))
    with pytest.raises(Busy, match=f"process {stranger}"):
        try_once(session)
    assert path.read_bytes() == fresh
    assert [path.stat().st_ino] == inodes
    assert names(session) == {"abc.jsonl", "abc.jsonl.lock"}


def test_a_fresh_lock_is_not_even_moved_when_it_is_seen_in_time(
    session: Path, dead: int, stranger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(session, pid=dead)
    fresh = json.dumps({"pid": stranger}).encode()
    during(monkeypatch, "judge", lambda: replaced(path, fresh))
    monkeypatch.setattr(Path, "rename", raising(AssertionError("the fresh lock was moved")))
    with pytest.raises(Busy):
        try_once(session)


@pytest.mark.parametrize("step", STEPS)
def test_an_owner_that_writes_at_last_into_its_old_empty_lock_keeps_it(
    session: Path, stranger: int, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = written_raw(session, b"", age=HALF_AN_HOUR + 60)
    content = json.dumps({"pid": stranger}).encode()
    during(monkeypatch, step, lambda: path.write_bytes(content))
    with pytest.raises(Busy, match=f"process {stranger}"):
        try_once(session)
    assert path.read_bytes() == content
    assert names(session) == {"abc.jsonl", "abc.jsonl.lock"}


def test_without_hard_links_too_a_fresh_lock_is_put_back(
    session: Path, dead: int, stranger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(session, pid=dead)
    fresh = json.dumps({"pid": stranger}).encode()
    during(monkeypatch, "temporary_name", lambda: replaced(path, fresh))
    monkeypatch.setattr(os, "link", raising(OSError(errno.EPERM, "no links here")))
    with pytest.raises(Busy, match=f"process {stranger}"):
        try_once(session)
    assert path.read_bytes() == fresh
    assert names(session) == {"abc.jsonl", "abc.jsonl.lock"}


def test_putting_back_never_overwrites(
    session: Path, dead: int, stranger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(session, pid=dead)
    third = json.dumps({"pid": stranger, "createdAt": "third"}).encode()
    during(monkeypatch, "temporary_name", lambda: replaced(path, b'{"pid": 1}'))
    link = os.link

    def late(source: Path, target: Path) -> None:
        path.write_bytes(third)
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    with capture_logs() as logs, pytest.raises(Busy, match="since third"):
        try_once(session)
    assert path.read_bytes() == third
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [
        ("A lock was taken while another one was moved aside", "warn")
    ]
    assert names(session) == {"abc.jsonl", "abc.jsonl.lock"}


def test_of_two_that_bury_one_waits(session: Path, dead: int) -> None:
    path = written(session, pid=dead)
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Busy):
            try_once(session)
        assert path.exists()
    try_once(session)


def test_without_flock_a_stale_lock_is_still_buried(
    session: Path, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(session, pid=dead)
    monkeypatch.setattr(fcntl, "flock", raising(OSError(errno.ENOTSUP, "no flock here")))
    try_once(session)
    assert not path.exists()


def test_a_living_bsd_that_cannot_be_seen_keeps_its_lock(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from another PID namespace: its pid means nothing here, its flock does."""
    with SessionLock(session):
        monkeypatch.setattr(processes, "alive", lambda pid: False)
        assert isinstance(inspect_lock(session), Stale)
        with pytest.raises(Busy):
            try_once(session)
        monkeypatch.undo()
        assert lock_path(session).exists()


def test_many_that_bury_and_lock_at_once_never_meet(session: Path, dead: int) -> None:
    stale = json.dumps({"pid": dead}).encode()
    inside: list[int] = []
    met: list[list[int]] = []
    rounds = [0] * 4
    end = time.monotonic() + 1.0

    def work(number: int) -> None:
        while time.monotonic() < end or not rounds[number]:
            with SessionLock(session, sleep=lambda _: time.sleep(0.0002)):
                inside.append(number)
                time.sleep(0.0002)
                if len(inside) != 1:
                    met.append(list(inside))
                inside.remove(number)
                rounds[number] += 1
            with suppress(FileExistsError):  # as if its holder had been killed
                os.close(openclaw_lock.write_exclusively(lock_path(session), stale))

    with capture_logs() as logs:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = {entry["event"] for entry in logs}
    assert met == []
    assert events == {"Removed a stale lock"}
    assert names(session) <= {"abc.jsonl", "abc.jsonl.lock"}


def test_names_that_killed_processes_left_are_swept(session: Path, dead: int) -> None:
    leftover = session.parent / f"{openclaw_lock.TEMPORARY_PREFIX}1-aa"
    leftover.write_bytes(b"")
    written(session, pid=dead)
    try_once(session)
    assert leftover.exists()  # so young that it may be in use
    written(session, pid=dead)
    try_once(session, now=lambda: time.time() + 61)
    assert names(session) == {"abc.jsonl"}


# --- releasing ---


@pytest.mark.parametrize("how", ["gone", "replaced", "overwritten"])
def test_a_lock_that_was_taken_from_us_is_not_removed(
    session: Path, stranger: int, how: str
) -> None:
    path = lock_path(session)
    foreign = json.dumps({"pid": stranger}).encode()
    with capture_logs() as logs, SessionLock(session):
        if how == "gone":
            path.unlink()
        elif how == "replaced":
            replaced(path, foreign)
        else:
            path.write_bytes(foreign)
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [
        ("Another program removed the lock while bsd held it", "warn")
    ]
    assert how == "gone" or path.read_bytes() == foreign


def test_a_release_that_fails_can_be_repeated(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = SessionLock(session)
    lock.acquire()
    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", raising(PermissionError(errno.EACCES, "no")))
        with pytest.raises(Forbidden, match="releasing the lock"):
            lock.release()
    assert lock.is_locked
    lock.release()
    assert names(session) == {"abc.jsonl"}


def test_an_interrupt_just_after_the_link_leaves_no_lock(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def interrupted(source: Path, target: Path) -> None:
        link(source, target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", interrupted)
        with pytest.raises(KeyboardInterrupt):
            SessionLock(session).acquire()
    assert names(session) == {"abc.jsonl"}
    try_once(session)
