"""The clocks of the machine, and whether the wall clock can be believed by a run that deletes.

Ages are told by the wall clock, which can be set. A second clock cannot be set and goes on while
the machine sleeps, but begins anew with each start of the machine. Each kind of run that deletes by
age notes both clocks. If the two disagree by more than an hour since its last run, this run deletes
nothing by age; the next one does.
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

# Linux's monotonic clock stands still while the machine sleeps; this one goes on. macOS has only
# the one, and there it goes on too.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TOLERANCE_SECONDS = 3600.0
_MOST_SECONDS = 1e11  # three thousand years
_ANY_RUN = "any"  # the first reading under this root: for kinds of runs that never ran


def steady() -> float:
    """Return the seconds since the machine started; never set, and not stopped by sleep."""
    return time.clock_gettime(_STEADY)


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Return an id of this start of the machine; empty if the system does not tell one."""
    with suppress(OSError):
        if sys.platform == "darwin":
            asked = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
            done = subprocess.run(asked, capture_output=True, check=False, timeout=5, text=True)
            return done.stdout.strip()
        return _BOOT_ID.read_text(encoding="ascii").strip()
    return ""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Both clocks at one moment: epoch seconds, and seconds since the start called `boot`."""

    wall: float
    steady: float
    boot: str


@dataclass(frozen=True, slots=True)
class RunTime:
    """The time of a run that deletes by age.

    Attributes:
        now: the wall clock, epoch seconds.
        doubt: why this run must delete nothing by age; None if it may.
        ahead: seconds by which the wall clock was put forward since the last run, if in doubt.
    """

    now: float
    doubt: str | None = None
    ahead: float = 0.0


def compare(last: ClockReading | None, now: ClockReading) -> RunTime:
    """Compare the clocks with their reading of the last run; the first reading is believed."""
    if last is None:
        return RunTime(now.wall)
    moved = now.wall - last.wall
    if last.boot == now.boot and now.steady >= last.steady:
        ahead = moved - (now.steady - last.steady)
    else:  # It is unknown how long the machine was off, but it has been on for `steady` since.
        ahead = min(0.0, moved - now.steady)
    if abs(ahead) <= _TOLERANCE_SECONDS:
        return RunTime(now.wall)
    span = format_duration(round(abs(ahead) / 60) * 60_000)
    if ahead < 0:
        return RunTime(now.wall, f"the clock was put back by {span} since the last run")
    doubt = f"the clock was put forward by {span} since the last run, which no sleep explains"
    return RunTime(now.wall, doubt, ahead)


def check_clock(
    layout: Layout,
    run: str,
    wall: Callable[[], float] = time.time,
    steady: Callable[[], float] = steady,
) -> RunTime:
    """Compare the clocks with those of the last run of this kind; changes nothing.

    Args:
        run: the kind of run, which has a reading of its own: `retention`, `memory`, `workspaces`.
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
    """Compare the clocks as `check_clock` does, and note them for the next run of this kind.

    A note that cannot be read or written is logged, and the clock is believed.

    Args:
        trust: the wall clock is right in any case; then it is believed by all kinds of runs.
    """
    readings, now = _read(layout.clock_file), _now(wall, steady)
    last = readings.get(run) or readings.get(_ANY_RUN)
    _write(layout.clock_file, {_ANY_RUN: now} if trust else {_ANY_RUN: now, **readings, run: now})
    return compare(None if trust else last, now)


def note_first_use(layout: Layout) -> None:
    """Note the clocks if there is no note yet: a first run compares them with these."""
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
        _log.warning(
            "What is known of the clock cannot be read", path=str(path), problem=str(error)
        )
        return {}


def _reading(said: Any) -> ClockReading:
    wall, steady = float(said["wall"]), float(said["steady"])
    if not (abs(wall) < _MOST_SECONDS and abs(steady) < _MOST_SECONDS):
        raise ValueError(f"{wall}, {steady} are no times")
    return ClockReading(wall, steady, str(said["boot"]))


def _write(path: Path, readings: dict[str, ClockReading]) -> None:
    runs = {run: asdict(one) for run, one in readings.items() if run != _ANY_RUN}
    try:
        write_private(path, orjson.dumps({**asdict(readings[_ANY_RUN]), "runs": runs}))
    except OSError as error:
        problem = os_problem(error, f"writing {path}").message
        _log.warning("What is known of the clock cannot be kept", problem=problem)
