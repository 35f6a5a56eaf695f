"""The one way in which actions change a session: lock → idle → open → plan → commit → note."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import structlog

from bsd.core.config_file import ConfigService
from bsd.core.errors import BsdError, Conflict, NotFound, TemporaryFailure, Unavailable
from bsd.core.formatting import iso_utc
from bsd.core.layout import SessionName
from bsd.core.logs import BoundLogger
from bsd.core.processes import give_back_memory, without_collecting
from bsd.planning.plan import Plan
from bsd.planning.rules import Reason
from bsd.sessions.commit.exchange import GiveUp
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.protocol import CommitOutcome, commit
from bsd.sessions.foreign import why_foreign
from bsd.sessions.idle import IdlePolicy, NotIdle, RetryBudget, TimeLeft, busy
from bsd.sessions.notes import Notes
from bsd.sessions.session import OpenSession, Session
from bsd.store.changed_lines import resolve_pending
from bsd.store.contents import contents_of
from bsd.store.history import Act
from bsd.store.state import state_at
from bsd.transcripts.agents.programs import in_use, secure
from bsd.transcripts.change import Change, Identity
from bsd.transcripts.reader import TranscriptFile

_log: BoundLogger = structlog.get_logger(module="surgeon")
_session_log = structlog.stdlib.get_logger(module="session")

_INDEXED_AT_ONCE = 4096  # files

# Waiting does not help with these; the hint tells what to do instead.
_FINAL = {
    GiveUp.GONE: (NotFound, "`bsd sessions` lists the sessions"),
    GiveUp.NOT_REGULAR: (Conflict, "bsd edits plain files only: replace the link by its file"),
    GiveUp.CANNOT_KEEP_METADATA: (Conflict, "run bsd as the user who owns the session"),
}

T = TypeVar("T")
Planner = Callable[[OpenSession], tuple[Plan, T]]  # returns the plan and the action's answer
# (plan, outcome, answer); the outcome is None if the plan has no edits or was not worth a commit.
Applied = tuple[Plan, CommitOutcome | None, T]
# Returns whether a plan is worth a commit.
Worth = Callable[[Plan], bool]
# Called with the outcome of each attempt to commit.
Noticed = Callable[[SessionName, CommitOutcome], None]


class SessionEditor:
    """Changes one session for one actor. Holds bsd's lock of the session from planning to audit.

    Attributes:
        notes: writes log and audit records about this session.
        operation: the number in the history of the last plan committed by `apply`; None if it made
            no change.
    """

    def __init__(
        self,
        session: Session,
        config: ConfigService,
        *,
        actor: str,
        budget: RetryBudget,
        inflight: InFlight,
        noticed: Noticed | None = None,
    ) -> None:
        self.notes = Notes(session.layout, session.name, actor, budget.clock)
        self.operation: int | None = None
        self._session = session
        self._config = config
        self._actor = actor
        self._budget = budget
        self._inflight = inflight
        self._noticed = noticed
        self._idle = IdlePolicy(session.layout, budget, inflight)

    def apply(self, planner: Planner[T]) -> T:
        """Commit one plan, write log and audit, and return the planner's answer.

        The planner is called again if the session changes before its plan is committed.

        Raises:
            NotFound: there is no such session, or it was deleted meanwhile.
            Busy: the session is in use for longer than the budget allows.
            LeftAlone: it is not bsd's to edit, or another root's, or its file cannot be replaced
                safely.
            Conflict: an obstacle that waiting does not remove.
        """
        session = self._session
        contents_of(session.layout).changed()  # read the stores anew for each answer
        with self._locked() as waiting:
            plan, outcome, answer = self._carry_out(planner, None, waiting)
        if outcome or plan.noting:  # outcomes may no longer be final
            state_at(session.layout.state_db).forget(session.name)
        if outcome:
            state_at(session.layout.state_db).end_savings(session.name)
            self.operation = outcome.operation
            self.notes.changed(plan)
        return answer

    def apply_all(self, planner: Planner[T], *, worth: Worth | None = None) -> Iterator[Applied[T]]:
        """Commit plans until one is complete, since a backlog may exceed the budget of one plan.

        Generator. If the caller stops iterating, the lock is released before the next plan. Raises
        as `apply` does.

        Args:
            worth: called with every plan; a plan that is not worth it is not committed.
        """
        with self._locked() as first:
            waiting = first
            while True:
                plan, outcome, answer = self._carry_out(planner, worth, waiting)
                last = plan.complete or outcome is None
                yield plan, outcome, answer
                if last:
                    return
                del plan, answer  # free a large plan before the next one is made
                give_back_memory()
                waiting = TimeLeft(self._budget)

    @contextmanager
    def _locked(self) -> Iterator[TimeLeft]:
        """Hold bsd's lock of the session."""
        session, waiting = self._session, TimeLeft(self._budget)
        _log.trace("A session is edited", session=str(session))
        with session.lock(self._budget.wait, sleep=self._budget.sleep):
            if source := session.layout.source_of(session.name.agent):
                secure(session.layout, source)
            yield waiting

    def _carry_out(self, planner: Planner[T], worth: Worth | None, waiting: TimeLeft) -> Applied[T]:
        """Plan and commit, repeatedly, until a plan is committed or the budget is used up."""
        name = self._session.name
        while True:
            path = self._session.path  # its program may have moved the session
            not_idle = self._idle.why_not(name, path) or self._idle.late_lines(name)
            if not_idle is None:
                with without_collecting():
                    plan, outcome, answer = self._attempt(planner, worth, path, waiting)
                if outcome is None or outcome.committed:
                    return plan, outcome, answer
                self._raise_if_final(outcome, path)
                not_idle = NotIdle(outcome.detail or str(outcome.gave_up))
                del plan, answer
            if not_idle.pause or not waiting.goes_on(not_idle.again_in):
                raise busy(name, not_idle)

    def _attempt(
        self,
        planner: Planner[T],
        worth: Worth | None,
        path: Path,
        waiting: TimeLeft,
    ) -> Applied[T]:
        session, now = self._session, self._budget.clock()
        self._inflight.refuse_known(path.parent)
        source, fmt = session.open(path)
        with source:
            plan, answer = planner(session.opened(source, fmt, now, self._config))
            freed = () if plan.edits else plan.noting.freed
            # No line changes; only record that these entries are free again.
            if freed and session.history.entry_notes.free(freed):
                _log.info(f"free: {session}, entries {len(freed)}", actor=self._actor)
            is_worth = worth is None or worth(plan)
            may_be_foreign = plan.edits or plan.report.reasons[Reason.ALREADY_EXTRACTED]
            if may_be_foreign and (foreign := why_foreign(session, source)):
                raise foreign
            if not (plan.edits and is_worth):
                return plan, None, answer
            if place := session.layout.source_of(session.name.agent):
                secure(session.layout, place, edits=True)
            change = Change(
                path,
                plan.planned_on,
                plan.edits,
                session.name,
                int(now * 1e9),
                keeps_mtime=session.program.keeps_mtime,
                keeps_length=fmt.keeps_length,
            )
            outcome = self._commit(change, plan, source, waiting)
        if outcome.identity is not None and not outcome.drained_bytes:
            # bsd wrote the file; remember when other programs last wrote to it.
            self._inflight.own.note_own(session.name, plan.planned_on, outcome.identity)
        return plan, outcome, answer

    def _commit(
        self, change: Change, plan: Plan, source: TranscriptFile, waiting: TimeLeft
    ) -> CommitOutcome:
        """Commit a plan. The store and the history are durable before its lines become visible."""
        session = self._session
        outcome: CommitOutcome | None = None
        problem: BsdError | None = None
        stored, number = False, 0

        def store_originals() -> None:
            nonlocal stored, number
            with source:  # closed afterwards: no process may have it open under the lease
                session.store.add(plan.keeps, _Checked(source, self._budget.check))
                stored = True
                number = self._begin(plan, source)

        try:
            outcome = commit(
                change,
                inflight=self._inflight,
                session_lock=session.program.lock(session.name, change.path, waiting.left),
                still_idle=lambda: in_use(session.layout, session.name),
                keep=store_originals,
            )
        except BsdError as error:
            problem = error
        finally:
            committed = outcome is not None and outcome.committed
            stays = stored and (committed or self._may_have_been_seen(outcome, change))
            if committed:
                session.history.done()
            elif stored and not stays:
                session.history.discard()
                session.store.discard(plan.keeps)
        if outcome is None:
            reason = GiveUp.CHANGED if isinstance(problem, TemporaryFailure) else GiveUp.FAILED
            outcome = CommitOutcome(reason, str(problem))
        indexed = self._index(plan) if stays else True
        outcome = replace(outcome, indexed=indexed, operation=number if committed else None)
        if self._noticed:
            self._noticed(session.name, outcome)
        if problem is not None and outcome.gave_up is GiveUp.FAILED:
            self.notes.failed(plan, problem)
            raise problem
        return outcome

    def _may_have_been_seen(self, outcome: CommitOutcome | None, change: Change) -> bool:
        """Return whether a line that refers to this plan's stored files may have been at the path.

        A program that has read such a line may write it back at any time, even if it read the line
        in the moment before an exchange was undone. A commit that raised (no outcome) left a record
        if it exchanged the files.
        """
        if outcome is not None and outcome.in_flight is not None:
            return True
        planned_on, found = change.planned_on, None
        with suppress(OSError):
            found = change.path.lstat()
        if found is None or (found.st_dev, found.st_ino) != (planned_on.dev, planned_on.ino):
            return True
        return outcome is None and self._is_in_flight()

    def _is_in_flight(self) -> bool:
        for path in self._inflight.records():
            try:
                record = self._inflight.read(path)
            except (OSError, BsdError):  # the record may be of this session
                return True
            if record is not None and record.session == self._session.name:
                return True
        return False

    def _raise_if_final(self, outcome: CommitOutcome, path: Path) -> None:
        session = self._session
        if outcome.gave_up is GiveUp.GONE and session.layout.transcript(session.name) != path:
            return  # the file was moved
        if outcome.gave_up in _FINAL:
            error, hint = _FINAL[outcome.gave_up]
            message = f"session {session} was left as it was: {outcome.detail}"
            raise error(message, hint=hint)

    def _begin(self, plan: Plan, source: TranscriptFile) -> int:
        """Write a plan into the history before it takes effect; return the operation's number."""
        session, report = self._session, plan.report
        resolve_pending(session.history, source)
        act = Act(
            report.action,
            self._actor,
            iso_utc(self._budget.clock()),
            values=report.values,
            bytes_before=report.bytes_before,
            bytes_after=report.bytes_after,
            undoes=plan.undoes,
            cut_reason=str(plan.timing.cause) if plan.timing and not plan.timing.waits else None,
        )
        return session.history.begin(
            act,
            plan.edits,
            plan.touched,
            plan.keeps,
            source,
            session.store,
            plan.noting,
            keeps_former=plan.keeps_former,
        )

    def _index(self, plan: Plan) -> bool:
        """Add a plan's originals to the store's index; return False if there was no room.

        The index is a cache: the session is committed, and the index can be rebuilt.
        """
        extracted_at = iso_utc(self._budget.clock())
        try:
            # In parts, since all originals of a large session at once would need the most memory.
            for start in range(0, len(plan.keeps) or 1, _INDEXED_AT_ONCE):
                self._session.store.index.add(
                    keep.record(extracted_at)
                    for keep in plan.keeps[start : start + _INDEXED_AT_ONCE]
                )
        except Unavailable as problem:
            _session_log.warning(
                "The index of a store lacks files",
                session=str(self._session),
                problem=problem.message,
            )
            return False
        return True


class _Checked:
    """The planned session as the store reads it.

    Before each read the operation may be cancelled.
    """

    def __init__(self, source: TranscriptFile, check: Callable[[], None]) -> None:
        self._source = source
        self._check = check

    def read(self, offset: int, length: int) -> bytes:
        self._check()
        return self._source.read(offset, length)


def left_as(plan: Plan, outcome: CommitOutcome | None) -> Identity | None:
    """Return the session file after a plan; None if it holds lines that no plan has seen."""
    if outcome is None:
        return plan.planned_on
    return None if outcome.drained_bytes else outcome.identity
