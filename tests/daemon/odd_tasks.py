"""Tasks that tests give to children; a child loads this module by its name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from bsd.core.layout import SessionName
from bsd.core.leases import open_plain, take_lease
from bsd.daemon.child import Child
from bsd.daemon.tasks import look_into
from bsd.planning.result import SessionResult
from bsd.sessions.commit import protocol
from bsd.sessions.commit.exchange import Exchange, Step
from tests.waiting import wait_for


def pid(_: Child) -> int:
    return os.getpid()


def give(_: Child, what: Any) -> Any:
    return what


def fail(_: Child, error: BaseException) -> None:
    raise error


def die(_: Child, number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def die_while_sending(child: Child) -> None:
    """Send the head of a message of 100 bytes, and no more."""
    os.write(child._parent.fileno(), (100).to_bytes(4, "big"))
    os._exit(9)


class Unreadable:
    """An argument that no child can read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


def take_memory(_: Child, size: int) -> int:
    return len(bytearray(size))


def keep_recent(child: Child) -> int:
    return child.config.current.keep_recent


def hang(_: Child, seconds: float) -> None:
    time.sleep(seconds)


def hang_with_lease(_: Child, path: str, seconds: float) -> bool:
    descriptor = open_plain(path, os.O_RDWR)
    try:
        leased = take_lease(descriptor)
        time.sleep(seconds)
    finally:
        os.close(descriptor)
    return leased


def work_until_stopped(child: Child) -> None:
    while True:
        child.progress(0)
        time.sleep(0.001)


def tell_and_ask(child: Child) -> Any:
    child.say("told", 1)
    return child.ask("asked", 2)


def extract(child: Child, name: SessionName) -> SessionResult | None:
    return look_into(child, name, waited=0.0, urgent=True)


def die_at(child: Child, name: SessionName, step: str) -> None:
    """Extract, and be killed after a step of the exchange."""
    _with_steps(lambda now: os.kill(os.getpid(), signal.SIGKILL) if now == step else None)
    extract(child, name)


def die_among(child: Child, several: list[SessionName], last: SessionName) -> None:
    """Extract the sessions in turn; kill this process when the last file has been exchanged."""
    for name in several:
        child.begin()
        if name == last:
            die_at(child, name, "exchanged")
        extract(child, name)


def pause_at(child: Child, name: SessionName, step: str, go_on: Path) -> SessionResult | None:
    """Extract, and wait for a file after a step of the exchange."""

    def pause(now: str) -> None:
        if now == step:
            go_on.with_suffix(".there").touch()
            wait_for(go_on.exists)

    _with_steps(pause)
    return extract(child, name)


def _with_steps(after: Step) -> None:
    """Call a function after each step of all exchanges in this process."""

    def stepping(*files: Any, **how: Any) -> Exchange:
        return Exchange(*files, **{**how, "after_step": after})

    vars(protocol)["Exchange"] = stepping


def whose_commit(child: Child, name: SessionName) -> bool:
    """Whether this child knows of a commit that another made."""
    return child.in_flight.own.hand_over(name)[1] is not None


def ask(child: Child) -> Any:
    """Return the daemon's answer."""
    return child.ask("question")
