"""When jobs run: cron expressions in local time, and equal distances.

This is the only user of croniter. The change of clocks is handled here, because croniter handles it
only in part: an hour that does not exist is made up for when it would have ended, at once and once;
an hour that comes twice counts once, except for expressions that run in every hour and would
otherwise pause.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from croniter import CroniterError, croniter  # type: ignore[import-untyped]

from bsd.core.errors import Invalid

# A job at equal distances takes no larger part of a core than this, and waits for longer: to look
# at 100,000 sessions every 30 seconds took two in a hundred. But the pause has a limit.
_SHARE = 0.005
_LONGEST_PAUSE_SECONDS = 120.0
# Clocks are put back by an hour (Lord Howe: half of one); Antarctica has seen three.
_NEAR_SECONDS = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Cron:
    """`minute hour day month weekday` in the time zone of this machine."""

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
        # Without a time zone croniter only counts; it would do the change of clocks its own way.
        slots = croniter(self.expression, after.replace(fold=0))
        while True:
            yield slots.get_next(datetime)

    def _moments(self, slot: datetime) -> list[float]:
        """List when this local time is: once, twice when clocks are put back, or after a gap."""
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
    """At equal distances; a job that takes much time runs less often."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise Invalid("an interval must be longer than nothing")

    def __str__(self) -> str:
        return f"every {self.seconds:g} s"

    def after(self, moment: float) -> float:
        return moment + self.seconds

    def pause(self, spent: float) -> float:
        """Seconds from the end of a run that took so many seconds of a core to the next."""
        return max(self.seconds, min(spent / _SHARE, _LONGEST_PAUSE_SECONDS))


Schedule = Cron | Every


def _local(moment: float) -> datetime:
    # Without a time zone on purpose: that is how Python means "of this machine".
    return datetime.fromtimestamp(moment)  # noqa: DTZ006


def _offset(moment: float) -> int:
    return time.localtime(moment).tm_gmtoff


def _put_back(moment: float) -> timedelta:
    """Return the time by which clocks are put back around `moment`; mostly 0."""
    back = _offset(moment - _NEAR_SECONDS) - _offset(moment + _NEAR_SECONDS)
    return timedelta(seconds=max(back, 0))


@lru_cache(maxsize=32)
def _in_every_hour(expression: str) -> bool:
    return bool(croniter.expand(expression)[0][1] == ["*"])


def _end_of_gap(slot: datetime) -> float:
    """Find when clocks were put forward over `slot`."""
    late, early = slot.timestamp(), slot.replace(fold=1).timestamp()
    new = _offset(late)
    while late - early > 1:
        middle = (early + late) // 2
        if _offset(middle) == new:
            late = middle
        else:
            early = middle
    return late
