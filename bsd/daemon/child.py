"""A child process of the daemon: opens, plans and commits sessions, one after the other.

A child has one thread, so no other thread delays it while it holds a lease (DESIGN §4). It runs the
tasks that its parent sends (`children.Children`). A task is a function (`tasks`) that is called
with the child and its arguments. The child ends when its parent ends, but never during a commit: it
reads messages of the parent only at points where no change is incomplete.
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
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout, SessionName
from bsd.core.logs import close_logs, configure_logs
from bsd.core.price_list import PriceSources
from bsd.core.processes import give_back_memory
from bsd.planning.result import SessionResult
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.own_commits import CommitMemory
from bsd.sessions.editor import Noticed
from bsd.sessions.idle import RetryBudget
from bsd.sessions.session import OpenSession
from bsd.store.state import state_at

_PAUSE_SECONDS = 1.0  # between two messages that a task is alive
_MANY_PAGES = (96 << 20) // os.sysconf("SC_PAGE_SIZE")  # resident after a task: return memory


class Stopping(Exception):
    """The daemon stops. Raised only at points where no change is incomplete."""


# --- messages between the daemon and a child ---

BEGAN = "began"


class ChildSetup(NamedTuple):
    """The first message to a child."""

    layout: Layout
    quiet_seconds: float
    in_band: str | None  # `module:class` of a `CallsInSession`
    version: str = __version__
    # The daemon kills a child that sends no message for half this time. After the daemon has ended,
    # a child that hangs would hold the lock of its session for ever, so a timer of the kernel ends
    # the child.
    longest_silence: float = 1200.0  # seconds
    prices: PriceSources = PriceSources()
    fleet: FleetSettings = FleetSettings()


class TaskRequest(NamedTuple):
    """A task to run, with the settings and the commits that the child must know."""

    task: Callable[..., Any]
    arguments: tuple[Any, ...]
    memory: int  # limit of the address space in bytes
    config: Known | None  # None: as in the previous request
    log: tuple[str, str, bool]  # level, format, and whether stderr is a terminal or a service's
    remembered: dict[SessionName, CommitMemory]  # commits of other children in its sessions


class Message(NamedTuple):
    """A message of a running task; `Children.call` passes it to the handler of this `kind`."""

    kind: str
    about: tuple[Any, ...] = ()  # arguments of the handler
    needs_answer: bool = False  # the child waits for the handler's result


class TaskResult(NamedTuple):
    """The result of a task: `error` if it is not None, else `answer`."""

    answer: Any
    error: Exception | None
    remembered: dict[SessionName, CommitMemory]
    leaves: bool = False  # the child ends now


class CallsInSession(Protocol):
    """Finds and executes an agent's calls of bsd's tools in a session (`mcp.inband.InBand`)."""

    def watch(self, opened: OpenSession) -> CallWatch:
        """Return a wrapped session for a planner that detects calls in the lines that are read."""

    def carry_out(self) -> bool:
        """Execute the calls; return True if the session was changed."""


class Child:
    """The child process, with the objects that tasks need."""

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
        """Extract the due values of a session as the daemon (`actions.extract.extract_due`).

        `told_idle`: when its program reported the session as idle (epoch seconds).
        """
        context = self.context("daemon")
        budget = replace(context.budget, told_idle=told_idle)
        return extract_due(replace(context, budget=budget), name, self.state_db, **how)

    def calls_in(self, name: SessionName, *, waits: bool = True) -> CallsInSession | None:
        """Return the object that finds and executes calls in a session; None: no interface has it.

        `waits`: calls may wait for the prompt cache to get cold.
        """
        if self._setup.in_band is None:
            return None
        make: Callable[..., CallsInSession] = resolve_name(self._setup.in_band)
        return make(self.context("agent"), name, waits=waits)

    def context(self, actor: str, wait: float = 0.0) -> ActionContext:
        """Return the context of an action.

        An action that has begun runs to its end unless the daemon stops.

        Args:
            actor: the name in the audit, the log and the history.
            wait: seconds to wait for a session in use.
        """

        def stopping() -> bool:
            self.say("alive")
            return False

        return ActionContext(
            layout=self.layout,
            config=self.config,
            actor=actor,
            fleet=self._setup.fleet,
            prices=self._setup.prices,
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
        """Return the budget for sessions in use; waiting ends if the daemon stops."""
        return RetryBudget(wait, self._setup.quiet_seconds, sleep=self.nap, check=self.check)

    def nap(self, seconds: float) -> None:
        """Sleep; raises Stopping if the daemon stops."""
        if self._parent.poll(seconds):
            self._receive()

    @property
    def attempted(self) -> Noticed:
        """A callback that sends the outcome of an attempt to commit."""
        return lambda name, outcome: self.say("attempted", name, outcome)

    def begin(self) -> None:
        """Send that the task begins its next session; later errors are about this session."""
        self.say(BEGAN)

    def progress(self, _: int) -> None:
        """Send, at most once per second, that the task is alive; raises Stopping."""
        if time.monotonic() >= self._silent_until:
            self.live()
        self.check()

    def live(self) -> None:
        """Send that the task is alive, and restart the timer of `longest_silence`."""
        self.say("alive")
        self._silent_until = time.monotonic() + _PAUSE_SECONDS
        signal.setitimer(signal.ITIMER_REAL, self._setup.longest_silence)

    def check(self) -> None:
        """Raise Stopping if the daemon stops or is gone; call it where no change is incomplete."""
        self.nap(0)

    def say(self, kind: str, *about: Any) -> None:
        """Send a message; do nothing if the daemon is gone."""
        with suppress(OSError):
            self._parent.send(Message(kind, about))

    def ask(self, kind: str, *about: Any) -> Any:
        """Send a message and return its handler's answer; raises Stopping if the daemon stops."""
        with suppress(OSError):
            self._parent.send(Message(kind, about, needs_answer=True))
        return self._receive()

    def _receive(self) -> Any:
        """Return the next message of the daemon; raises Stopping if the daemon stops or is gone."""
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
            self.live()  # from here on the daemon counts the task as begun
            self._prepare(request)
            result = self._run(request)
            signal.setitimer(signal.ITIMER_REAL, 0)  # waiting for the next task has no time limit
            with suppress(OSError):
                self._parent.send(result)
            if result.leaves or self._stops:  # no task follows after a message to stop
                return
            _return_memory()

    def _prepare(self, request: TaskRequest) -> None:
        if request.config is not None:
            self.config.adopt(request.config)
        if request.log != self._log:
            level, form, stderr = self._log = request.log
            # Without a journal, `terminal_or_service` recognises a service by the id of the process
            # that systemd started: the child has to pass for that process.
            manager = {"SYSTEMD_EXEC_PID": str(os.getpid())} if stderr else {}
            configure_logs(self.layout, level, form, environ={**os.environ, **manager})
        for session, memory in request.remembered.items():
            self.in_flight.own.take_over(session, memory)
        with suppress(OSError, ValueError):  # a system without such a limit
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
            leaves = True  # other parts of the process may have lacked memory, too
            error = Unavailable(
                f"it needs more than the {request.memory >> 20} MB of memory that it may use"
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
    """Run a child; `descriptor` is a socket whose other end belongs to the parent."""
    # If memory runs out, the kernel should kill a child, which loses one attempt, not the daemon.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")
    # The terminal's signals and the service manager's are for the parent.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it may be inherited as ignored
    with suppress(EOFError, OSError):  # the parent has ended before it sent the setup
        _serve(Connection(descriptor))
    close_logs()
    sys.stdout.flush()
    os._exit(0)  # only descriptors are open, which the kernel closes


def _serve(parent: Connection) -> None:
    setup: ChildSetup = parent.recv()
    if setup.version == __version__:
        parent.send(None)
        Child(setup, parent).serve()
        return
    # A daemon of one release with a child of another release is not tested.
    parent.send(
        Unavailable(
            f"the daemon runs bsd {setup.version}, but bsd {__version__} is installed now",
            hint="restart the daemon",
        )
    )


def _return_memory() -> None:
    """Return the memory of a large session to the system; the next session is probably small."""
    with suppress(OSError), open("/proc/self/statm", "rb") as file:
        if int(file.read().split()[1]) > _MANY_PAGES:
            give_back_memory()
