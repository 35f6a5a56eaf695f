"""Changes by other processes between the steps of an exchange, and the fate of their lines."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bsd.core.errors import Unavailable
from bsd.sessions.commit import exchange
from bsd.sessions.commit.displaced import State
from bsd.sessions.commit.exchange import GiveUp
from bsd.sessions.commit.protocol import CommitOutcome
from tests.needs import require_linux, require_node
from tests.refusing import raising
from tests.sessions.commit.scene import (
    EDITED,
    HEADER,
    SESSION,
    SHORT,
    Scene,
    let_go,
    line,
    once_at,
    somebody_is_blocked_on,
)
from tests.waiting import wait_for

LATE = line(90)
LATER = line(91)


@pytest.fixture(autouse=True)
def _linux() -> None:
    require_linux()


def commit_while(scene: Scene, step: str, action: Callable[[], object]) -> CommitOutcome:
    outcome = scene.commit(after_step=once_at(step, action))
    scene.finish_children()
    return outcome


# Appenders.


@pytest.mark.parametrize("step", ["leased_old", "leased_new"])
def test_who_waits_before_the_exchange_goes_first(scene: Scene, step: str) -> None:
    outcome = commit_while(scene, step, lambda: scene.append_blocked(LATE))
    assert outcome.gave_up is GiveUp.IS_OPEN
    assert scene.content == SESSION + LATE
    assert scene.records() == []


@pytest.mark.parametrize("ending", [b"", b"\n", b'{"torn":'])
def test_growth_of_the_old_file_is_drained_byte_for_byte(scene: Scene, ending: bytes) -> None:
    growth = LATE + ending
    outcome = commit_while(scene, "verified", lambda: scene.append_blocked(growth))
    assert outcome.committed
    assert scene.content == EDITED + growth
    assert outcome.drained_bytes == len(growth)
    assert outcome.drained_lines == 1 + bool(ending)
    assert outcome.bytes_written == len(EDITED + growth)
    assert outcome.identity is not None
    assert outcome.identity.size == len(EDITED + growth)


@pytest.mark.parametrize("step", ["exchanged", "draining", "drained"])
def test_who_opens_the_new_file_writes_into_it(scene: Scene, step: str) -> None:
    outcome = commit_while(scene, step, lambda: scene.append_blocked(LATE))
    assert outcome.committed
    assert scene.content == EDITED + LATE
    assert outcome.drained_bytes == 0


def test_drained_lines_come_before_those_that_waited_for_the_new_file(scene: Scene) -> None:
    def both(step: str) -> None:
        if step == "verified":
            scene.append_blocked(LATE)
        if step == "exchanged":
            scene.append_blocked(LATER)

    assert scene.commit(after_step=both).committed
    scene.finish_children()
    assert scene.content == EDITED + LATE + LATER


def test_a_session_without_a_last_line_end_grows_as_if_we_were_not_there(scene: Scene) -> None:
    scene.write(SESSION[:-1])
    outcome = commit_while(scene, "verified", lambda: scene.append_blocked(b"\n" + LATE))
    assert outcome.committed
    assert scene.content == EDITED + LATE


# Holders: the exchange is undone.


@pytest.mark.usefixtures("holders_exceed_the_limit")
def test_somebody_who_keeps_the_old_file_gets_it_back(scene: Scene) -> None:
    holders = []
    outcome = scene.commit(
        after_step=once_at("verified", lambda: holders.append(scene.hold_blocked(LATE)))
    )
    assert outcome.gave_up is GiveUp.DRAIN_TIMEOUT
    assert outcome.bytes_written == len(EDITED), "it was written in vain"
    let_go(holders[0], LATER)
    assert scene.content == SESSION + LATE + LATER
    assert [file.read_bytes() for file in scene.in_flight()] == [EDITED]
    assert [one.state for one in scene.recover(61)] == [State.FINISHED]
    assert scene.content == SESSION + LATE + LATER


@pytest.mark.usefixtures("holders_exceed_the_limit")
def test_lines_written_to_the_new_file_return_with_the_old_one(scene: Scene) -> None:
    """A writer's first line finds the new file, its second the old file: both in order."""
    holders = []
    two_lines = "import sys\nfor text in sys.argv[2:]: open(sys.argv[1], 'ab').write(text.encode())"

    def both(step: str) -> None:
        if step == "verified":
            holders.append(scene.hold_blocked(b""))
        if step == "exchanged":
            new = scene.path.stat().st_ino
            scene.start(two_lines, LATE.decode(), LATER.decode())
            wait_for(lambda: somebody_is_blocked_on(new), "the appender waits for the new file")

    outcome = scene.commit(after_step=both)
    assert outcome.gave_up is GiveUp.DRAIN_TIMEOUT
    let_go(holders[0])
    scene.finish_children()
    assert scene.content == SESSION + LATE + LATER
    assert {one.state for one in scene.recover()} <= {State.WATCHED}
    assert {one.state for one in scene.recover(61)} == {State.FINISHED}
    assert scene.content == SESSION + LATE + LATER


def test_an_old_file_rewritten_meanwhile_is_put_back(scene: Scene) -> None:
    other = HEADER + line(77)
    outcome = commit_while(
        scene, "verified", lambda: _rewrite_blocked(scene, scene.path.stat().st_ino, other)
    )
    assert outcome.gave_up is GiveUp.CHANGED
    assert scene.content == other
    assert [one.state for one in scene.recover(61)] == [State.FINISHED]
    assert scene.content == other


@pytest.mark.parametrize("where", [len(HEADER) + 1, SESSION.index(line(3)) + 5, len(SESSION) - 9])
def test_a_single_byte_rewritten_meanwhile_is_noticed(scene: Scene, where: int) -> None:
    """Below an edit as well as beside it, also when lines of other writers follow."""
    code = (
        "import sys, os; fd = os.open(sys.argv[1], os.O_RDWR)"
        "; os.pwrite(fd, b'#', int(sys.argv[2])); os.lseek(fd, 0, 2)"
        "; os.write(fd, sys.argv[3].encode())"
    )

    def poke() -> None:
        scene.start(code, str(where), LATE.decode())
        inode = scene.path.stat().st_ino
        wait_for(lambda: somebody_is_blocked_on(inode), "the writer waits")

    outcome = commit_while(scene, "verified", poke)
    assert outcome.gave_up is GiveUp.CHANGED
    assert scene.content == SESSION[:where] + b"#" + SESSION[where + 1 :] + LATE


def _rewrite_blocked(scene: Scene, inode: int, data: bytes) -> None:
    scene.start("import sys; open(sys.argv[1], 'wb').write(sys.argv[2].encode())", data.decode())
    wait_for(lambda: somebody_is_blocked_on(inode), "the writer waits")


@pytest.mark.usefixtures("holders_exceed_the_limit")
def test_the_new_file_rewritten_while_the_old_one_is_kept_stays(scene: Scene) -> None:
    """A program that rewrote the session after the exchange has the last word."""
    holders = []
    other = HEADER + line(77)

    def both(step: str) -> None:
        if step == "verified":
            holders.append(scene.hold_blocked(LATE))
        if step == "exchanged":
            _rewrite_blocked(scene, scene.path.stat().st_ino, other)

    assert scene.commit(after_step=both).gave_up is GiveUp.CHANGED
    let_go(holders[0])
    scene.finish_children()
    assert scene.content == other


# Names that change.


def test_a_session_replaced_just_before_the_exchange_stays(scene: Scene) -> None:
    other = HEADER + line(77)

    def replace() -> None:
        (scene.root / "other").write_bytes(other)
        (scene.root / "other").rename(scene.path)

    outcome = commit_while(scene, "verified", replace)
    assert outcome.gave_up is GiveUp.REPLACED
    assert scene.content == other
    assert [one.state for one in scene.recover(61)] == [State.FINISHED]
    assert scene.content == other


@pytest.mark.parametrize("name", ["s1.jsonl.reset.1", None])
def test_a_session_renamed_or_deleted_just_before_the_exchange(
    scene: Scene, name: str | None
) -> None:
    outcome = commit_while(scene, "verified", lambda: _remove(scene, name))
    assert outcome.gave_up is GiveUp.GONE
    assert not scene.path.exists()
    assert scene.records() == scene.in_flight() == []
    if name:
        assert scene.path.with_name(name).read_bytes() == SESSION


@pytest.mark.parametrize("name", ["s1.jsonl.reset.1", None])
@pytest.mark.parametrize("step", ["exchanged", "drained", "released"])
def test_a_session_renamed_or_deleted_after_the_exchange(
    scene: Scene, step: str, name: str | None
) -> None:
    outcome = commit_while(scene, step, lambda: _remove(scene, name))
    assert outcome.committed
    assert not scene.path.exists()
    if name:
        assert scene.path.with_name(name).read_bytes() == EDITED
    assert [one.state for one in scene.recover(61)] == [State.FINISHED]
    assert not scene.path.exists()


def _remove(scene: Scene, name: str | None) -> None:
    if name:
        scene.path.rename(scene.path.with_name(name))
    else:
        scene.path.unlink()


@pytest.mark.usefixtures("holders_exceed_the_limit")
def test_a_session_deleted_during_the_undo_stays_deleted(scene: Scene) -> None:
    holders = []

    def both(step: str) -> None:
        if step == "verified":
            holders.append(scene.hold_blocked(LATE))
        if step == "draining":
            scene.path.unlink()

    assert scene.commit(after_step=both).gave_up is GiveUp.DRAIN_TIMEOUT
    let_go(holders[0])
    assert not scene.path.exists()
    assert [file.read_bytes() for file in scene.in_flight()] == [SESSION + LATE]


@pytest.mark.usefixtures("holders_exceed_the_limit")
def test_a_session_replaced_during_the_undo_stays_replaced(scene: Scene) -> None:
    holders = []
    other = HEADER + line(77)

    def both(step: str) -> None:
        if step == "verified":
            holders.append(scene.hold_blocked(LATE))
        if step == "draining":
            (scene.root / "other").write_bytes(other)
            (scene.root / "other").rename(scene.path)

    assert scene.commit(after_step=both).gave_up is GiveUp.DRAIN_TIMEOUT
    let_go(holders[0])
    assert scene.content == other
    assert [file.read_bytes() for file in scene.in_flight()] == [SESSION + LATE]


# The disk fills up when the growth has to be carried.


@pytest.mark.parametrize("room", [0, 30])
def test_a_full_disk_while_draining_undoes_everything(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    write = os.write

    def short_write(fd: int, data: bytes) -> int:
        if data != LATE or room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[:room])

    def fill_disk() -> None:
        monkeypatch.setattr(os, "write", short_write)

    def both(step: str) -> None:
        if step == "verified":
            scene.append_blocked(LATE)
        if step == "noted":
            fill_disk()

    with pytest.raises(Unavailable, match="No space"):
        scene.commit(after_step=both)
    monkeypatch.undo()
    scene.finish_children()
    assert scene.content == SESSION + LATE
    assert [file.read_bytes() for file in scene.in_flight()] == [EDITED]
    assert [one.state for one in scene.recover(61)] == [State.FINISHED]
    assert scene.content == SESSION + LATE


def _by_our_own_descriptor(path: Path, data: bytes) -> None:
    """Write as a process can that the kernel admitted after it took bsd's lease away."""
    inode = path.stat().st_ino
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.fstat(int(name)).st_ino == inode:
                os.write(int(name), data)
                return


def test_growth_is_not_put_behind_what_came_while_we_were_stopped(scene: Scene) -> None:
    """The kernel gives a lease 45 s; a machine can sleep for longer."""

    def after_step(step: str) -> None:
        if step == "verified":
            scene.append_blocked(LATE)
        if step == "drained":
            _by_our_own_descriptor(scene.path, LATER)

    assert scene.commit(after_step=after_step).committed
    scene.finish_children()
    assert scene.content == EDITED + LATER
    scene.recover(5)
    assert scene.content == EDITED + LATE + LATER


def test_growth_is_durable_in_the_new_file_before_it_counts_as_carried(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old file, which has the line too, is deleted after a minute."""
    synced: list[tuple[int, int]] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        now = os.fstat(descriptor)
        if not any(b'"carried"' in record.read_bytes() for record in scene.records()):
            synced.append((now.st_ino, now.st_size))

    def after_step(step: str) -> None:
        if step == "verified":
            scene.append_blocked(LATE)

    monkeypatch.setattr(os, "fsync", noted)
    assert scene.commit(after_step=after_step).committed
    scene.finish_children()
    now = scene.path.stat()
    assert now.st_size == len(EDITED + LATE)
    assert (now.st_ino, now.st_size) in synced


# The critical section.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGALRM])
def test_signals_wait_until_the_exchange_is_over(scene: Scene, number: signal.Signals) -> None:
    steps: list[str] = []

    def after_step(step: str) -> None:
        steps.append(step)
        if step == "exchanged":
            # To this thread: under a test runner there may be another thread that does not block
            # the signal.
            signal.pthread_kill(threading.get_ident(), number)

    # The process that started the tests may have had it ignored.
    before = signal.signal(number, raising(KeyboardInterrupt))
    try:
        with pytest.raises(KeyboardInterrupt):
            scene.commit(after_step=after_step)
    finally:
        signal.signal(number, before)
    assert steps[-1] == "released"
    assert scene.content == EDITED
    assert [file.read_bytes() for file in scene.in_flight()] == [SESSION]


def test_no_lease_and_no_descriptor_is_left_behind(scene: Scene) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    assert scene.commit().committed
    assert scene.commit().gave_up is GiveUp.TOO_YOUNG
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert str(scene.path.stat().st_ino) not in Path("/proc/locks").read_text(encoding="ascii")


def test_what_the_undo_could_not_wait_for_is_carried_by_recovery(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writers keep their files; the line in the new file comes before the later lines."""
    monkeypatch.setattr(exchange, "_DRAIN_SECONDS", 0.0)
    monkeypatch.setattr(exchange, "_PUT_BACK_SECONDS", 0.0)
    holders = []

    def both(step: str) -> None:
        if step == "verified":
            holders.append(scene.hold_blocked(LATE))
        if step == "exchanged":
            holders.append(scene.hold_blocked(LATER))

    assert scene.commit(after_step=both).gave_up is GiveUp.DRAIN_TIMEOUT
    for holder in holders:
        let_go(holder)
    assert scene.content == SESSION + LATE
    assert [one.state for one in scene.recover(10)] == [State.CARRIED]
    assert scene.content == SESSION + LATER + LATE


# The seven scenarios of the first sketches, in the gateway's own language.

_REWRITTEN = '{"type":"session","REWRITTEN":1}\\n'
_NODE = [
    ("verified", f"fs.writeFileSync(F,'{_REWRITTEN}')", GiveUp.CHANGED),
    ("exchanged", f"fs.writeFileSync(F,'{_REWRITTEN}')", None),
    ("verified", "fs.appendFileSync(F,'{\"LATE\":1}\\n')", None),
    ("exchanged", "fs.appendFileSync(F,'{\"LATE\":1}\\n')", None),
    (
        "verified",
        (
            "const f=fs.openSync(F,'a');fs.writeSync(f,'{\"LATE\":1}\\n');"
            "setTimeout(()=>fs.writeSync(f,'{\"LATE\":2}\\n'),300)"
        ),
        GiveUp.DRAIN_TIMEOUT,
    ),
    ("verified", "fs.renameSync(F,F+'.reset')", GiveUp.GONE),
    (
        "verified",
        f"fs.writeFileSync(F+'.t','{_REWRITTEN}');fs.renameSync(F+'.t',F)",
        GiveUp.REPLACED,
    ),
]


@pytest.mark.parametrize(("step", "program", "gave_up"), _NODE)
def test_what_the_gateway_may_do_meanwhile(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    program: str,
    gave_up: GiveUp | None,
) -> None:
    if gave_up is GiveUp.DRAIN_TIMEOUT:
        monkeypatch.setattr(exchange, "_DRAIN_SECONDS", 0.05)
    command = [require_node(), "-e", f"const fs=require('fs'),F={str(scene.path)!r};{program}"]

    def act() -> None:
        if "rename" in program:
            scene.start_and_wait(*command)
        else:
            scene.start_blocked(scene.path.stat().st_ino, *command)

    outcome = commit_while(scene, step, act)
    assert outcome.gave_up is gave_up
    before = EDITED if gave_up is None else SESSION
    late = [f'{{"LATE":{n}}}\n'.encode() for n in (1, 2) if f'"LATE":{n}' in program]
    if gave_up is GiveUp.GONE:
        assert not scene.path.exists()
        assert scene.path.with_name("s1.jsonl.reset").read_bytes() == SESSION
    elif "REWRITTEN" in program:
        assert scene.content == b'{"type":"session","REWRITTEN":1}\n'
    else:
        assert scene.content == before + b"".join(late)
    assert SHORT in EDITED
    if scene.records():
        assert [one.state for one in scene.recover(61)] == [State.FINISHED]
