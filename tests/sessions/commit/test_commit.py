from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bsd.core import leases
from bsd.core.errors import Forbidden, TemporaryFailure, Unavailable
from bsd.sessions.commit import exchange
from bsd.sessions.commit.exchange import GiveUp
from bsd.transcripts.change import Change, Edit, Identity
from tests.refusing import raising
from tests.sessions.commit.scene import (
    EDITED,
    HEADER,
    NAME,
    SESSION,
    SHORTEN,
    Scene,
    hold_open,
    let_go,
    line,
    once_at,
)

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = [
    *("checked", "kept", "begun", "built", "dressed", "synced", "recorded", "locked", "idle"),
    *("opened", "leased_old", "leased_new", "verified", "exchanged", "recognised", "draining"),
    *("drained", "released", "unlocked", "durable"),
]


def test_the_new_file_is_at_the_path_and_the_old_one_in_flight(scene: Scene) -> None:
    outcome = scene.commit()
    assert outcome.committed
    assert outcome.identity == Identity.of(scene.path.stat())
    assert outcome.bytes_written == len(EDITED)
    assert outcome.lease_held_s > 0
    assert scene.content == EDITED
    assert [file.read_bytes() for file in scene.in_flight()] == [SESSION]
    assert scene.records() == [outcome.in_flight]


def test_steps_are_taken_in_order(scene: Scene) -> None:
    seen: list[str] = []
    assert scene.commit(after_step=seen.append).committed
    assert seen == STEPS


def test_what_the_lines_refer_to_is_kept_before_the_new_file_exists(scene: Scene) -> None:
    seen: list[list[Path]] = []
    assert scene.commit(keep=lambda: seen.append(scene.in_flight())).committed
    assert seen == [[]]


def test_an_error_while_keeping_leaves_everything_as_it_was(scene: Scene) -> None:
    with pytest.raises(TemporaryFailure):
        scene.commit(keep=raising(TemporaryFailure("no")))
    assert_nothing_happened(scene)


def test_new_file_record_and_names_are_durable_before_the_exchange(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    real_fsync, real_swap = os.fsync, leases.swap_names

    def fsync(fd: int) -> None:
        calls.append(Path(os.readlink(f"/proc/self/fd/{fd}")).suffix or "directory")
        real_fsync(fd)

    def swap_names(one: str, other: str) -> None:
        calls.append("exchange")
        real_swap(one, other)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(exchange, "swap_names", swap_names)
    assert scene.commit().committed
    # The in-flight directory and its parents are new.
    created = ["directory", "directory", "directory", "directory"]
    assert calls == [
        *created,
        ".file",
        ".record",
        "directory",
        "exchange",
        "directory",
        "directory",
    ]


def test_in_flight_names_never_look_like_sessions(scene: Scene) -> None:
    names: list[str] = []

    def after_step(_: str) -> None:
        names.extend(file.name for file in scene.root.rglob("*") if file != scene.path)

    scene.commit(after_step=after_step)
    assert names
    assert not [name for name in names if ".jsonl" in name]
    assert scene.layout.inflight.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in scene.records()} == {0o600}


# The attributes of the original that the new file keeps.


def test_mode_and_attributes_are_kept(scene: Scene) -> None:
    scene.path.chmod(0o640)
    try:
        os.setxattr(scene.path, "user.note", b"\x00kept\xff")
    except OSError as error:
        pytest.skip(f"needs user attributes: {error.strerror}")
    assert scene.commit().committed
    assert scene.path.stat().st_mode & 0o7777 == 0o640
    assert os.getxattr(scene.path, "user.note") == b"\x00kept\xff"


def test_nobody_else_reads_a_new_file_before_it_has_the_session_s_mode(scene: Scene) -> None:
    modes: dict[str, int] = {}

    def after_step(step: str) -> None:
        modes[step] = max((file.stat().st_mode & 0o777 for file in scene.in_flight()), default=0)

    scene.path.chmod(0o644)
    before = os.umask(0)
    try:
        assert scene.commit(after_step=after_step).committed
    finally:
        os.umask(before)
    assert (modes["begun"], modes["built"], modes["dressed"]) == (0o600, 0o600, 0o644)


def test_an_acl_is_kept(scene: Scene) -> None:
    acl = posix_acl(user=1234)
    scene.path.chmod(0o640)
    try:
        os.setxattr(scene.path, "system.posix_acl_access", acl)
    except OSError as error:
        pytest.skip(f"needs POSIX ACLs: {error.strerror}")
    mode = scene.path.stat().st_mode
    assert scene.commit().committed
    assert os.getxattr(scene.path, "system.posix_acl_access") == acl
    assert scene.path.stat().st_mode == mode


def test_the_in_flight_directory_s_default_acl_is_not_inherited(scene: Scene) -> None:
    directory = scene.inflight.directory_for(scene.path)
    try:
        os.setxattr(directory, "system.posix_acl_default", posix_acl(user=1234))
    except OSError as error:
        pytest.skip(f"needs POSIX ACLs: {error.strerror}")
    assert scene.commit().committed
    assert "system.posix_acl_access" not in os.listxattr(scene.path)


def test_the_owner_is_kept(scene: Scene) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    os.chown(scene.path, 1234, 4321)
    assert scene.commit().committed
    assert (scene.path.stat().st_uid, scene.path.stat().st_gid) == (1234, 4321)


@pytest.mark.parametrize("age_seconds", [10.0, -1000.0])
def test_mtime_advances(scene: Scene, age_seconds: float) -> None:
    scene.age(age_seconds)
    before = scene.path.stat().st_mtime_ns
    assert scene.commit().committed
    assert scene.path.stat().st_mtime_ns > before


def test_metadata_that_cannot_be_kept(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.path.chmod(0o640)
    monkeypatch.setattr(os, "fchmod", raising(OSError(errno.EPERM, "no")))
    outcome = scene.commit()
    assert outcome.gave_up is GiveUp.CANNOT_KEEP_METADATA
    assert_nothing_happened(scene)


def test_metadata_that_is_not_kept_is_noticed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.path.chmod(0o640)
    monkeypatch.setattr(os, "fchmod", lambda *_: None)
    assert scene.commit().gave_up is GiveUp.CANNOT_KEEP_METADATA
    assert_nothing_happened(scene)


# Giving up.


def assert_nothing_happened(scene: Scene) -> None:
    assert scene.content == SESSION
    assert scene.in_flight() == scene.records() == []


@pytest.mark.parametrize("age_seconds", [0.1, -0.5])
def test_nothing_is_planned_on_a_young_file(scene: Scene, age_seconds: float) -> None:
    scene.age(age_seconds)
    assert scene.commit().gave_up is GiveUp.TOO_YOUNG
    assert_nothing_happened(scene)


def test_a_file_young_when_planned_stays_so(scene: Scene) -> None:
    written = scene.path.stat().st_mtime_ns
    planned = Identity.of(scene.path.stat())
    for age_ns, gave_up in ((2 * 10**9 - 1, GiveUp.TOO_YOUNG), (2 * 10**9, None)):
        change = Change(scene.path, planned, (SHORTEN,), NAME, written + age_ns)
        assert scene.commit(change=change).gave_up is gave_up


def _append(scene: Scene) -> None:
    with scene.path.open("ab") as file:
        file.write(line(99))


def _rewrite_in_place(scene: Scene) -> None:
    with scene.path.open("r+b") as file:
        file.write(HEADER.upper())


def _replace(scene: Scene) -> None:
    other = scene.root / "other"
    other.write_bytes(SESSION)
    other.rename(scene.path)


def _replace_by_link(scene: Scene) -> None:
    scene.path.rename(scene.root / "elsewhere")
    scene.path.symlink_to(scene.root / "elsewhere")


INTERFERENCES: list[tuple[Callable[[Scene], object], GiveUp]] = [
    (_append, GiveUp.CHANGED),
    (_rewrite_in_place, GiveUp.CHANGED),
    (_replace, GiveUp.REPLACED),
    (_replace_by_link, GiveUp.NOT_REGULAR),
    (lambda scene: scene.path.unlink(), GiveUp.GONE),
    (lambda scene: scene.path.rename(scene.root / "away"), GiveUp.GONE),
]


@pytest.mark.parametrize(("interfere", "gave_up"), INTERFERENCES)
@pytest.mark.parametrize("step", [None, "recorded", "idle"])
def test_a_session_that_changed_since_it_was_planned(
    scene: Scene, step: str | None, interfere: Callable[[Scene], object], gave_up: GiveUp
) -> None:
    change = scene.change(SHORTEN)
    if step is None:
        interfere(scene)
        outcome = scene.commit(change=change)
    else:
        outcome = scene.commit(change=change, after_step=once_at(step, lambda: interfere(scene)))
    assert outcome.gave_up is gave_up
    assert scene.in_flight() == scene.records() == []


@pytest.mark.parametrize("step", ["checked", "kept"])
def test_a_session_that_changes_before_it_is_read(scene: Scene, step: str) -> None:
    outcome = scene.commit(after_step=once_at(step, lambda: _append(scene)))
    assert outcome.gave_up is GiveUp.CHANGED
    assert scene.content == SESSION + line(99)
    assert scene.in_flight() == []


def test_a_session_that_is_cut_while_it_is_copied(scene: Scene) -> None:
    long = SESSION + b"x" * (1 << 20)
    scene.write(long)
    change = scene.change(SHORTEN)
    outcome = scene.commit(change=change, after_step=once_at("begun", lambda: scene.write(SESSION)))
    assert outcome.gave_up is GiveUp.CHANGED
    assert_nothing_happened(scene)


def test_a_session_that_somebody_has_open(scene: Scene) -> None:
    holder = hold_open(scene)
    assert scene.commit().gave_up is GiveUp.IS_OPEN
    let_go(holder)
    assert_nothing_happened(scene)
    assert scene.commit().committed


def test_a_session_whose_lock_is_held(scene: Scene) -> None:
    scene.session_lock_held = True
    outcome = scene.commit()
    assert outcome.gave_up is GiveUp.BUSY
    assert outcome.detail == "somebody else has it"
    assert_nothing_happened(scene)


def test_idleness_is_tested_under_the_lock(scene: Scene) -> None:
    def somebody_starts() -> None:
        scene.idle = "status is running"

    outcome = scene.commit(after_step=once_at("locked", somebody_starts))
    assert outcome.gave_up is GiveUp.NOT_IDLE
    assert outcome.detail == "status is running"
    assert_nothing_happened(scene)


# Errors that waiting does not clear.


def test_a_full_disk_while_building(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_writing() -> None:
        monkeypatch.setattr(os, "write", raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))

    with pytest.raises(Unavailable, match="No space") as caught:
        scene.commit(after_step=once_at("begun", break_writing))
    monkeypatch.undo()
    assert caught.value.hint
    assert_nothing_happened(scene)


def test_leases_need_the_owner(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        exchange, "take_lease", raising(OSError(errno.EACCES, os.strerror(errno.EACCES)))
    )
    with pytest.raises(Forbidden) as caught:
        scene.commit()
    assert caught.value.hint
    assert_nothing_happened(scene)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EXDEV, errno.EBUSY])
def test_a_file_system_that_cannot_exchange_names(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(exchange, "swap_names", raising(OSError(code, os.strerror(code))))
    with pytest.raises(Unavailable) as caught:
        scene.commit()
    assert "exchange" in str(caught.value.hint)
    assert_nothing_happened(scene)


@pytest.mark.parametrize(
    "edits",
    [
        (Edit(10, 5, b""), Edit(12, 1, b"")),
        (Edit(10, 5, b""), Edit(3, 1, b"")),
        (Edit(10, len(SESSION), b""),),
        (Edit(10, -1, b""),),
    ],
)
def test_edits_that_make_no_sense(scene: Scene, edits: tuple[Edit, ...]) -> None:
    with pytest.raises(ValueError, match="edits"):
        Change(scene.path, Identity.of(scene.path.stat()), edits, NAME, time.time_ns())


def posix_acl(user: int) -> bytes:
    """An ACL that gives one more user read access, as the kernel stores it."""
    anybody = 0xFFFFFFFF
    entries = [(1, 6, anybody), (2, 4, user), (4, 4, anybody), (16, 4, anybody), (32, 0, anybody)]
    packed = b"".join(
        tag.to_bytes(2, "little") + perm.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, perm, who in entries
    )
    return (2).to_bytes(4, "little") + packed
