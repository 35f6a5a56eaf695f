"""undo_since: undo bsd's own changes since a moment, in many sessions at once.

It undoes all extractions, from the daemon, a command or the page, and all other changes that the
daemon made on its own. Changes that a person or an agent asked for stay.

Each session is first checked as a whole: if a later change conflicts with the undo, the session is
left as it is. Then its operations are undone one by one, the newest first, as `history.undo` does.
A session must be idle for two seconds between two changes, so the other sessions are changed in the
meantime.

The operations of a session are numbered in their order. If the clock was set between two
operations, their times may contradict this order. An operation is undone only if both its number
and its time place it after the moment. If they disagree, the operation stays, and the answer names
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.actions.history import foresee_undoing, undo
from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import BsdError, Busy, Conflict
from bsd.core.formatting import iso_utc
from bsd.core.layout import SessionName
from bsd.core.past_moments import parse_past
from bsd.maintenance import catalog
from bsd.planning.undo import NothingToUndo
from bsd.planning.undo_effect import UndoEffect, sum_of
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.idle import IdlePolicy, busy
from bsd.store.history import Act, History, Operation, undone_entries
from bsd.transcripts.agents.opening import stat_transcript

_DAEMON = "daemon"
_EXTRACT = "extract"
_CLOCKS_DIFFER_SECONDS = 60.0


class UndoStatus(StrEnum):
    """The outcome for one session."""

    UNDONE = "undone"
    UNCHANGED = "unchanged"  # all values are restored already
    LEFT = "left"  # a later change of a person or a program conflicts, or bsd may not edit it
    BUSY = "busy"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUndone:
    """The operations of a session that were undone (with `dry_run`: would be undone)."""

    session: str
    status: UndoStatus
    found: Annotated[
        int, Field(description="Number of operations since the moment that were not undone before")
    ]
    operations: Annotated[
        tuple[int, ...], Field(description="Operations that this call undoes, newest first")
    ] = ()
    by: Annotated[
        tuple[int, ...],
        Field(description="Operations that undid them; undo these to redo the changes"),
        OMIT_EMPTY,
    ] = ()
    effect: Annotated[
        UndoEffect | None, Field(description="The effect of all these undos"), OMIT_EMPTY
    ] = None
    doubt: Annotated[
        str | None,
        Field(description="Operations that stay because their times contradict their order"),
        OMIT_EMPTY,
    ] = None
    reason: Annotated[str | None, OMIT_EMPTY] = None
    hint: Annotated[str | None, OMIT_EMPTY] = None
    error: Internal[type[BsdError] | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoneSince:
    """The outcome for each session that bsd changed since the moment."""

    since: Annotated[str, Field(description="ISO 8601")]
    dry_run: bool
    sessions: tuple[SessionUndone, ...]
    undone: Annotated[int, Field(description="Number of sessions with an undone operation")]
    operations: Annotated[int, Field(description="Number of undone operations in all sessions")]
    total: Annotated[UndoEffect, Field(description="The effect in all these sessions")]
    not_begun: Annotated[
        int, Field(description="Number of sessions left out because a signal ended the run")
    ] = 0


def undo_since(
    context: ActionContext,
    since: str,
    *,
    agent: str | None = None,
    session: SessionName | None = None,
    dry_run: bool = False,
) -> UndoneSince:
    """Undo all extractions since a moment, and all other changes that the daemon made on its own.

    A session in use is left as it is, and so is a session with a conflict; the answer has the
    reason. If `context.stopping()` becomes true, no further operation is begun.

    Args:
        since: a moment in the syntax of `core.past_moments`: `yesterday`, `2h`, ISO 8601.
        agent: only sessions of this agent.
        session: only this session.
        dry_run: return the operations that would be undone, and undo none.

    Raises:
        Invalid: `since` is not a moment in the past.
        LeftAlone: the agent, or the session, is excluded.
    """
    moment = parse_past(since, context.now())
    names = [session] if session is not None else list(catalog.names(context.layout, agent))
    found = {name: each for name in names if (each := _of_bsd(context, name, moment))}
    sizes = {name: _size(context, name) for name in found}
    run, read = _UndoRun(context, dry_run=dry_run), 0
    for at, (name, operations) in enumerate(found.items()):
        if context.stopping():
            run.not_begun = len(found) - at
            break
        context.progress(read, sum(sizes.values()))
        run.begin(name, operations)
        read += sizes[name]
    run.go_on()
    return run.answer(iso_utc(moment))


def is_of_bsd(act: Act) -> bool:
    """Return True for an extraction, and for any other change that the daemon made."""
    return act.undoes is None and (act.action == _EXTRACT or act.actor == _DAEMON)


@dataclass(frozen=True, slots=True)
class _Since:
    """bsd's own operations in effect, newest first: those since a moment, and doubtful ones."""

    numbers: list[int]
    doubtful: list[Operation]

    def __bool__(self) -> bool:
        return bool(self.numbers or self.doubtful)

    def doubt(self) -> str | None:
        """Return a sentence that names the doubtful operations, or None."""
        if not self.doubtful:
            return None
        named = ", ".join(str(each) for each in reversed(self.doubtful))
        return f"the clock was set, so it is not known whether these operations came since: {named}"


def _of_bsd(context: ActionContext, name: SessionName, moment: float) -> _Since:
    """Return bsd's own operations on a session since a moment that are in effect."""
    history = History(context.layout, name)
    if not history.may_be_changed_since(moment):
        return _Since([], [])
    operations = history.operations()
    undone = undone_entries(operations)
    latest = iso_utc(context.now() + _CLOCKS_DIFFER_SECONDS)
    times = [one.act.at for one in operations]
    doubtful, certain = _order_since(times, iso_utc(moment), latest)
    standing = [
        (index, one)
        for index, one in reversed([*enumerate(operations)])
        if is_of_bsd(one.act) and undone[one.number] < one.entries
    ]
    return _Since(
        [one.number for index, one in standing if index >= certain],
        [one for index, one in standing if doubtful <= index < certain],
    )


def _order_since(times: Sequence[str], begins: str, latest: str) -> tuple[int, int]:
    """Find by times and order which operations came since a moment.

    Args:
        times: the times of all operations of a session, in the order of the operations.
        begins: the moment.
        latest: later times are ignored: the clock was ahead.

    Returns:
        The index of the first operation that may have come since the moment, and the index of the
        first operation that certainly has.
    """
    before = [index for index, at in enumerate(times) if at < begins]
    since = [index for index, at in enumerate(times) if begins <= at <= latest]
    after_all_before = before[-1] + 1 if before else 0
    first_since = since[0] if since else len(times)
    return min(after_all_before, first_since), max(after_all_before, first_since)


def _size(context: ActionContext, name: SessionName) -> int:
    try:
        return stat_transcript(context.layout, name).st_size
    except (BsdError, OSError):  # reading the session reports the problem
        return 0


class _UndoRun:
    """The sessions of one call, and the outcome for each."""

    def __init__(self, context: ActionContext, *, dry_run: bool) -> None:
        self.not_begun = 0
        self._context = context
        self._dry_run = dry_run
        self._results: dict[SessionName, SessionUndone] = {}
        self._left: dict[SessionName, list[int]] = {}  # operations that are still to be undone

    def begin(self, name: SessionName, since: _Since) -> None:
        """Check a session as a whole, and undo its newest operation."""
        numbers = since.numbers
        result = SessionUndone(
            session=str(name),
            status=UndoStatus.UNDONE,
            found=len(numbers) or len(since.doubtful),
            doubt=since.doubt(),
        )
        if not numbers:
            hint = f"`bsd history {name}` shows their order, `bsd undo {name} OP` undoes one"
            self._results[name] = replace(
                result, status=UndoStatus.LEFT, doubt=None, reason=result.doubt, hint=hint
            )
            return
        try:
            if self._dry_run:
                self._refuse_in_use(name)
            effect = self._context.query(foresee_undoing, name, numbers)
        except BsdError as error:
            self._results[name] = _failed(result, error)
            return
        result = replace(result, effect=effect)
        if self._dry_run:
            self._results[name] = replace(result, operations=effect.operations)
            return
        self._results[name] = result
        self._left[name] = list(effect.operations)
        self._undo_next(name, wait=0.0)

    def go_on(self) -> None:
        """Undo the older operations of all sessions, one of each session in turn."""
        while self._left and not self._context.stopping():
            for name in list(self._left):
                if self._context.stopping():
                    return
                self._undo_next(name, wait=self._context.budget.wait)

    def _undo_next(self, name: SessionName, *, wait: float) -> None:
        left, result = self._left[name], self._results[name]
        budget = replace(self._context.budget, wait=wait)
        try:
            done = replace(self._context, budget=budget).run(undo, name, left[0])
        except BsdError as error:
            self._results[name] = _failed(result, error)
            del self._left[name]
            return
        self._results[name] = replace(
            result, operations=(*result.operations, left.pop(0)), by=(*result.by, *done.operations)
        )
        if not left:
            del self._left[name]

    def _refuse_in_use(self, name: SessionName) -> None:
        layout, budget = self._context.layout, self._context.budget
        inflight = self._context.in_flight or InFlight(layout)
        not_idle = IdlePolicy(layout, budget, inflight).why_not(name)
        if not_idle is not None:
            raise busy(name, not_idle)

    def answer(self, since: str) -> UndoneSince:
        results = tuple(self._results.values())
        undone = [one for one in results if one.operations]
        return UndoneSince(
            since=since,
            dry_run=self._dry_run,
            sessions=results,
            undone=len(undone),
            operations=sum(len(one.operations) for one in undone),
            total=sum_of(one.effect for one in undone if one.effect is not None),
            not_begun=self.not_begun,
        )


def _failed(result: SessionUndone, error: BsdError) -> SessionUndone:
    match error:
        case Busy():
            status = UndoStatus.BUSY
        case NothingToUndo():
            status = UndoStatus.UNCHANGED
        case Conflict():
            status = UndoStatus.LEFT
        case _:
            status = UndoStatus.FAILED
    # `effect` covers all operations, and only some of them may have been undone.
    return replace(
        result,
        status=status,
        effect=None,
        reason=error.message,
        hint=error.hint,
        error=type(error),
    )
