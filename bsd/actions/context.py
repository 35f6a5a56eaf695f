"""The context of an action: paths, settings, the actor, the retry budget, and callbacks.

An action is a function of this package whose first parameter is an `ActionContext`. An interface
creates a context and calls the function. If the function opens sessions, the interface calls it
through `run` or `query`: a context with an executor has another process call the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, Protocol, TypeVar

from pydantic import Field

from bsd.actions.outlines import Outlines
from bsd.core.config_file import ConfigService
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout, SessionName
from bsd.core.price_list import PriceSources
from bsd.maintenance.trash import Trash
from bsd.sessions.commit.displaced import Recovered
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.recovery import recover
from bsd.sessions.editor import Noticed, SessionEditor
from bsd.sessions.idle import RetryBudget
from bsd.sessions.session import Session, SessionReader

P = ParamSpec("P")
T = TypeVar("T")


class ProgressCallback(Protocol):
    """Receives the progress of an action; may raise an exception to end the action."""

    def __call__(self, done: int, of: int | None = None) -> None:
        """Take note that `done` of `of` bytes are read.

        An action that counts sessions, not bytes, passes numbers of sessions.
        """


class Executor(Protocol):
    """Calls an action in another process, with a context of that process."""

    def __call__(
        self,
        context: ActionContext,
        action: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        changes: bool,
    ) -> T:
        """Return the answer of `action(child's context, *args, **kwargs)`, or raise its error.

        Args:
            action: a function of a module, since the function and its arguments are pickled.
            changes: the action may change a session, so the process must not be ended before the
                action has finished.
        """


@dataclass(frozen=True, slots=True)
class SearchState:
    """The state of the search index."""

    complete: Annotated[bool, Field(description="True if the index has read all sessions")]
    waiting: Annotated[int, Field(description="Sessions that the index has not read yet")]
    problem: str | None


def _ignore_progress(done: int, of: int | None = None) -> None: ...


def _no_index() -> SearchState:
    return SearchState(complete=False, waiting=0, problem="there is no search index here")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """The environment of an action, as its caller provides it.

    Attributes:
        actor: the caller's name in the audit, the log and the history.
        fleet: what this host shares with others.
        prices: the prices that bsd.toml names; `prices.table()` has all that are known.
        budget: how long an action waits for sessions in use, and the clock.
        progress: called with the progress of a long action.
        stopping: returns True if the action must not begin further work.
        cleaned: called after data was deleted for good.
        early_answer: called with an answer that is already correct while the action still works,
            if the action has such an answer.
        noticed: called with the outcome of each attempt to commit.
        in_flight: the commits of this process; None: each call creates its own.
        outlines: a cache for sessions that are listed page by page.
        search_state: returns the state of the search index.
        executor: calls actions that open sessions in another process; None: this process calls
            them.
    """

    layout: Layout
    config: ConfigService
    actor: str = "cli"
    fleet: FleetSettings = field(default_factory=FleetSettings)
    prices: PriceSources = field(default_factory=PriceSources)
    budget: RetryBudget = field(default_factory=RetryBudget)
    progress: ProgressCallback = _ignore_progress
    stopping: Callable[[], bool] = lambda: False
    cleaned: Callable[[], None] = lambda: None
    early_answer: Callable[[Any], None] = lambda _: None
    noticed: Noticed | None = None
    in_flight: InFlight | None = None
    outlines: Outlines = field(default_factory=Outlines)
    search_state: Callable[[], SearchState] = _no_index
    executor: Executor | None = None

    def run(
        self,
        action: Callable[Concatenate[ActionContext, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call an action that may change sessions, through the executor if there is one."""
        if self.executor is None:
            return action(self, *args, **kwargs)
        return self.executor(self, action, args, kwargs, changes=True)

    def query(
        self,
        action: Callable[Concatenate[ActionContext, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call an action that only reads sessions, through the executor if there is one."""
        if self.executor is None:
            return action(self, *args, **kwargs)
        return self.executor(self, action, args, kwargs, changes=False)

    def with_excluded(self) -> ActionContext:
        """Return a context in which excluded sessions may be named."""
        return replace(self, layout=self.layout.with_excluded())

    def editor(self, session: SessionName) -> SessionEditor:
        """Return an editor of a session that acts for this actor, within the budget."""
        return SessionEditor(
            Session(self.layout, session),
            self.config,
            actor=self.actor,
            budget=self.budget,
            inflight=self.in_flight or InFlight(self.layout),
            noticed=self.noticed,
        )

    def reader(self, session: SessionName, *, to_edit: bool = False) -> SessionReader:
        """Return a reader of a session; `to_edit`: refuse a session that bsd does not edit."""
        opened = Session(self.layout, session)
        return SessionReader(opened, self.config, self.now(), to_edit=to_edit)

    def recover(self, records: Iterable[Path] | None = None) -> list[Recovered]:
        """Finish or undo commits that an earlier process did not complete.

        Args:
            records: only the commits of these records; None: all.
        """
        return recover(
            self.in_flight or InFlight(self.layout),
            now_ns=lambda: int(self.now() * 1e9),
            records=records,
        )

    def trash(self) -> Trash:
        """Return the trash with the setting `trash_retention`; raises ConfigError."""
        keep = self.config.current.trash_retention
        return Trash(self.layout, keep, actor=self.actor, budget=self.budget)

    def now(self) -> float:
        """Return the time in epoch seconds."""
        return self.budget.clock()
