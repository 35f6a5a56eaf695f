"""Children that are killed while they commit. Forked by one small server: no start-up to wait for.

`python -m tests.sessions.commit.children` reads one order per line of JSON and answers with one
line, once the child and all writers around it have ended.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from bsd.core import filesystem
from bsd.sessions.commit.exchange import Step
from tests.sessions.commit.disk_calls import DiskCalls
from tests.sessions.commit.led_writers import Stage
from tests.sessions.commit.ledger import Ledger
from tests.sessions.commit.power import Recorder
from tests.sessions.commit.worlds import WORLDS
from tests.waiting import DEADLINE_SECONDS

_DEADLINE_SECONDS = 1.5 * DEADLINE_SECONDS  # longer than a child waits


@dataclass(frozen=True)
class Order:
    """The commit that a child makes, and the step at which it dies."""

    root: str
    ledger: str
    act: str = "commit"  # commit | recover | extract | restore
    world: str = "quiet"
    die_at_call: int = 0
    when: str = "after"  # before | after | torn
    die_after_step: int = 0  # the how-manieth step
    die_after: str = ""  # the first step of this name
    record: str = ""  # a file for the record of everything that reaches the disk
    largest_file: int = 0  # bytes; a write beyond is cut short, as on a full disk
    seconds_later: float = 0.0
    as_a_whole: bool = False  # it syncs the file system, as it does for many files


@dataclass(frozen=True)
class Report:
    """The report of a child: how it ended, and its output."""

    killed: bool
    ended: str = ""  # committed, the reason of giving up, states of recovery, or an error
    steps: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    error: str = ""


class Children:
    """The server as the tests see it."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.sessions.commit.children"],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def run(self, order: Order) -> Report:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
        self._server.stdin.flush()
        return Report(**json.loads(self._server.stdout.readline()))


def serve() -> None:
    for text in sys.stdin.buffer:
        sys.stdout.buffer.write(json.dumps(asdict(_in_child(Order(**json.loads(text))))).encode())
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()


def _in_child(order: Order) -> Report:
    answer, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(answer)
        code = 1
        try:
            report = _obey(order)
            os.write(theirs, json.dumps(asdict(report)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(theirs)
    try:
        text = _read_all(answer)  # ends when the child and all its writers have
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        text = json.dumps(asdict(Report(False, error=f"hangs: {order}"))).encode()
    finally:
        os.close(answer)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and not text:
        return Report(killed=os.WTERMSIG(status) == signal.SIGKILL)
    return Report(**json.loads(text)) if text else Report(False, error="the child failed")


def _read_all(fd: int) -> bytes:
    parts: list[bytes] = []
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while True:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        if not (part := os.read(fd, 1 << 16)):
            return b"".join(parts)
        parts.append(part)


def _obey(order: Order) -> Report:
    root = Path(order.root)
    path = root / "agents/main/sessions/chat.jsonl"
    stage = Stage(root, path, Ledger(Path(order.ledger)), path.read_bytes())
    world = WORLDS[order.world]
    for number, script in enumerate(world.scripts):
        stage.begin(number, script)
    recorder = Recorder(root, stage.ledger, Path(order.record)) if order.record else None
    disk = DiskCalls(order.die_at_call, order.when, recorder)
    steps: list[str] = []
    done: set[str] = set()

    def after_step(step: str) -> None:
        steps.append(step)
        if recorder:
            recorder.note_others()
        if step in world.at and step not in done:
            done.add(step)
            with disk.paused():
                world.at[step](stage)
        if len(steps) == order.die_after_step or step == order.die_after:
            os.kill(os.getpid(), signal.SIGKILL)

    if order.as_a_whole:
        filesystem._MANY = 1
    disk.install()
    if order.largest_file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order.largest_file, order.largest_file))
    try:
        ended, error = _act(order, root, after_step), ""
    except Exception:  # noqa: BLE001 whatever it is, the test wants to read it
        ended, error = "error", traceback.format_exc()
    return Report(False, ended, steps, disk.trace, disk.unseen, error)


def _act(order: Order, root: Path, after_step: Step) -> str:
    from tests.sessions.commit import committing

    if order.act == "commit":
        outcome = committing.commit_extraction(root, after_step)
        return str(outcome.gave_up or "committed")
    if order.act == "recover":
        found = committing.recover_all(root, order.seconds_later, after_step)
        return ", ".join(f"{one.state} {one.detail}".strip() for one in found)
    return committing.operate(order.act, root, after_step)


if __name__ == "__main__":
    import tests.sessions.commit.committing  # noqa: F401 loaded once, not in every child

    gc.disable()  # children live for milliseconds
    gc.freeze()
    serve()
