"""Schedules of jobs: cron expressions in local time, and fixed intervals.

This is the only module that uses croniter. It handles daylight saving time, which croniter handles
only in part. If a slot lies in an hour that clocks skip, the job runs once, when the skipped hour
ends. If an hour occurs twice, a slot in it counts only the first time; an expression that runs in
every hour counts both times, so that it does not pause for an hour.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from croniter import CroniterError, croniter  # type: ignore[import-untyped]

from bsd.core.errors import Invalid

# A job with a fixed interval uses at most this share of a core; its pauses are longer if needed. A
# scan of 100,000 sessions every 30 seconds would take 2 % of a core. The pause has a limit.
_SHARE = 0.005
_LONGEST_PAUSE_SECONDS = 120.0
# Clocks are put back by an hour (Lord Howe Island: half an hour; once in Antarctica: three hours).
_NEAR_SECONDS = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression `minute hour day month weekday` in the time zone of this machine."""

    expression: str

    def __post_init__(self) -> None:
        try:
            croniter.expand(self.expression, strict=True)
        except CroniterError as problem:
            raise Invalid(
                f"{self.expression!r} is not a cron expression: {problem}",
                hint="five fields: minute hour day month weekday, like `0 */6 * * *`",
            ) from None

    def __str__(self) -> str:
        return self.expression

    def after(self, moment: float) -> float:
        """Return the first time after `moment` (both epoch seconds)."""
        local, back = _local(moment), _put_back(moment)
        best: float | None = None
        # When clocks are put back, an earlier slot may mean a later moment.
        for slot in self._slots(local - back):
            for found in self._moments(slot):
                if found > moment and (best is None or found < best):
                    best = found
            if best is not None and (not back or slot > _local(best) + back):
                return best
        raise AssertionError("croniter never ends")

    def _slots(self, after: datetime) -> Iterator[datetime]:
        # Without a time zone, croniter ignores daylight saving time, which is handled here.
        slots = croniter(self.expression, after.replace(fold=0))
        while True:
            yield slots.get_next(datetime)

    def _moments(self, slot: datetime) -> list[float]:
        """Return the moments of a local time: one, two if clocks are put back, or the gap's end."""
        first = slot.timestamp()
        if _local(first) != slot:
            return [_end_of_gap(slot)]
        second = slot.replace(fold=1).timestamp()
        if second == first:
            return [first]
        back = timedelta(seconds=second - first)
        return [first, second] if self._runs_always(slot, back) else [first]

    def _runs_always(self, slot: datetime, back: timedelta) -> bool:
        return _in_every_hour(self.expression) and bool(
            croniter.match(self.expression, slot - back)
        )


@dataclass(frozen=True, slots=True)
class Every:
    """A fixed interval; a job that takes much time runs less often."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise Invalid("an interval must be longer than 0 seconds")

    def __str__(self) -> str:
        return f"every {self.seconds:g} s"

    def after(self, moment: float) -> float:
        return moment + self.seconds

    def pause(self, spent: float) -> float:
        """Return the seconds between two runs after a run that used `spent` seconds of a core."""
        return max(self.seconds, min(spent / _SHARE, _LONGEST_PAUSE_SECONDS))


Schedule = Cron | Every


def _local(moment: float) -> datetime:
    # Without a time zone on purpose: Python then uses the time zone of this machine.
    return datetime.fromtimestamp(moment)  # noqa: DTZ006


def _offset(moment: float) -> int:
    return time.localtime(moment).tm_gmtoff


def _put_back(moment: float) -> timedelta:
    """Return by how much clocks are put back around `moment`; usually 0."""
    back = _offset(moment - _NEAR_SECONDS) - _offset(moment + _NEAR_SECONDS)
    return timedelta(seconds=max(back, 0))


@lru_cache(maxsize=32)
def _in_every_hour(expression: str) -> bool:
    return bool(croniter.expand(expression)[0][1] == ["*"])


def _end_of_gap(slot: datetime) -> float:
    """Return the moment at which clocks were put forward over `slot`."""
    late, early = slot.timestamp(), slot.replace(fold=1).timestamp()
    new = _offset(late)
    while late - early > 1:
        middle = (early + late) // 2
        if _offset(middle) == new:
            late = middle
        else:
            early = middle
    return late
