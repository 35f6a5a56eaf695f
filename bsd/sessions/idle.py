"""The rule that says when a session may be changed (SPEC §2.6), and how bsd waits for that.

A session is idle if no user has paused it, its lock is free, its program does not report it as in
use, and its last write is long enough ago. Any write, also one of bsd's own, must be 2 s old, since
a second change within that time may not show in the file's timestamps. Writes of other programs
must be as old as the settings say, as the program needs, and on file systems where leases prove
nothing, 30 s (`Strength.quiet_seconds`).

Late lines in files that bsd's own commits displaced must be back in the session before the next
commit. If the program itself reports that a session is idle (a hook), only the 2 s and the 30 s
apply, until the program writes to the session again.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from bsd.core.errors import Busy, os_problem
from bsd.core.files import UNCERTAIN_SECONDS
from bsd.core.filesystem import open_elsewhere, strength
from bsd.core.layout import Layout, SessionName
from bsd.core.leases import open_plain, take_lease
from bsd.core.pauses import PauseInForce, pause_of
from bsd.sessions.commit.displaced import Access, Recovered, State
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.record import InFlightRecord
from bsd.sessions.commit.recovery import blank, recover
from bsd.transcripts.agents.program import Free, Stale
from bsd.transcripts.agents.programs import in_use, program_of
from bsd.transcripts.change import Identity

# Time in which a program may still write notes of the turn after it reported the session idle.
_NOTES_SECONDS = 3.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_UNFINISHED = {State.BUSY, State.WAITING, State.FAILED}
_ONCE_MORE = {State.CARRIED, State.PUT_BACK}


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """How long to wait for a session in use (seconds), and the clock to use.

    `check` is called while no step is half done; if it raises, the operation ends there.
    `told_idle` is the time at which the session's program reported it idle (epoch seconds), or
    None.
    """

    wait: float = 30.0  # in total, for any reason
    quiet: float = UNCERTAIN_SECONDS
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    check: Callable[[], None] = lambda: None
    told_idle: float | None = None


class TimeLeft:
    """The time left of a budget, by the clock or, if the clock was set back, by the time slept."""

    def __init__(self, budget: RetryBudget) -> None:
        self._budget = budget
        self._begun = budget.clock()
        self._slept = 0.0
        self._attempt = 0

    @property
    def left(self) -> float:
        """The seconds left."""
        gone = max(self._slept, self._budget.clock() - self._begun)
        return max(0.0, self._budget.wait - gone)

    def goes_on(self, pause: float | None) -> bool:
        """Sleep for `pause` seconds; return False at once if less time is left.

        If `pause` is None, each sleep is longer than the previous one, up to `_LONGEST_PAUSE`.
        """
        left = self.left
        if left <= 0 or (pause is not None and pause > left):
            return False
        backing_off = min(_FIRST_PAUSE * 2 ** min(self._attempt, 10), _LONGEST_PAUSE)
        nap = min(pause or backing_off, left)
        self._budget.sleep(nap)
        self._slept += nap
        self._attempt += 1
        return True


@dataclass(frozen=True, slots=True)
class NotIdle:
    """Why a session must not be changed now, and for how many seconds, if known."""

    why: str
    again_in: float | None = None
    pause: PauseInForce | None = None  # a user's pause, for which bsd does not wait


def busy(name: SessionName, not_idle: NotIdle) -> Busy:
    """Return the error to raise when the budget is used up."""
    if not_idle.pause is not None:
        return not_idle.pause.refusal(name)
    again_in = not_idle.again_in
    when = "later" if again_in is None else f"in {math.ceil(again_in)} s"
    problem = f"session {name} is in use: {not_idle.why}"
    return Busy(problem, hint=f"again {when}", again_in=again_in)


class IdlePolicy:
    """Tells whether sessions are idle. The caller holds bsd's lock of each session."""

    def __init__(self, layout: Layout, budget: RetryBudget, inflight: InFlight) -> None:
        self._layout = layout
        self._budget = budget
        self._inflight = inflight

    def why_not(
        self, name: SessionName, path: Path | None = None, *, to_read: bool = False
    ) -> NotIdle | None:
        """Return why a session is not idle; None if it is idle or does not exist.

        Args:
            path: the transcript's path, if the caller has just resolved it.
            to_read: the session is only read as a whole, which a pause permits.
        """
        paused = None if to_read else pause_of(self._layout, name, self._budget.clock())
        if paused is not None:
            return NotIdle(f"it is paused {paused.pause.spelled_end}", paused.left, paused)
        path = path or self._layout.transcript(name)
        program = program_of(self._layout, name.agent)
        if not isinstance(program.lock_state(path), Free | Stale):
            return NotIdle("its lock is held")
        if why := in_use(self._layout, name):
            return NotIdle(why)
        try:
            found = Identity.of(path.lstat())
            weak_quiet = strength(path.parent).quiet_seconds
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise os_problem(error, f"looking at {path}") from error
        now_ns = int(self._budget.clock() * 1e9)
        # bsd's own writes do not count as use, but the rule for weak file systems always applies.
        used_ns = None if weak_quiet else self._inflight.own.used_before(name, found)
        age = (now_ns - found.mtime_ns) / 1e9
        used = age if used_ns is None else (now_ns - used_ns) / 1e9
        quiet = max(self._budget.quiet, program.quiet_seconds, weak_quiet)
        told = self._budget.told_idle
        if told is not None and found.mtime_ns / 1e9 <= told + _NOTES_SECONDS:
            quiet = weak_quiet
        rules = ((age, UNCERTAIN_SECONDS), (used, quiet))
        pause = max((needed - since for since, needed in rules if since >= 0), default=0.0)
        return NotIdle(f"it was written to {age:.1f} s ago", pause) if pause > 0 else None

    def late_lines(self, name: SessionName) -> NotIdle | None:
        """Put lines back that programs wrote into files displaced by bsd's last commits.

        This happens before the next commit displaces another file, so that lines stay in order.
        Returns the reason if it must wait.
        """
        touched = self._inflight.own.touched(name)
        if not touched:
            return None
        # A displaced file is kept for a minute, since a program may be about to open it.
        for found in self._recover([name], records=list(touched), keep_displaced=True):
            if found.state is State.WAITING:
                return NotIdle(f"late lines wait to be put back: {found.detail}")
            if found.state is State.WATCHED:
                self._inflight.own.note_watched(name, found.record, touched[found.record])
        return None

    # For actions that remove whole sessions.

    def settle(self, names: list[SessionName]) -> None:
        """Finish the commits of these sessions and put late lines back; raises Busy.

        A displaced file that is only kept for its minute does not prevent this once no process has
        it open. Later lines in it would become an orphan, as for any session that is gone.
        """
        self._put_late_lines_back(names)
        for record in self._inflight.readable():
            if record.session in names and not _is_only_kept(record):
                raise Busy(
                    f"session {record.session} was changed a moment ago, and a program may"
                    " still write to the former file",
                    hint="again in a minute",
                )

    def blank(self, names: Collection[SessionName]) -> None:
        """Blank the content of files displaced by commits of these sessions; raises Busy, OSError.

        Late lines are put back first. Lines that arrive later are put back afterwards.
        """
        self._put_late_lines_back(names)
        for record in self._inflight.readable():
            if record.session in names:
                blank(record)

    def _put_late_lines_back(self, names: Collection[SessionName]) -> None:
        for _ in range(3):
            found = [each for each in self._recover(names) if each.session in names]
            for each in found:
                if each.state in _UNFINISHED:
                    problem = f"a change of session {each.session} is not finished: {each.detail}"
                    raise Busy(problem, hint="again later")
            if not any(each.state in _ONCE_MORE for each in found):
                break

    def wait_for(self, names: list[SessionName], waiting: TimeLeft) -> None:
        """Wait until all sessions are idle and no process has them open.

        Raises Busy if the budget is used up.
        """
        while found := next(filter(None, map(self._why_kept, names)), None):
            name, not_idle = found
            if not_idle.pause or not waiting.goes_on(not_idle.again_in):
                raise busy(name, not_idle)

    def _why_kept(self, name: SessionName) -> tuple[SessionName, NotIdle] | None:
        """Return a session that cannot go, with the reason: not idle, or open in a process."""
        if not_idle := self.why_not(name):
            return name, not_idle
        path = self._layout.transcript(name)
        try:
            closed = _is_closed(path, strong=not strength(path.parent).quiet_seconds)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if closed else (name, NotIdle("another process has it open"))

    def program_lock(self, name: SessionName, wait: float) -> AbstractContextManager[object]:
        """Return the program's lock of a session.

        If there is neither a file to lock nor a stale lock to remove, the context does nothing.
        """
        path = self._layout.transcript(name)
        program = program_of(self._layout, name.agent)
        if not path.exists() and isinstance(program.lock_state(path), Free):
            return nullcontext()
        return program.lock(name, path, wait, sleep=self._budget.sleep)

    def refuse_unless(self, names: Iterable[SessionName]) -> None:
        """Raise Busy if a program uses one of these sessions. Call it once the locks are held."""
        for name in names:
            if why := in_use(self._layout, name):
                raise busy(name, NotIdle(why))

    def _recover(
        self,
        names: Collection[SessionName],
        *,
        records: list[Path] | None = None,
        keep_displaced: bool = False,
    ) -> list[Recovered]:
        return recover(
            self._inflight,
            Access.to(self._layout, held=names),
            now_ns=lambda: int(self._budget.clock() * 1e9),
            records=records,
            keep_displaced=keep_displaced,
        )


def _is_closed(path: Path, *, strong: bool) -> bool:
    """Return whether no other process has a file open, as far as this can be determined."""
    if not strong:
        return not path.exists() or set(open_elsewhere(path)) <= {os.getpid()}
    try:
        fd = open_plain(str(path), os.O_RDONLY)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    try:
        return take_lease(fd)
    finally:
        os.close(fd)


def _is_only_kept(record: InFlightRecord) -> bool:
    """Return whether a displaced file is only kept for its minute.

    Weak mounts cannot prove that.
    """
    if not record.file.exists():
        return True
    return record.strong and _is_closed(record.file, strong=True)
