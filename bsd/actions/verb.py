"""A verb: what the interfaces of today know of an action, until they call its function.

Everything here, and `bsd.actions.verbs`, goes with the last interface that uses it. What an action
does stands in its function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar, cast

from bsd.actions.context import ActionContext
from bsd.core.definition import (
    Argument,
    Body,
    Definition,
    Route,
    Tool,
    argument,
    arguments_of,
)
from bsd.core.layout import SessionName
from bsd.core.verb_names import NAMES

__all__ = [
    "Argument",
    "Body",
    "Meanwhile",
    "Tool",
    "Verb",
    "all_verbs",
    "argument",
    "arguments_of",
    "no_one_waits",
    "perform",
    "route",
    "verb_named",
]

_A = TypeVar("_A")
_R = TypeVar("_R")
Meanwhile = Callable[[Any], None]  # is given an answer that is true before all is done


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb(Definition[_A, _R]):
    """One verb: `act` calls the function of its action with what was asked for."""

    act: Callable[[ActionContext, SessionName, _A], _R] | None = None
    ask: Callable[[ActionContext, _A], _R] | None = None  # of all sessions, so that none is named
    reads: bool = False  # what it asks may take reading whole sessions

    def action(self, arguments: _A) -> str:
        """What log, audit and history call it, done with these arguments."""
        return str(getattr(arguments, "action", self.name))


def route(where: str, name: str, doc: str, **more: Any) -> Route:
    """Where HTTP finds a verb of sessions: `POST …/undo`, in which … is the session's own path.

    `name`, `doc`, `more`: see `Route`. Unless it is said, the tag is the first word below
    `/api`, or `entries` for what is below those of a session.
    """
    method, path = where.replace("…", "/api/sessions/{agent}/{session}").split()
    tag = "entries" if "…/entries" in where else path.split("/")[2]
    return Route(method, path, name, doc, **{"tag": tag, **more})


def no_one_waits(_: Any) -> None: ...


def perform(
    verb: Verb[_A, _R],
    hands: Any,
    name: SessionName | None,
    arguments: _A,
    meanwhile: Meanwhile = no_one_waits,
) -> _R:
    """Do what a verb says to one session, and return its answer; raises what its parts raise."""
    writes = verb.changes and not getattr(arguments, "dry_run", False)
    context = cast("ActionContext", _OfHands(hands, name, meanwhile, writes=writes))
    if verb.ask is not None:
        return verb.ask(context, arguments)
    assert verb.act is not None  # noqa: S101 - a verb has one of the two
    assert name is not None  # noqa: S101
    return verb.act(context, name, arguments)


class _OfHands:
    """The context that hands of an interface of today stand for; hands are looked at when used."""

    def __init__(
        self, hands: Any, name: SessionName | None, meanwhile: Meanwhile, *, writes: bool
    ) -> None:
        self._hands = hands
        self._name = name
        self._writes = writes
        self.early_answer = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hands, name)

    @property
    def budget(self) -> Any:
        return self.trash().budget

    def progress(self, done: int, of: int | None = None) -> None:
        more = () if of is None else (of,)
        self._hands.progressed(done, *more)

    def surgeon(self) -> Any:
        return self._hands.surgeon(self._name, writes=self._writes)

    def trash(self) -> Any:
        return self._hands.trash(writes=self._writes)

    def now(self) -> float:
        now: float = self._hands.clock()
        return now

    def run(self, action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._call(action, args, kwargs, changes=True)

    def query(self, action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._call(action, args, kwargs, changes=False)

    def _call(
        self,
        action: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        changes: bool,
    ) -> Any:
        executor = getattr(self._hands, "executor", None)
        if executor is None:
            writes = self._writes and changes
            here = _OfHands(self._hands, self._name, self.early_answer, writes=writes)
            return action(here, *args, **kwargs)
        return executor(self, action, args, kwargs, changes=changes)


def verb_named(name: str) -> Verb[Any, Any]:
    """The verb of this name."""
    module = import_module(f"bsd.actions.{NAMES[name].module}")
    found: Verb[Any, Any] = getattr(module, name.upper())
    return found


def all_verbs(*, of_agents: bool = False) -> dict[str, Verb[Any, Any]]:
    """All of them, by name; or only those for which agents have tools."""
    return {name: verb_named(name) for name, one in NAMES.items() if one.tools or not of_agents}
