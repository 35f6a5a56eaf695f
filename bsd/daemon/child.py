"""A child process of the daemon: opens, plans and commits sessions, one after the other.

It has one thread, so leases that it holds wait for no interpreter lock (DESIGN §4). It runs the
tasks that its parent sends (`children.Children`); a task is a function (`tasks`) that is called
with the child and its arguments. The child ends when its parent does, but never in the middle of a
commit: it reads messages of the parent only where nothing is half done.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple, NoReturn, Protocol

from bsd import __version__
from bsd.actions.context import ActionContext
from bsd.actions.extract import CallWatch, extract_due
from bsd.actions.outlines import Outlines
from bsd.core.config_file import ConfigService, Known
from bsd.core.errors import BsdError, Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.core.logs import close_logs, configure_logs
from bsd.core.processes import give_back_memory
from bsd.planning.result import SessionResult
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.own_commits import CommitMemory
from bsd.sessions.editor import Noticed
from bsd.sessions.idle import RetryBudget
from bsd.sessions.session import OpenSession
from bsd.store.state import state_at

_PAUSE_SECONDS = 1.0  # between two messages that a task goes on
_MANY_PAGES = (96 << 20) // os.sysconf("SC_PAGE_SIZE")  # in memory, after a job


class Stopping(Exception):
    """The daemon stops; raised where nothing is half done."""


# --- messages between the daemon and a child ---

BEGAN = "began"


class ChildSetup(NamedTuple):
    """The first message to a child."""

    layout: Layout
    quiet_seconds: float
    in_band: str | None  # `module:class` of a `CallsInSession`
    version: str = __version__
    # The daemon kills a child that sends no message for half as long. A child that hangs after its
    # daemon has ended would hold the lock of its session for ever: the kernel ends it.
    longest_silence: float = 1200.0  # seconds


class TaskRequest(NamedTuple):
    """A task to run, and the daemon's knowledge that the task needs."""

    task: Callable[..., Any]
    arguments: tuple[Any, ...]
    memory: int  # bytes of address space that it may take
    config: Known | None  # None: as in the request before
    log: tuple[str, str, bool]  # level and form of lines, and whether stderr is read
    remembered: dict[SessionName, CommitMemory]  # of its sessions: commits by other children


class Message(NamedTuple):
    """Sent while a task runs; handled by the handler of this `kind` (`Children.call`)."""

    kind: str
    about: tuple[Any, ...] = ()  # arguments of the handler
    needs_answer: bool = False  # the child waits for the handler's result


class TaskResult(NamedTuple):
    """The end of a task: `error` if that is not None, else `answer`."""

    answer: Any
    error: Exception | None
    remembered: dict[SessionName, CommitMemory]
    leaves: bool = False  # the child ends now


class CallsInSession(Protocol):
    """Finds and carries out an agent's calls of bsd's tools (`mcp.inband.InBand`)."""

    def watch(self, opened: OpenSession) -> CallWatch:
        """Return the session for a planner to read; calls are found in the lines that it reads."""

    def carry_out(self) -> bool:
        """Carry them out; return whether the session was changed."""


class Child:
    """The process, and the objects that tasks need."""

    def __init__(self, setup: ChildSetup, parent: Connection) -> None:
        self.layout = setup.layout
        self.config = ConfigService(setup.layout.config_file, create=False)
        self.in_flight = InFlight(setup.layout)
        self.state_db = state_at(setup.layout.state_db)
        self._outlines = Outlines()
        self._setup = setup
        self._parent = parent
        self._log: tuple[str, str, bool] | None = None
        self._silent_until = 0.0
        self._stops = False

    # --- for tasks ---

    def extract(
        self, name: SessionName, *, told_idle: float | None = None, **how: Any
    ) -> SessionResult | None:
        """Extract the due values of a session, as the daemon (`actions.extract.extract_due`).

        `told_idle`: when its program said that it is idle (epoch seconds).
        """
        context = self.context("daemon")
        budget = replace(context.budget, told_idle=told_idle)
        return extract_due(replace(context, budget=budget), name, self.state_db, **how)

    def calls_in(self, name: SessionName, *, waits: bool = True) -> CallsInSession | None:
        """Return how calls that stand in a session are found and carried out.

        `waits`: some may wait for the prompt cache to get cold.
        """
        if self._setup.in_band is None:
            return None
        make: Callable[..., CallsInSession] = resolve_name(self._setup.in_band)
        return make(self.context("agent"), name, waits=waits)

    def context(self, actor: str, wait: float = 0.0) -> ActionContext:
        """Return the context of an action; `wait`: seconds that a session in use is waited for.

        An action that has begun is done to its end, unless the daemon stops.
        """

        def stopping() -> bool:
            self.say("alive")
            return False

        return ActionContext(
            layout=self.layout,
            config=self.config,
            actor=actor,
            budget=self.budget(wait),
            progress=lambda done, of=None: self.progress(done),  # noqa: ARG005 - not shown here
            stopping=stopping,
            cleaned=lambda: self.say("cleaned"),
            early_answer=lambda answer: self.say("early_answer", answer),
            noticed=self.attempted,
            in_flight=self.in_flight,
            outlines=self._outlines,
        )

    def budget(self, wait: float) -> RetryBudget:
        """How it waits for sessions in use: not when the daemon stops."""
        return RetryBudget(wait, self._setup.quiet_seconds, sleep=self.nap, check=self.check)

    def nap(self, seconds: float) -> None:
        """Sleep; raises Stopping."""
        if self._parent.poll(seconds):
            self._receive()

    @property
    def attempted(self) -> Noticed:
        """Tell how an attempt to commit ended."""
        return lambda name, outcome: self.say("attempted", name, outcome)

    def begin(self) -> None:
        """Tell that the task begins its next session; an error from now on is about that."""
        self.say(BEGAN)

    def progress(self, _: int) -> None:
        """Send a message now and then that this goes on; raises Stopping if the daemon stops."""
        if time.monotonic() >= self._silent_until:
            self.live()
        self.check()

    def live(self) -> None:
        """Tell that this goes on; the kernel ends a child that does not for `longest_silence`."""
        self.say("alive")
        self._silent_until = time.monotonic() + _PAUSE_SECONDS
        signal.setitimer(signal.ITIMER_REAL, self._setup.longest_silence)

    def check(self) -> None:
        """End here, where nothing is half done, if the daemon stops or is gone: Stopping."""
        self.nap(0)

    def say(self, kind: str, *about: Any) -> None:
        """Send a message; nothing happens if the daemon is gone."""
        with suppress(OSError):
            self._parent.send(Message(kind, about))

    def ask(self, kind: str, *about: Any) -> Any:
        """Send a message and return its handler's answer; raises Stopping if the daemon stops."""
        with suppress(OSError):
            self._parent.send(Message(kind, about, needs_answer=True))
        return self._receive()

    def _receive(self) -> Any:
        """Return the next message of the daemon; raises Stopping if it stops or is gone."""
        try:
            received = self._parent.recv()
        except (EOFError, OSError):
            received = None
        if received is None:
            self._stops = True
            raise Stopping
        return received

    # --- the process ---

    def serve(self) -> None:
        """Run tasks until the daemon stops or is gone."""
        while True:
            try:
                request: TaskRequest = self._receive()
            except Stopping:
                return
            self.live()  # from here on it is begun
            self._prepare(request)
            result = self._run(request)
            signal.setitimer(signal.ITIMER_REAL, 0)  # it may wait for the next task for ever
            with suppress(OSError):
                self._parent.send(result)
            if result.leaves or self._stops:  # an answer that is still to come has no reader
                return
            _return_memory()

    def _prepare(self, request: TaskRequest) -> None:
        if request.config is not None:
            self.config.adopt(request.config)
        if request.log != self._log:
            level, form, stderr = self._log = request.log
            # A service manager that is no journal knows the daemon by its process.
            manager = {"SYSTEMD_EXEC_PID": str(os.getpid())} if stderr else {}
            configure_logs(self.layout, level, form, environ={**os.environ, **manager})
        for session, memory in request.remembered.items():
            self.in_flight.own.take_over(session, memory)
        with suppress(OSError, ValueError):  # a system that knows no such limit
            _, most = resource.getrlimit(resource.RLIMIT_AS)
            least = request.memory if most == resource.RLIM_INFINITY else min(request.memory, most)
            resource.setrlimit(resource.RLIMIT_AS, (least, most))

    def _run(self, request: TaskRequest) -> TaskResult:
        answer: Any = None
        error: Exception | None = None
        leaves = False
        try:
            answer = request.task(self, *request.arguments)
        except (BsdError, Stopping) as problem:
            error = problem
        except MemoryError:
            leaves = True  # other parts of the process may have had no room either
            error = Unavailable(
                f"it takes more than the {request.memory >> 20} MB of memory that it may take"
            )
        except Exception as problem:  # noqa: BLE001 - it is raised in the daemon
            error = RuntimeError(f"{problem!r}\n{traceback.format_exc()}")
        own = self.in_flight.own
        remembered = {session: own.hand_over(session) for session in request.remembered}
        return TaskResult(
            answer,
            error,
            {session: memory for session, memory in remembered.items() if any(memory)},
            leaves,
        )


def main(descriptor: int) -> NoReturn:
    """Run a child whose parent is at the other end of a socket."""
    # The kernel rather ends one attempt at one session than the daemon.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")
    # The terminal's signals and the service manager's are for the parent.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the process that started bsd may ignore it
    with suppress(EOFError, OSError):  # the parent is gone before it has sent the setup
        _serve(Connection(descriptor))
    close_logs()
    sys.stdout.flush()
    os._exit(0)  # nothing is open but descriptors that the kernel closes


def _serve(parent: Connection) -> None:
    setup: ChildSetup = parent.recv()
    if setup.version == __version__:
        parent.send(None)
        Child(setup, parent).serve()
        return
    # Half of one release and half of another are not tested together.
    parent.send(
        Unavailable(
            f"bsd {setup.version} runs, but bsd {__version__} is installed by now",
            hint="start the daemon anew",
        )
    )


def _return_memory() -> None:
    """Return the memory of a large session to the system: the next one is most likely small."""
    with suppress(OSError), open("/proc/self/statm", "rb") as file:
        if int(file.read().split()[1]) > _MANY_PAGES:
            give_back_memory()
