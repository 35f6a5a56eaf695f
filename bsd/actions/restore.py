"""Values leave a session and come back, exact to the byte.

extract: all that is due in one session leaves it, for the store (SPEC §3). restore: an entry's
values back inline (seed 001); restore_all: everything that was taken out of one session. undo takes
back whatever was done to one, and history lists that.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from bsd.actions.verb import Body, Hands, Meanwhile, RootHands, Verb, argument, route
from bsd.core.config import PER_CALL, PruningConfig
from bsd.core.definition import INTERNAL, Answer, contract
from bsd.core.errors import FieldError, Invalid, LeftAlone
from bsd.core.layout import Layout, SessionName
from bsd.planning.extract import plan_extraction
from bsd.planning.plan import Plan
from bsd.planning.restore import Restored, plan_restore, plan_restore_all, restored_lines
from bsd.planning.result import SessionResult, Status, Tally
from bsd.planning.undo import PastOperation, Undone, plan_undo, tell_history
from bsd.planning.uninstall import plan_leaving
from bsd.sessions.notes import told_expired
from bsd.sessions.session import Session
from bsd.store.changed_lines import settle, undone_in
from bsd.store.entry_notes import RootRecords
from bsd.store.extracted import Missing, SessionStore
from bsd.store.history import History
from bsd.store.state import state_at
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.reader import Transcript, TranscriptFile

# --- extract ---


@dataclass(frozen=True, slots=True)
class Extract:
    """By hand: what somebody has taken back by undo leaves as well."""

    dry_run: bool = field(
        default=False,
        metadata=argument("Say what would be done; change nothing.", query=True),
    )
    settings: Mapping[str, Any] = field(
        default_factory=dict, metadata=argument("What is set otherwise for this call.")
    )


def _extract(hands: RootHands, name: SessionName, asked: Extract, _: Meanwhile) -> SessionResult:
    if asked.dry_run:
        return _foretell(hands, name, asked)
    surgeon = hands.surgeon(name, writes=True)
    return surgeon.extract(name, by_hand=True, overrides=asked.settings, progress=hands.progressed)


def _foretell(hands: RootHands, name: SessionName, asked: Extract) -> SessionResult:
    """What an extraction would do now; its results, and what it raises, are those of one."""
    surgeon = hands.surgeon(name, writes=False)
    config = surgeon.settings(asked.settings)
    session = Session(hands.layout, name)
    session.refuse_no_session(unless_stored=False)
    tally = Tally(name, Status.EXTRACTED, dry_run=True)
    with tally.judging():
        source, fmt = session.open()
        with source:
            plan = plan_extraction(
                source,
                fmt,
                config,
                surgeon.clock(),
                session.store,
                dry_run=True,
                tell=surgeon.notes.teller(name),
                progress=hands.progressed,
                undone=undone_in(source, session.history),
                by_hand=True,
            )
        tally.add(plan.report, committed=False)
        tally.leave(plan.planned_on, due_at=plan.due_at)
    surgeon.notes.concluded("extract", name, tally)
    return tally.result()


def _read_settings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read a body; raises Invalid that names all fields which are no settings, and all bad ones."""
    errors = [
        FieldError(name, f"{name} is not a setting of one extraction")
        for name in settings
        if name not in PER_CALL
    ]
    try:
        PruningConfig.from_json({name: settings[name] for name in PER_CALL if name in settings})
    except Invalid as problem:
        errors += problem.errors
    if errors:
        text = "; ".join(one.message for one in errors)
        raise Invalid(text, hint=f"known are {', '.join(PER_CALL)}", errors=tuple(errors))
    return {"settings": settings}


EXTRACT = Verb(
    name="extract",
    arguments=Extract,
    answer=SessionResult,
    act=_extract,
    changes=True,
    route=route(
        "POST …/extract",
        "extract",
        "Extract what is due; the body may change settings for this call.",
        body=Body(_read_settings, settings=PER_CALL, required=False),
    ),
)


# --- restore ---


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


def explained(layout: Layout, answer: Restored) -> Restored:
    """Say of what cannot come back when it was deleted, and by which setting, if it was."""
    if answer.missing is Missing.GONE:
        answer.expired = told_expired(layout, answer.extracted_at)
    return answer


RESTORE = Verb(
    name="restore",
    arguments=Restore,
    answer=Restored,
    plan=lambda source, fmt, asked, means: plan_restore(
        source, fmt, asked.entry, asked.keys, means.now, means.stored
    ),
    changes=True,
    noted=lambda notes, name, answer, report: notes.restored(
        name, answer, committed=report is not None
    ),
    explained=explained,
    route=route("POST …/entries/{entry}/restore", "restore", "Put an entry's values back."),
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
    session = Session(layout, name)
    session.refuse_no_session()
    history = session.history

    def plan(
        source: TranscriptFile, fmt: TranscriptFormat, store: SessionStore
    ) -> tuple[Plan, tuple[Restored, ...]]:
        now, progress = surgeon.budget.clock(), hands.progressed
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


# --- history ---


@dataclass(frozen=True, slots=True)
class ListHistory:
    """Without `limit` all that is kept."""

    limit: int | None = field(
        default=None,
        metadata=argument("No more than so many, the newest.", metavar="N", least=1, usual=50),
    )


@dataclass(frozen=True, slots=True)
class HistoryList(Answer):
    """The operations that can be undone."""

    session: str
    operations: tuple[PastOperation, ...] = field(metadata=contract("The newest first"))
    kept: int = field(metadata=INTERNAL)  # so many there are in all


def _list(hands: Hands, name: SessionName, asked: ListHistory, _: Meanwhile) -> HistoryList:
    found = history_of(hands.layout, name)
    if not found:
        # A name mistyped is an error, not an empty history.
        Session(hands.layout, name).refuse_no_session()
    return HistoryList(str(name), tuple(found[: asked.limit]), len(found))


def history_of(layout: Layout, name: SessionName) -> list[PastOperation]:
    """The operations on a session that are kept, the newest first; raises what opening it does.

    It is opened only if one is kept whose process ended before it could note what became of it.
    """
    session = Session(layout, name)
    if not session.history.pending():
        return tell_history(session.history, None)
    source, _ = session.open()
    with source:
        return tell_history(session.history, source)


HISTORY = Verb(
    name="history",
    arguments=ListHistory,
    answer=HistoryList,
    act=_list,
    route=route("GET …/history", "history", "The operations that can be undone, the newest first."),
    about="""
    The newest first. `bsd undo` takes the number in the first column. History is kept for as long
    as the setting `trash_retention` says.
    """,
    examples=(
        "bsd history main/4f2a",
        "bsd history main/4f2a --limit 200",
    ),
)


# --- undo ---


@dataclass(frozen=True, slots=True)
class Undo:
    """Without `op` the newest operation that is not undone."""

    op: int | None = field(
        default=None,
        metadata=argument("A number from the history.", metavar="[OP]", positional=True, least=1),
    )


def _undo(hands: Hands, name: SessionName, asked: Undo, _: Meanwhile) -> Undone:
    surgeon = hands.surgeon(name, writes=True)
    history, chosen = History(hands.layout, name), asked.op

    def plan(source: Transcript, fmt: TranscriptFormat, store: SessionStore) -> tuple[Plan, Undone]:
        settle(history, source)
        return plan_undo(source, fmt, chosen, history, store)

    entries: list[str] = []
    operations: list[int] = []
    Session(hands.layout, name).refuse_no_session()
    # More than one plan, perhaps: each takes back as much as a commit may hold.
    for done, answer in surgeon.operator.carry_out_all(name, plan):
        chosen = answer.of.number
        entries += answer.entries
        if done.number is not None:
            operations.append(done.number)
            surgeon.notes.undone(name, answer, done.plan.report)
    state_at(hands.layout.state_db).forget(name)
    return replace(answer, entries=tuple(entries), operations=tuple(operations))


UNDO = Verb(
    name="undo",
    arguments=Undo,
    answer=Undone,
    act=_undo,
    changes=True,
    route=route("POST …/undo", "undo", "Take an operation back: the newest, or one by its number."),
    about="""
    Every line that the operation changed becomes what it was, exact to the byte. Without OP the
    newest operation that is not undone; OP is a number from `bsd history`. An older one can be
    undone if nothing changed the same entries since. Undoing an undo does the operation again.
    What an undone extraction brought back stays until you extract the session by hand. What a
    restore brought back is taken out again when you undo the restore: the command asks first.
    """,
    examples=(
        "bsd undo main/4f2a",
        "bsd undo main/4f2a 12",
    ),
)
