"""The one rule that says when a session may be changed (SPEC §2.6), and how it is waited for.

A session is idle when no user has paused it, its lock is free, its program does not count it as in
use, and only bsd has written to it for a while: 2 s in any case, since a second change within that
time may not show in the file's timestamps; as long as the settings say; as long as its program
needs; and on file systems where leases prove nothing, 30 s (`Strength.quiet_seconds`). Late lines
in files that bsd's own commits displaced must be back in the session before the next commit.

If the program itself says that a session is idle (a hook), only the 2 s and the 30 s are waited
for, until the program writes to the session again.
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

# So long after it has said that a session is idle, a program may still write its notes of the turn.
_NOTES_SECONDS = 3.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_UNFINISHED = {State.BUSY, State.WAITING, State.FAILED}
_ONCE_MORE = {State.CARRIED, State.PUT_BACK}


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """How long a session in use is waited for (seconds), and by which clock.

    `check` is called while nothing is half done yet; its exception ends the operation there.
    `told_idle` is when the session's program said that it is idle (epoch seconds), if it did.
    """

    wait: float = 30.0  # in all, for any reason
    quiet: float = UNCERTAIN_SECONDS
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    check: Callable[[], None] = lambda: None
    told_idle: float | None = None


class Waiting:
    """How much of a budget is left: by the clock, and by the time slept if that is put back."""

    def __init__(self, budget: RetryBudget) -> None:
        self._budget = budget
        self._begun = budget.clock()
        self._slept = 0.0
        self._attempt = 0

    @property
    def left(self) -> float:
        """Seconds."""
        gone = max(self._slept, self._budget.clock() - self._begun)
        return max(0.0, self._budget.wait - gone)

    def goes_on(self, pause: float | None) -> bool:
        """Sleep for `pause` seconds (None: ever longer); False at once if too little is left."""
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
    """Why a session must be left alone now, and for how many seconds if that is known."""

    why: str
    again_in: float | None = None
    pause: PauseInForce | None = None  # which waiting does not outlast


def busy(name: SessionName, not_idle: NotIdle) -> Busy:
    """The error to raise when the budget is used up."""
    if not_idle.pause is not None:
        return not_idle.pause.refusal(name)
    again_in = not_idle.again_in
    when = "later" if again_in is None else f"in {math.ceil(again_in)} s"
    problem = f"session {name} is in use: {not_idle.why}"
    return Busy(problem, hint=f"again {when}", again_in=again_in)


class IdlePolicy:
    """Tells whether sessions are idle. The caller holds bsd's own lock of each."""

    def __init__(self, layout: Layout, budget: RetryBudget, inflight: InFlight) -> None:
        self._layout = layout
        self._budget = budget
        self._inflight = inflight

    def why_not(
        self, name: SessionName, path: Path | None = None, *, to_read: bool = False
    ) -> NotIdle | None:
        """The rule; None for a session that is idle, and for one that is not there.

        Args:
            path: its transcript, if the caller has just asked the layout for it.
            to_read: the session is only to be read as a whole, as in a pause it may be.
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
        # A write of bsd's own is no use by others; but a weak file system's own rule stays.
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
        """Put lines back that others wrote into files that our last commits displaced.

        Before the next commit displaces another file: then lines come back in their order. Tells
        why that must wait, if it must.
        """
        touched = self._inflight.own.touched(name)
        if not touched:
            return None
        # A displaced file stays for its minute: another program may be about to open it.
        for found in self._recover([name], records=list(touched), keep_displaced=True):
            if found.state is State.WAITING:
                return NotIdle(f"late lines are still to be put back: {found.detail}")
            if found.state is State.WATCHED:
                self._inflight.own.note_watched(name, found.record, touched[found.record])
        return None

    # Sessions that are to go away whole.

    def settle(self, names: list[SessionName]) -> None:
        """Have nothing in flight for these sessions, late lines where they belong; raises Busy.

        A displaced file that is only kept for its minute is no hindrance once no process has it
        open: later lines in it would be kept as an orphan, as for any session that is gone.
        """
        self._put_late_lines_back(names)
        for record in self._inflight.readable():
            if record.session in names and not _is_only_kept(record):
                raise Busy(
                    f"session {record.session} was changed a moment ago, and somebody may"
                    " still write to the file as it was",
                    hint="again in a minute",
                )

    def blank(self, names: Collection[SessionName]) -> None:
        """Blank all words in files that commits of these sessions displaced; raises Busy, OSError.

        Late lines are put back before, and those that still come are put back afterwards.
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

    def wait_for(self, names: list[SessionName], waiting: Waiting) -> None:
        """Wait until all are idle, and no process has them open; raises Busy in the end."""
        while found := next(filter(None, map(self._why_kept, names)), None):
            name, not_idle = found
            if not_idle.pause or not waiting.goes_on(not_idle.again_in):
                raise busy(name, not_idle)

    def _why_kept(self, name: SessionName) -> tuple[SessionName, NotIdle] | None:
        """Why a session cannot go: by the rule, or since a process has it open."""
        if not_idle := self.why_not(name):
            return name, not_idle
        path = self._layout.transcript(name)
        try:
            closed = _is_closed(path, strong=not strength(path.parent).quiet_seconds)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if closed else (name, NotIdle("somebody has it open"))

    def program_lock(self, name: SessionName, wait: float) -> AbstractContextManager[object]:
        """Its program's lock of a session, if there is a file to lock or a stale lock to remove."""
        path = self._layout.transcript(name)
        program = program_of(self._layout, name.agent)
        if not path.exists() and isinstance(program.lock_state(path), Free):
            return nullcontext()
        return program.lock(name, path, wait, sleep=self._budget.sleep)

    def refuse_unless(self, names: Iterable[SessionName]) -> None:
        """Look again, now that the locks are held and no program can begin; raises Busy."""
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
    """Whether no other process has a file open, as far as that can be told."""
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
    """Whether a displaced file is only kept for its minute; on weak mounts that proves nothing."""
    if not record.file.exists():
        return True
    return record.strong and _is_closed(record.file, strong=True)
