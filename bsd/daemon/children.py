"""The daemon's children: processes that work on sessions, each for one thread at a time.

Whoever has something to be done calls `Children.call` with a task of `child.py`, waits, and gets
its answer or its error, as if it had been done here. A child is started when there is none without
work, and ended when it has had none for a while. One that dies, whatever of, costs one attempt: it
is counted, and what it had in flight is put in order at once, by another.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from io import FileIO
from multiprocessing.connection import Connection
from operator import is_
from pathlib import Path
from typing import Any, TypeVar, cast

import structlog

import bsd
from bsd.core.config_file import ConfigService, Known
from bsd.core.errors import BsdError, TemporaryFailure, os_problem
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.core.logs import terminal_or_service
from bsd.daemon import tasks
from bsd.daemon.child import Order, Reply, Said, Setup, Stopping
from bsd.sessions.commit.inflight import InFlight

_log = structlog.stdlib.get_logger(module="children")

# Between two signs of life: planning tells of every megabyte, but copying and flushing a file of
# many gigabytes is one step.
LONGEST_STEP_SECONDS = 600.0
IDLE_SECONDS = 30.0  # without work, then a child is ended
_START_SECONDS = 60.0
_DEATH_SECONDS = 5.0  # a killed process that hangs in the kernel is waited for later
# Address space, not memory: DESIGN §5 bounds that by 150 MB and three times the longest line. An
# interpreter with all libraries has mapped 60 MB, threads that sync files 8 MB of stack each, and a
# line can be as long as its file; what is given back to the heap cannot always be used again.
_ROOM = 1 << 30
_ROOM_PER_BYTE = 4

# Nothing of the environment, no site: it finds what its parent has found, where that found it.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from bsd.daemon.priority import stand_back; stand_back(background=sys.argv[2] == 'True'); "
    "from bsd.daemon.child import main; main(int(sys.argv[1]))"
)
_LOCKS = Path("/proc/locks")

_A = TypeVar("_A")
Heard = Mapping[str, Callable[..., Any]]


class ChildDied(TemporaryFailure):
    """A child died with something in its hands; what that was is put in order."""


class _Gone(Exception):
    """A child is no more; `begun`: it had something in its hands."""

    def __init__(self, *, begun: bool) -> None:
        self.begun = begun


@dataclass(eq=False)
class _Child:
    process: subprocess.Popen[bytes]
    line: Connection
    background: bool
    since: float  # epoch seconds
    begun: FileIO  # tells of each session that is begun (`child.Setup`)
    sessions: tuple[SessionName, ...] = ()  # that it is asked to look after, in order
    at: int = -1  # which of them was begun last, as far as is known
    session_before: SessionName | None = None
    only_reads: bool = False  # what it does may end anywhere
    idle_since: float = 0.0  # steady seconds
    speaking: threading.Lock = field(default_factory=threading.Lock)
    config: Known | None = None  # what it was told

    @property
    def session(self) -> SessionName | None:
        """What it is at, as far as is known."""
        sessions = self.sessions
        return sessions[max(0, self.at)] if sessions else None

    def look(self) -> None:
        """Learn which session it is at by now."""
        self.at += len(self.begun.read(4096) or b"")


class Children:
    """Thread-safe. `heard` tells of what happens in any of them (`child.Said`)."""

    def __init__(  # noqa: PLR0913 - what a daemon is
        self,
        layout: Layout,
        config: ConfigService,
        *,
        quiet_seconds: float,
        in_band: str | None = None,
        log: Callable[[], tuple[str, str]] = lambda: ("info", "auto"),
        heard: Heard | None = None,
        count: Callable[[str], None] = lambda _: None,
        wake: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        room: int = _ROOM,
        program: str = _PROGRAM,
        longest_step: float = LONGEST_STEP_SECONDS,
    ) -> None:
        self._layout = layout
        self._config = config
        self._given = partial(Setup, layout, quiet_seconds, in_band=in_band)
        self._form = log
        self._heard = heard or {}
        self._count = count
        self._wake = wake
        self._clock = clock
        self._room = room
        self._program = program
        self._longest_step = longest_step
        self._lock = threading.Lock()
        self._stopping = False
        self._idle: list[_Child] = []  # the last one that had work comes last
        self._busy: list[_Child] = []
        self._starting: list[subprocess.Popen[bytes]] = []
        self._dying: list[subprocess.Popen[bytes]] = []
        self._in_flight = InFlight(layout)  # what is remembered of sessions, whichever child it was

    # --- work ---

    def call(
        self,
        task: Callable[..., _A],
        *arguments: Any,
        session: SessionName | None = None,
        several: Mapping[SessionName, int] | None = None,
        background: bool = False,
        only_reads: bool = False,
        heard: Heard | None = None,
    ) -> _A:
        """Have a child do `task(child, *arguments)`; returns its answer, raises its error.

        `session` is what it is about; or `several`, each with its size, which it begins one after
        the other (`Child.begin`): at the end, good or bad, "began" tells which one came last.
        `background`: nobody waits for it, `only_reads`: nothing is lost if it ends anywhere,
        `heard` is told of what happens on the way. Raises ChildDied, Unavailable if none can be
        started, Stopping.
        """
        hearing = {**self._heard, **(heard or {})}
        sizes = several or ({} if session is None else {session: self._size(session)})
        while True:
            child = self._take(session, background=background, only_reads=only_reads)
            child.at, child.sessions = -1, tuple(sizes)
            try:
                done = self._converse(child, self._order(child, task, arguments, sizes), hearing)
            except _Gone as gone:
                if self._stopping and (only_reads or not gone.begun):
                    self._bury(child)  # as it was told
                    raise Stopping from None
                died = self._died(child, begun=gone.begun)
                if not gone.begun:
                    continue  # it had died before, so nothing was lost
                if sizes and not self._stopping:
                    self._recover(child.sessions[: max(1, child.at + 1)])
                raise died from None
            except BaseException:  # who hears of it has failed: nobody knows what it would say next
                self._bury(child)
                raise
            self._put_back(child, done)
            for name, memory in done.remembered.items():
                self._in_flight.own.learn(name, memory)
            if done.error is not None:
                raise done.error
            return cast("_A", done.answer)

    def _order(
        self,
        child: _Child,
        task: Callable[..., Any],
        arguments: tuple[Any, ...],
        sizes: Mapping[SessionName, int],
    ) -> Order:
        before, child.config = child.config, self._config.known()
        same = before is not None and all(map(is_, before, child.config))
        return Order(
            task,
            arguments,
            self._room + _ROOM_PER_BYTE * max(sizes.values(), default=0),
            None if same else child.config,
            (*self._form(), terminal_or_service(os.environ)),
            {session: self._in_flight.own.hand_over(session) for session in sizes},
        )

    def _size(self, session: SessionName) -> int:
        with suppress(OSError, BsdError):
            return self._layout.transcript(session).lstat().st_size
        return 0

    def _converse(self, child: _Child, order: Order, heard: Heard) -> Reply:
        begun = False
        try:
            with child.speaking:
                child.line.send(order)
            while True:
                self._wait(child)
                said: Said | Reply = child.line.recv()
                begun = True
                if isinstance(said, Reply):
                    return said
                hear: Callable[..., Any] = heard.get(said.what, _nobody)
                answer = hear(*said.about)
                if said.wants:
                    # One who was told to stop meanwhile may have said its last word, and be gone.
                    with child.speaking, suppress(ConnectionError):
                        child.line.send(answer or False)
        except (EOFError, ConnectionError) as error:
            raise _Gone(begun=begun) from error
        finally:
            child.look()
            began: Callable[..., Any] = heard.get("began", _nobody)
            began(child.session)

    def _wait(self, child: _Child) -> None:
        """Wait for the next word; one who is silent for too long is killed, but under no lease."""
        while not child.line.poll(self._longest_step):
            if _holds_lease(child.process.pid):
                continue  # that is over soon, and somebody would be hurt
            _log.error(
                "A child hangs and is killed",
                pid=child.process.pid,
                session=str(child.session) if child.session else None,
                seconds=self._longest_step,
            )
            child.process.kill()
            if not child.line.poll(_DEATH_SECONDS):  # it hangs in the kernel
                raise EOFError
            return

    # --- life ---

    def step(self, now: float) -> float | None:
        """End those who have been without work for long; returns when to come again."""
        with self._lock:
            tired = [one for one in self._idle if one.idle_since + IDLE_SECONDS <= now]
            self._idle = [one for one in self._idle if one not in tired]
            self._dying = [one for one in self._dying if one.poll() is None]
            first = min((one.idle_since for one in self._idle), default=None)
        for one in tired:
            self._bury(one)
        if first is None:  # what hangs in the kernel is looked at again
            return now + IDLE_SECONDS if self._dying else None
        return first + IDLE_SECONDS

    def stop(self) -> None:
        """Let all end where nothing is half done; who asks for more is told so (Stopping)."""
        with self._lock:
            self._stopping = True
            idle, self._idle = self._idle, []
            busy = [*self._busy]
            for process in self._starting:  # that may take long, and nothing is begun yet
                process.kill()
        for one in busy:
            if one.only_reads:
                one.process.kill()
                continue
            with one.speaking, suppress(OSError):
                one.line.send(None)
        for one in idle:
            one.process.kill()  # it has nothing in hand
            self._bury(one)

    def join(self, deadline: float) -> bool:
        """Wait until `deadline` (monotonic seconds); whether nobody is at work any more."""
        while self.at_work():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)
        return True

    def at_work(self) -> int:
        """How many have something in their hands."""
        with self._lock:
            return len(self._busy)

    def snapshot(self) -> list[dict[str, Any]]:
        """The processes there are: {pid, since, session}."""
        with self._lock:
            return [
                {
                    "pid": one.process.pid,
                    "since": iso_utc(one.since),
                    "session": str(one.session) if one.session else None,
                }
                for one in sorted((*self._busy, *self._idle), key=lambda one: one.since)
            ]

    def _take(self, session: SessionName | None, *, background: bool, only_reads: bool) -> _Child:
        """One without work, best the one that was at this session last: it may remember things."""
        with self._lock:
            self._refuse_at_stop()
            free = [one for one in reversed(self._idle) if one.background is background]
            child = max(free, key=lambda one: one.session_before == session, default=None)
            if child is not None:
                self._idle.remove(child)
                child.only_reads = only_reads
                self._busy.append(child)
                return child
        child = self._start(background=background)
        with self._lock:
            child.only_reads = only_reads
            self._busy.append(child)
        return child

    def _refuse_at_stop(self) -> None:
        if self._stopping:
            raise Stopping

    def _put_back(self, child: _Child, done: Reply) -> None:
        if done.leaves:
            _log.error("A child had too little memory and is replaced", pid=child.process.pid)
            self._count("children_died")
            self._bury(child)
            return
        child.session_before = child.sessions[-1] if child.sessions else None
        child.sessions, child.idle_since = (), self._clock()
        with self._lock:
            self._busy.remove(child)
            stopping = self._stopping
            if not stopping:
                self._idle.append(child)
                first = len(self._idle) == 1
        if stopping:
            self._bury(child)
        elif first:
            self._wake()

    def _start(self, *, background: bool) -> _Child:
        ours, theirs = socket.socketpair()
        begun, begins = os.pipe()
        os.set_blocking(begun, False)
        home = str(Path(bsd.__file__).parents[1])
        path = dict.fromkeys([*filter(None, sys.path), home])
        try:
            # -I -S: nothing of the environment decides what runs there.
            given = [str(theirs.fileno()), str(background), *path]
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", self._program, *given],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), begins],
                start_new_session=True,  # the terminal's signals are not for it
            )
        except OSError as error:
            ours.close()
            os.close(begun)
            raise os_problem(error, "starting a child process") from error
        finally:
            theirs.close()
            os.close(begins)
        child = _Child(process, Connection(ours.detach()), background, time.time(), FileIO(begun))
        with self._lock:
            self._starting.append(process)
            stopping = self._stopping
        if stopping:
            process.kill()
        self._count("children_started")
        try:
            child.line.send(self._given(begun=begins))
            refused = child.line.recv() if child.line.poll(_START_SECONDS) else _no_answer()
        except (EOFError, ConnectionError):
            refused = _no_answer()
        with self._lock:
            self._starting.remove(process)
        if refused is not None:
            process.kill()
            self._bury(child)
            self._refuse_at_stop()
            raise refused
        return child

    def _bury(self, child: _Child) -> int | None:
        """Let one end, and wait for that; returns how it ended, if it has."""
        with self._lock:
            for ones in (self._busy, self._idle):
                if child in ones:
                    ones.remove(child)
        child.line.close()
        child.begun.close()
        try:
            return child.process.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            with self._lock:
                self._dying.append(child.process)
            self._wake()  # it is looked at until it has gone
            return None

    def _died(self, child: _Child, *, begun: bool) -> ChildDied:
        """Bury one that died, count it, and say so."""
        code = self._bury(child)
        self._count("children_died")
        how = "hangs in the system" if code is None else _how(code)
        name = str(child.session) if begun and child.session else None
        _log.error("A child has died", pid=child.process.pid, how=how, session=name)
        return ChildDied(f"the process that worked on it {how}", hint="the log says more")

    def _recover(self, sessions: Collection[SessionName]) -> None:
        """Have another child put in order what sessions have in flight."""
        records = [one for one in self._in_flight.readable() if one.session in sessions]
        if not records:
            return
        for record in records:
            self._in_flight.own.remember(record.session, record.path)
        try:
            for found in self.call(tasks.recover_session, [one.path for one in records]):
                _log.info("What was in flight was looked after", **found.as_json())
        except (BsdError, Stopping, RuntimeError) as problem:  # the next look at all of it comes
            names = ", ".join(sorted({str(one.session) for one in records}))
            _log.error("What was in flight must wait", session=names, problem=str(problem))


def _nobody(*_: Any) -> None:
    """Nobody wants to hear of it."""


def _no_answer() -> BsdError:
    return TemporaryFailure("a child process does not begin", hint="the log or stderr says why")


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def _holds_lease(pid: int) -> bool:
    """Whether the kernel counts a process among the holders of leases."""
    try:
        lines = _LOCKS.read_bytes().splitlines()
    except OSError:  # a system without leases
        return False
    # `1: LEASE  ACTIVE    WRITE 4711 fe:01:4243 0 EOF`
    return any(b" LEASE " in line and b"%d" % pid in line.split() for line in lines)
