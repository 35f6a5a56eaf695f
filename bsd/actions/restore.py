"""restore and restore_all: extracted values come back into their session, exact to the byte."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from bsd.actions.context import ActionContext
from bsd.core.errors import LeftAlone
from bsd.core.layout import Layout, SessionName
from bsd.planning.plan import Means, Plan, Report
from bsd.planning.restore import Restored, plan_restore, plan_restore_all, restored_lines
from bsd.planning.result import SessionResult, Status, Tally
from bsd.planning.uninstall import plan_leaving
from bsd.sessions.notes import Notes, told_expired
from bsd.sessions.session import Session
from bsd.store.originals import Missing, SessionStore
from bsd.store.root_records import RootRecords
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.reader import Transcript, TranscriptFile

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

    def plan(source: Transcript, fmt: TranscriptFormat, means: Means) -> tuple[Plan, Restored]:
        return plan_restore(source, fmt, entry, keys, means.now, means.stored)

    def note(notes: Notes, report: Report | None, answer: Restored) -> None:
        notes.restored(session, answer, committed=report is not None)
        if report is not None:
            notes.changed("restore", session, report, entry=answer.entry_id)

    _, answer = context.surgeon().perform(session, plan, note)
    return explain_missing(context.layout, answer)


def explain_missing(layout: Layout, answer: Restored) -> Restored:
    """Add when values that cannot come back were deleted, and by which setting, if that is so."""
    if answer.missing is Missing.GONE:
        answer.expired = told_expired(layout, answer.extracted_at)
    return answer


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
    layout, surgeon = context.layout, context.surgeon()
    opened = Session(layout, session)
    opened.refuse_no_session()
    history = opened.history

    def plan(
        source: TranscriptFile, fmt: TranscriptFormat, store: SessionStore
    ) -> tuple[Plan, tuple[Restored, ...]]:
        now, progress = surgeon.budget.clock(), context.progress
        if not uninstalling:
            return plan_restore_all(source, fmt, now, store, progress=progress)
        records = RootRecords(layout, store, history.entry_notes)
        return plan_leaving(source, fmt, now, store, records, history, progress=progress)

    tally = Tally(session, Status.RESTORED)
    with tally.judging():
        for done, answers in surgeon.operator.carry_out_all(session, plan):
            committed = done.outcome is not None
            tally.add(done.plan.report, committed=committed)
            for answer in answers:
                explained = explain_missing(layout, answer)
                surgeon.notes.restored(session, explained, committed=committed)
                tally.miss(explained)
    if isinstance(tally.error, LeftAlone):
        _miss_what_stays(layout, session, tally)
    surgeon.notes.concluded("restore_all", session, tally)
    return tally.result()


def _miss_what_stays(layout: Layout, session: SessionName, tally: Tally) -> None:
    """Add the placeholders of a file that is left alone: nothing of them came back."""
    with suppress(LeftAlone):
        opened = Session(layout, session)
        source, fmt = opened.open_to_read()
        with source:
            for _, answer in restored_lines(source, fmt, opened.store):
                if answer is not None:
                    tally.miss_all(explain_missing(layout, answer), _STAYS.format(session))
