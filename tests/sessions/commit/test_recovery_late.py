"""Rules (b) and (c) of recovery: late bytes are carried once, to the right place, or kept."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bsd.sessions.commit.displaced import State
from bsd.sessions.commit.late import list_orphans
from bsd.transcripts.agents.openclaw.home import RootAgent
from tests.sessions.commit.crashing import (
    LATE,
    LATER,
    NEXT,
    Crash,
    append,
    assert_orphan,
    crash,
    crash_at,
    crash_while_appending,
    displaced,
    states,
)
from tests.sessions.commit.scene import (
    EDITED,
    HEADER,
    SESSION,
    KeepsMtime,
    Scene,
    edit_of,
    hold_open,
    let_go,
    line,
)
from tests.sessions.commit.test_commit import STEPS

# Rule (b): late bytes are carried once, and to the right place.


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
    """A program that continues the newest session does not continue this session because of bsd."""
    scene.program = KeepsMtime if keeps else RootAgent
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
    scene.program = KeepsMtime if keeps else RootAgent
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
    """A recovery placed them there, and died before it could record that."""
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
    """Without it, the session of later lines in the file would be unknown."""
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
    """An undone exchange: the new file is displaced, the old file its target."""
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


# Rule (c): never into another session, never into a new session.


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


def test_keeping_an_orphan_can_crash_too(scene: Scene) -> None:
    scene.commit()
    append(displaced(scene), LATE)
    scene.path.unlink()
    with pytest.raises(Crash):
        scene.recover(after_step=crash_at("orphaned"))
    assert states(scene.recover(61)) == [State.FINISHED]
    assert_orphan(scene, LATE, "no longer there")
