"""The daemon's child processes: each runs one task at a time for one thread of the daemon.

`Children.call` runs a task of `tasks` or `child_tasks` in a child. It returns the task's answer or
raises its error, as if the task had run in the daemon. Only children open sessions, because a
process that holds a lease must have only one thread (DESIGN §4). A child is started when all others
are busy, and ended after IDLE_SECONDS without work. If a child dies, one attempt at one session is
lost: the death is counted, and another child immediately recovers the commits in flight.
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
from multiprocessing.connection import Connection
from operator import is_
from pathlib import Path
from typing import Any, TypeVar, cast

import structlog

import bsd
from bsd.core.config_file import ConfigService, Known
from bsd.core.errors import BsdError, TemporaryFailure, os_problem
from bsd.core.fleet_settings import FleetSettings
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.core.logs import terminal_or_service
from bsd.core.price_list import PriceSources
from bsd.daemon import tasks
from bsd.daemon.child import BEGAN, ChildSetup, Message, Stopping, TaskRequest, TaskResult
from bsd.sessions.commit.inflight import InFlight
from bsd.transcripts.agents.opening import stat_transcript

_log = structlog.stdlib.get_logger(module="children")

# The longest time between two messages of a child. Planning sends a message for every megabyte, but
# copying and flushing a file of many gigabytes is one step.
LONGEST_STEP_SECONDS = 600.0
IDLE_SECONDS = 30.0  # a child without work for this time is ended
_START_SECONDS = 60.0
_DEATH_SECONDS = 5.0  # wait this long for a killed process; `step` waits for a hanging one
_NICE = 5  # niceness of a background child; the kernel derives its I/O priority from it
# Limits of address space, not of memory: DESIGN §5 limits memory to 150 MB and three times the
# longest line. An interpreter with all libraries maps 60 MB, each thread that syncs files has a
# stack of 8 MB, and a line can be as long as its file. Memory that was returned to the heap cannot
# always be used again.
_ROOM = 1 << 30
_ROOM_PER_BYTE = 4

# The program of a child. It uses neither the environment nor `site`: it finds modules in the same
# directories as its parent. A sandbox may refuse the lower priority.
_PROGRAM = """
import os, sys
sys.path[:] = sys.argv[3:]
try:
    os.nice(int(sys.argv[2]))
except OSError:
    pass
from bsd.daemon.child import main
main(int(sys.argv[1]))
"""
_LOCKS = Path("/proc/locks")

_A = TypeVar("_A")
Handlers = Mapping[str, Callable[..., Any]]  # kind of a message → its handler


class ChildDied(TemporaryFailure):
    """A child died while it ran a task; a commit that it left in flight is recovered."""


@dataclass(eq=False)
class _Child:
    process: subprocess.Popen[bytes]
    connection: Connection
    background: bool
    since: float  # epoch seconds
    only_reads: bool = True  # the child may be killed at any point; true without a task, too
    begun: bool = False  # it has received its task
    sessions: tuple[SessionName, ...] = ()  # the sessions of its task, in the order of the work
    at: int = -1  # index of the session that it began last
    last_session: SessionName | None = None
    has_worked: bool = False  # it has returned a result
    idle_since: float = 0.0  # steady seconds
    sending: threading.Lock = field(default_factory=threading.Lock)
    config: Known | None = None  # the settings that it has received

    @property
    def session(self) -> SessionName | None:
        """The session that it works on, or the first session of its task."""
        return self.sessions[max(0, self.at)] if self.sessions else None


class Children:
    """The children of a daemon. Thread-safe.

    Args:
        quiet_seconds: how long a session must be unchanged to count as idle.
        in_band: `module:class` of a `CallsInSession`, or None.
        prices: the prices that bsd.toml names.
        log: returns the level and the format of log lines.
        handlers: handlers for messages of all children (`child.Message`).
        count: adds 1 to a total of the status.
        wake: called when `step` must be called earlier than it has asked for.
        room: address space of a child in bytes.
        program: the Python program of a child.
        longest_step: seconds after which a silent child is killed.
    """

    def __init__(  # noqa: PLR0913 - the parts of a daemon
        self,
        layout: Layout,
        config: ConfigService,
        *,
        quiet_seconds: float,
        in_band: str | None = None,
        fleet: FleetSettings | None = None,
        prices: PriceSources | None = None,
        log: Callable[[], tuple[str, str]] = lambda: ("info", "auto"),
        handlers: Handlers | None = None,
        count: Callable[[str], None] = lambda _: None,
        wake: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        room: int = _ROOM,
        program: str = _PROGRAM,
        longest_step: float = LONGEST_STEP_SECONDS,
    ) -> None:
        self._layout = layout
        self._config = config
        self._setup = ChildSetup(
            layout,
            quiet_seconds,
            in_band=in_band,
            prices=prices or PriceSources(),
            fleet=fleet or FleetSettings(),
        )
        self._log_format = log
        self._handlers = handlers or {}
        self._count = count
        self._wake = wake
        self._clock = clock
        self._room = room
        self._program = program
        self._longest_step = longest_step
        self._lock = threading.Condition()  # notified when a child is no longer busy
        self._stopping = False
        self._warming = False  # True while `warm` starts a child
        self._idle: list[_Child] = []  # the child that worked last comes last
        self._busy: list[_Child] = []
        self._dying: list[subprocess.Popen[bytes]] = []
        self._in_flight = InFlight(layout)  # remembers commits of all children

    # --- tasks ---

    def call(
        self,
        task: Callable[..., _A],
        *arguments: Any,
        session: SessionName | None = None,
        several: Mapping[SessionName, int] | None = None,
        background: bool = False,
        only_reads: bool = False,
        handlers: Handlers | None = None,
    ) -> _A:
        """Run `task(child, *arguments)` in a child; return its answer or raise its error.

        Args:
            session: the session that the task works on.
            several: sessions with their sizes in bytes, instead of `session`. The task begins them
                one after the other (`Child.begin`), and the handler "began" is called with each.
            background: no user waits for the task, so the child has a lower priority.
            only_reads: the task may be ended at any point without a loss.
            handlers: handlers for messages of this task, in addition to those of all children.

        Raises:
            ChildDied: the child died while it ran the task, or was killed because it hung.
            Unavailable: no child can be started.
            Stopping: the daemon stops.
        """
        sizes = several or ({} if session is None else {session: self._size(session)})
        while True:
            child = self._take(session, background=background)
            with self._lock:
                child.only_reads, child.begun = only_reads, False
                child.sessions, child.at = tuple(sizes), -1
            try:
                request = self._request(child, task, arguments, sizes)
                result = self._converse(child, request, {**self._handlers, **(handlers or {})})
            except (EOFError, ConnectionError):
                if self._stopping and (only_reads or not child.begun):
                    self._bury(child)
                    raise Stopping from None
                died = self._note_death(child)
                if not child.begun and child.has_worked:
                    continue  # it died before it got the task: use another child
                if child.begun and sizes and not self._stopping:
                    self._recover(child.sessions[: max(1, child.at + 1)])
                raise died from None
            except BaseException:  # a handler failed, so messages of the child are unread
                self._bury(child)
                raise
            self._release(child, leaves=result.leaves)
            for name, memory in result.remembered.items():
                self._in_flight.own.learn(name, memory)
            if result.error is not None:
                raise result.error
            return cast("_A", result.answer)

    def _request(
        self,
        child: _Child,
        task: Callable[..., Any],
        arguments: tuple[Any, ...],
        sizes: Mapping[SessionName, int],
    ) -> TaskRequest:
        before, child.config = child.config, self._config.known()
        is_known = before is not None and all(map(is_, before, child.config))
        return TaskRequest(
            task,
            arguments,
            self._room + _ROOM_PER_BYTE * max(sizes.values(), default=0),
            None if is_known else child.config,
            (*self._log_format(), terminal_or_service(os.environ)),
            {session: self._in_flight.own.hand_over(session) for session in sizes},
        )

    def _size(self, session: SessionName) -> int:
        with suppress(OSError, BsdError):
            return stat_transcript(self._layout, session).st_size
        return 0

    def _converse(self, child: _Child, request: TaskRequest, handlers: Handlers) -> TaskResult:
        """Send a request and handle messages until the result arrives.

        Raises EOFError or ConnectionError if the child is dead.
        """
        with child.sending:
            child.connection.send(request)
        while True:
            self._wait(child)
            try:
                message: Message | TaskResult = child.connection.recv()
            except OSError as error:
                child.begun |= not isinstance(error, ConnectionError)  # it died during a message
                raise EOFError from error
            child.begun = True
            if isinstance(message, TaskResult):
                return message
            about = message.about
            if message.kind == BEGAN:
                child.at += 1
                about = (child.session,)
            handler = handlers.get(message.kind)
            answer = handler(*about) if handler else None
            if message.needs_answer:
                # A child that was told to stop may have ended; its result is received first.
                with child.sending, suppress(ConnectionError):
                    child.connection.send(answer or False)

    def _wait(self, child: _Child) -> None:
        """Wait for a message; kill a child that is silent for too long, unless it holds a lease."""
        while not child.connection.poll(self._longest_step):
            if _holds_lease(child.process.pid):
                continue  # the lease ends soon, and a program may be waiting for its end
            _log.error(
                "A child hangs and is killed",
                pid=child.process.pid,
                session=str(child.session) if child.session else None,
                seconds=self._longest_step,
            )
            child.process.kill()
            if not child.connection.poll(_DEATH_SECONDS):  # it hangs in the kernel
                raise EOFError
            return

    # --- processes ---

    def warm(self) -> None:
        """Start a child if none is idle, so that the next request does not wait for a start.

        Simultaneous calls start one child.
        """
        with self._lock:
            is_ready = any(not child.background for child in self._idle)
            if self._stopping or self._warming or is_ready:
                return
            self._warming = True
        try:
            # If no child can be started, the next call reports it.
            with suppress(BsdError, Stopping):
                self._release(self._start(background=False), leaves=False)
        finally:
            with self._lock:
                self._warming = False

    def step(self, now: float) -> float | None:
        """End children without work for IDLE_SECONDS; return the time of the next step."""
        with self._lock:
            ended = [child for child in self._idle if child.idle_since + IDLE_SECONDS <= now]
            self._idle = [child for child in self._idle if child not in ended]
            self._dying = [process for process in self._dying if process.poll() is None]
            first = min((child.idle_since for child in self._idle), default=None)
        for child in ended:
            self._bury(child)
        if first is None:  # a killed process that hangs in the kernel is checked again
            return now + IDLE_SECONDS if self._dying else None
        return first + IDLE_SECONDS

    def stop(self) -> None:
        """End all children at points where no change is incomplete; `call` then raises Stopping."""
        with self._lock:
            self._stopping = True
            idle, self._idle = self._idle, []
            for child in self._busy:
                if child.only_reads:
                    child.process.kill()
            writing = [child for child in self._busy if not child.only_reads]
        for child in writing:
            with child.sending, suppress(OSError):
                child.connection.send(None)
        for child in idle:
            child.process.kill()  # it has no task
            self._bury(child)

    def join(self, deadline: float) -> bool:
        """Wait until `deadline` (monotonic seconds); return True if no child is busy any more."""
        with self._lock:
            seconds = max(0.0, deadline - time.monotonic())
            return self._lock.wait_for(lambda: not self._busy, seconds)

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the existing processes: {pid, since, session}."""
        with self._lock:
            return [
                {
                    "pid": child.process.pid,
                    "since": iso_utc(child.since),
                    "session": str(child.session) if child.session else None,
                }
                for child in sorted((*self._busy, *self._idle), key=lambda child: child.since)
            ]

    def _take(self, session: SessionName | None, *, background: bool) -> _Child:
        """Return an idle child, if possible the last child of this session; else start a child."""
        with self._lock:
            if self._stopping:
                raise Stopping
            idle = [child for child in reversed(self._idle) if child.background is background]
            child = max(idle, key=lambda child: child.last_session == session, default=None)
            if child is not None:
                self._idle.remove(child)
                self._busy.append(child)
                return child
        return self._start(background=background)

    def _start(self, *, background: bool) -> _Child:
        """Start a child and add it to the busy ones."""
        ours, theirs = socket.socketpair()
        home = str(Path(bsd.__file__).parents[1])
        path = dict.fromkeys([*filter(None, sys.path), home])
        try:
            # -I -S: the environment must not decide which code runs in the child.
            given = [str(theirs.fileno()), str(_NICE if background else 0), *path]
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", self._program, *given],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,  # without the signals of the terminal
            )
        except OSError as error:
            ours.close()
            raise os_problem(error, "starting a child process") from error
        finally:
            theirs.close()
        child = _Child(process, Connection(ours.detach()), background, time.time())
        with self._lock:
            self._busy.append(child)
            if self._stopping:
                process.kill()
        self._count("children_started")
        refusal: BsdError | None = TemporaryFailure(
            "a child process does not start", hint="see the log or stderr for the reason"
        )
        with suppress(EOFError, ConnectionError):
            child.connection.send(self._setup)
            if child.connection.poll(_START_SECONDS):
                refusal = child.connection.recv()
        if refusal is not None:
            process.kill()
            self._bury(child)
            raise Stopping if self._stopping else refusal
        return child

    def _release(self, child: _Child, *, leaves: bool) -> None:
        """Mark a child that has returned its result as idle; end it if it `leaves`."""
        if leaves:
            _log.error("A child had too little memory and is replaced", pid=child.process.pid)
            self._count("children_died")
            self._bury(child)
            return
        child.last_session = child.sessions[-1] if child.sessions else None
        child.sessions, child.idle_since, child.has_worked = (), self._clock(), True
        with self._lock:
            stopping, is_first = self._stopping, not self._idle
            if not stopping:
                self._busy.remove(child)
                self._lock.notify_all()
                self._idle.append(child)
        if stopping:
            self._bury(child)
        elif is_first:
            self._wake()

    def _bury(self, child: _Child) -> int | None:
        """Close the connection to a child and wait for its end.

        Returns:
            Its exit code; None if it has not ended within `_DEATH_SECONDS`.
        """
        child.connection.close()
        try:
            code = child.process.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        with self._lock:
            if child in self._busy:
                self._busy.remove(child)
                self._lock.notify_all()
            if code is None:
                self._dying.append(child.process)
        if code is None:
            self._wake()  # `step` checks it until it has ended
        return code

    def _note_death(self, child: _Child) -> ChildDied:
        """Count and log the death of a child; return the error for its caller."""
        code = self._bury(child)
        self._count("children_died")
        how = "hangs in the kernel" if code is None else _how(code)
        name = str(child.session) if child.begun and child.session else None
        _log.error("A child has died", pid=child.process.pid, how=how, session=name)
        return ChildDied(f"the process that worked on it {how}", hint="see the log for details")

    def _recover(self, sessions: Collection[SessionName]) -> None:
        """Finish or undo the commits in flight of these sessions, in another child."""
        records = [record for record in self._in_flight.readable() if record.session in sessions]
        if not records:
            return
        for record in records:
            self._in_flight.own.remember(record.session, record.path)
        try:
            for found in self.call(tasks.recover_session, [record.path for record in records]):
                _log.info("A commit in flight was recovered", **found.as_json())
        except (BsdError, Stopping, RuntimeError) as problem:  # the job `recover` tries again
            names = ", ".join(sorted({str(record.session) for record in records}))
            _log.error(
                "Commits in flight cannot be recovered yet", session=names, problem=str(problem)
            )


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def _holds_lease(pid: int) -> bool:
    """Return True if the kernel's list of locks has a lease of a process."""
    try:
        lines = _LOCKS.read_bytes().splitlines()
    except OSError:  # a system without leases
        return False
    # `1: LEASE  ACTIVE    WRITE 4711 fe:01:4243 0 EOF`
    return any(b" LEASE " in line and b"%d" % pid in line.split() for line in lines)
