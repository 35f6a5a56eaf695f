from __future__ import annotations

import errno
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bsd.core import processes
from bsd.core.errors import Busy, Forbidden, NotFound, Unavailable
from bsd.core.filesystem import judge as judge_mount
from bsd.core.layout import SessionName
from bsd.transcripts.agents.openclaw import lock as openclaw_lock
from bsd.transcripts.agents.openclaw.lock import SessionLock, inspect_lock, lock_path
from bsd.transcripts.agents.program import Free, HeldLock, Stale, Unreadable
from tests.logs import capture_logs
from tests.needs import as_ordinary_user, require_linux
from tests.refusing import raising
from tests.transcripts.agents.locks import (
    CHECKOUT,
    HALF_AN_HOUR,
    FakeTime,
    names,
    try_once,
    written,
    written_raw,
)

pytestmark = pytest.mark.usefixtures("no_leftover_descriptors")


# --- locks that bsd writes -------------------------------------------------------------------


def test_only_the_directory_of_the_session_is_resolved(tmp_path: Path, session: Path) -> None:
    (tmp_path / "link").symlink_to(session.parent)
    (session.parent / "other.jsonl").symlink_to(session)
    there = session.parent.resolve()
    assert lock_path(tmp_path / "link" / "abc.jsonl") == there / "abc.jsonl.lock"
    assert lock_path(tmp_path / "link" / "other.jsonl") == there / "other.jsonl.lock"


def test_the_lock_says_what_the_newest_gateway_would(session: Path) -> None:
    require_linux()
    with SessionLock(session, now=lambda: 1_700_000_000.25):
        path = lock_path(session)
        text = path.read_text()
        words = json.loads(text)
        assert text == json.dumps(words, indent=2)
        assert words == {
            "pid": os.getpid(),
            "createdAt": "2023-11-14T22:13:20.250Z",
            "starttime": processes.starttime(os.getpid()),
            "maxHoldMs": 300_000,
        }
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_nlink == 1
        assert names(session) == {"abc.jsonl", "abc.jsonl.lock"}
    assert names(session) == {"abc.jsonl"}


def test_without_proc_there_is_no_starttime(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_read_proc", lambda pid, name: b"")
    with SessionLock(session):
        assert "starttime" not in json.loads(lock_path(session).read_bytes())
        state = inspect_lock(session)
    assert isinstance(state, HeldLock)
    assert state.ours


def test_the_lock_is_never_seen_empty(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, seen = os.link, []

    def watched(source: Path, target: Path) -> None:
        seen.append((target.exists(), source.read_bytes(), source.suffix))
        link(source, target)

    monkeypatch.setattr(os, "link", watched)
    with SessionLock(session):
        content = lock_path(session).read_bytes()
    assert seen == [(False, content, "")]


def test_releasing_twice_does_nothing(session: Path) -> None:
    lock = SessionLock(session)
    lock.acquire()
    lock.release()
    foreign = written(session, pid=os.getppid())
    lock.release()
    assert foreign.exists()


def test_nested_holds_of_one_object_end_together(session: Path) -> None:
    lock = SessionLock(session)
    with lock:
        with lock:
            pass
        assert lock_path(session).exists()
    assert not lock_path(session).exists()


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_without_hard_links_the_lock_is_created_exclusively(
    session: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "link", raising(OSError(number, "no links here")))
    with SessionLock(session):
        assert json.loads(lock_path(session).read_bytes())["pid"] == os.getpid()
        assert names(session) == {"abc.jsonl", "abc.jsonl.lock"}
        with pytest.raises(Busy):
            try_once(session)
    assert names(session) == {"abc.jsonl"}


def test_without_hard_links_the_second_of_two_gets_nothing(
    session: Path, monkeypatch: pytest.MonkeyPatch, stranger: int
) -> None:
    def beaten(source: Path, target: Path) -> None:
        written(session, pid=stranger)
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", beaten)
    with pytest.raises(Busy):
        try_once(session)
    assert json.loads(lock_path(session).read_bytes()) == {"pid": stranger}
    assert names(session) == {"abc.jsonl", "abc.jsonl.lock"}


# --- waiting ---------------------------------------------------------------------------------


def test_waits_double_and_end_after_thirty_seconds(
    session: Path, fake: FakeTime, stranger: int
) -> None:
    written(session, pid=stranger, createdAt="2026-01-02T03:04:05.678Z")
    lock = SessionLock(session, name=SessionName("main", "abc"), clock=fake.clock, sleep=fake.sleep)
    with pytest.raises(Busy) as caught:
        lock.acquire()
    assert fake.sleeps[:8] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert max(fake.sleeps) == 5.0
    assert sum(fake.sleeps) == pytest.approx(30)
    text = str(caught.value)
    assert text.startswith(f"session main/abc is in use by process {stranger} (")
    assert f" since 2026-01-02T03:04:05.678Z: it wrote {lock_path(session)} " in text
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("again later; if process ")


def test_a_live_lock_is_named_with_process_program_age_and_file(
    session: Path, tmp_path: Path
) -> None:
    script = tmp_path / "gateway.py"
    script.write_text("input()")
    argv = [sys.executable, str(script), "--token", "not-to-be-told"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as holder:
        content = json.dumps({"pid": holder.pid}).encode()
        path = written_raw(session, content, age=3 * 3600 + 125)
        with pytest.raises(Busy) as caught:
            try_once(session)
        holder.communicate()
    told = f"{caught.value} {caught.value.hint}"
    assert f"process {holder.pid} (" in told
    assert "gateway.py)" in told
    assert f"it wrote {path} 3 h 2 min ago" in told
    assert f"if process {holder.pid} hangs, end it" in told
    assert "not-to-be-told" not in told


def test_an_unusable_lock_is_named_with_its_file(session: Path) -> None:
    path = written_raw(session, b"")
    with pytest.raises(Busy, match=re.escape(str(path))):
        try_once(session)


def test_a_timeout_of_zero_tries_once(session: Path, fake: FakeTime, stranger: int) -> None:
    written(session, pid=stranger)
    with pytest.raises(Busy):
        try_once(session, clock=fake.clock, sleep=fake.sleep)
    assert fake.sleeps == []


def test_a_lock_that_is_freed_meanwhile_is_taken(
    session: Path, fake: FakeTime, stranger: int
) -> None:
    path = written(session, pid=stranger)
    fake.then = path.unlink
    with SessionLock(session, clock=fake.clock, sleep=fake.sleep):
        assert fake.sleeps == [0.05]


def test_waiting_can_be_cancelled(session: Path, fake: FakeTime, stranger: int) -> None:
    written(session, pid=stranger)
    lock = SessionLock(session, clock=fake.clock, sleep=fake.sleep)
    with pytest.raises(Busy):
        lock.acquire(cancel_check=lambda: len(fake.sleeps) == 2)
    assert fake.sleeps == [0.05, 0.1]


def test_the_same_process_waits_for_itself(session: Path) -> None:
    with SessionLock(session):
        with pytest.raises(Busy, match="by this process itself since"):
            try_once(session)
        assert lock_path(session).exists()
    try_once(session)


def test_another_thread_waits_even_on_the_same_object(session: Path) -> None:
    lock = SessionLock(session)
    errors: list[BaseException] = []

    def other() -> None:
        try:
            lock.acquire(timeout=0)
        except Busy as error:
            errors.append(error)

    with lock:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert lock_path(session).exists()
    assert len(errors) == 1


# --- locks that are still valid --------------------------------------------------------------


def test_a_dead_owners_lock_is_taken(session: Path, dead: int) -> None:
    written(session, pid=dead)
    assert inspect_lock(session) == Stale(f"its process {dead} is gone")
    with capture_logs() as logs, SessionLock(session, timeout=0):
        state = inspect_lock(session)
    assert isinstance(state, HeldLock)
    assert state.ours
    assert [entry["event"] for entry in logs] == ["Removed a stale lock"]
    assert names(session) == {"abc.jsonl"}


def test_a_recycled_pid_is_not_the_owner(session: Path, stranger: int) -> None:
    require_linux()
    start = processes.starttime(stranger)
    assert start is not None
    written(session, pid=stranger, starttime=start + 1)
    assert isinstance(inspect_lock(session), Stale)
    try_once(session)


@pytest.mark.parametrize("starttime", [None, "12", 1.5, True])
def test_a_starttime_that_is_no_integer_proves_nothing(
    session: Path, stranger: int, starttime: object
) -> None:
    written(session, pid=stranger, starttime=starttime)
    with pytest.raises(Busy):
        try_once(session)


def test_neither_age_nor_looks_end_a_living_owners_lock(session: Path, stranger: int) -> None:
    content = {"pid": stranger, "createdAt": "2001-01-01T00:00:00.000Z", "maxHoldMs": 1}
    path = written_raw(session, json.dumps(content).encode(), age=365 * 86400.0)
    with pytest.raises(Busy):
        try_once(session)
    assert json.loads(path.read_bytes()) == content


UNUSABLE = [
    b"",
    b"garbage",
    b'{"pid": 12',
    b"\xff\x00\xfe",
    b"[" * 5000,
    b"[1]",
    b"null",
    b"{}",
    b'{"pid":0}',
    b'{"pid":-1}',
    b'{"pid":true}',
    b'{"pid":1.5}',
    b'{"pid":"12"}',
    b'{"pid":99999999999}',
]


@pytest.mark.parametrize("content", UNUSABLE, ids=repr)
def test_an_unusable_lock_counts_for_thirty_minutes(
    session: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(monkeypatch, 4 * HALF_AN_HOUR)
    path = written_raw(session, content)
    modified = path.stat().st_mtime
    assert isinstance(inspect_lock(session, now=modified + HALF_AN_HOUR), Unreadable)
    with pytest.raises(Busy, match="by an unknown process"):
        try_once(session, now=lambda: modified + HALF_AN_HOUR)
    assert path.read_bytes() == content
    assert isinstance(inspect_lock(session, now=modified + HALF_AN_HOUR + 1), Stale)
    try_once(session, now=lambda: modified + HALF_AN_HOUR + 1)
    assert not path.exists()


def started(monkeypatch: pytest.MonkeyPatch, seconds_ago: float) -> None:
    monkeypatch.setattr(openclaw_lock, "steady", lambda: seconds_ago)


@pytest.mark.parametrize("content", [*UNUSABLE, bytes(120)], ids=repr)
def test_an_unusable_lock_from_before_the_machine_started_is_nobody_s(
    session: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a power cut leaves a lock: its name was durable, and its content was not."""
    path = written_raw(session, content)
    later = path.stat().st_ctime + 20
    started(monkeypatch, 30)
    assert isinstance(inspect_lock(session, now=later), Unreadable)
    started(monkeypatch, 10)
    state = inspect_lock(session, now=later)
    assert isinstance(state, Stale)
    assert "before this machine started" in state.reason
    try_once(session, now=lambda: later)
    assert not path.exists()


def test_somebody_who_is_just_writing_a_lock_keeps_it_whatever_the_clock_says(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written_raw(session, b"")
    later = path.stat().st_ctime + 20
    started(monkeypatch, 10)
    with path.open("wb"):
        assert isinstance(inspect_lock(session, now=later), Unreadable)
        with pytest.raises(Busy):
            try_once(session, now=lambda: later)
    assert path.exists()
    assert isinstance(inspect_lock(session, now=later), Stale)


def test_the_time_that_a_lock_was_given_counts_as_little_as_that_of_its_name(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written_raw(session, b"", age=60)  # but made just now
    started(monkeypatch, 10)
    assert isinstance(inspect_lock(session, now=path.stat().st_ctime + 5), Unreadable)


def test_a_living_process_keeps_a_lock_from_before_the_machine_started(
    session: Path, stranger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(session, pid=stranger)
    started(monkeypatch, 10)
    assert isinstance(inspect_lock(session, now=path.stat().st_ctime + 20), HeldLock)


def test_where_a_lease_proves_nothing_an_unusable_lock_counts(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written_raw(session, b"")
    started(monkeypatch, 10)
    monkeypatch.setattr(openclaw_lock, "strength", lambda _: judge_mount(0))
    assert isinstance(inspect_lock(session, now=path.stat().st_ctime + 20), Unreadable)


def test_a_clock_that_went_back_makes_nothing_old(session: Path) -> None:
    written_raw(session, b"", age=-86400.0)
    assert isinstance(inspect_lock(session), Unreadable)


def test_another_users_process_lives() -> None:
    """As an ordinary user, kill(1, 0) says EPERM: the process is there."""
    require_linux()
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o777)
        session = Path(open_to_all, "abc.jsonl")
        content = json.dumps({"pid": 1})
        lock_path(session).write_text(content)
        lock_path(session).chmod(0o644)
        answer = as_nobody("judge", session)
        assert answer == {"event": "HeldLock"}
        assert as_nobody("take", session)["event"] == "Busy"
        assert lock_path(session).read_text() == content


def as_nobody(what: str, session: Path) -> Any:
    command = [sys.executable, "-m", "tests.transcripts.agents.lock_holder", what, str(session)]
    answer = subprocess.run(
        [*as_ordinary_user(), *command], check=True, capture_output=True, cwd=CHECKOUT
    )
    return json.loads(answer.stdout.splitlines()[-1])


def test_a_lock_we_may_not_read_counts_for_ever() -> None:
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o777)
        session = Path(open_to_all, "abc.jsonl")
        path = written_raw(session, b"", age=365 * 86400.0)
        path.chmod(0o000)
        assert as_nobody("take", session)["event"] == "Busy"
        assert path.exists()


@pytest.mark.parametrize("kind", ["symlink", "fifo", "directory"])
def test_what_is_no_file_is_never_removed(session: Path, kind: str) -> None:
    path = lock_path(session)
    if kind == "symlink":
        path.symlink_to(session)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    state = inspect_lock(session, now=time.time() + 365 * 86400.0)
    assert isinstance(state, Unreadable)
    with pytest.raises(Busy):
        try_once(session, now=lambda: time.time() + 365 * 86400.0)
    assert path.lstat()
    assert session.read_bytes() == b"{}\n"


def test_a_free_lock_is_free(session: Path) -> None:
    assert inspect_lock(session) == Free()


def test_a_killed_holder_leaves_a_lock_that_the_next_takes(session: Path) -> None:
    command = [sys.executable, "-m", "tests.transcripts.agents.lock_holder", "hold", str(session)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=CHECKOUT)
    assert holder.stdout is not None
    assert json.loads(holder.stdout.readline()) == {"event": "acquired"}
    state = inspect_lock(session)
    assert isinstance(state, HeldLock)
    assert (state.pid, state.ours) == (holder.pid, False)
    with pytest.raises(Busy, match=rf"process {holder.pid} \(.*\) since 20"):
        try_once(session)
    holder.kill()
    holder.communicate()
    assert lock_path(session).exists()
    try_once(session)


def test_a_forked_child_does_not_release_its_parents_lock(session: Path) -> None:
    program = """if True:
        import os, sys
        from pathlib import Path
        from bsd.transcripts.agents.openclaw.lock import SessionLock
        from bsd.transcripts.agents.openclaw.lock import lock_path
        session = Path(sys.argv[1])
        lock = SessionLock(session)
        lock.acquire()
        if os.fork() == 0:
            lock.release(force=True)
            sys.exit()
        os.wait()
        assert lock_path(session).exists()
        lock.release()
        assert not lock_path(session).exists()
    """
    subprocess.run([sys.executable, "-c", program, str(session)], check=True, cwd=CHECKOUT)


# --- refusals of the system ------------------------------------------------------------------


def test_a_directory_we_may_not_write_is_an_error_with_a_hint() -> None:
    with tempfile.TemporaryDirectory() as open_to_all:
        session = Path(open_to_all, "abc.jsonl")
        os.chmod(open_to_all, 0o555)
        answer = as_nobody("take", session)
        os.chmod(open_to_all, 0o755)
    assert answer["event"] == Forbidden.__name__
    assert "abc.jsonl.lock" in answer["message"]
    assert "permissions" in answer["hint"]


def test_a_full_disk_leaves_nothing_behind(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = raising(OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(openclaw_lock, "write_all", full)
    with pytest.raises(Unavailable, match="No space left"):
        try_once(session)
    assert names(session) == {"abc.jsonl"}


def test_a_session_directory_that_is_gone_stays_gone(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        SessionLock(tmp_path / "gone" / "abc.jsonl").acquire()
    assert list(tmp_path.iterdir()) == []
