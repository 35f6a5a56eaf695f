"""list_history and undo: the operations on a session, and taking them back."""

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
    kept: Internal[int]  # so many there are in all


def list_history(
    context: ActionContext, session: SessionName, limit: int | None = None
) -> HistoryList:
    """List the operations on a session that can be undone, the newest first.

    Args:
        limit: no more than so many; None for all that are kept.

    Raises:
        NotFound: there is no such session, nor any history of it.
    """
    history = History(context.layout, session)
    if history.pending():  # its process ended before it could note the outcome
        with context.reader(session, to_edit=True) as opened:
            operations = tell_history(history, opened.transcript)
    else:
        operations = tell_history(history, None)
    if not operations:
        # A name mistyped is an error, not an empty history.
        Session(context.layout, session).refuse_no_session()
    return HistoryList(str(session), tuple(operations[:limit]), len(operations))


def undo(
    context: ActionContext,
    session: SessionName,
    operation: int | None = None,
    *,
    dry_run: bool = False,
) -> Undone:
    """Take an operation back: every line that it changed is restored, exact to the byte.

    Entries of an extraction that were restored since, as a whole, stay as they are.

    Args:
        operation: a number from the history; None for the newest one that is not undone.
        dry_run: say what would change (`effect`), and change nothing.

    Raises:
        NotFound: there is no such session or operation.
        Busy: the session is in use.
        Conflict: the operation is undone, or other operations changed the same entries since.
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
    # More than one plan, perhaps: each takes back as much as a commit may hold.
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
    """Return what undoing several operations of a session would change.

    Operations of which nothing is left to undo are passed over.

    Args:
        numbers: in the order in which they are undone, each on what the one before leaves.

    Raises:
        NotFound: there is no such session or operation.
        NothingToUndo: nothing is left of any of them.
        Conflict: one of them is undone, or something stands in its way.
    """
    return _foresee(context, session, numbers)[1]


def _foresee(
    context: ActionContext, session: SessionName, numbers: Sequence[int | None]
) -> tuple[Undone, UndoEffect]:
    """Return the answer of the last undo, and what all of them would change."""
    Session(context.layout, session).refuse_no_session()
    with context.reader(session, to_edit=True) as opened:
        answers, effect = foresee_undo(
            opened.transcript, opened.format, numbers, opened.history, opened.store, opened.now
        )
    return replace(answers[-1], effect=effect), effect
