"""One session on the table: waited for, planned, committed; planned again if the world moved."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from bsd.agents.base import Format
from bsd.agents.owners import in_use, owner_of
from bsd.foundation.claims import secure
from bsd.foundation.errors import (
    BsdError,
    Conflict,
    NotFound,
    TemporaryFailure,
    Unavailable,
)
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger
from bsd.foundation.times import iso_utc
from bsd.session.commit.exchangers import Exchanger
from bsd.session.commit.inflight import InFlight
from bsd.session.commit.protocol import GiveUp, Outcome, commit
from bsd.session.opening import open_session
from bsd.session.rest import Patience, Rest, Unrest, Waiting, busy
from bsd.store.extracted import SessionStore
from bsd.store.history import Act, Damaged, History
from bsd.store.index import Record
from bsd.store.whereabouts import happened
from bsd.surgery.plan import Plan
from bsd.text.change import Change, Identity
from bsd.text.reader import TranscriptFile

_log = get_logger("surgeon")

# Waiting does not cure these; what to try instead.
_FINAL = {
    GiveUp.GONE: (NotFound, "`bsd sessions` lists the sessions there are"),
    GiveUp.NOT_REGULAR: (Conflict, "bsd edits plain files only: replace the link by its file"),
    GiveUp.CANNOT_KEEP_METADATA: (Conflict, "run bsd as the user who owns the session"),
}

Answer = TypeVar("Answer")
Planner = Callable[[TranscriptFile, Format, SessionStore], tuple[Plan, Answer]]

# Whether a plan is worth the writing. Asked of every plan, once it is made.
Worth = Callable[[Plan], bool]
# Told how each attempt to commit ended.
Noticed = Callable[[SessionName, Outcome], None]


@dataclass(frozen=True, slots=True)
class Done:
    """A plan in effect. Without edits nothing was to be done and there is no outcome."""

    plan: Plan
    outcome: Outcome | None
    postponed: bool = False  # there were edits, but they were not worth it
    number: int | None = None  # of the operation in the session's history, if it is one

    @property
    def left_as(self) -> Identity | None:
        """The session file now; None if others' lines came into it that no plan has seen."""
        if self.outcome is None:
            return self.plan.planned_on
        return None if self.outcome.drained_bytes else self.outcome.identity


class Operation:
    """Does one thing to one session. The caller holds bsd's own lock of the session."""

    def __init__(
        self,
        layout: Layout,
        name: SessionName,
        inflight: InFlight,
        exchanger: Exchanger,
        patience: Patience,
        noticed: Noticed | None = None,
        *,
        actor: str = "cli",
    ) -> None:
        self.layout = layout
        self.name = name
        self.path = layout.session_file(name)
        self.store = SessionStore(layout, name)
        self.history = History(layout, name)
        self._owner = owner_of(layout, name.agent)
        self._actor = actor
        self._number: int | None = None
        self._inflight = inflight
        self._exchanger = exchanger
        self._patience = patience
        self._noticed = noticed
        self._stays = False  # whether the store keeps what the last attempt put there
        self._rest = Rest(layout, exchanger, patience, inflight)
        self._waited = 0.0  # before the next plan was made

    def has_waited(self, seconds: float) -> None:
        """So much of the patience for the next plan is gone already."""
        self._waited = max(0.0, seconds)

    def perform(
        self, planner: Planner[Answer], *, worth: Worth | None = None
    ) -> tuple[Done, Answer]:
        """Plan and commit, and again until it is done or patience ends.

        A plan that is not `worth` it stays a plan. Raises Busy when patience ends, LeftAlone for
        what is not ours or lies where no file can be replaced, NotFound when the session vanishes,
        Conflict for what waiting does not cure, and what `commit` raises.
        """
        if source := self.layout.source_of(self.name.agent):
            secure(self.layout, source)
        waiting = Waiting(self._patience, self._waited)
        self._waited = 0.0
        while True:
            self.path = self.layout.session_file(self.name)  # its program may have moved it
            unrest = self._rest.why_not(self.name) or self._rest.late_lines(self.name)
            if unrest is None:
                self._inflight.refuse_known(self.path.parent)
                planned_at_ns, (plan, answer) = self._plan(planner)
                worth_it = worth is None or worth(plan)
                if not (plan.edits and worth_it):
                    if plan.noting.freed and not plan.edits:
                        self._free(plan.noting.freed)
                    return Done(plan, None, postponed=bool(plan.edits)), answer
                try:
                    outcome = self._commit(plan, planned_at_ns, waiting)
                except BsdError as error:
                    self._attempted(plan, Outcome(GiveUp.FAILED, error.message))
                    raise
                outcome = self._attempted(plan, outcome)
                if outcome.committed:
                    self._note_own(plan, outcome)
                    return Done(plan, outcome, number=self._number), answer
                self._raise_if_final(outcome)
                unrest = Unrest(outcome.detail or str(outcome.gave_up))
            if not waiting.goes_on(unrest.again_in):
                raise busy(self.name, unrest)

    def _plan(self, planner: Planner[Answer]) -> tuple[int, tuple[Plan, Answer]]:
        planned_at_ns = int(self._patience.clock() * 1e9)
        source, fmt = open_session(self.layout, self.name)
        with source:
            return planned_at_ns, planner(source, fmt, self.store)

    def _note_own(self, plan: Plan, outcome: Outcome) -> None:
        """Note that the file was written by us, and until when others had used it."""
        if outcome.identity is not None and not outcome.drained_bytes:
            self._inflight.note_own(self.name, plan.planned_on, outcome.identity)

    def _attempted(self, plan: Plan, outcome: Outcome) -> Outcome:
        """Index what stays in the store, committed or not, and tell how the attempt ended."""
        if self._stays:
            outcome = replace(outcome, indexed=self._index(plan))
        if self._noticed:
            self._noticed(self.name, outcome)
        return outcome

    def _commit(self, plan: Plan, planned_at_ns: int, waiting: Waiting) -> Outcome:
        kept = self._stays = False

        def keep() -> None:
            nonlocal kept
            with TranscriptFile(self.path) as source:
                if source.identity != plan.planned_on:
                    raise TemporaryFailure("the session changed since it was planned")
                self.store.keep(plan.keeps, _Checked(source, self._patience.check))
                kept = True
                self._remember(plan, source)

        outcome: Outcome | None = None
        try:
            outcome = commit(
                Change(
                    self.path,
                    plan.planned_on,
                    plan.edits,
                    self.name,
                    planned_at_ns,
                    keeps_mtime=self._owner.keeps_mtime,
                ),
                inflight=self._inflight,
                exchanger=self._exchanger,
                session_lock=self._owner.lock(self.name, self.path, waiting.left),
                still_idle=lambda: in_use(self.layout, self.name),
                keep=keep,
            )
        except TemporaryFailure as failure:
            return Outcome(GiveUp.CHANGED, failure.message)
        finally:
            committed = outcome is not None and outcome.committed
            self._stays = kept and (committed or self._may_have_been_seen(outcome, plan.planned_on))
            if committed:
                self.history.done()
            elif kept and not self._stays:
                self.history.discard()
                self.store.discard(plan.keeps)
        return outcome

    def _remember(self, plan: Plan, source: TranscriptFile) -> None:
        settle(self.history, source)
        report = plan.report
        self._number = self.history.begin(
            Act(
                report.action,
                self._actor,
                iso_utc(self._patience.clock()),
                values=report.values,
                bytes_before=report.bytes_before,
                bytes_after=report.bytes_after,
                undoes=plan.undoes,
            ),
            plan.edits,
            plan.touched,
            plan.keeps,
            source,
            self.store,
            plan.noting,
        )

    def _may_have_been_seen(self, outcome: Outcome | None, planned_on: Identity) -> bool:
        """Whether a line that refers to this plan's store files may have been at the path.

        Whoever has read such a line, even in the moment before an exchange was undone, may write
        it back at any time. A commit that raised (no outcome) left a record if it exchanged.
        """
        if outcome is not None and (outcome.committed or outcome.in_flight is not None):
            return True
        return not self._stands(planned_on) or (outcome is None and self._is_in_flight())

    def _is_in_flight(self) -> bool:
        for path in self._inflight.records():
            try:
                record = self._inflight.read(path)
            except (OSError, BsdError):  # whose it is cannot be told
                return True
            if record is not None and record.session == self.name:
                return True
        return False

    def _stands(self, planned_on: Identity) -> bool:
        """Whether the file at the path is the one that was planned on, whatever became of it."""
        with suppress(OSError):
            found = self.path.lstat()
            return (found.st_dev, found.st_ino) == (planned_on.dev, planned_on.ino)
        return False

    def _free(self, entry_ids: Collection[str]) -> None:
        """Note what holds of entries from now on, though their lines stay as they are."""
        if self.history.lasting.undone.free(entry_ids):
            _log.info(f"free: {self.name}, entries {len(entry_ids)}", actor=self._actor)

    def _index(self, plan: Plan) -> bool:
        """Note in the store's index what this plan keeps; whether there was room for it."""
        # A cache: the session is committed, and whoever hears of it makes the index anew.
        at = iso_utc(self._patience.clock())
        try:
            self.store.index.add(
                Record(
                    entry_id=keep.entry_id,
                    index=keep.index,
                    file=f"{keep.ref}.json",
                    hash=keep.hash,
                    size=keep.size,
                    keys=keep.keys,
                    sizes_bytes=keep.sizes,
                    extracted_at=at,
                )
                for keep in plan.keeps
            )
        except Unavailable as problem:
            _log.warning(
                "The index of a store lacks files", session=str(self.name), problem=problem.message
            )
            return False
        return True

    def _raise_if_final(self, outcome: Outcome) -> None:
        moved = outcome.gave_up is GiveUp.GONE and self.layout.transcript(self.name) != self.path
        if outcome.gave_up in _FINAL and not moved:
            error, hint = _FINAL[outcome.gave_up]
            message = f"session {self.name} was left as it was: {outcome.detail}"
            raise error(message, hint=hint)


def settle(history: History, source: TranscriptFile) -> None:
    """Tell what became of operations whose process ended before it could note it.

    The caller holds bsd's own lock of the session, so nobody is in the middle of one.
    """
    for deed in history.pending():
        try:
            took_effect = happened(source, history.lines(deed))
        except (NotFound, Damaged):  # never complete, so nothing followed
            took_effect = False
        history.settle(deed, happened=took_effect)


class _Checked:
    """The planned session for the store to read from; each read may be the last."""

    def __init__(self, source: TranscriptFile, check: Callable[[], None]) -> None:
        self._source = source
        self._check = check

    def read(self, offset: int, length: int) -> bytes:
        self._check()
        return self._source.read(offset, length)
