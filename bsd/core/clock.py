"""The clocks of the machine, and a check of the wall clock for runs that delete by age.

Ages are measured by the wall clock, which can be set. The steady clock cannot be set and continues
while the machine sleeps, but starts again at each boot. Each kind of run that deletes by age
records both clocks. If the clocks disagree by more than an hour since the last run of this kind,
the run deletes no data by age; the next run does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
import structlog

from bsd.core.errors import os_problem
from bsd.core.files import LARGEST_NOTE, read_ours, write_private
from bsd.core.formatting import format_duration
from bsd.core.layout import Layout

_log = structlog.stdlib.get_logger(module="clock")

# On Linux, CLOCK_MONOTONIC stops while the machine sleeps and CLOCK_BOOTTIME continues. macOS has
# only CLOCK_MONOTONIC, which continues.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TOLERANCE_SECONDS = 3600.0
_MOST_SECONDS = 1e11  # three thousand years
_ANY_RUN = "any"  # the first reading in this root, for kinds of runs without a reading of their own


def steady() -> float:
    """Return the seconds since the machine started, including the time that it slept."""
    return time.clock_gettime(_STEADY)


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Return an id of this boot of the machine; "" if the system has none."""
    with suppress(OSError):
        if sys.platform == "darwin":
            asked = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
            done = subprocess.run(asked, capture_output=True, check=False, timeout=5, text=True)
            return done.stdout.strip()
        return _BOOT_ID.read_text(encoding="ascii").strip()
    return ""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Both clocks at the same time: `wall` in epoch seconds, `steady` in seconds since `boot`."""

    wall: float
    steady: float
    boot: str


@dataclass(frozen=True, slots=True)
class RunTime:
    """The time of a run that deletes by age.

    Attributes:
        now: the wall clock, in epoch seconds.
        doubt: the reason why this run must not delete by age; None if it may.
        ahead: if in doubt, the seconds by which the wall clock was put forward since the last run.
    """

    now: float
    doubt: str | None = None
    ahead: float = 0.0


def compare(last: ClockReading | None, now: ClockReading) -> RunTime:
    """Compare the clocks with the reading of the last run; without one, the clock is trusted."""
    if last is None:
        return RunTime(now.wall)
    moved = now.wall - last.wall
    if last.boot == now.boot and now.steady >= last.steady:
        ahead = moved - (now.steady - last.steady)
    else:  # The machine was off for an unknown time, but has run for `steady` seconds since.
        ahead = min(0.0, moved - now.steady)
    if abs(ahead) <= _TOLERANCE_SECONDS:
        return RunTime(now.wall)
    span = format_duration(round(abs(ahead) / 60) * 60_000)
    if ahead < 0:
        return RunTime(now.wall, f"the clock was put back by {span} since the last run")
    doubt = f"the clock was put forward by {span} since the last run, more than sleep can explain"
    return RunTime(now.wall, doubt, ahead)


def check_clock(
    layout: Layout,
    run: str,
    wall: Callable[[], float] = time.time,
    steady: Callable[[], float] = steady,
) -> RunTime:
    """Compare the clocks with those of the last run of this kind; records no reading.

    Args:
        run: the kind of run: `retention`, `memory` or `workspaces`. Each kind has its own reading.
    """
    readings = _read(layout.clock_file)
    return compare(readings.get(run) or readings.get(_ANY_RUN), _now(wall, steady))


def begin_run(
    layout: Layout,
    run: str,
    wall: Callable[[], float] = time.time,
    steady: Callable[[], float] = steady,
    *,
    trust: bool = False,
) -> RunTime:
    """Compare the clocks as `check_clock` does, and record them for the next run of this kind.

    If the record cannot be read or written, a warning is logged and the clock is trusted.

    Args:
        trust: the caller knows that the wall clock is right; all kinds of runs then trust it.
    """
    readings, now = _read(layout.clock_file), _now(wall, steady)
    last = readings.get(run) or readings.get(_ANY_RUN)
    _write(layout.clock_file, {_ANY_RUN: now} if trust else {_ANY_RUN: now, **readings, run: now})
    return compare(None if trust else last, now)


def note_first_use(layout: Layout) -> None:
    """Record the clocks if no record exists, so that a first run has a reading to compare with."""
    if not os.path.lexists(layout.clock_file):
        _write(layout.clock_file, {_ANY_RUN: _now(time.time, steady)})


def _now(wall: Callable[[], float], steady: Callable[[], float]) -> ClockReading:
    return ClockReading(wall(), steady(), boot_id())


def _read(path: Path) -> dict[str, ClockReading]:
    try:
        document = orjson.loads(read_ours(path, path.parents[1], LARGEST_NOTE))
        runs = {_ANY_RUN: document, **document.get("runs", {})}
        return {str(run): _reading(said) for run, said in runs.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        _log.warning("The record of the clocks cannot be read", path=str(path), problem=str(error))
        return {}


def _reading(said: Any) -> ClockReading:
    wall, steady = float(said["wall"]), float(said["steady"])
    if not (abs(wall) < _MOST_SECONDS and abs(steady) < _MOST_SECONDS):
        raise ValueError(f"{wall}, {steady} are not valid times")
    return ClockReading(wall, steady, str(said["boot"]))


def _write(path: Path, readings: dict[str, ClockReading]) -> None:
    runs = {run: asdict(one) for run, one in readings.items() if run != _ANY_RUN}
    try:
        write_private(path, orjson.dumps({**asdict(readings[_ANY_RUN]), "runs": runs}))
    except OSError as error:
        problem = os_problem(error, f"writing {path}").message
        _log.warning("The record of the clocks cannot be written", problem=problem)
