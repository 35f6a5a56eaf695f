"""restore, restore_entries and restore_all: put extracted values back, exact to the byte.

These actions accept excluded sessions if the interface does, because the values of an excluded
session must stay restorable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from bsd.actions.context import ActionContext
from bsd.core.errors import BsdError, Conflict, LeftAlone, NotFound
from bsd.core.layout import Layout, SessionName
from bsd.planning.plan import Plan, Revised
from bsd.planning.restore import (
    Restored,
    plan_restore,
    plan_restore_all,
    restored_copy,
    restored_lines,
)
from bsd.planning.result import SessionResult, Status
from bsd.planning.uninstall import plan_leaving
from bsd.sessions.editor import SessionEditor, left_as
from bsd.sessions.notes import told_expired
from bsd.sessions.session import OpenSession, Session
from bsd.store.originals import Missing
from bsd.store.root_records import RootRecords

_STAYS = "it is stored, but this file is not edited; `bsd restore-all {} --to FILE` writes a copy"


def restore(
    context: ActionContext,
    session: SessionName,
    entry: str,
    keys: Sequence[str] | None = None,
) -> Restored:
    """Put the values of one entry back inline (seed 001).

    Args:
        entry: the id in the placeholder [[extracted-ID]], or `#` and a line number.
        keys: only these values, by path or by one segment of it; None for all.

    Raises:
        NotFound: there is no such session or entry.
        Busy: the session is in use.
        Conflict: no value of the entry is extracted.
        Invalid: a key names no extracted value.
    """
    editor = context.with_excluded().editor(session)
    answer = editor.apply(
        lambda opened: plan_restore(
            opened.transcript, opened.format, entry, keys, opened.now, opened.store
        )
    )
    explain_missing(context.layout, answer)
    editor.notes.restored(answer)
    return answer


def explain_missing(layout: Layout, answer: Restored) -> Restored:
    """If missing values were deleted by age, add the time and the setting to the answer."""
    if answer.missing is Missing.GONE:
        answer.expired = told_expired(layout, answer.extracted_at)
    return answer


def restore_entries(
    context: ActionContext, session: SessionName, entries: Sequence[str]
) -> SessionResult:
    """Put all values of several entries back inline, in one change of the session.

    Args:
        entries: each as `entry` of `restore`.

    Returns:
        The result. Its `unavailable` has each entry that does not exist or has no extracted value,
        and each value that cannot be restored; all other values are restored. If the session is
        busy, left alone or failed, the result has that status and a `reason`.

    Raises:
        NotFound: there is no such session.
    """
    context = context.with_excluded()
    Session(context.layout, session).refuse_no_session()
    refused: dict[str, str] = {}

    def plan(opened: OpenSession) -> tuple[Plan, list[Restored]]:
        revised, answers = Revised(opened.transcript, opened.format), []
        refused.clear()
        for entry in dict.fromkeys(entries):
            try:
                planned, answer = plan_restore(
                    revised, opened.format, entry, None, opened.now, opened.store
                )
            except (NotFound, Conflict) as problem:
                refused[entry] = problem.message
                continue
            revised.take(planned)
            answers.append(answer)
        return revised.plan("restore"), answers

    editor = context.editor(session)
    result, _ = _restore_by(editor, context.layout, session, plan)
    result = replace(result, unavailable={**result.unavailable, **refused})
    editor.notes.concluded("restore", result)
    return result


def _restore_by(
    editor: SessionEditor,
    layout: Layout,
    session: SessionName,
    plan: Callable[[OpenSession], tuple[Plan, Sequence[Restored]]],
) -> tuple[SessionResult, BsdError | None]:
    """Apply the plans of one restore; return the result, and the error that ended it early."""
    result = SessionResult(str(session), Status.UNCHANGED)
    try:
        for done, outcome, answers in editor.apply_all(plan):
            result = result.plus(
                done, Status.RESTORED, in_effect=outcome is not None, left_as=left_as(done, outcome)
            )
            for answer in answers:
                explained = explain_missing(layout, answer)
                editor.notes.restored(explained)
                result = result.missing(explained)
    except BsdError as error:
        return result.failed(error), error
    return result, None


@dataclass(frozen=True, slots=True)
class RestoredCopy:
    """The answer of `copy_restored`: the number of restored values, and why others are missing."""

    session: str
    values: int
    unavailable: dict[str, str]


def copy_restored(
    context: ActionContext, session: SessionName, write: Callable[[bytes], object]
) -> RestoredCopy:
    """Write a copy of a session with every value inline.

    The session itself is only read, so it may be in use, and bsd need not be able to edit it.

    Args:
        write: called with each line.

    Raises:
        NotFound: there is no such session.
        LeftAlone: bsd does not know the format of its lines.
    """
    context = context.with_excluded()
    Session(context.layout, session).refuse_no_session()
    with context.reader(session) as opened:
        values, missing = restored_copy(opened.transcript, opened.format, opened.store, write)
    return RestoredCopy(str(session), values, missing)


def restore_all(
    context: ActionContext, session: SessionName, *, uninstalling: bool = False
) -> SessionResult:
    """Put all extracted values of a session back inline.

    Args:
        uninstalling: also remove every `_restored` member that bsd added, since no later
            extraction follows.

    Returns:
        The result. If the session is busy, left alone or failed, it has that status and a `reason`.

    Raises:
        NotFound: there is no such session.
    """
    context = context.with_excluded()
    layout = context.layout
    Session(layout, session).refuse_no_session()

    def plan(opened: OpenSession) -> tuple[Plan, tuple[Restored, ...]]:
        source, store, history = opened.transcript, opened.store, opened.history
        if not uninstalling:
            return plan_restore_all(
                source, opened.format, opened.now, store, progress=context.progress
            )
        records = RootRecords(layout, store, history.entry_notes)
        return plan_leaving(
            source,
            opened.format,
            opened.now,
            store,
            records,
            history,
            progress=context.progress,
        )

    editor = context.editor(session)
    result, problem = _restore_by(editor, layout, session, plan)
    if isinstance(problem, LeftAlone):
        result = _with_placeholders(context, session, result)
    editor.notes.concluded("restore_all", result)
    return result


def _with_placeholders(
    context: ActionContext, session: SessionName, result: SessionResult
) -> SessionResult:
    """Report every placeholder of a file that bsd does not edit as not restored."""
    with suppress(LeftAlone), context.reader(session) as opened:
        for _, answer in restored_lines(opened.transcript, opened.format, opened.store):
            if answer is not None:
                explained = explain_missing(context.layout, answer)
                result = result.missing(explained, _STAYS.format(session))
    return result
