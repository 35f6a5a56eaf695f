"""restore: an entry's values back inline, exact to the byte (seed 001)."""

from __future__ import annotations

from dataclasses import dataclass, field

from bsd.agents.dialect import Format
from bsd.foundation.layout import Layout, SessionName
from bsd.session.notes import Notes, told_expired
from bsd.store.extracted import Missing
from bsd.surgery.plan import Means, Plan, Report
from bsd.surgery.restore import Restored, plan_restore
from bsd.text.reader import Transcript
from bsd.verbs.verb import Route, Verb, argument

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
