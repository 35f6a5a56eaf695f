"""Other writers during a commit: processes of their own, led by the steps of the commit."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.sessions.commit.ledger import Ledger, line
from tests.waiting import DEADLINE_SECONDS


@dataclass
class Hand:
    """A writer in its own process, driven by the test."""

    writer: str
    path: Path
    ledger: Ledger
    commands: int
    answers: int
    fd: int = -1
    number: int = 0

    def wait(self) -> bool:
        """Report the end of this part; continue when told to, or when the committer has ended."""
        os.write(self.answers, b".")
        return os.read(self.commands, 1) != b""

    def open(self, path: Path | None = None, flags: int = 0) -> None:
        """Open the session as an appender does; block while another process has a lease on it."""
        self.fd = os.open(path or self.path, os.O_WRONLY | os.O_APPEND | flags)

    def write(self, *, durable: bool = False) -> None:
        data = line(self.writer, self.number)
        self.number += 1
        assert os.write(self.fd, data) == len(data)
        if durable:
            os.fsync(self.fd)
        self.ledger.wrote(data, os.fstat(self.fd).st_ino, durable=durable)

    def close(self) -> None:
        os.close(self.fd)

    def append(self, *, durable: bool = False) -> None:
        self.open()
        self.write(durable=durable)
        self.close()


Script = Callable[[Hand], None]


@dataclass
class Writer:
    """A writer as its leader sees it."""

    pid: int
    commands: int
    answers: int

    def go(self) -> None:
        """Let the writer do its next part, and wait until that is done."""
        os.write(self.commands, b"!")
        os.read(self.answers, 1)

    def go_and_block(self, inode: int) -> None:
        """Let the writer do its next part, in which it has to wait for a lease on `inode`."""
        os.write(self.commands, b"!")
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not _is_breaking(inode):
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody waits for inode {inode}")
            time.sleep(0.0005)


@dataclass
class Stage:
    """The parts of a scene that a world can use while a commit runs."""

    root: Path
    path: Path
    ledger: Ledger
    # read beforehand: opening a leased session in this process would wait for this process
    original: bytes
    writers: list[Writer] = field(default_factory=list)

    @property
    def displaced(self) -> Path:
        """The newest file in flight."""
        files = self.root.glob(".brainsurgeon/inflight/*.file")
        return max(files, key=lambda file: file.stat().st_ctime_ns)

    def begin(self, number: int, script: Script) -> None:
        """Start a writer, before any file is open that it should not inherit."""
        commands, their_commands = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            for writer in self.writers:
                os.close(writer.commands)
            os.close(commands[1])
            os.close(their_commands[0])
            name = f"writer{number}"
            hand = Hand(name, self.path, self.ledger, commands[0], their_commands[1])
            os._exit(_perform(hand, script))
        os.close(commands[0])
        os.close(their_commands[1])
        writer = Writer(pid, commands[1], their_commands[0])
        os.read(writer.answers, 1)
        self.writers.append(writer)


def _perform(hand: Hand, script: Script) -> int:
    try:
        if hand.wait():
            script(hand)
    except BrokenPipeError:  # the committer has ended: no more questions come
        return 0
    except Exception as error:  # noqa: BLE001 the oracle will say that nobody should have written this
        hand.ledger.wrote(json.dumps({"id": f"failed-{error!r}"}).encode() + b"\n")
        return 1
    return 0


def _is_breaking(inode: int) -> bool:
    with open("/proc/locks") as locks:
        return any("LEASE" in row and "BREAKING" in row and f":{inode} " in row for row in locks)
