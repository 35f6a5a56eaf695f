"""The façade that every door uses: open → plan → commit → audit (DESIGN §1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from bsd.core.config import PruningConfig
from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.planning.extract import plan_extraction
from bsd.planning.plan import Means, Plan, Report
from bsd.planning.restore import plan_remark
from bsd.planning.result import SessionResult, Status, Tally
from bsd.planning.survey import Progress, fingerprint
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.idle import RetryBudget
from bsd.sessions.notes import Notes
from bsd.sessions.operate import Answer, Done, Noticed, Operator, Planner, Worth
from bsd.sessions.session import Queries, Session
from bsd.store.changed_lines import undone_in
from bsd.store.history import History
from bsd.store.originals import SessionStore
from bsd.store.state import Checkpoint, StateDb
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.change import Identity
from bsd.transcripts.reader import Transcript, TranscriptFile

_log = structlog.stdlib.get_logger(module="session")

# Bytes of a session that is read again, whole, as fast as anything could be remembered of it.
_SMALL = 16 << 10


class Remembered:
    """What one extraction leaves for the next, under one set of settings: how far it is settled.

    Remembers nothing without a database. Nobody needs it to tell what a session is: markers in its
    lines and files in its store do.
    """

    def __init__(self, state: StateDb | None, name: SessionName, config: PruningConfig) -> None:
        self._state = state
        self._name = name
        self._settings = fingerprint(config) if state else ""
        self._recalled: Checkpoint | None = None

    def recall(self, source: Transcript) -> Checkpoint | None:
        """Where to begin, if what is remembered still fits."""
        if self._state:
            self._recalled = self._state.load(self._name, self._settings, source)
            hit = "miss" if self._recalled is None else "hit"
            _log.debug(f"Session {self._name}: cache {hit}", session=str(self._name))
        return self._recalled

    def keep(self, plan: Plan, left_as: Identity | None, guard: bytes, *, committed: bool) -> None:
        """Remember how far a session is settled, now that a plan is in effect (`guard`: `Done`)."""
        if self._state is None:
            return
        at = plan.checkpoint
        if at is None or left_as is None:
            self._state.forget(self._name)
        elif self._recalled is None and not committed and left_as.size < _SMALL:
            pass
        elif at != self._recalled or committed:
            self._state.save(self._name, self._settings, left_as, guard, at)


class Surgeon(Queries):
    """Does one thing to one session at a time, safely, for whoever asks.

    `operator` carries out what others have planned, `notes` tells of it. `actor` is written to
    audit and log; `noticed` is told how each attempt to commit ended. With `state` an extraction
    begins where the last one had settled everything, and tells of the rest.
    """

    def __init__(
        self,
        layout: Layout,
        config: ConfigService,
        *,
        actor: str = "cli",
        budget: RetryBudget | None = None,
        noticed: Noticed | None = None,
        state: StateDb | None = None,
        inflight: InFlight | None = None,
    ) -> None:
        self.budget = budget or RetryBudget()
        super().__init__(layout, config, actor=actor, clock=self.budget.clock)
        self.actor = actor
        self._state = state
        self.operator = Operator(
            layout, self.budget, actor=actor, noticed=noticed, inflight=inflight
        )

    def extract(
        self,
        name: SessionName,
        *,
        by_hand: bool = False,
        overrides: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        worth: Worth | None = None,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> SessionResult:
        """Extract all that is due in one session; `progress` gets bytes of it read so far.

        What somebody has taken back by undo leaves only `by_hand`: if somebody asks for it. A plan
        that is not `worth` the writing is left for later; `goes_on` is asked between two plans of
        a backlog. What concerns only this session's state is a result: BUSY, LEFT_ALONE and FAILED
        have `reason` and `hint`. Raises NotFound, Forbidden, Invalid for a wrong name or setting,
        LeftAlone for a file that is no session.
        """
        config = self.settings(overrides)
        Session(self.layout, name).refuse_no_session(unless_stored=False)
        tell = self.notes.teller(name)
        remembered = Remembered(self._state, name, config)
        history = History(self.layout, name)

        def plan(
            source: TranscriptFile, fmt: TranscriptFormat, store: SessionStore
        ) -> tuple[Plan, None]:
            undone = undone_in(source, history)
            found = plan_extraction(
                source,
                fmt,
                self._unless_switched_off(config, overrides),
                self.budget.clock(),
                store,
                tell=tell,
                progress=progress,
                since=None if by_hand and undone else remembered.recall(source),
                undone=undone,
                by_hand=by_hand,
            )
            return found, None

        tally = Tally(name, Status.EXTRACTED)
        with tally.judging():
            for done, _ in self.operator.carry_out_all(name, plan, worth):
                unfinished = self._take(name, done, tally, remembered)
                del done  # a plan of many megabytes shall not outlive the next one
                if unfinished and not goes_on():
                    tally.unfinished = True
                    break
        self.notes.concluded("extract", name, tally)
        return tally.result()

    def _take(self, name: SessionName, done: Done, tally: Tally, remembered: Remembered) -> bool:
        """Count, remember and tell what came of one plan; whether the next one has more to do."""
        committed = done.outcome is not None
        tally.add(done.plan.report, committed=committed)
        tally.leave(done.left_as, due_at=done.plan.due_at, postponed=done.postponed)
        if not done.postponed:
            remembered.keep(done.plan, done.file, done.guard, committed=committed)
        if committed:
            self.notes.extracted(name, done.plan)
        return committed and not done.plan.complete

    def _unless_switched_off(
        self, config: PruningConfig, overrides: Mapping[str, Any] | None
    ) -> PruningConfig:
        """Settings for a plan made now: who switched extraction off may have had the session since.

        He has put everything back, without the protection that a restoration has.
        """
        if "enabled" in (overrides or {}) or self.config.current.enabled:
            return config
        return config.model_copy(update={"enabled": False})

    def remark(self, name: SessionName) -> tuple[str, ...]:
        """Put markers back that a program has dropped; the answer names the entries.

        Raises NotFound, Busy, LeftAlone.
        """

        def plan(
            source: TranscriptFile, fmt: TranscriptFormat, store: SessionStore
        ) -> tuple[Plan, tuple[str, ...]]:
            return plan_remark(source, fmt, store)

        done, entries = self.operator.carry_out(name, plan)
        if done.outcome:
            self.notes.changed_several("remark", name, done.plan.report, entries)
        return entries

    def perform(
        self,
        name: SessionName,
        plan: Callable[[Transcript, TranscriptFormat, Means], tuple[Plan, Answer]],
        note: Callable[[Notes, Report | None, Answer], None],
        *,
        dry_run: bool = False,
    ) -> tuple[int | None, Answer]:
        """Put a plan into effect; `note` writes down what was done, by a report or None: nothing.

        The answer comes with its number in the history, if anything was changed. Raises NotFound,
        Busy, Conflict, and what the planner raises.
        """

        def planner(
            source: TranscriptFile, fmt: TranscriptFormat, store: SessionStore
        ) -> tuple[Plan, Answer]:
            return plan(source, fmt, self._means(name, store))

        if dry_run:
            return None, self._trial(name, planner)
        done, answer = self.operator.carry_out(name, planner)
        note(self.notes, done.plan.report if done.outcome else None, answer)
        return done.number, answer

    def _trial(self, name: SessionName, planner: Planner[Answer]) -> Answer:
        session = Session(self.layout, name)
        source, fmt = session.open()
        with source:
            return planner(source, fmt, session.store)[1]
