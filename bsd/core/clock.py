"""How old things are, by a clock that somebody may put forward.

What is kept for a time goes by its age, and its age is told by the wall clock. Within one start of
the machine a second clock is there that nobody can set, and that goes on while the machine sleeps:
where the wall clock moved further than that one, it was put forward, and things look older than
they are. Then nothing that is kept for a time is destroyed until the machine has run for as long.
From one start to the next there is no second clock: the wall clock is believed, unless it stands
before what it has shown already.

A machine whose clock is put forward again and again (a virtual one that is paused every night) is
not held for ever: after the first such wait, ages are counted in running time.

What is known of the clocks from one look to the next lies in a record under the root. It is written
when something happened to the clock, and else once an hour: within one start of the machine nothing
is lost by its being older. All but `look` and `trust` is pure.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
import structlog

from bsd.core.errors import os_problem
from bsd.core.files import LARGEST_NOTE, read_ours, write_private
from bsd.core.formatting import format_duration, iso_utc
from bsd.core.layout import Layout

# What a clock may be put forward by at once, and what it may gain by being slewed: 1 in 1000 (ntpd
# does half of that).
_TOLERANCE_SECONDS = 60.0
_SLEW = 0.001
# So soon after a start the clock is still being set for the first time: many small machines have
# none that goes on without power, and begin with the time of their last shutdown, or with 1970.
_BEING_SET_SECONDS = 15 * 60.0
# Nothing is kept for longer by a setting; what is not remembered any more was believed long ago.
_LONGEST_SECONDS = 53 * 7 * 86_400.0
_MOST_SECONDS = 1e11  # three thousand years
_MOST_STEPS = 32  # of one kind; then the oldest two become one


@dataclass(frozen=True, slots=True)
class Reading:
    """What the clocks say."""

    wall: float  # epoch seconds
    steady: float  # seconds since the machine started, its sleep included
    boot: str  # another one after every start; empty where nobody tells


class StepKind(StrEnum):
    """What became of the wall clock."""

    FORWARD = "forward"  # put forward, and no sleep explains it
    BEHIND = "behind"  # after a start it stood before what it had shown already
    CORRECTED = "corrected"  # set soon after a start, or when it was behind: believed


@dataclass(frozen=True, slots=True)
class Step:
    """The wall clock was set."""

    kind: StepKind
    at: float  # in running time, as the record counts it
    seconds: float  # by so much more than had passed
    # Files that it dated before it was set: their times lie between these (epoch seconds).
    since: float | None  # None: whatever lies before
    until: float

    def has_dated(self, mtime: float) -> bool:
        return (self.since is None or self.since <= mtime) and mtime <= self.until


@dataclass(frozen=True, slots=True)
class ClockRecord:
    """What is known of the clocks from the last look at them."""

    boot: str
    wall: float
    steady: float
    running: float = 0.0  # seconds that the machine has run for, all starts together
    gained: float = 0.0  # by the wall clock since, in steps too small to count
    newest: float | None = None  # the wall clock has shown this, and stands before it now
    steps: tuple[Step, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "steps": [asdict(step) for step in self.steps]}

    @classmethod
    def from_json(cls, document: Any) -> ClockRecord:
        """Raises KeyError, TypeError or ValueError for anything else."""
        newest = document["newest"]
        return cls(
            boot=str(document["boot"]),
            wall=_number(document["wall"]),
            steady=_number(document["steady"]),
            running=_number(document["running"]),
            gained=_number(document["gained"]),
            newest=None if newest is None else _number(newest),
            steps=tuple(map(_step, document["steps"])),
        )


def _step(document: Any) -> Step:
    since = document["since"]
    return Step(
        StepKind(document["kind"]),
        _number(document["at"]),
        _number(document["seconds"]),
        None if since is None else _number(since),
        _number(document["until"]),
    )


def _number(value: Any) -> float:
    """Seconds that a calendar can hold."""
    found = float(value)
    if not abs(found) < _MOST_SECONDS:
        raise ValueError(f"{value} is no time")
    return found


def observed(known: ClockRecord | None, now: Reading) -> ClockRecord:
    """What is known after another look; the first one ever is believed."""
    if known is None:
        return ClockRecord(now.boot, now.wall, now.steady)
    # Less than before under the same boot: another time namespace, or a machine put back.
    if known.boot != now.boot or now.steady < known.steady:
        record = _after_a_start(known, now)
    else:
        record = _within_a_start(known, now)
    if record.newest is not None and now.wall >= record.newest:
        left = tuple(step for step in record.steps if step.kind is not StepKind.BEHIND)
        record = replace(record, newest=None, steps=left)
    return replace(record, steps=_remembered(record))


def trusted(known: ClockRecord | None, now: Reading) -> ClockRecord:
    """What is known if somebody says that the wall clock is right."""
    record = observed(known, now)
    return replace(record, newest=None, gained=0.0, steps=())


def _after_a_start(known: ClockRecord, now: Reading) -> ClockRecord:
    ran = now.steady if known.boot != now.boot else 0.0
    newest = max(known.wall, known.newest or known.wall)
    record = replace(
        known,
        boot=now.boot,
        wall=now.wall,
        steady=now.steady,
        running=known.running + ran,
        gained=0.0,
        newest=None,
    )
    if now.wall >= newest - _TOLERANCE_SECONDS:
        return record
    record = replace(record, newest=newest)
    if known.newest is not None:  # as before: a machine that never learns the time waits once
        return record
    behind = Step(StepKind.BEHIND, known.running, 0.0, None, newest)
    return replace(record, steps=(*known.steps, behind))


def _within_a_start(known: ClockRecord, now: Reading) -> ClockRecord:
    passed = now.steady - known.steady
    ahead = known.gained + (now.wall - known.wall) - passed * (1 + _SLEW)
    record = replace(
        known,
        wall=now.wall,
        steady=now.steady,
        running=known.running + passed,
        gained=max(0.0, ahead),
    )
    if ahead > _TOLERANCE_SECONDS:
        return replace(record, gained=0.0, steps=(*known.steps, _set_forward(known, now, ahead)))
    if ahead < -_TOLERANCE_SECONDS:
        return replace(record, steps=tuple(_taken_back(known.steps, -ahead)))
    return record


def _set_forward(known: ClockRecord, now: Reading, seconds: float) -> Step:
    passed = now.steady - known.steady
    at, until = known.running + passed, known.wall + passed
    if known.newest is not None or now.steady <= _BEING_SET_SECONDS:
        return Step(StepKind.CORRECTED, at, seconds, known.wall - known.steady, until)
    return Step(StepKind.FORWARD, at, seconds, None, until)


def _taken_back(steps: tuple[Step, ...], seconds: float) -> list[Step]:
    """The steps forward that are left when the clock was put back; the last goes first."""
    left = []
    for step in reversed(steps):
        if step.kind is StepKind.FORWARD:
            taken = min(seconds, step.seconds)
            seconds -= taken
            if step.seconds - taken <= _TOLERANCE_SECONDS:
                continue
            left.append(replace(step, seconds=step.seconds - taken))
        else:
            left.append(step)
    return left[::-1]


def _remembered(record: ClockRecord) -> tuple[Step, ...]:
    steps = [step for step in record.steps if record.running - step.at < _LONGEST_SECONDS]
    for kind in StepKind:
        same = [step for step in steps if step.kind is kind]
        if len(same) > _MOST_STEPS:
            steps[steps.index(same[1])] = _both(same[0], same[1])
            steps.remove(same[0])
    return tuple(steps)


def _both(one: Step, other: Step) -> Step:
    """Two steps as one, by which nothing is older than by the two."""
    forward = one.kind is StepKind.FORWARD
    return replace(
        other,
        seconds=one.seconds + other.seconds if forward else max(one.seconds, other.seconds),
        since=None if one.since is None or other.since is None else min(one.since, other.since),
        until=max(one.until, other.until),
    )


@dataclass(frozen=True, slots=True)
class Ages:
    """How old things are at one moment. Lifetimes and ages are seconds."""

    wall: float
    running: float = 0.0
    steps: tuple[Step, ...] = ()

    @classmethod
    def by(cls, record: ClockRecord) -> Ages:
        """As they are at the last look."""
        return cls(record.wall, record.running, record.steps)

    def at(self, moment: float) -> Ages:
        """As they will be, if nobody sets the clock again and the machine runs on."""
        return replace(self, wall=moment, running=self.running + moment - self.wall)

    def age(self, mtime: float, lifetime: float) -> float:
        """How long ago something happened at the least, as far as it matters for a lifetime."""
        return (
            self.wall
            - mtime
            - sum(step.seconds for step in self._within(lifetime) if step.has_dated(mtime))
        )

    def now_for(self, lifetime: float) -> float:
        """Epoch seconds by which nothing of this lifetime is older than it is."""
        steps = self._within(lifetime)
        return self.wall - sum(step.seconds for step in steps if step.kind is StepKind.FORWARD)

    def held_for(self, lifetime: float | None) -> float:
        """For how many seconds more nothing of this lifetime may be destroyed; mostly 0."""
        if lifetime is None or (began := self._doubted_since(lifetime)) is None:
            return 0.0
        return max(0.0, began + lifetime - self.running)

    def why_held(self, lifetime: float | None) -> str | None:
        """Say why nothing of this lifetime is destroyed, and for how long; None if it may be."""
        left = self.held_for(lifetime)
        if lifetime is None or not left:
            return None
        span = format_duration(int(lifetime * 1000))
        more = f"nothing that is kept {span} is deleted for another {_spelled(left)} of running"
        return f"{self._what_happened(lifetime)}: {more}"

    def _what_happened(self, lifetime: float) -> str:
        doubted = [step for step in self._within(lifetime) if step.kind is not StepKind.CORRECTED]
        seconds = sum(step.seconds for step in doubted)
        if seconds:
            return f"the clock was put forward by {_spelled(seconds)}, which no sleep explains"
        newest = max((step.until for step in doubted), default=self.wall)
        return f"the clock says {iso_utc(self.wall)} and has been at {iso_utc(newest)} before"

    def _within(self, lifetime: float) -> Iterator[Step]:
        return (step for step in self.steps if self.running - step.at < lifetime)

    def _doubted_since(self, lifetime: float) -> float | None:
        """When the present series of steps began, each less than a lifetime after the one before.

        In running time; None if the last one is longer ago than a lifetime.
        """
        began = None
        for step in reversed(self.steps):
            if step.kind is StepKind.CORRECTED:
                continue
            if (self.running if began is None else began) - step.at >= lifetime:
                break
            began = step.at
        return began


def _spelled(seconds: float) -> str:
    minutes = max(1, -int(-seconds // 60))
    return format_duration(minutes * 60_000)


# --- reading the clocks ---

_log = structlog.stdlib.get_logger(module="clock")

# Linux's monotonic clock stands still while the machine sleeps; this one goes on. macOS has only
# the one, and there it goes on too.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RENEWED_SECONDS = 3600.0


def steady() -> float:
    """Seconds since the machine started, which never jump and go on while it sleeps."""
    return time.clock_gettime(_STEADY)


@lru_cache(maxsize=1)
def boot_id() -> str:
    """What tells this start of the machine from all others; empty where nobody says."""
    with suppress(OSError):
        if sys.platform == "darwin":
            asked = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
            done = subprocess.run(asked, capture_output=True, check=False, timeout=5, text=True)
            return done.stdout.strip()
        return _BOOT_ID.read_text(encoding="ascii").strip()
    return ""


def look(
    layout: Layout,
    wall: Callable[[], float] = time.time,
    steady: Callable[[], float] = steady,
    *,
    keep: bool = True,
) -> Ages:
    """How old things are now, as far as the clock can be believed; `keep` renews the record.

    A record that cannot be read or written is told of in the log, and costs what it would know.
    """
    known, now = _read_record(layout.clock_file), Reading(wall(), steady(), boot_id())
    record = observed(known, now)
    if keep and _is_news(known, record):
        _write_record(layout.clock_file, record)
    return Ages.by(record)


def trust(layout: Layout) -> None:
    """Believe the wall clock as it is from now on; raises BsdError if that cannot be kept."""
    now = Reading(time.time(), steady(), boot_id())
    record = trusted(_read_record(layout.clock_file), now)
    try:
        write_private(layout.clock_file, orjson.dumps(record.as_json()))
    except OSError as error:
        raise os_problem(error, f"writing {layout.clock_file}") from error


def _is_news(known: ClockRecord | None, record: ClockRecord) -> bool:
    if known is None or (known.boot, known.steps, known.newest) != (
        record.boot,
        record.steps,
        record.newest,
    ):
        return True
    return not 0 <= record.steady - known.steady < _RENEWED_SECONDS


def _read_record(path: Path) -> ClockRecord | None:
    try:
        return ClockRecord.from_json(orjson.loads(read_ours(path, path.parents[1], LARGEST_NOTE)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning(
            "What is known of the clock cannot be read", path=str(path), problem=str(error)
        )
        return None


def _write_record(path: Path, record: ClockRecord) -> None:
    try:
        write_private(path, orjson.dumps(record.as_json()))
    except OSError as error:
        problem = os_problem(error, f"writing {path}").message
        _log.warning("What is known of the clock cannot be kept", problem=problem)
