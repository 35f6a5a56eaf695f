"""A session in a root of its own, an editor that changes it, and processes that interfere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from bsd.core.errors import Busy
from bsd.core.filesystem import Strength, strength
from bsd.core.layout import Layout, SessionName
from bsd.sessions.commit.displaced import Access, Recovered
from bsd.sessions.commit.exchange import Step, no_step
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.protocol import CommitOutcome, commit
from bsd.sessions.commit.recovery import recover
from bsd.transcripts.agents.openclaw.home import RootAgent
from bsd.transcripts.change import Change, Edit, Identity
from tests.waiting import DEADLINE_SECONDS, wait_for

NAME = SessionName("main", "s1")
HEADER = b'{"type":"session","version":3,"id":"s1"}\n'
WEAK = Strength("weak", "overlayfs", "test")


def line(number: int, filler: str = "x" * 200) -> bytes:
    """An entry as the gateway would append it."""
    return f'{{"id":"m{number}","output":"{filler}"}}\n'.encode()


SESSION = HEADER + b"".join(line(number) for number in range(20))
# The edit of most tests: entry 3 becomes short.
SHORT = line(3, "[[x]]")
EDITED = SESSION.replace(line(3), SHORT)


def edit_of(old: bytes, new: bytes, within: bytes = SESSION) -> Edit:
    """Replace the only occurrence of `old`."""
    assert within.count(old) == 1
    return Edit(within.index(old), len(old), new)


SHORTEN = edit_of(line(3), SHORT)


def once_at(step: str, action: Callable[[], object]) -> Step:
    """A hook that acts the first time `step` has been taken."""
    pending = [action]

    def after_step(name: str) -> None:
        if name == step and pending:
            pending.pop()()

    return after_step


def somebody_is_blocked_on(inode: int) -> bool:
    """Whether opening this file waits for a lease."""
    leases = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return any("BREAKING" in one and f":{inode} " in one for one in leases)


class KeepsMtime(RootAgent):
    """A program that must not take an edit for news."""

    __slots__ = ()
    keeps_mtime = True


@dataclass
class Scene:
    """A session in `root`, and the parts that a commit needs."""

    root: Path
    strength: Callable[[Path], Strength] = strength
    own_lock_held: bool = False
    session_lock_held: bool = False
    idle: str | None = None
    program: type[RootAgent] = RootAgent
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.layout = Layout(self.root)
        self.path = self.root / "agents" / "main" / "sessions" / "s1.jsonl"
        self.inflight = InFlight(self.layout)
        if not self.path.exists():
            self.path.parent.mkdir(parents=True)
            self.write(SESSION)

    def write(self, data: bytes, age_seconds: float = 10.0) -> None:
        """Give the session the content that the planner sees."""
        self.path.write_bytes(data)
        self.age(age_seconds)

    def age(self, seconds: float = 10.0) -> None:
        """Date the session's last write `seconds` ago."""
        then = time.time_ns() - int(seconds * 10**9)
        os.utime(self.path, ns=(then, then))

    @property
    def content(self) -> bytes:
        """Return the content of the session's path."""
        return self.path.read_bytes()

    def change(self, *edits: Edit) -> Change:
        """Plan these edits now."""
        planned_at = time.time_ns()
        return Change(self.path, Identity.of(self.path.lstat()), edits, NAME, planned_at)

    def commit(
        self,
        *edits: Edit,
        change: Change | None = None,
        after_step: Step = no_step,
        keep: Callable[[], None] = lambda: None,
    ) -> CommitOutcome:
        """Plan and commit edits (by default, entry 3 becomes short)."""
        return commit(
            change or self.change(*(edits or (SHORTEN,))),
            inflight=self.inflight,
            session_lock=self.session_lock(),
            still_idle=lambda: self.idle,
            keep=keep,
            after_step=after_step,
            strength=self.strength,
        )

    def session_lock(self) -> AbstractContextManager[object]:
        """The parts of the gateway's lock that a commit uses."""
        return _Lock(held=self.session_lock_held)

    def recover(self, after_seconds: float = 0.0, after_step: Step = no_step) -> list[Recovered]:
        """Recover with a clock that is `after_seconds` ahead."""
        return recover(
            self.inflight,
            Access(
                own_lock=lambda _: _Lock(held=self.own_lock_held),
                session_lock=lambda _name, _path: self.session_lock(),
                still_idle=lambda _name, _path: self.idle,
                program=lambda name: self.program(self.layout, name.agent),
            ),
            now_ns=lambda: time.time_ns() + int(after_seconds * 10**9),
            after_step=after_step,
            strength=self.strength,
        )

    def in_flight(self) -> list[Path]:
        """The files of commits in flight, without records."""
        return sorted(self.layout.inflight.glob("*.file"))

    def records(self) -> list[Path]:
        """The records of commits in flight."""
        return sorted(self.layout.inflight.glob("*.record"))

    def start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a Python program in a process of its own."""
        command = [sys.executable, "-I", "-S", "-c", program, str(self.path), *arguments]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.children.append(child)
        return child

    def start_blocked(self, inode: int, *command: str) -> None:
        """Start a program and wait until it waits for the lease on `inode`."""
        self.children.append(subprocess.Popen(command))
        wait_for(lambda: somebody_is_blocked_on(inode), f"{command} waits for the lease")

    def start_and_wait(self, *command: str) -> None:
        """Run a program that must not wait for a lease."""
        subprocess.run(command, check=True, timeout=DEADLINE_SECONDS)

    def append_blocked(self, data: bytes) -> None:
        """Have another process append; it has to wait for a lease on the file at the path."""
        code = "import sys; open(sys.argv[1], 'ab').write(sys.argv[2].encode())"
        self.start_blocked(
            self.path.stat().st_ino,
            *(sys.executable, "-I", "-S", "-c", code, str(self.path), data.decode()),
        )

    def hold_blocked(self, first: bytes) -> subprocess.Popen[bytes]:
        """Have another process open the leased session, write, and keep it open until it is told a
        second line.
        """
        child = self.start(_HOLD, first.decode())
        inode = self.path.stat().st_ino
        wait_for(lambda: somebody_is_blocked_on(inode), "the holder waits for the lease")
        return child

    def finish_children(self) -> None:
        """Wait until the other processes are done."""
        for child in self.children:
            child.communicate(timeout=DEADLINE_SECONDS)
            assert child.returncode == 0
        self.children.clear()


_HOLD = """
import sys
file = open(sys.argv[1], "ab", buffering=0)
file.write(sys.argv[2].encode())
print("written", flush=True)
file.write(sys.stdin.buffer.readline())
"""


def hold_open(scene: Scene, first: bytes = b"") -> subprocess.Popen[bytes]:
    """Have another process hold the session open before a lease is taken."""
    child = scene.start(_HOLD, first.decode())
    assert child.stdout is not None
    child.stdout.readline()
    return child


def let_go(child: subprocess.Popen[bytes], last: bytes = b"") -> None:
    """Let a holder write its last line and close."""
    child.communicate(last or b"", timeout=DEADLINE_SECONDS)
    assert child.returncode == 0


class _Lock(nullcontext[None]):
    def __init__(self, *, held: bool) -> None:
        super().__init__()
        self.held = held

    def __enter__(self) -> None:
        if self.held:
            raise Busy("somebody else has it")
