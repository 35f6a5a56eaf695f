"""A verb: what can be done to a session, or asked of one or of all, said once for all doors.

A verb is data: what it takes and what it answers are dataclasses, what it does is a planner or a
query. The doors are made from that. A planner returns a plan and an answer, and `perform` puts the
plan into effect; a query only looks. Both work on any source of lines, so what a transcript asks
for is planned by the same functions, several of them on one plan.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from bsd.core.definition import (
    Answer,
    Argument,
    Body,
    Definition,
    Route,
    Tool,
    argument,
    arguments_of,
)
from bsd.core.layout import Layout, SessionName
from bsd.core.verb_names import NAMES
from bsd.planning.plan import Means, Plan, Report
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.reader import Transcript

if TYPE_CHECKING:  # who only asks loads no surgeon
    from bsd.actions.list_entries import Outlines
    from bsd.actions.list_sessions import SearchState
    from bsd.core.config_file import ConfigService
    from bsd.maintenance.trash import Trash
    from bsd.sessions.notes import Notes
    from bsd.sessions.surgeon import Surgeon

# What the module of a verb needs, from one place.
__all__ = [
    "Argument",
    "Body",
    "Hands",
    "Meanwhile",
    "RootHands",
    "Send",
    "Server",
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


class Hands(Protocol):
    """Who does it: a surgeon for a session, that writes or only reads."""

    @property
    def layout(self) -> Layout: ...

    def surgeon(self, name: SessionName, *, writes: bool) -> Surgeon: ...


class RootHands(Hands, Protocol):
    """Who does what concerns more than lines of one session, too."""

    @property
    def config(self) -> ConfigService: ...

    @property
    def actor(self) -> str: ...

    def trash(self, *, writes: bool) -> Trash: ...

    def clock(self) -> float: ...

    def progressed(self, done: int, of: int | None = None) -> None:
        """Hear how far it is: bytes of a session, or of all there is to read; may raise, to end it.

        Where sessions are only counted, it is their number.
        """
        ...

    def stopping(self) -> bool:
        """Whether what is not begun shall not be begun any more."""
        ...

    def cleaned(self) -> None:
        """Hear that something was deleted for good."""
        ...


class Server(RootHands, Protocol):
    """Hands of the daemon, which keeps something from one call to the next."""

    @property
    def outlines(self) -> Outlines: ...

    def search_state(self) -> SearchState:
        """How far the index of words follows the sessions."""
        ...


_A = TypeVar("_A")
_R = TypeVar("_R", bound=Answer)
Meanwhile = Callable[[Answer], None]  # is given an answer that is true before all is done


class Send(Protocol):
    """Has another process do a verb, which is named.

    Hands that have one as `send` open no transcript themselves: who parses one keeps all threads of
    his process waiting, and so leases.
    """

    def __call__(
        self,
        verb: str,
        name: SessionName | None,
        asked: Any,
        meanwhile: Meanwhile,
        *,
        changes: bool,
    ) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb(Definition[_A, _R]):
    """One verb. It has a `plan`, a `query`, or (what is neither alone) an `act` or `ask`.

    Its `name` is what log, audit and history call it.
    """

    plan: Callable[[Transcript, TranscriptFormat, _A, Means], tuple[Plan, _R]] | None = None
    query: Callable[[Transcript, TranscriptFormat, _A, Means], _R] | None = None
    # The hands are of either kind; `Server` only where nothing but HTTP reaches it.
    act: Callable[[Any, SessionName, _A, Meanwhile], _R] | None = None
    ask: Callable[[Any, _A], _R] | None = None  # of all sessions, so that none is named
    reads: bool = False  # what it asks may take reading whole sessions
    # Writes down more than that a session was changed; without a report nothing was.
    noted: Callable[[Notes, SessionName, _R, Report | None], None] | None = None
    # Adds to the answer what planners cannot know.
    explained: Callable[[Layout, _R], _R] | None = None
    # The entries of which log and audit tell; None: the one that the answer is about.
    entries: Callable[[_R], list[str]] | None = None

    @property
    def opens(self) -> bool:
        """Whether it opens sessions, and perhaps reads all of one."""
        return self.ask is None or self.changes or self.reads

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


def no_one_waits(_: Answer) -> None: ...


def perform(
    verb: Verb[_A, _R],
    hands: Hands,
    name: SessionName | None,
    arguments: _A,
    meanwhile: Meanwhile = no_one_waits,
) -> _R:
    """Do what a verb says to one session, and return its answer; raises what its parts raise.

    `name` is None only for a verb that asks of all. One with `dry_run` among its arguments changes
    nothing if that is set.
    """
    send: Send | None = getattr(hands, "send", None)
    if send is not None and verb.opens and (known := _known_as(verb)):
        answered: _R = send(known, name, arguments, meanwhile, changes=verb.changes)
        return answered
    if verb.ask is not None:
        return verb.ask(hands, arguments)
    assert name is not None  # noqa: S101 - see above
    if verb.act is not None:
        return verb.act(hands, name, arguments, meanwhile)
    if verb.plan is not None:
        return _carry_out(verb, hands, name, arguments)
    query = verb.query
    assert query is not None  # noqa: S101 - a verb is one of the three
    surgeon = hands.surgeon(name, writes=False)
    return surgeon.look(name, lambda source, fmt, means: query(source, fmt, arguments, means))


def _carry_out(verb: Verb[_A, _R], hands: Hands, name: SessionName, arguments: _A) -> _R:
    make = verb.plan
    assert make is not None  # noqa: S101 - see above

    def plan(source: Transcript, fmt: TranscriptFormat, means: Means) -> tuple[Plan, _R]:
        return make(source, fmt, arguments, means)

    def note(notes: Notes, report: Report | None, answer: _R) -> None:
        if verb.noted is not None:
            verb.noted(notes, name, answer, report)
        if report is None:
            return
        action = verb.action(arguments)
        if verb.entries is not None:
            notes.changed_several(action, name, report, verb.entries(answer))
        else:
            notes.changed(action, name, report, entry=getattr(answer, "entry_id", None))

    dry_run = bool(getattr(arguments, "dry_run", False))
    surgeon = hands.surgeon(name, writes=not dry_run)
    number, answer = surgeon.perform(name, plan, note, dry_run=dry_run)
    if verb.explained is not None:
        answer = verb.explained(hands.layout, answer)
    if hasattr(answer, "operation"):
        answer = replace(answer, operation=number)
    return answer


def verb_named(name: str) -> Verb[Any, Any]:
    """The verb of this name."""
    module = import_module(f"bsd.actions.{NAMES[name].module}")
    found: Verb[Any, Any] = getattr(module, name.upper())
    return found


def _known_as(verb: Verb[Any, Any]) -> str | None:
    """By which name `verb_named` finds a verb; None for one that a door has made."""
    for name, one in NAMES.items():
        module = sys.modules.get(f"bsd.actions.{one.module}")
        if getattr(module, name.upper(), None) is verb:
            return name
    return None


def all_verbs(*, of_agents: bool = False) -> dict[str, Verb[Any, Any]]:
    """All of them, by name; or only those for which agents have tools."""
    return {name: verb_named(name) for name, one in NAMES.items() if one.tools or not of_agents}
