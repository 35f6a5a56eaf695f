"""restore_all: everything that was taken out of one session comes back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from bsd.agents.dialect import Format
from bsd.foundation.errors import LeftAlone
from bsd.foundation.layout import Layout, SessionName
from bsd.session.session import Session
from bsd.store.entry_notes import RootRecords
from bsd.store.extracted import SessionStore
from bsd.surgery.leave import plan_leaving
from bsd.surgery.plan import Plan
from bsd.surgery.restore import Restored, plan_restore_all, restored_lines
from bsd.surgery.result import SessionResult, Status, Tally
from bsd.text.reader import TranscriptFile
from bsd.verbs.restore import explained
from bsd.verbs.verb import Meanwhile, RootHands, Verb

_STAYS = "it is stored, but this file is not edited; `bsd restore-all {} --to FILE` writes a copy"


@dataclass(frozen=True, slots=True)
class RestoreAll:
    """Who is `leaving` bsd keeps no `_restored` that it has set, and needs no protection by it."""

    leaving: bool = False


def _act(hands: RootHands, name: SessionName, asked: RestoreAll, _: Meanwhile) -> SessionResult:
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
    act=_act,
    changes=True,
)
