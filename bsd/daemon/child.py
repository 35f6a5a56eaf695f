"""A child of the daemon: a process that opens, plans and commits sessions, one after the other.

It has one thread, so leases that it holds wait for no interpreter lock (DESIGN §4). It does what
its parent's threads ask (`children.Children`): a task is a function (`tasks`), called with the
child and what else it wants. It ends when its parent does, but never in the middle of a commit: it
looks for a word from there only where nothing is half done.
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
from multiprocessing.connection import Connection
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

_PAUSE_SECONDS = 1.0  # between two signs of life
_MANY_PAGES = (96 << 20) // os.sysconf("SC_PAGE_SIZE")  # in memory, after a job


class Stopping(Exception):
    """The daemon stops; raised where nothing is half done."""


# --- what is said between the two ---


class Setup(NamedTuple):
    """What a child is told of its daemon, once."""

    layout: Layout
    quiet_seconds: float
    in_band: str | None  # `module:class` of a `CallsInSession`
    begun: int | None = None  # descriptor of a pipe: a byte for each session begun
    version: str = __version__
    # The daemon kills who gives no sign of life for half as long. One that hangs and has no daemon
    # any more would hold the lock of its session for ever: then the kernel ends it.
    longest_silence: float = 1200.0  # seconds


class Order(NamedTuple):
    """What is to be done now, and what the daemon knows that bears on it."""

    task: Callable[..., Any]
    arguments: tuple[Any, ...]
    memory: int  # bytes of address space that it may take
    config: Known | None  # None: as when it was told last
    log: tuple[str, str, bool]  # level and form of lines, and whether stderr is read
    remembered: dict[
        SessionName, CommitMemory
    ]  # of the sessions it is about: commits by other children


class Said(NamedTuple):
    """Something that happened on the way; `wants`: an answer is waited for."""

    what: str
    about: tuple[Any, ...] = ()
    wants: bool = False


class Reply(NamedTuple):
    """How it ended: `error` if that is not None, else with `answer`."""

    answer: Any
    error: Exception | None
    remembered: dict[SessionName, CommitMemory]
    leaves: bool = False  # it does nothing more


class CallsInSession(Protocol):
    """Finds and carries out an agent's calls of bsd's tools (`mcp.inband.InBand`)."""

    def watch(self, opened: OpenSession) -> CallWatch:
        """Return the session for a planner to read; calls are found in the lines that it reads."""

    def carry_out(self) -> bool:
        """Carry them out; return whether the session was changed."""


class Child:
    """What tasks act with."""

    def __init__(self, given: Setup, parent: Connection) -> None:
        self.layout = given.layout
        self.config = ConfigService(given.layout.config_file, create=False)
        self.in_flight = InFlight(given.layout)
        self.state_db = state_at(given.layout.state_db)
        self._outlines = Outlines()
        self._given = given
        self._parent = parent
        self._log: tuple[str, str, bool] | None = None
        self._silent_until = 0.0
        self._stops = False

    # --- for tasks ---

    def extract(self, name: SessionName, **how: Any) -> SessionResult | None:
        """Extract what is due in a session, as the daemon (`actions.extract.extract_due`)."""
        return extract_due(self.context("daemon"), name, self.state_db, **how)

    def calls_in(self, name: SessionName) -> CallsInSession | None:
        """Return how calls that stand in a session are found and carried out."""
        if self._given.in_band is None:
            return None
        make: Callable[[ActionContext, SessionName], CallsInSession]
        make = resolve_name(self._given.in_band)
        return make(self.context("agent"), name)

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
        return RetryBudget(wait, self._given.quiet_seconds, sleep=self.nap, check=self.check)

    def nap(self, seconds: float) -> None:
        """Sleep; raises Stopping."""
        if self._parent.poll(seconds):
            self._hear()

    @property
    def attempted(self) -> Noticed:
        """Tell how an attempt to commit ended."""
        return lambda name, outcome: self.say("attempted", name, outcome)

    def begin(self) -> None:
        """Note that the next of several sessions is at work: whatever ends this, it is about it."""
        if self._given.begun is not None:
            os.write(self._given.begun, b".")

    def progress(self, _: int) -> None:
        """Give a sign of life now and then, and stop here if that is wanted."""
        if time.monotonic() >= self._silent_until:
            self.live()
        self.check()

    def live(self) -> None:
        """Give a sign of life; who gives none for very long is ended by the kernel."""
        self.say("alive")
        self._silent_until = time.monotonic() + _PAUSE_SECONDS
        signal.setitimer(signal.ITIMER_REAL, self._given.longest_silence)

    def check(self) -> None:
        """End here, where nothing is half done, if the daemon stops or is gone: Stopping."""
        self.nap(0)

    def say(self, what: str, *about: Any) -> None:
        """Tell the daemon what happened; it need not be there any more."""
        with suppress(OSError):
            self._parent.send(Said(what, about))

    def ask(self, what: str, *about: Any) -> Any:
        """Ask the daemon; raises Stopping if it stops or is gone."""
        with suppress(OSError):
            self._parent.send(Said(what, about, wants=True))
        return self._hear()

    def _hear(self) -> Any:
        try:
            heard = self._parent.recv()
        except (EOFError, OSError):
            heard = None
        if heard is None:
            self._stops = True
            raise Stopping
        return heard

    # --- life ---

    def serve(self) -> None:
        """Do what is asked until nobody asks any more."""
        while True:
            try:
                order: Order = self._hear()
            except Stopping:
                return
            self.live()  # from here on it is begun
            self._prepare(order)
            done = self._do(order)
            signal.setitimer(signal.ITIMER_REAL, 0)  # nobody asks for anything
            with suppress(OSError):
                self._parent.send(done)
            if done.leaves or self._stops:  # what it asked may be answered yet, to nobody
                return
            _tidy()

    def _prepare(self, order: Order) -> None:
        if order.config is not None:
            self.config.adopt(order.config)
        if order.log != self._log:
            level, form, stderr = self._log = order.log
            # A service manager that is no journal knows the daemon by its process.
            whose = {"SYSTEMD_EXEC_PID": str(os.getpid())} if stderr else {}
            configure_logs(self.layout, level, form, environ={**os.environ, **whose})
        for session, memory in order.remembered.items():
            self.in_flight.own.take_over(session, memory)
        with suppress(OSError, ValueError):  # a system that knows no such limit
            _, most = resource.getrlimit(resource.RLIMIT_AS)
            least = order.memory if most == resource.RLIM_INFINITY else min(order.memory, most)
            resource.setrlimit(resource.RLIMIT_AS, (least, most))

    def _do(self, order: Order) -> Reply:
        answer: Any = None
        error: Exception | None = None
        leaves = False
        try:
            answer = order.task(self, *order.arguments)
        except (BsdError, Stopping) as problem:
            error = problem
        except MemoryError:
            leaves = True  # who knows what else had no room
            error = Unavailable(
                f"it takes more than the {order.memory >> 20} MB of memory that it may take"
            )
        except Exception as problem:  # noqa: BLE001 - it is told where it was asked for
            error = RuntimeError(f"{problem!r}\n{traceback.format_exc()}")
        own = self.in_flight.own
        remembered = {session: own.hand_over(session) for session in order.remembered}
        told = {session: memory for session, memory in remembered.items() if any(memory)}
        return Reply(answer, error, told, leaves)


def main(descriptor: int) -> NoReturn:
    """Be a child whose parent is at the other end of a socket."""
    # The terminal's signals and the service manager's are for the parent.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # who started us may have ignored it
    with suppress(EOFError, OSError):  # a parent that is gone before it has begun
        _begin(Connection(descriptor))
    close_logs()
    sys.stdout.flush()
    os._exit(0)  # nothing is open but what the kernel closes


def _begin(parent: Connection) -> None:
    given: Setup = parent.recv()
    if given.version == __version__:
        parent.send(None)
        Child(given, parent).serve()
        return
    # Half of one release and half of another would do what nobody has tried.
    parent.send(
        Unavailable(
            f"bsd {given.version} runs, but bsd {__version__} is installed by now",
            hint="start the daemon anew",
        )
    )


def _tidy() -> None:
    """Give back what a large session took: the next one is most likely small."""
    with suppress(OSError), open("/proc/self/statm", "rb") as file:
        if int(file.read().split()[1]) > _MANY_PAGES:
            give_back_memory()
