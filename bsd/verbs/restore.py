"""restore: an entry's values back inline, exact to the byte (seed 001).

And restore_all: everything that was taken out of one session.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from bsd.agents.dialect import Format
from bsd.foundation.errors import LeftAlone
from bsd.foundation.layout import Layout, SessionName
from bsd.session.notes import Notes, told_expired
from bsd.session.session import Session
from bsd.store.entry_notes import RootRecords
from bsd.store.extracted import Missing, SessionStore
from bsd.surgery.leave import plan_leaving
from bsd.surgery.plan import Means, Plan, Report
from bsd.surgery.restore import Restored, plan_restore, plan_restore_all, restored_lines
from bsd.surgery.result import SessionResult, Status, Tally
from bsd.text.reader import Transcript, TranscriptFile
from bsd.verbs.verb import Meanwhile, RootHands, Route, Verb, argument

ENTRY = argument(
    "The id in the placeholder [[extracted-ID]].",
    metavar="ENTRY",
    positional=True,
    least=1,
    names={"restore": "entry_id"},  # in the tool of this name
)
KEYS = argument(
    "Only these values, by path or by name; leave it out for all of them.",
    metavar="KEY,…",
    least=1,
)


@dataclass(frozen=True, slots=True)
class Restore:
    """Without `keys` all that is away comes back."""

    entry: str = field(metadata=ENTRY)
    keys: tuple[str, ...] | None = field(default=None, metadata=KEYS)


def _plan(source: Transcript, fmt: Format, asked: Restore, means: Means) -> tuple[Plan, Restored]:
    return plan_restore(source, fmt, asked.entry, asked.keys, means.now, means.stored)


def _noted(notes: Notes, name: SessionName, answer: Restored, report: Report | None) -> None:
    notes.restored(name, answer, committed=report is not None)


def explained(layout: Layout, answer: Restored) -> Restored:
    """Say of what cannot come back when it was deleted, and by which setting, if it was."""
    if answer.missing is Missing.GONE:
        answer.expired = told_expired(layout, answer.extracted_at)
    return answer


RESTORE = Verb(
    name="restore",
    arguments=Restore,
    answer=Restored,
    plan=_plan,
    changes=True,
    noted=_noted,
    explained=explained,
    route=Route(
        "POST",
        "/api/sessions/{agent}/{session}/entries/{entry}/restore",
        "restore",
        "Put an entry's values back.",
        tag="entries",
    ),
    about="""
    ENTRY is the id in the placeholder [[extracted-ENTRY]]. A key is a value's path (`bsd show`
    lists them) or one segment of it; without --keys all values come back. A restored entry is not
    extracted again for keep_after_restore_seconds.
    """,
    examples=(
        "bsd restore main/4f2a 1c556fa0",
        "bsd restore main/4f2a 1c556fa0 --keys text,details",
    ),
)


# --- restore_all ---


_STAYS = "it is stored, but this file is not edited; `bsd restore-all {} --to FILE` writes a copy"


@dataclass(frozen=True, slots=True)
class RestoreAll:
    """Who is `leaving` bsd keeps no `_restored` that it has set, and needs no protection by it."""

    leaving: bool = False


def _restore_all(
    hands: RootHands, name: SessionName, asked: RestoreAll, _: Meanwhile
) -> SessionResult:
    layout, surgeon = hands.layout, hands.surgeon(name, writes=True)
    layout.session_file(name)
    history = Session(layout, name).history

    def plan(
        source: TranscriptFile, fmt: Format, store: SessionStore
    ) -> tuple[Plan, tuple[Restored, ...]]:
        now, progress = surgeon.patience.clock(), hands.progressed
        if not asked.leaving:
            return plan_restore_all(source, fmt, now, store, progress=progress)
        records = RootRecords(layout, store, history.entry_notes)
        return plan_leaving(source, fmt, now, store, records, history, progress=progress)

    tally = Tally(name, Status.RESTORED)
    with tally.judging():
        for done, answers in surgeon.operator.carry_out_all(name, plan):
            committed = done.outcome is not None
            tally.add(done.plan.report, committed=committed)
            for answer in answers:
                surgeon.notes.restored(name, explained(layout, answer), committed=committed)
                tally.miss(answer)
    if isinstance(tally.error, LeftAlone):
        _miss_what_stays(layout, name, tally)
    surgeon.notes.concluded("restore_all", name, tally)
    return tally.result()


def _miss_what_stays(layout: Layout, name: SessionName, tally: Tally) -> None:
    """Tell of the placeholders in a file that is left alone: nothing of it came back."""
    with suppress(LeftAlone):
        session = Session(layout, name)
        source, fmt = session.open_to_read()
        with source:
            for _, answer in restored_lines(source, fmt, session.store):
                if answer is not None:
                    tally.miss_all(explained(layout, answer), _STAYS.format(name))


RESTORE_ALL = Verb(
    name="restore_all",
    arguments=RestoreAll,
    answer=SessionResult,
    act=_restore_all,
    changes=True,
)
