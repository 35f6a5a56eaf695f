"""The rules of recovery, one by one; a crash is a hook that ends the commit where it stands."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from bsd.agents.openclaw.home import RootAgent
from bsd.foundation.errors import Conflict
from bsd.session.commit import late as late_module
from bsd.session.commit.displaced import Access, Recovered, State
from bsd.session.commit.exchangers import DirectExchanger, Step
from bsd.session.commit.inflight import read_record
from bsd.session.commit.orphans import list_orphans
from bsd.session.commit.protocol import GiveUp
from bsd.session.commit.recovery import recover
from tests.session.commit.scene import (
    EDITED,
    HEADER,
    SESSION,
    KeepsMtime,
    Scene,
    edit_of,
    hold_open,
    let_go,
    line,
    once_at,
)
from tests.session.commit.test_commit import STEPS

LATE = line(90)
LATER = line(91)
NEXT = line(92)


class Crash(BaseException):
    """The process ends here."""


def crash_at(step: str) -> Step:
    def crash() -> None:
        raise Crash

    return once_at(step, crash)


def crash(scene: Scene, step: str) -> None:
    """Let a process of its own commit, and end without a word after `step`."""
    with warnings.catch_warnings():
        # Later Pythons warn of a fork beside threads; this child takes no locks of others.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        scene.commit(after_step=once_at(step, lambda: os._exit(42)))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42


def crash_while_appending(scene: Scene, step: str) -> None:
    """End an exchange after `step`, which somebody's append has met half-way.

    An exception does here: the exchange closes its files and does nothing more.
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


# Rule (a): after a crash anywhere, the path holds the whole old or the whole new session.


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_is_finished_or_undone(scene: Scene, step: str) -> None:
    crash(scene, step)
    exchanged = STEPS.index(step) >= STEPS.index("exchanged")
    assert scene.content == (EDITED if exchanged else SESSION)
    append(scene.path, NEXT)
    before = scene.content
    scene.recover()
    assert scene.content == before
    scene.recover(61)
    assert scene.content == before
    assert scene.in_flight() == scene.records() == []
    assert list_orphans(scene.layout) == []


@pytest.mark.parametrize("step", ["recorded", "verified", "exchanged", "drained", "released"])
@pytest.mark.parametrize(
    "act",
    [
        lambda path: path.write_bytes(HEADER + NEXT),
        lambda path: path.rename(path.with_suffix(".reset")),
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.write_bytes(b'{"type":"session","id":"another"}\n')),
    ],
)
def test_what_the_owner_does_before_recovery_stands(
    scene: Scene, step: str, act: Callable[[Path], object]
) -> None:
    crash(scene, step)
    act(scene.path)
    before = scene.content if scene.path.exists() else None
    scene.recover()
    assert states(scene.recover(61)) in ([State.FINISHED], [State.ABANDONED])
    assert (scene.content if scene.path.exists() else None) == before
    assert scene.in_flight() == []


def test_an_unfinished_build_goes_at_once(scene: Scene) -> None:
    crash(scene, "built")
    assert states(scene.recover()) == [State.ABANDONED]
    assert scene.in_flight() == scene.records() == []


@pytest.mark.parametrize("alive", [False, True])
def test_the_lock_that_a_dead_process_held_goes_with_it(scene: Scene, *, alive: bool) -> None:
    crash(scene, "drained")
    with subprocess.Popen(["true"]) as process:
        pass
    lock = scene.path.with_name(f"{scene.path.name}.lock")
    pid = os.getppid() if alive else process.pid
    lock.write_text(json.dumps({"pid": pid, "createdAt": "2026-11-22T10:00:00.000Z"}))
    access = Access.to(scene.inflight.layout, lambda *_: None)
    assert states(recover(scene.inflight, access, DirectExchanger())) == [State.WATCHED]
    assert lock.exists() is alive


def test_a_displaced_file_is_kept_for_a_minute(scene: Scene) -> None:
    scene.commit()
    assert states(scene.recover(59)) == [State.WATCHED]
    assert displaced(scene).read_bytes() == SESSION
    assert states(scene.recover(60)) == [State.FINISHED]
    assert scene.records() == scene.in_flight() == []


def test_a_displaced_file_is_kept_as_long_as_somebody_has_it_open(scene: Scene) -> None:
    scene.commit()
    with displaced(scene).open("rb"):
        assert states(scene.recover(61)) == [State.WATCHED]
        assert scene.in_flight()
    assert states(scene.recover(61)) == [State.FINISHED]


def test_an_in_flight_file_without_a_record_goes_after_a_minute(scene: Scene) -> None:
    scene.commit()
    scene.records()[0].unlink()
    assert scene.recover(40) == []
    assert states(scene.recover(60)) == [State.ABANDONED]
    assert scene.in_flight() == []


def test_a_record_without_a_line_goes_after_a_minute(scene: Scene) -> None:
    scene.commit()
    scene.recover(61)
    empty = scene.layout.inflight / "0.record"
    empty.touch()
    assert scene.recover(50) == []
    assert states(scene.recover(70)) == [State.ABANDONED]
    assert not empty.exists()


def test_a_record_of_another_format_is_left_alone(scene: Scene) -> None:
    scene.commit()
    (record,) = scene.records()
    record.write_bytes(record.read_bytes().replace(b'"record": 1', b'"record": 2'))
    with pytest.raises(Conflict):
        read_record(record)
    assert states(scene.recover(61)) == [State.FAILED]
    assert displaced(scene).read_bytes() == SESSION


def test_a_record_that_points_out_of_the_root_is_left_alone(scene: Scene, tmp_path: Path) -> None:
    scene.commit()
    (record,) = scene.records()
    outside = tmp_path / "elsewhere" / "s1.jsonl"
    told = record.read_text().replace(json.dumps(str(scene.path)), json.dumps(str(outside)))
    record.write_text(told)
    assert states(scene.recover(61)) == [State.FAILED]


def test_one_record_that_fails_stops_no_other(scene: Scene) -> None:
    scene.commit()
    (scene.layout.inflight / "0.record").write_text('{"record": 99}\n')
    assert sorted(states(scene.recover(61))) == [State.FAILED, State.FINISHED]


# Rule (b): late bytes are carried once, and to where they belong.


def test_late_lines_are_carried(scene: Scene) -> None:
    scene.commit()
    append(displaced(scene), LATE)
    results = scene.recover()
    assert states(results) == [State.CARRIED]
    assert (results[0].lines, results[0].bytes) == (1, len(LATE))
    assert scene.content == EDITED + LATE
    append(displaced(scene), LATER)
    assert states(scene.recover(61)) == [State.FINISHED]
    assert scene.content == EDITED + LATE + LATER


@pytest.mark.parametrize("keeps", [True, False])
def test_lines_put_back_look_like_news_only_where_they_may(scene: Scene, *, keeps: bool) -> None:
    """Who goes on with the newest session shall not go on with this one for what we did."""
    scene.owner = KeepsMtime if keeps else RootAgent
    scene.commit()
    append(displaced(scene), LATE)
    written = time.time_ns() - 10**12
    for path in (displaced(scene), scene.path):
        os.utime(path, ns=(written, written))
    assert states(scene.recover()) == [State.CARRIED]
    assert scene.content == EDITED + LATE
    assert (scene.path.stat().st_mtime_ns == written) is keeps


@pytest.mark.parametrize("keeps", [True, False])
def test_lines_put_back_before_others_look_like_news_only_where_they_may(
    scene: Scene, *, keeps: bool
) -> None:
    scene.owner = KeepsMtime if keeps else RootAgent
    scene.commit()
    append(displaced(scene), LATE)
    append(scene.path, NEXT)
    written = time.time_ns() - 10**12
    os.utime(scene.path, ns=(written, written))
    scene.recover()
    assert scene.content == EDITED + LATE + NEXT
    assert (scene.path.stat().st_mtime_ns == written) is keeps


def test_late_lines_of_a_holder_arrive_line_by_line(scene: Scene) -> None:
    scene.commit()
    with displaced(scene).open("ab", buffering=0) as file:
        file.write(LATE + LATER[:10])
        assert states(scene.recover()) == [State.CARRIED]
        assert scene.content == EDITED + LATE
        file.write(LATER[10:])
        assert states(scene.recover(61)) == [State.CARRIED]
        assert scene.content == EDITED + LATE + LATER
    assert states(scene.recover(61)) == [State.FINISHED]


def test_late_lines_come_before_what_was_appended_since(scene: Scene) -> None:
    scene.commit()
    append(displaced(scene), LATE)
    append(scene.path, NEXT)
    waiting = scene.recover()
    assert (states(waiting), scene.content) == ([State.WAITING], EDITED + NEXT)
    assert set(states(scene.recover(5))) <= {State.CARRIED, State.WATCHED}
    assert scene.content == EDITED + LATE + NEXT
    scene.recover(5)
    assert set(states(scene.recover(70))) == {State.FINISHED}
    assert scene.content == EDITED + LATE + NEXT


def test_late_lines_after_another_commit_are_appended(scene: Scene) -> None:
    scene.commit()
    scene.age()
    edit = edit_of(line(4), b"", EDITED)
    first = displaced(scene)
    assert scene.commit(edit).committed
    append(first, LATE + LATER)
    append(scene.path, LATER)
    scene.recover()
    assert scene.content == EDITED.replace(line(4), b"") + LATER + LATE
    assert set(states(scene.recover(61))) == {State.FINISHED}


def test_late_lines_without_an_id_are_put_once_into_a_session_written_anew(scene: Scene) -> None:
    """They were put there by a recovery that could not say so any more."""
    ping = b'{"type":"ping"}\n'
    scene.commit()
    append(displaced(scene), ping)
    scene.write(HEADER + ping + NEXT, 0)
    with pytest.raises(Crash):
        scene.recover(5, after_step=crash_at("carried"))
    assert scene.content == HEADER + ping + NEXT + ping
    scene.recover(5)
    scene.recover(61)
    assert scene.content == HEADER + ping + NEXT + ping
    assert list_orphans(scene.layout) == []


def test_a_torn_end_of_the_session_does_not_swallow_late_lines(scene: Scene) -> None:
    scene.commit()
    first = displaced(scene)
    scene.age()
    scene.commit(edit_of(line(4), b"", EDITED))
    append(first, LATE)
    append(scene.path, b'{"torn":')
    scene.recover()
    assert scene.content == EDITED.replace(line(4), b"") + b'{"torn":\n' + LATE


@pytest.mark.parametrize("step", ["recognised", "draining", "drained", "noted", "carried"])
@pytest.mark.parametrize("then", [b"", NEXT])
def test_a_crash_while_draining_loses_and_doubles_nothing(
    scene: Scene, step: str, then: bytes
) -> None:
    crash_while_appending(scene, step)
    assert displaced(scene).read_bytes() == SESSION + LATE
    append(scene.path, then)
    scene.recover(5)
    assert scene.content == EDITED + LATE + then
    scene.recover(5)
    scene.recover(70)
    assert scene.content == EDITED + LATE + then
    assert scene.in_flight() == []


@pytest.mark.parametrize("torn", [1, 2, 7, len(LATE) - 1, len(LATE), len(LATE) + 9])
@pytest.mark.parametrize("then", [b"", NEXT, NEXT + NEXT])
def test_growth_torn_by_a_crash_is_mended(scene: Scene, torn: int, then: bytes) -> None:
    growth = LATE + LATER
    crash(scene, "exchanged")
    append(displaced(scene), growth)
    append(scene.path, growth[:torn] + then)
    scene.recover(5)
    assert scene.content == EDITED + growth + then
    scene.recover(70)
    assert scene.content == EDITED + growth + then


@pytest.mark.parametrize("step", ["watched", "noted", "carried", "unlinked"])
def test_recovery_can_crash_too(scene: Scene, step: str) -> None:
    scene.commit()
    append(displaced(scene), LATE)
    with pytest.raises(Crash):
        scene.recover(61, after_step=crash_at(step))
    scene.recover(61)
    assert scene.content == EDITED + LATE
    assert scene.records() == scene.in_flight() == []


@pytest.mark.parametrize("step", STEPS)
def test_mending_can_crash_too(scene: Scene, step: str) -> None:
    scene.commit()
    append(displaced(scene), LATE)
    append(scene.path, NEXT)
    with pytest.raises(Crash):
        scene.recover(5, after_step=crash_at(step))
    scene.recover(5)
    scene.recover(5)
    assert scene.content == EDITED + LATE + NEXT
    scene.recover(70)
    assert scene.content == EDITED + LATE + NEXT
    assert scene.in_flight() == []


def _give_up(scene: Scene) -> None:
    scene.idle = "it is running"
    scene.commit()


def _finish(scene: Scene) -> None:
    scene.commit()
    scene.recover(61)


def _abandon(scene: Scene) -> None:
    crash(scene, "built")
    scene.recover()


def _forget(scene: Scene) -> None:
    crash(scene, "begun")
    (record,) = scene.records()
    record.write_bytes(b"")
    scene.recover(61)


@pytest.mark.parametrize("act", [_give_up, _finish, _abandon, _forget])
def test_a_record_stays_as_long_as_its_file(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, act: Callable[[Scene], None]
) -> None:
    """Without it nobody would know whose lines may still come into the file."""
    unlink = Path.unlink

    def ends_after_one(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok=missing_ok)
        if path.suffix in (".file", ".record"):
            raise Crash

    monkeypatch.setattr(Path, "unlink", ends_after_one)
    with pytest.raises(Crash):
        act(scene)
    monkeypatch.undo()
    assert scene.in_flight() == []
    assert len(scene.records()) == 1
    scene.recover(122)
    assert scene.records() == []


def test_lines_are_late_for_the_old_file_too(scene: Scene) -> None:
    """An undone exchange: the new file is the displaced one, the old one its target."""
    crash(scene, "verified")
    append(displaced(scene), LATE)
    assert states(scene.recover()) == [State.CARRIED]
    assert scene.content == SESSION + LATE


def test_late_bytes_wait_for_a_session_in_use(scene: Scene) -> None:
    scene.commit()
    append(displaced(scene), LATE)
    scene.idle = "running"
    assert [(one.state, one.detail) for one in scene.recover(61)] == [(State.WAITING, "running")]
    scene.idle, scene.session_lock_held = None, True
    assert states(scene.recover(61)) == [State.WAITING]
    scene.session_lock_held = False
    holder = hold_open(scene)
    assert states(scene.recover(61)) == [State.WAITING]
    let_go(holder)
    assert displaced(scene).exists()
    assert states(scene.recover(61)) == [State.FINISHED]
    assert scene.content == EDITED + LATE


# Rule (c): never into another session, never into a new one.


def test_late_bytes_of_a_deleted_session_become_an_orphan(scene: Scene) -> None:
    scene.commit()
    append(displaced(scene), LATE)
    scene.path.unlink()
    assert states(scene.recover()) == [State.ORPHANED]
    assert not scene.path.exists()
    assert_orphan(scene, LATE, "no longer there")
    assert states(scene.recover(61)) == [State.FINISHED]
    assert_orphan(scene, LATE, "no longer there")


def test_late_bytes_are_not_put_into_another_session(scene: Scene) -> None:
    scene.commit()
    append(displaced(scene), LATE)
    another = b'{"type":"session","id":"another"}\n'
    scene.path.unlink()
    scene.path.write_bytes(another)
    assert states(scene.recover()) == [State.ORPHANED]
    assert scene.content == another
    assert_orphan(scene, LATE, "another session")


def test_late_bytes_do_not_follow_a_link(scene: Scene, tmp_path: Path) -> None:
    scene.commit()
    append(displaced(scene), LATE)
    scene.path.rename(tmp_path / "elsewhere")
    scene.path.symlink_to(tmp_path / "elsewhere")
    assert states(scene.recover()) == [State.ORPHANED]
    assert (tmp_path / "elsewhere").read_bytes() == EDITED


def assert_orphan(scene: Scene, data: bytes, reason: str) -> None:
    (orphan,) = list_orphans(scene.layout)
    assert orphan.file.read_bytes() == data
    assert reason in orphan.reason
    assert (orphan.session, orphan.target) == ("main/s1", str(scene.path))
    assert orphan.size == len(data)
    assert orphan.file.stat().st_mode & 0o777 == 0o600
    assert json.dumps(orphan.as_json())


def test_keeping_an_orphan_can_crash_too(scene: Scene) -> None:
    scene.commit()
    append(displaced(scene), LATE)
    scene.path.unlink()
    with pytest.raises(Crash):
        scene.recover(after_step=crash_at("orphaned"))
    assert states(scene.recover(61)) == [State.FINISHED]
    assert_orphan(scene, LATE, "no longer there")


# Rule (d): a disk that is full.


def test_a_short_write_is_cut_off_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.commit()
    append(displaced(scene), LATE)

    def short_write(fd: int, data: bytes) -> None:
        os.write(fd, data[:20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(late_module, "write_all", short_write)
    assert states(scene.recover()) == [State.FAILED]
    assert scene.content == EDITED
    monkeypatch.undo()
    assert states(scene.recover()) == [State.CARRIED]
    assert scene.content == EDITED + LATE


# Rule (e): a last line without its end.


def test_a_last_line_that_is_whole_gets_its_end(scene: Scene) -> None:
    scene.commit()
    append(displaced(scene), LATE + LATER[:-1])
    assert states(scene.recover()) == [State.CARRIED]
    assert scene.content == EDITED + LATE + LATER
    append(displaced(scene), b"\n" + NEXT)
    scene.recover()
    assert scene.content == EDITED + LATE + LATER + b"\n" + NEXT


def test_a_last_line_that_is_torn_becomes_an_orphan(scene: Scene) -> None:
    scene.commit()
    append(displaced(scene), LATE + b'{"torn":')
    assert states(scene.recover()) == [State.ORPHANED]
    assert scene.content == EDITED + LATE
    assert_orphan(scene, b'{"torn":', "never finished")
    assert states(scene.recover(61)) == [State.FINISHED]


def test_a_last_line_waits_for_whoever_may_finish_it(scene: Scene) -> None:
    scene.commit()
    with displaced(scene).open("ab", buffering=0) as file:
        file.write(LATE[:10])
        assert states(scene.recover(61)) == [State.WATCHED]
        file.write(LATE[10:])
    assert states(scene.recover(61)) == [State.FINISHED]
    assert scene.content == EDITED + LATE


# Rule (f): what belongs to a living process.


def test_a_record_whose_lock_is_held_is_not_touched(scene: Scene) -> None:
    scene.commit()
    append(displaced(scene), LATE)
    scene.own_lock_held = True
    assert states(scene.recover(61)) == [State.BUSY]
    assert scene.content == EDITED
    assert scene.records()


# Displaced files that are no longer what was displaced.


def test_a_displaced_file_that_was_rewritten_returns(scene: Scene) -> None:
    """Somebody opened the session before the exchange, we died, and then it was rewritten."""
    crash(scene, "exchanged")
    other = HEADER + NEXT
    displaced(scene).write_bytes(other)
    assert states(scene.recover()) == [State.PUT_BACK]
    assert scene.content == other
    assert displaced(scene).read_bytes() == EDITED
    assert states(scene.recover(61)) == [State.FINISHED]
    assert scene.content == other


@pytest.mark.parametrize(
    ("last", "then"),
    [
        (bytes(512), State.FINISHED),  # its successor has what had not reached the disk
        (b"of another file" * 30, State.ORPHANED),  # nobody knows what that is
    ],
)
def test_a_displaced_file_that_a_power_cut_spoilt_does_not_replace_its_successor(
    scene: Scene, last: bytes, then: State
) -> None:
    """Nobody has written to it since; only its last blocks are not what they were."""
    scene.commit()
    spoilt = SESSION[: -len(last)] + last
    written = displaced(scene).stat()
    displaced(scene).write_bytes(spoilt)
    os.utime(displaced(scene), ns=(written.st_atime_ns, written.st_mtime_ns))
    assert states(scene.recover()) == [State.WATCHED]
    assert scene.content == EDITED
    assert states(scene.recover(61)) == [then]
    assert scene.content == EDITED
    assert bool(list_orphans(scene.layout)) is (then is State.ORPHANED)


def test_a_new_file_that_could_not_take_the_growth_counts_as_untouched(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full, and we died; then somebody rewrote the session that had come out."""
    write, end = os.write, crash_at("truncated")

    def short_write(fd: int, data: bytes) -> int:
        if data != LATE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[:30])

    def after_step(name: str) -> None:
        if name == "verified":
            scene.append_blocked(LATE)
        if name == "noted":
            monkeypatch.setattr(os, "write", short_write)
        end(name)

    with pytest.raises(Crash):
        scene.commit(after_step=after_step)
    monkeypatch.undo()
    scene.finish_children()
    assert scene.content == EDITED
    other = HEADER + NEXT
    displaced(scene).write_bytes(other)
    assert states(scene.recover()) == [State.PUT_BACK]
    assert scene.content == other


def test_a_rewritten_file_does_not_take_late_lines_with_it(scene: Scene) -> None:
    """Late lines were put before others', which displaced a file; then that one is rewritten."""
    scene.commit()
    first = displaced(scene)
    append(scene.path, NEXT)
    append(first, LATE)
    scene.recover(5)
    assert scene.content == EDITED + LATE + NEXT
    [second] = [path for path in scene.in_flight() if path != first]
    other = HEADER + LATER
    second.write_bytes(other)
    os.utime(second, (time.time() + 7, time.time() + 7))
    scene.recover(10)
    assert scene.content == EDITED + LATE + NEXT
    scene.recover(80)
    assert scene.content == EDITED + LATE + NEXT
    assert_orphan(scene, other, "rewrote")
    assert scene.in_flight() == scene.records() == []


@pytest.mark.parametrize("size", [len(HEADER), len(SESSION), len(SESSION) + 50])
def test_a_rewritten_file_whose_successor_went_on_becomes_an_orphan(
    scene: Scene, size: int
) -> None:
    scene.commit()
    append(scene.path, NEXT)
    other = (HEADER + b"y" * len(SESSION) * 2)[:size]
    displaced(scene).write_bytes(other)
    assert states(scene.recover()) == [State.WATCHED]
    assert states(scene.recover(61)) == [State.ORPHANED]
    assert scene.content == EDITED + NEXT
    assert_orphan(scene, other, "rewrote")
    assert scene.in_flight() == scene.records() == []


def put_stranger_in_flight(scene: Scene, data: bytes) -> None:
    """As if it had been put at the path just before the exchange, and we had died just after."""
    scene.commit()
    stranger = scene.root / "stranger"
    stranger.write_bytes(data)
    stranger.rename(displaced(scene))


def test_a_stranger_that_came_out_goes_back(scene: Scene) -> None:
    put_stranger_in_flight(scene, HEADER + NEXT)
    assert states(scene.recover()) == [State.PUT_BACK]
    assert scene.content == HEADER + NEXT
    assert displaced(scene).read_bytes() == EDITED
    assert states(scene.recover(61)) == [State.FINISHED]
    assert scene.content == HEADER + NEXT


def test_a_stranger_whose_place_is_taken_is_kept(scene: Scene) -> None:
    put_stranger_in_flight(scene, b"not ours\n")
    append(scene.path, NEXT)
    assert states(scene.recover()) == [State.WATCHED]
    assert states(scene.recover(61)) == [State.ORPHANED]
    assert_orphan(scene, b"not ours\n", "neither")
    assert scene.content == EDITED + NEXT


def test_nothing_is_in_flight_of_a_commit_that_gave_up_early(scene: Scene) -> None:
    holder = hold_open(scene)
    assert scene.commit().gave_up is GiveUp.IS_OPEN
    let_go(holder)
    assert scene.recover(61) == []
