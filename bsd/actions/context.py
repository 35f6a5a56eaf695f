"""The context of an action: paths, settings, the actor, how long to wait, and whom to tell.

An action is a function of this package whose first parameter is an `ActionContext`. An interface
makes a context, and calls the function directly, or through `run` and `query` where the function
opens sessions: a context with an executor has another process call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, Protocol, TypeVar

from pydantic import Field

from bsd.actions.outlines import Outlines
from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
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
    """Is told how far an action is; may raise an exception to end the action."""

    def __call__(self, done: int, of: int | None = None) -> None:
        """Hear that `done` of `of` bytes (where sessions are only counted: sessions) are read."""


class Executor(Protocol):
    """Has another process call an action, with a context of that process."""

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

        All of them are pickled, so `action` is a function of a module. `changes`: the action may
        change a session, so the process must not be ended in the middle.
        """


@dataclass(frozen=True, slots=True)
class SearchState:
    """How far the index of words follows the sessions."""

    complete: Annotated[bool, Field(description="Whether all sessions were read")]
    waiting: Annotated[int, Field(description="Sessions that are still to be read")]
    problem: str | None


def _ignore_progress(done: int, of: int | None = None) -> None: ...


def _no_index() -> SearchState:
    return SearchState(complete=False, waiting=0, problem="no index is kept here")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """What an action knows of its caller.

    Attributes:
        actor: the caller's name in audit, log and history.
        budget: for how long sessions in use are waited for, and by which clock.
        progress: told how far a long action is.
        stopping: True if work that is not begun shall not be begun any more.
        cleaned: called when something was deleted for good.
        early_answer: given an answer that is true before all is done, if an action has one.
        noticed: told how each attempt to commit ended.
        in_flight: the commits of this process; None: made for each call.
        outlines: of sessions that were listed page by page.
        search_state: how far the search index is.
        executor: has another process call actions that open sessions; None: this one does.
    """

    layout: Layout
    config: ConfigService
    actor: str = "cli"
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
        """Call an action that may change sessions, here or where the executor has it called."""
        if self.executor is None:
            return action(self, *args, **kwargs)
        return self.executor(self, action, args, kwargs, changes=True)

    def query(
        self,
        action: Callable[Concatenate[ActionContext, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call an action that reads sessions and changes none, as `run` does."""
        if self.executor is None:
            return action(self, *args, **kwargs)
        return self.executor(self, action, args, kwargs, changes=False)

    def with_excluded(self) -> ActionContext:
        """Return the context for an action that a session may be named for although excluded."""
        return replace(self, layout=self.layout.with_excluded())

    def editor(self, session: SessionName) -> SessionEditor:
        """Return an editor that changes a session for this actor, within the budget."""
        return SessionEditor(
            Session(self.layout, session),
            self.config,
            actor=self.actor,
            budget=self.budget,
            inflight=self.in_flight or InFlight(self.layout),
            noticed=self.noticed,
        )

    def reader(self, session: SessionName, *, to_edit: bool = False) -> SessionReader:
        """Return a reader of a session; `to_edit`: refuse one that bsd does not edit."""
        opened = Session(self.layout, session)
        return SessionReader(opened, self.config, self.now(), to_edit=to_edit)

    def recover(self, records: Iterable[Path] | None = None) -> list[Recovered]:
        """Finish or undo commits that an earlier process left half done: all, or these records."""
        return recover(
            self.in_flight or InFlight(self.layout),
            now_ns=lambda: int(self.now() * 1e9),
            records=records,
        )

    def trash(self) -> Trash:
        """Return the trash, with the setting `trash_retention`; raises ConfigError."""
        keep = self.config.current.trash_retention
        return Trash(self.layout, keep, actor=self.actor, budget=self.budget)

    def now(self) -> float:
        """Return the time in epoch seconds."""
        return self.budget.clock()
