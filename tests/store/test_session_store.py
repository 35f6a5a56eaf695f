"""The store keeps original lines durably: all lines of a plan or none."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from bsd.core import filesystem
from bsd.core.errors import Forbidden, Invalid, TemporaryFailure, Unavailable
from bsd.core.filesystem import Syncing
from bsd.core.layout import Layout, SessionName
from bsd.store import originals
from bsd.store.originals import APART, FileSpan, Missing, SessionStore, StoredOriginal, digest
from bsd.transcripts.reader import BytesTranscript
from tests.refusing import raising
from tests.waiting import DEADLINE_SECONDS

LINES = [b'{"id":"a","output":"one"}\n', b'{"id":"b","output":"' + b"x" * 3_000_000 + b'"}\n']
SOURCE = BytesTranscript(b"".join(LINES))
FILES = (".json", ".tmp")


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(Layout(tmp_path), SessionName("main", "s1"))


def keep(index: int, line: FileSpan | bytes | None = None, **changes: str) -> StoredOriginal:
    raw = LINES[index]
    span = FileSpan(sum(map(len, LINES[:index])), len(raw))
    return StoredOriginal(
        ref=changes.get("ref", f"{index:04d}_tool_result"),
        entry_id=raw[7:8].decode(),
        index=index,
        type="tool_result",
        hash=changes.get("hash", digest(raw)),
        size=len(raw),
        keys=("output",),
        sizes=(3,),
        line=line or span,
    )


def listing(store: SessionStore) -> list[str]:
    return sorted(path.name for path in store.directory.iterdir())


def test_a_kept_line_is_the_original_byte_for_byte_and_private(store: SessionStore) -> None:
    store.add([keep(0), keep(1)], SOURCE)
    assert [
        store.load(ref, digest(line)) for ref, line in zip(store.refs(), LINES, strict=True)
    ] == LINES
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in store.directory.iterdir()} == {0o600}


def test_bytes_that_stand_nowhere_can_be_kept(store: SessionStore) -> None:
    store.add([keep(0, line=LINES[0])], SOURCE)
    assert store.read("0000_tool_result") == LINES[0]


def test_a_file_that_was_there_before_stays_if_the_commit_gives_up(store: SessionStore) -> None:
    """Another line of the session, or a copy of it, may need it."""
    store.add([keep(0)], SOURCE)
    both = [replace(keep(0), line=None), keep(1)]
    store.add(both, SOURCE)
    store.discard(both)
    assert store.refs() == ["0000_tool_result"]
    assert store.load("0000_tool_result", digest(LINES[0])) == LINES[0]


def test_many_files_are_all_there(store: SessionStore) -> None:
    keeps = [keep(0, ref=f"{n:04d}_thinking") for n in range(40)]
    store.add(keeps, SOURCE)
    assert store.refs() == [one.ref for one in keeps]
    assert store.leftovers() == []


@pytest.mark.parametrize("existing", [0, 1])
@pytest.mark.parametrize("count", [3, 100])
def test_content_is_durable_before_it_has_its_name_and_then_the_name_is(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, count: int, existing: int
) -> None:
    calls: list[str] = []
    fsync, rename, syncfs = os.fsync, os.rename, filesystem._sync_file_system

    def noted_fsync(descriptor: int) -> None:
        fsync(descriptor)
        what = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        names = what.name == store.directory.name
        calls.append("names" if names else "content" if what.suffix in FILES else "above")

    def noted_syncfs(descriptor: int) -> None:
        syncfs(descriptor)
        calls.append("content")

    def noted_rename(one: str, other: str) -> None:
        rename(one, other)
        calls.append("renamed")

    store.add([keep(0)] * existing, SOURCE)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    monkeypatch.setattr(filesystem, "_sync_file_system", noted_syncfs)
    store.add([keep(0, ref=f"{n:04d}_thinking") for n in range(count)], SOURCE)
    order = [call for at, call in enumerate(calls) if calls[at - 1 : at] != [call]]
    if existing:  # each file gets its name; otherwise all of them together
        assert order == ["content", "renamed", "names"]
        assert calls.count("renamed") == count
    else:
        assert order == ["content", "names", "renamed", "above"]
        assert calls.count("renamed") == 1


def test_a_store_that_appeared_meanwhile_is_not_written_to(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sync(directory: Path) -> None:
        store.directory.mkdir(exist_ok=True)
        store.file("0000_tool_result").write_bytes(b"another's")

    monkeypatch.setattr(originals, "sync_dir", sync)
    with pytest.raises(TemporaryFailure, match="appeared"):
        store.add([keep(0)], SOURCE)
    assert listing(store) == ["0000_tool_result.json"]
    assert store.read("0000_tool_result") == b"another's"
    assert store.leftovers() == []


def test_one_who_tidies_up_after_his_own_takes_nothing_from_another(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a moment after a store got its name, the directory where all stores are made is empty."""
    rename = os.rename

    def rename_as_another_has_done(source: str, target: Path) -> None:
        rename(source, target)
        (store.directory.parent / APART).rmdir()

    monkeypatch.setattr(os, "rename", rename_as_another_has_done)
    store.add([keep(0)], SOURCE)
    assert store.refs() == ["0000_tool_result"]


def test_what_a_killed_process_left_apart_is_seen_and_swept(store: SessionStore) -> None:
    apart = store.directory.parent / APART
    torn, others = apart / store.directory.name, apart / "main_s2"
    for directory in (torn, others):
        directory.mkdir(parents=True)
        (directory / "0000_tool_result.json").write_bytes(b"half")
    assert store.leftovers() == [torn / "0000_tool_result.json"]
    assert store.refs() == []
    store.sweep()
    assert store.leftovers() == []
    assert others.exists(), "another session's lock is not held"


def test_a_session_that_changed_meanwhile_keeps_nothing(store: SessionStore) -> None:
    with pytest.raises(TemporaryFailure, match="changed while it was read"):
        store.add([keep(0), keep(1, hash=digest(b"something else"))], SOURCE)
    assert store.refs() == []
    assert not store.directory.exists()


def test_a_name_that_is_taken_is_never_overwritten(store: SessionStore) -> None:
    store.add([keep(0)], SOURCE)
    with pytest.raises(TemporaryFailure, match="appeared"):
        store.add([keep(1), keep(1, ref="0000_tool_result")], SOURCE)
    assert listing(store) == ["0000_tool_result.json"]
    assert store.read("0000_tool_result") == LINES[0]


def test_a_file_used_again_is_checked_and_becomes_young(store: SessionStore) -> None:
    store.add([keep(0)], SOURCE)
    path = store.file("0000_tool_result")
    os.utime(path, (1, 1))
    again = replace(keep(0), line=None)
    store.add([again], SOURCE)
    assert path.stat().st_mtime > 1
    path.write_bytes(b"rot")
    with pytest.raises(TemporaryFailure, match="could reuse it"):
        store.add([again], SOURCE)


def test_leftovers_of_a_killed_process_go_with_the_next_writing(store: SessionStore) -> None:
    store.add([keep(0)], SOURCE)
    for name in ("0007_user.tmp", ".index.json.0011.tmp"):
        (store.directory / name).write_bytes(b"half")
    assert len(store.leftovers()) == 2
    store.add([keep(1)], SOURCE)
    assert listing(store) == ["0000_tool_result.json", "0001_tool_result.json"]


def test_discard_removes_what_a_commit_did_not_need_and_nothing_else(store: SessionStore) -> None:
    store.add([keep(0)], SOURCE)
    store.add([keep(1)], SOURCE)
    store.discard([keep(1)])
    assert store.refs() == ["0000_tool_result"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.ENOSPC, Unavailable),
        (errno.EDQUOT, Unavailable),
        (errno.EROFS, Forbidden),
        (errno.EACCES, Forbidden),
    ],
)
@pytest.mark.parametrize("call", ["write_all", "Syncing", "sync_dir"])
def test_a_failing_disk_leaves_nothing_behind(
    store: SessionStore,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    error: type[Exception],
    call: str,
) -> None:
    store.add([keep(0)], SOURCE)
    monkeypatch.setattr(originals, call, failing(code))
    with pytest.raises(error, match=os.strerror(code)):
        store.add([keep(1)], SOURCE)
    assert listing(store) == ["0000_tool_result.json"]


def failing(code: int) -> Callable[..., None]:
    return raising(OSError(code, os.strerror(code)))


def test_ctrl_c_leaves_nothing_behind(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Syncing, "sync", raising(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.add([keep(0), keep(1)], SOURCE)
    assert not store.directory.exists()


def test_missing_and_rotten_files_are_told_apart(store: SessionStore) -> None:
    assert store.load("0000_tool_result", digest(LINES[0])) is Missing.GONE
    store.add([keep(0)], SOURCE)
    store.file("0000_tool_result").write_bytes(b"rot")
    assert store.load("0000_tool_result", digest(LINES[0])) is Missing.CORRUPT


@pytest.mark.parametrize(
    "ref", ["../0001_user", "/etc/passwd", "0001_user/x", "", "..", "0001_", "index", "0001_user\n"]
)
def test_a_ref_is_a_name_never_a_path(store: SessionStore, ref: str) -> None:
    assert store.load(ref, "sha256:0") is Missing.GONE
    with pytest.raises(Invalid):
        store.file(ref)


def test_a_link_in_the_place_of_a_file_is_not_followed(store: SessionStore, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(LINES[0])
    store.directory.mkdir(parents=True)
    store.file("0000_user").symlink_to(secret)
    assert store.load("0000_user", digest(LINES[0])) is Missing.CORRUPT


@pytest.mark.parametrize("kernel", ["6.1.0-18-amd64", "5.4.0"])
def test_many_files_are_synced_at_once_where_the_kernel_tells_of_errors(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(platform, "release", lambda: kernel)
    monkeypatch.setattr(filesystem, "_libc", Mock(syncfs=lambda _: calls.append("syncfs")))
    monkeypatch.setattr(
        filesystem, "_sync_files", lambda paths: calls.append(f"{len(paths)} files")
    )
    monkeypatch.setattr(filesystem, "magic", lambda _: 0xEF53)
    filesystem._kernel_reports.cache_clear()
    try:
        store.add([keep(0, ref=f"{n:04d}_user") for n in range(3)], SOURCE)
        store.add([keep(0, ref=f"{n:04d}_thinking") for n in range(70)], SOURCE)
    finally:
        filesystem._kernel_reports.cache_clear()
    assert calls == ["3 files", "syncfs" if kernel.startswith("6") else "70 files"]


def test_an_error_of_syncing_at_once_leaves_nothing_behind(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "_MANY", 1)
    monkeypatch.setattr(filesystem, "_can_sync_as_a_whole", lambda _: True)
    monkeypatch.setattr(filesystem, "_libc", Mock(syncfs=lambda _: -1))
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EIO)
    with pytest.raises(Unavailable, match=os.strerror(errno.EIO)):
        store.add([keep(0), keep(1)], SOURCE)
    assert not store.directory.exists()


@pytest.mark.parametrize("failing", [0, 1, 2, 3])
def test_the_disk_begins_early_and_each_of_its_errors_is_told(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    calls: list[str] = []

    def syncfs(descriptor: int) -> None:
        os.fstat(descriptor)  # it is open still
        calls.append(threading.current_thread().name)
        if len(calls) == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    class AtOnce(threading.Thread):
        def start(self) -> None:
            super().start()
            self.join()

    monkeypatch.setattr(filesystem, "_MANY", 1)
    monkeypatch.setattr(filesystem, "_PORTION", 2 * len(LINES[0]))
    monkeypatch.setattr(filesystem, "_can_sync_as_a_whole", lambda _: True)
    monkeypatch.setattr(filesystem, "_sync_file_system", syncfs)
    monkeypatch.setattr(filesystem, "Thread", AtOnce)
    keeps = [keep(0, ref=f"{n:04d}_user") for n in range(5)]
    if failing:
        with pytest.raises(Unavailable, match=os.strerror(errno.EIO)):
            store.add(keeps, SOURCE)
        assert not store.directory.exists()
    else:
        store.add(keeps, SOURCE)
    assert calls == ["bsd-sync", "bsd-sync", "MainThread"]


def test_ctrl_c_waits_for_what_the_disk_has_begun(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_still: list[bool] = []

    def syncfs(descriptor: int) -> None:
        place = os.readlink(f"/proc/self/fd/{descriptor}")
        interrupted.wait(DEADLINE_SECONDS)
        time.sleep(0.1)  # a moment for a process that would not wait
        open_still.append(Path(f"/proc/self/fd/{descriptor}").is_symlink())
        assert os.readlink(f"/proc/self/fd/{descriptor}") == place

    def write_all(descriptor: int, data: bytes) -> None:
        if Early in map(type, threading.enumerate()):
            interrupted.set()
            raise KeyboardInterrupt
        os.write(descriptor, data)

    class Early(threading.Thread):
        pass

    interrupted = threading.Event()
    monkeypatch.setattr(filesystem, "_MANY", 1)
    monkeypatch.setattr(filesystem, "_PORTION", 1)
    monkeypatch.setattr(filesystem, "Thread", Early)
    monkeypatch.setattr(filesystem, "_can_sync_as_a_whole", lambda _: True)
    monkeypatch.setattr(filesystem, "_sync_file_system", syncfs)
    monkeypatch.setattr(originals, "write_all", write_all)
    with pytest.raises(KeyboardInterrupt):
        store.add([keep(0, ref=f"{n:04d}_user") for n in range(5)], SOURCE)
    assert open_still == [True]
    assert not store.directory.exists()


@pytest.mark.parametrize("count", [3, 40])
def test_an_error_of_one_sync_among_many_leaves_nothing_behind(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).name.startswith("0002"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(Unavailable, match=os.strerror(errno.EIO)):
        store.add([keep(0, ref=f"{n:04d}_user") for n in range(count)], SOURCE)
    assert not store.directory.exists()


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_corrupt_and_not_waited_for(
    store: SessionStore, put: Callable[[Path], None]
) -> None:
    store.add([keep(0), keep(1)], SOURCE)
    path = store.file("0000_tool_result")
    path.unlink()
    put(path)
    assert store.load("0000_tool_result", digest(LINES[0])) is Missing.CORRUPT
    assert store.load("0001_tool_result", digest(LINES[1])) == LINES[1]


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir])
def test_an_index_that_is_no_file_is_broken(
    store: SessionStore, put: Callable[[Path], None]
) -> None:
    store.directory.mkdir(parents=True)
    put(store.index.path)
    assert store.index.records == {}
    assert store.index.broken is not None
    assert "not a plain file" in store.index.broken
