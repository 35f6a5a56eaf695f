"""list_history and undo: the operations on a session, and their undo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.core.answers import Internal
from bsd.core.layout import SessionName
from bsd.planning.foresee_undo import foresee_undo
from bsd.planning.plan import Plan
from bsd.planning.undo import PastOperation, Undone, plan_undo, tell_history
from bsd.planning.undo_effect import UndoEffect
from bsd.sessions.session import OpenSession, Session
from bsd.store.changed_lines import resolve_pending
from bsd.store.history import History
from bsd.store.state import state_at


@dataclass(frozen=True, slots=True)
class HistoryList:
    """The operations that can be undone."""

    session: str
    operations: Annotated[tuple[PastOperation, ...], Field(description="The newest first")]
    kept: Internal[int]  # the number of all operations, listed or not


def list_history(
    context: ActionContext, session: SessionName, limit: int | None = None
) -> HistoryList:
    """List the operations on a session that can be undone, the newest first.

    Args:
        limit: the maximum number of operations; None: all.

    Raises:
        NotFound: neither the session nor a history of it exists.
    """
    history = History(context.layout, session)
    if history.pending():  # a process ended before it could record the outcome
        with context.reader(session, to_edit=True) as opened:
            operations = tell_history(history, opened.transcript)
    else:
        operations = tell_history(history, None)
    if not operations:
        # A mistyped name must be an error, not an empty history.
        Session(context.layout, session).refuse_no_session()
    return HistoryList(str(session), tuple(operations[:limit]), len(operations))


def undo(
    context: ActionContext,
    session: SessionName,
    operation: int | None = None,
    *,
    dry_run: bool = False,
) -> Undone:
    """Undo an operation: restore every line that it changed, exact to the byte.

    If the operation is an extraction, entries that were restored as a whole since then stay as
    they are.

    Args:
        operation: a number from the history; None: the newest operation that is not undone.
        dry_run: return the expected `effect`, and change no file.

    Raises:
        NotFound: there is no such session or operation.
        Busy: the session is in use.
        Conflict: the operation is undone already, or later operations changed the same entries.
    """
    if dry_run:
        return _foresee(context, session, [operation])[0]
    chosen = operation

    def plan(opened: OpenSession) -> tuple[Plan, Undone]:
        resolve_pending(opened.history, opened.transcript)
        return plan_undo(opened.transcript, opened.format, chosen, opened.history, opened.store)

    entries: list[str] = []
    operations: list[int] = []
    Session(context.layout, session).refuse_no_session()
    editor = context.editor(session)
    # There may be several plans: each undoes as much as one commit may contain.
    for done, outcome, answer in editor.apply_all(plan):
        chosen = answer.of.number
        entries += answer.entries
        if outcome is not None and outcome.operation is not None:
            operations.append(outcome.operation)
            editor.notes.undone(done, answer)
    state_at(context.layout.state_db).forget(session)
    return replace(answer, entries=tuple(entries), operations=tuple(operations))


def foresee_undoing(
    context: ActionContext, session: SessionName, numbers: Sequence[int]
) -> UndoEffect:
    """Return the expected effect of undoing several operations of a session.

    Operations whose changes are gone already are skipped.

    Args:
        numbers: the operations in the order in which they are undone, each after the one before.

    Raises:
        NotFound: there is no such session or operation.
        NothingToUndo: no operation has a change that is still in effect.
        Conflict: an operation is undone already, or a later change conflicts with its undo.
    """
    return _foresee(context, session, numbers)[1]


def _foresee(
    context: ActionContext, session: SessionName, numbers: Sequence[int | None]
) -> tuple[Undone, UndoEffect]:
    """Return the answer of the last undo, and the effect of all of them."""
    Session(context.layout, session).refuse_no_session()
    with context.reader(session, to_edit=True) as opened:
        answers, effect = foresee_undo(
            opened.transcript, opened.format, numbers, opened.history, opened.store, opened.now
        )
    return replace(answers[-1], effect=effect), effect
