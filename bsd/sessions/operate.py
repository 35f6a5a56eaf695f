"""Carries plans out on sessions: plan → commit → note, and again if the world moved meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import structlog

from bsd.core.errors import BsdError, Conflict, NotFound, TemporaryFailure, Unavailable
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.core.logs import BoundLogger
from bsd.core.processes import give_back_memory, without_collecting
from bsd.planning.plan import Plan
from bsd.sessions.commit.displaced import Recovered
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.protocol import GiveUp, Outcome, commit
from bsd.sessions.commit.recovery import recover
from bsd.sessions.idle import IdlePolicy, NotIdle, RetryBudget, Waiting, access_to, busy
from bsd.sessions.notes import note_failure
from bsd.sessions.session import Session
from bsd.store.changed_lines import resolve_pending
from bsd.store.contents import contents_of
from bsd.store.history import Act
from bsd.store.index import Record
from bsd.store.originals import SessionStore, StoredOriginal
from bsd.store.state import guard, state_at
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.programs import in_use, secure
from bsd.transcripts.change import Change, Identity
from bsd.transcripts.reader import TranscriptFile

_log: BoundLogger = structlog.get_logger(module="surgeon")
_session_log = structlog.stdlib.get_logger(module="session")

_INDEXED_AT_ONCE = 4096  # files
_SMALL = 16 << 10  # bytes of a session that is read twice rather than locked for nothing

# Waiting does not cure these; what to try instead.
_FINAL = {
    GiveUp.GONE: (NotFound, "`bsd sessions` lists the sessions there are"),
    GiveUp.NOT_REGULAR: (Conflict, "bsd edits plain files only: replace the link by its file"),
    GiveUp.CANNOT_KEEP_METADATA: (Conflict, "run bsd as the user who owns the session"),
}

Answer = TypeVar("Answer")
Planner = Callable[[TranscriptFile, TranscriptFormat, SessionStore], tuple[Plan, Answer]]

# Whether a plan is worth the writing. Asked of every plan, once it is made.
Worth = Callable[[Plan], bool]
# Told how each attempt to commit ended.
Noticed = Callable[[SessionName, Outcome], None]


@dataclass(frozen=True, slots=True)
class Done:
    """A plan in effect. Without edits nothing was to be done and there is no outcome."""

    plan: Plan
    outcome: Outcome | None
    guard: bytes  # of what stands before the plan's checkpoint now (store.state)
    postponed: bool = False  # there were edits, but they were not worth it
    number: int | None = None  # of the operation in the session's history, if it is one

    @property
    def file(self) -> Identity | None:
        """What stands at the path by this, others' lines included that came in with a commit."""
        return self.outcome.identity if self.outcome else self.plan.planned_on

    @property
    def left_as(self) -> Identity | None:
        """The session file now; None if others' lines came into it that no plan has seen."""
        if self.outcome is None:
            return self.plan.planned_on
        return None if self.outcome.drained_bytes else self.outcome.identity


class Operator:
    """Works on sessions for one actor, holding bsd's own lock of each from planning to audit."""

    def __init__(
        self,
        layout: Layout,
        budget: RetryBudget,
        *,
        actor: str = "cli",
        noticed: Noticed | None = None,
        inflight: InFlight | None = None,
    ) -> None:
        self.layout = layout
        self.budget = budget
        self.actor = actor
        self.noticed = noticed
        self.inflight = inflight or InFlight(layout)
        self.idle_policy = IdlePolicy(layout, budget, self.inflight)

    def carry_out(self, name: SessionName, planner: Planner[Answer]) -> tuple[Done, Answer]:
        """Do one thing to a session; raises as `_Operation.perform`."""
        _log.trace("A session is edited", session=str(name))
        contents_of(self.layout).changed()  # whoever asks for one thing gets it as it is now
        waiting, session = Waiting(self.budget), Session(self.layout, name)
        with session.lock(self.budget.wait, sleep=self.budget.sleep):
            done, answer = _Operation(self, session).perform(planner, waiting)
        if done.outcome or done.plan.noting:  # what was settled may not be any more
            state_at(self.layout.state_db).forget(name)
        return done, answer

    def carry_out_all(
        self, name: SessionName, planner: Planner[Answer], worth: Worth | None = None
    ) -> Iterator[tuple[Done, Answer]]:
        """Do it until the plan is complete: a plan has a budget, a backlog may exceed it.

        Who takes no more gives way: the session's lock is free then.
        """
        _log.trace("A session is edited", session=str(name))
        waiting, session = Waiting(self.budget), Session(self.layout, name)
        if seen := _Operation(self, session).look(planner):
            yield seen
            return
        with session.lock(self.budget.wait, sleep=self.budget.sleep):
            operation = _Operation(self, session)
            while True:
                done, answer = operation.perform(planner, waiting, worth=worth)
                last = done.plan.complete or done.outcome is None
                yield done, answer
                if last:
                    return
                del done, answer  # a plan of many megabytes shall not outlive the next one
                give_back_memory()
                waiting = Waiting(self.budget)

    def recover(self, records: Iterable[Path] | None = None) -> list[Recovered]:
        """Finish or undo what an earlier process left half done: all of it, or these records."""
        return recover(
            self.inflight,
            access_to(self.layout),
            now_ns=lambda: int(self.budget.clock() * 1e9),
            records=records,
        )


class _Operation:
    """One thing done to one session; its lock is held."""

    def __init__(self, by: Operator, session: Session) -> None:
        self.by = by
        self.session = session
        self.path = Path()  # of the session, at each attempt
        self.number: int | None = None  # in the session's history
        self.stays = False  # whether the store keeps what the last attempt put there

    def look(self, planner: Planner[Answer]) -> tuple[Done, Answer] | None:
        """Without a lock: what comes of a plan that changes nothing; None if it may be another.

        Most sessions are small and have nothing to give, and to lock one takes as long as to read
        it. What bsd has never changed nobody can be undoing, nor can lines of it be late. If
        another bsd changes it at this very moment, what is seen is the file before that. Raises as
        `perform`.
        """
        by, session = self.by, self.session
        if by.inflight.own.touched(session.name) or session.has_traces():
            return None
        if source := by.layout.source_of(session.name.agent):
            secure(by.layout, source)
        self.path = session.path
        if by.idle_policy.why_not(session.name, self.path):
            return None
        by.inflight.refuse_known(self.path.parent)
        opened, fmt = session.open(self.path)
        with opened:
            if opened.identity.size > _SMALL:
                return None
            plan, answer = planner(opened, fmt, session.store)
            if plan.edits or plan.noting or not plan.complete:
                return None
            at = plan.checkpoint
            before = guard(opened, at.offset, plan.edits) if at is not None else b""
        return Done(plan, None, before), answer

    def perform(
        self, planner: Planner[Answer], waiting: Waiting, *, worth: Worth | None = None
    ) -> tuple[Done, Answer]:
        """Plan and commit, and again until it is done or patience ends.

        A plan that is not `worth` it stays a plan. Raises Busy when patience ends, LeftAlone for
        what is not ours or lies where no file can be replaced, NotFound when the session vanishes,
        Conflict for what waiting does not cure, and what `commit` raises.
        """
        by, name = self.by, self.session.name
        if source := by.layout.source_of(name.agent):
            secure(by.layout, source)
        while True:
            self.path = self.session.path  # its program may have moved it
            not_idle = by.idle_policy.why_not(name, self.path) or by.idle_policy.late_lines(name)
            if not_idle is None:
                with without_collecting():
                    done, answer = self._attempt(planner, waiting, worth)
                outcome = done.outcome
                if outcome is None or outcome.committed:
                    return done, answer
                self._raise_if_final(outcome)
                not_idle = NotIdle(outcome.detail or str(outcome.gave_up))
                del done, answer
            if not waiting.goes_on(not_idle.again_in):
                raise busy(name, not_idle)

    def _attempt(
        self, planner: Planner[Answer], waiting: Waiting, worth: Worth | None
    ) -> tuple[Done, Answer]:
        self.by.inflight.refuse_known(self.path.parent)
        planned_at_ns = self._now_ns()
        source, fmt = self.session.open(self.path)
        with source:
            plan, answer = planner(source, fmt, self.session.store)
            worth_it = worth is None or worth(plan)
            before = b""
            if plan.checkpoint is not None:
                before = guard(source, plan.checkpoint.offset, plan.edits)
            if not (plan.edits and worth_it):
                if plan.noting.freed and not plan.edits:
                    self._free(plan)
                return Done(plan, None, before, postponed=bool(plan.edits)), answer
            try:
                outcome = self._commit(plan, source, planned_at_ns, waiting)
            except BsdError as error:
                self._attempted(plan, Outcome(GiveUp.FAILED, error.message))
                note_failure(self.session.name, plan, error)
                raise
        outcome = self._attempted(plan, outcome)
        if outcome.committed:
            self._note_own(plan, outcome)
        return Done(plan, outcome, before, number=self.number), answer

    def _attempted(self, plan: Plan, outcome: Outcome) -> Outcome:
        """Index what stays in the store, committed or not, and tell how the attempt ended."""
        by = self.by
        if self.stays:
            outcome = replace(outcome, indexed=_index(self.session, plan, by.budget.clock()))
        if by.noticed:
            by.noticed(self.session.name, outcome)
        return outcome

    def _now_ns(self) -> int:
        return int(self.by.budget.clock() * 1e9)

    def _commit(
        self, plan: Plan, source: TranscriptFile, planned_at_ns: int, waiting: Waiting
    ) -> Outcome:
        session = self.session
        kept = self.stays = False

        def keep() -> None:
            nonlocal kept
            with source:  # not to be held any longer: under the lease nobody may have it open
                session.store.add(plan.keeps, _Checked(source, self.by.budget.check))
                kept = True
                at = self.by.budget.clock()
                self.number = _begin(session, plan, source, self.by.actor, at)

        outcome: Outcome | None = None
        try:
            outcome = commit(
                Change(
                    self.path,
                    plan.planned_on,
                    plan.edits,
                    session.name,
                    planned_at_ns,
                    keeps_mtime=session.program.keeps_mtime,
                ),
                inflight=self.by.inflight,
                session_lock=session.program_lock(self.path, waiting.left),
                still_idle=lambda: in_use(session.layout, session.name),
                keep=keep,
            )
        except TemporaryFailure as failure:
            return Outcome(GiveUp.CHANGED, failure.message)
        finally:
            committed = outcome is not None and outcome.committed
            self.stays = kept and (committed or self._may_have_been_seen(outcome, plan.planned_on))
            if committed:
                session.history.done()
            elif kept and not self.stays:
                session.history.discard()
                session.store.discard(plan.keeps)
        return outcome

    def _may_have_been_seen(self, outcome: Outcome | None, planned_on: Identity) -> bool:
        """Whether a line that refers to this plan's store files may have been at the path.

        Whoever has read such a line, even in the moment before an exchange was undone, may write
        it back at any time. A commit that raised (no outcome) left a record if it exchanged.
        """
        if outcome is not None and (outcome.committed or outcome.in_flight is not None):
            return True
        return not self._stands(planned_on) or (outcome is None and self._is_in_flight())

    def _is_in_flight(self) -> bool:
        for path in self.by.inflight.records():
            try:
                record = self.by.inflight.read(path)
            except (OSError, BsdError):  # whose it is cannot be told
                return True
            if record is not None and record.session == self.session.name:
                return True
        return False

    def _stands(self, planned_on: Identity) -> bool:
        """Whether the file at the path is the one that was planned on, whatever became of it."""
        with suppress(OSError):
            found = self.path.lstat()
            return (found.st_dev, found.st_ino) == (planned_on.dev, planned_on.ino)
        return False

    def _free(self, plan: Plan) -> None:
        """Note what holds of entries from now on, though their lines stay as they are."""
        freed = plan.noting.freed
        if self.session.history.entry_notes.free(freed):
            _log.info(f"free: {self.session}, entries {len(freed)}", actor=self.by.actor)

    def _note_own(self, plan: Plan, outcome: Outcome) -> None:
        """Note that the file was written by us, and until when others had used it."""
        if outcome.identity is not None and not outcome.drained_bytes:
            self.by.inflight.own.note_own(self.session.name, plan.planned_on, outcome.identity)

    def _raise_if_final(self, outcome: Outcome) -> None:
        session = self.session
        if outcome.gave_up is GiveUp.GONE and session.layout.transcript(session.name) != self.path:
            return  # it has moved
        if outcome.gave_up in _FINAL:
            error, hint = _FINAL[outcome.gave_up]
            message = f"session {session} was left as it was: {outcome.detail}"
            raise error(message, hint=hint)


class _Checked:
    """The planned session for the store to read from; each read may be the last."""

    def __init__(self, source: TranscriptFile, check: Callable[[], None]) -> None:
        self._source = source
        self._check = check

    def read(self, offset: int, length: int) -> bytes:
        self._check()
        return self._source.read(offset, length)


# --- beside the session: its history, and the index of its store ---


def _begin(session: Session, plan: Plan, source: TranscriptFile, actor: str, at: float) -> int:
    """Write a plan into the history before it takes effect; returns the operation's number."""
    resolve_pending(session.history, source)
    report = plan.report
    return session.history.begin(
        Act(
            report.action,
            actor,
            iso_utc(at),
            values=report.values,
            bytes_before=report.bytes_before,
            bytes_after=report.bytes_after,
            undoes=plan.undoes,
        ),
        plan.edits,
        plan.touched,
        plan.keeps,
        source,
        session.store,
        plan.noting,
    )


def _index(session: Session, plan: Plan, at: float) -> bool:
    """Note in the store's index what a plan keeps; whether there was room for it."""
    extracted_at = iso_utc(at)
    # A cache: the session is committed, and whoever hears of it makes the index anew.
    try:
        # All at once, those of a large session would make the peak of its memory.
        for start in range(0, len(plan.keeps) or 1, _INDEXED_AT_ONCE):
            keeps = plan.keeps[start : start + _INDEXED_AT_ONCE]
            session.store.index.add(_record(keep, extracted_at) for keep in keeps)
    except Unavailable as problem:
        _session_log.warning(
            "The index of a store lacks files", session=str(session), problem=problem.message
        )
        return False
    return True


def _record(keep: StoredOriginal, extracted_at: str) -> Record:
    return Record(
        entry_id=keep.entry_id,
        index=keep.index,
        file=f"{keep.ref}.json",
        hash=keep.hash,
        size=keep.size,
        keys=keep.keys,
        sizes_bytes=keep.sizes_bytes,
        extracted_at=extracted_at,
    )
