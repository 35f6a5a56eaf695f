"""Reads the clocks, and keeps what is known of them from one look to the next (see `ages`).

The record lies under the root. It is written when something happened to the clock, and else once
an hour: within one start of the machine nothing is lost by its being older.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import orjson

from bsd.foundation.ages import Ages, ClockRecord, Reading, observed, trusted
from bsd.foundation.errors import os_problem
from bsd.foundation.files import LARGEST_NOTE, read_plain, write_private
from bsd.foundation.layout import Layout
from bsd.foundation.logs import get_logger

_log = get_logger("clock")

# Linux's monotonic clock stands still while the machine sleeps; this one goes on. macOS has only
# the one, and there it goes on too.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RENEWED_SECONDS = 3600.0


def steady() -> float:
    """Seconds that never jump and go on while the machine sleeps: for due times and back-off."""
    return time.clock_gettime(_STEADY)


@lru_cache(maxsize=1)
def boot_id() -> str:
    """What tells this start of the machine from all others; empty where nobody says."""
    with suppress(OSError):
        if sys.platform == "darwin":
            import subprocess  # noqa: PLC0415 - start-up stays light where it is not needed

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
    known, now = _read(layout.clock_file), Reading(wall(), steady(), boot_id())
    record = observed(known, now)
    if keep and _is_news(known, record):
        _write(layout.clock_file, record)
    return Ages.by(record)


def trust(
    layout: Layout,
    wall: Callable[[], float] = time.time,
    steady: Callable[[], float] = steady,
) -> None:
    """Believe the wall clock as it is from now on; raises BsdError if that cannot be kept."""
    now = Reading(wall(), steady(), boot_id())
    record = trusted(_read(layout.clock_file), now)
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


def _read(path: Path) -> ClockRecord | None:
    try:
        return ClockRecord.from_json(orjson.loads(read_plain(path, LARGEST_NOTE)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning(
            "What is known of the clock cannot be read", path=str(path), problem=str(error)
        )
        return None


def _write(path: Path, record: ClockRecord) -> None:
    try:
        write_private(path, orjson.dumps(record.as_json()))
    except OSError as error:
        problem = os_problem(error, f"writing {path}").message
        _log.warning("What is known of the clock cannot be kept", problem=problem)
