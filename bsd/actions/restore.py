"""restore, restore_entries and restore_all: extracted values come back, exact to the byte.

They work on sessions that are excluded, too, as far as an interface lets these be named: their
values must be able to come back.
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
        Conflict: nothing of the entry is extracted.
        Invalid: a key names no extracted value.
    """
    editor = context.with_excluded().editor(session)
    answer = editor.apply(
        lambda opened: plan_restore(
            opened.transcript, opened.format, entry, keys, opened.now, opened.store
        )
    )
    editor.notes.restored(answer)
    return explain_missing(context.layout, answer)


def explain_missing(layout: Layout, answer: Restored) -> Restored:
    """Add when values that cannot come back were deleted, and by which setting, if that is so."""
    if answer.missing is Missing.GONE:
        answer.expired = told_expired(layout, answer.extracted_at)
    return answer


def restore_entries(
    context: ActionContext, session: SessionName, entries: Sequence[str]
) -> SessionResult:
    """Put all values of several entries back inline, in one change of the session.

    Args:
        entries: as `entry` of `restore`.

    Returns:
        The result. Under `unavailable` it has each entry that is not there or from which nothing is
        away, and each value that cannot come back; these keep no other from coming back. A session
        that is busy, left alone or failed has that status, and a `reason`.

    Raises:
        NotFound: there is no such session.
    """
    context = context.with_excluded()
    Session(context.layout, session).refuse_no_session()
    refused: dict[str, str] = {}

    def plan(opened: OpenSession) -> tuple[Plan, list[Restored]]:
        revised, answers = Revised(opened.transcript), []
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
    """Answer of `copy_restored`: how many values came back, and why others did not, by key."""

    session: str
    values: int
    unavailable: dict[str, str]


def copy_restored(
    context: ActionContext, session: SessionName, write: Callable[[bytes], object]
) -> RestoredCopy:
    """Write a session as it would be with every value inline; the session itself is only read.

    So it serves sessions that are in use or cannot be edited, too.

    Args:
        write: called with each line.

    Raises:
        NotFound: there is no such session.
        LeftAlone: its lines are not understood.
    """
    context = context.with_excluded()
    Session(context.layout, session).refuse_no_session()
    with context.reader(session) as opened:
        values, missing = restored_copy(opened.transcript, opened.format, opened.store, write)
    return RestoredCopy(str(session), values, missing)


def restore_all(
    context: ActionContext, session: SessionName, *, uninstalling: bool = False
) -> SessionResult:
    """Put everything that was extracted from a session back inline.

    Args:
        uninstalling: also remove every `_restored` member that bsd added: nothing needs to be
            protected from a later extraction.

    Returns:
        The result; a session that is busy, left alone or failed has that status, and a `reason`.

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
    """Add the placeholders of a file that is left alone: nothing of them came back."""
    with suppress(LeftAlone), context.reader(session) as opened:
        for _, answer in restored_lines(opened.transcript, opened.format, opened.store):
            if answer is not None:
                explained = explain_missing(context.layout, answer)
                result = result.missing(explained, _STAYS.format(session))
    return result
