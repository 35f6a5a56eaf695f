"""The rules of recovery in turn; a crash is a hook that ends the commit where it stands."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.core.errors import Conflict
from bsd.sessions.commit import late as late_module
from bsd.sessions.commit.displaced import Access, State
from bsd.sessions.commit.exchange import GiveUp
from bsd.sessions.commit.late import list_orphans
from bsd.sessions.commit.record import read_record
from bsd.sessions.commit.recovery import recover
from tests.sessions.commit.crashing import (
    LATE,
    LATER,
    NEXT,
    Crash,
    append,
    assert_orphan,
    crash,
    crash_at,
    displaced,
    states,
)
from tests.sessions.commit.scene import (
    EDITED,
    HEADER,
    SESSION,
    Scene,
    hold_open,
    let_go,
)
from tests.sessions.commit.test_commit import STEPS

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
    access = replace(Access.to(scene.inflight.layout), still_idle=lambda *_: None)
    assert states(recover(scene.inflight, access)) == [State.WATCHED]
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


# Rule (f): files of a living process.


def test_a_record_whose_lock_is_held_is_not_touched(scene: Scene) -> None:
    scene.commit()
    append(displaced(scene), LATE)
    scene.own_lock_held = True
    assert states(scene.recover(61)) == [State.BUSY]
    assert scene.content == EDITED
    assert scene.records()


# Displaced files whose content has changed since.


def test_a_displaced_file_that_was_rewritten_returns(scene: Scene) -> None:
    """A program opened the session before the exchange, bsd died, and then the session was
    rewritten.
    """
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
        (bytes(512), State.FINISHED),  # its successor holds the bytes that had not reached the disk
        (b"of another file" * 30, State.ORPHANED),  # bytes of unknown origin
    ],
)
def test_a_displaced_file_that_a_power_cut_spoilt_does_not_replace_its_successor(
    scene: Scene, last: bytes, then: State
) -> None:
    """No program has written to it since; only its last blocks have changed."""
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
    """The disk was full, and bsd died; then a program rewrote the session that had come out."""
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
    """Late lines were placed before other lines, which displaced a file; then that file is
    rewritten.
    """
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
    """As if it had been put at the path just before the exchange, and bsd had died just after."""
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
