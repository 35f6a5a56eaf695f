"""What the daemon's jobs do: look around, clean up, look after what is in flight."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bsd.care.expiry import Cleaned
from bsd.care.interrupted import recover
from bsd.care.retention import RetentionRun, in_plain_words
from bsd.care.verify import reindex
from bsd.daemon import directories
from bsd.daemon.clock import steady
from bsd.daemon.guarantee import Mounts
from bsd.daemon.intake import Intake
from bsd.daemon.ledger import Ledger
from bsd.daemon.rest import Rests, resume
from bsd.daemon.savings import Savings
from bsd.daemon.scan import Scan
from bsd.foundation.ages import look
from bsd.foundation.claims import elsewhere, has_served, secure
from bsd.foundation.errors import BsdError, Busy, LeftAlone, NotFound, Unavailable
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger, traced
from bsd.foundation.pruning_config import ConfigService
from bsd.foundation.spelling import lifetime_seconds
from bsd.session.commit.displaced import Recovered, State
from bsd.session.commit.inflight import InFlight
from bsd.session.surgeon import Surgeon

_log = get_logger("daemon")

_DONE_WITH = {State.FINISHED, State.ABANDONED, State.FAILED}
_QUIET = {State.WATCHED, State.BUSY}
_BAD = {State.FAILED, State.ORPHANED}


@traced(_log)
class Chores:
    """Each method is a job, or part of one; `stopping` breaks the long ones off."""

    def __init__(  # noqa: PLR0913 - the parts that chores are about
        self,
        layout: Layout,
        config: ConfigService,
        surgeon: Surgeon,
        *,
        scan: Scan,
        intake: Intake,
        savings: Savings,
        ledger: Ledger,
        mounts: Mounts,
        rests: Rests,
        stopping: Callable[[], bool],
        readonly: bool = False,
        gone: Callable[[SessionName], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady,
    ) -> None:
        self._layout = layout
        self._config = config
        self._surgeon = surgeon
        self._scan = scan
        self._intake = intake
        self._savings = savings
        self._ledger = ledger
        self._mounts = mounts
        self._rests = rests
        self._stopping = stopping
        self._readonly = readonly
        self._gone = gone
        self._clock = clock
        self._steady = steady
        self._inflight = InFlight(layout)
        self._told: dict[Path, tuple[State, str]] = {}
        self._known: set[Path] = set()  # records that are our own, or have been looked into
        self._behind: set[SessionName] = set()  # whose index may lack files
        self._held: str | None = None  # why retention deletes nothing, as it was last told

    def look_around(self) -> None:
        """Find which sessions changed, by stat alone, and queue them."""
        self._look_at_clock()
        now, wall = self._steady(), self._clock()
        for name, seen in self._scan.step():
            if self._stopping():
                return
            if seen is None:
                self._ledger.forget(name)
                self._gone(name)
                self._savings.settle(name)
            else:
                self._intake.found(name, seen, now, wall)
        found = directories.look(self._layout)
        self._mounts.look((*found.sessions, *found.put_away_in))
        self._rests.flush()

    def _look_at_clock(self) -> None:
        """See at once that it was put forward: what is destroyed by the clock may come later."""
        ages = look(self._layout, self._clock, self._steady, keep=not self._readonly)
        config = self._config.current
        kept = map(lifetime_seconds, (config.retention, config.trash_retention))
        why = next(filter(None, map(ages.why_held, kept)), None)
        if why is not None and self._held is None:
            _log.warning("The clock cannot be believed", problem=why)
        elif why is None and self._held is not None:
            _log.info("The clock is believed again")
        self._held = why

    @property
    def clock_in_doubt(self) -> str | None:
        """Why nothing is deleted by the clock, as of the last look."""
        return self._held

    def resume(self) -> None:
        """Take over from the daemon before: what it left at rest need not be opened again."""
        now, wall = self._steady(), self._clock()
        resume(
            self._rests,
            self._scan.note,
            lambda name, due_at: self._intake.changed(name, now + max(0.0, due_at - wall)),
        )

    def is_something_in_flight(self) -> bool:
        """Whether a commit left something to look after, ours or another bsd's."""
        return next(self._inflight.records(), None) is not None

    def recover(self) -> bool:
        """Finish or undo what is in flight; whether there will be more to do soon."""
        self._note_behind()
        found = recover(self._surgeon)
        for each in found:
            if self._told.get(each.record) != (each.state, each.detail):
                _tell(each)
        self._told = {each.record: (each.state, each.detail) for each in found}
        self._reindex()
        return bool(self._behind) or any(each.state not in _DONE_WITH for each in found)

    def committed(self, record: Path) -> None:
        """Hear of what a commit of this process has left in flight."""
        self._known.add(record)

    def fell_behind(self, name: SessionName) -> None:
        """Hear of a store whose index lacks files: it is mended when what is in flight is."""
        self._behind.add(name)

    def _note_behind(self) -> None:
        """Note what others have in flight: who was killed after a commit has not indexed it."""
        seen = set(self._inflight.records())
        known = self._known & seen
        for path in seen - known:
            with suppress(OSError, BsdError):
                if (record := self._inflight.read(path)) is not None:
                    self._behind.add(record.session)
                    known.add(path)
        self._known = known

    def _reindex(self) -> None:
        for name in sorted([*self._behind]):  # workers add to it
            try:
                if reindex(self._layout, name, wait=0.0):
                    _log.info("The index of a store was made anew", session=str(name))
            except Busy:
                continue  # perhaps it is just being written
            except NotFound:  # with its session: there is nothing to be found by it
                pass
            except Unavailable as problem:  # no room: tried again until there is
                _log.debug("An index must wait", session=str(name), problem=problem.message)
                continue
            except BsdError as problem:
                _log.warning(
                    "The index of a store may lack files, `bsd verify --repair` mends it",
                    session=str(name),
                    problem=problem.message,
                )
            self._behind.discard(name)

    def clean_up(self) -> Cleaned:
        """Delete what has been kept long enough."""
        started = self._clock()
        run = RetentionRun(
            self._layout,
            actor="daemon",
            clock=self._clock,
            steady=self._steady,
            stopping=self._stopping,
        )
        done = run.clean_all(self._config.current)
        if not self._stopping():
            self._rests.keep_only(self._is_there)
            self._config.note_run("last_retention_run_at", started)
        return done.store.done

    def _is_there(self, name: SessionName) -> bool:
        return os.path.lexists(self._layout.transcript(name))

    def claim_sources(self) -> None:
        """Say of sources that they are served from here, as they have been; others can wait."""
        for source in self._layout.sources:
            try:
                if has_served(self._layout, source) or elsewhere(self._layout, source):
                    secure(self._layout, source)
            except LeftAlone as problem:
                _log.warning(
                    "A source is only looked at", problem=problem.message, hint=problem.hint
                )

    def explain_retention(self) -> None:
        """Before anything was ever deleted, say what will be, and how to keep it."""
        config = self._config.current
        if config.last_retention_run_at is None:
            _log.info(in_plain_words(config.retention))


def _tell(each: Recovered) -> None:
    if each.state in _BAD:
        _log.error("What was in flight needs a look", **each.as_json())
    elif each.state not in _QUIET:
        _log.info("What was in flight was looked after", **each.as_json())
