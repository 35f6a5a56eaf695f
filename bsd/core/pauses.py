"""Pauses: agents and sessions that bsd reads, but does not edit until the pause ends.

Pauses are stored in `.brainsurgeon/pauses.json`. A pause with a length ends when its end has passed
by the wall clock and also, unless the machine has restarted, by the steady clock, which cannot be
set. So putting the wall clock forward does not end a pause early; putting it back makes the pause
longer. `bsd status` lists all pauses, and the user can end a pause at any time.

`bsd/sessions/idle.py` enforces that paused sessions are not edited.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from bsd.core.clock import boot_id, steady
from bsd.core.errors import NotFound, Paused, Unavailable, os_problem
from bsd.core.file_lock import file_locked
from bsd.core.files import (
    LARGEST_NOTE,
    FileStamp,
    read_ours,
    stamp_of,
    write_private,
)
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.core.sources import names_above

_LATEST = 253_370_764_800.0  # the year 9999 begins


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause. `until` is None if it lasts until a user ends it. Times are epoch seconds.

    Attributes:
        name: AGENT (or a source) or AGENT/SESSION; the pause also covers its parts.
        steady_until: the end by the steady clock, in seconds since `boot`, a boot of the machine.
    """

    name: str
    since: float
    until: float | None = None
    steady_until: float = 0.0
    boot: str = ""

    def left(self, wall: float, steady_now: float) -> float | None:
        """Return the seconds until the end, 0 if it is over; None if only a user can end it."""
        if self.until is None:
            return None
        left = self.until - wall
        if self.boot and self.boot == boot_id():
            left = max(left, self.steady_until - steady_now)
        return max(0.0, left)

    def covers(self, session: SessionName) -> bool:
        """Return True if the pause applies to a session."""
        return self.name == str(session) or any(
            self.name in (above, f"{above}/{part}" if part else above)
            for above, part in names_above(session.agent)
        )

    @property
    def spelled_end(self) -> str:
        """The end in words."""
        if self.until is None:
            return "until it is ended"
        return f"until {datetime.fromtimestamp(self.until).astimezone():%Y-%m-%d %H:%M}"


@dataclass(frozen=True, slots=True)
class PauseInForce:
    """A pause that is not over; `left` is in seconds, None if only a user can end it."""

    pause: Pause
    left: float | None

    def refusal(self, session: SessionName) -> Paused:
        """Return the error for an edit of a session in this pause."""
        name = self.pause.name
        return Paused(
            f"session {session} is paused {self.pause.spelled_end} (`bsd pause {name}`)",
            hint=f"`bsd pause {name} --end` ends the pause",
            again_in=self.left,
        )


@dataclass(frozen=True, slots=True)
class PauseInfo:
    """A pause in answers. Times are ISO 8601; `until` is null for a pause without an end."""

    name: str
    since: str
    until: str | None

    @classmethod
    def of(cls, each: PauseInForce, wall: float) -> PauseInfo:
        """Describe a pause at `wall`; `until` is later if the clock was put forward."""
        until = None if each.left is None else iso_utc(wall + each.left)
        return cls(each.pause.name, iso_utc(each.pause.since), until)


def pauses_of(
    layout: Layout, wall: float | None = None, steady_now: float | None = None
) -> list[PauseInForce]:
    """Return the pauses that are not over, sorted by name.

    Raises:
        Unavailable: The file cannot be read, so it is unknown which sessions may be edited.
    """
    pauses = _read(layout)
    if not pauses:
        return []
    wall = time.time() if wall is None else wall
    steady_now = steady() if steady_now is None else steady_now
    in_force = [PauseInForce(pause, pause.left(wall, steady_now)) for pause in pauses]
    return [each for each in in_force if each.left is None or each.left > 0]


def pause_of(
    layout: Layout,
    session: SessionName,
    wall: float | None = None,
    steady_now: float | None = None,
) -> PauseInForce | None:
    """Return the longest pause that covers a session; None without a pause. Raises Unavailable."""
    found = [each for each in pauses_of(layout, wall, steady_now) if each.pause.covers(session)]
    return max(found, key=_lasting, default=None)


def _lasting(each: PauseInForce) -> float:
    return float("inf") if each.left is None else each.left


def begin_pause(
    layout: Layout,
    name: str,
    seconds: float | None,
    wall: Callable[[], float] = time.time,
    steady_clock: Callable[[], float] = steady,
) -> Pause:
    """Pause an agent or a session; replaces an existing pause of this name.

    Args:
        seconds: the length; None: until a user ends the pause.

    Raises:
        Unavailable, Forbidden, Busy: the file cannot be read or written.
    """
    now = wall()
    pause = Pause(name, now)
    if seconds is not None:
        pause = Pause(name, now, now + seconds, steady_clock() + seconds, boot_id())
    with file_locked(layout.refuse_outside(layout.pauses_file)):
        others = [each.pause for each in pauses_of(layout, now, steady_clock())]
        _write(layout, [*(each for each in others if each.name != name), pause])
    return pause


def end_pause(layout: Layout, name: str) -> Pause:
    """End a pause; raises NotFound if no pause has this name, and as `begin_pause`."""
    with file_locked(layout.refuse_outside(layout.pauses_file)):
        pauses = [each.pause for each in pauses_of(layout)]
        ended = next((each for each in pauses if each.name == name), None)
        if ended is None:
            raise NotFound(f"there is no pause of {name}", hint="`bsd pause` lists them")
        _write(layout, [each for each in pauses if each.name != name])
    return ended


_mutex = threading.Lock()
_known: dict[Path, tuple[FileStamp, list[Pause]]] = {}


def _read(layout: Layout) -> list[Pause]:
    path = layout.pauses_file
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise os_problem(error, f"looking at {path}") from error
    stamp = stamp_of(found)
    with _mutex:
        known = _known.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            document = orjson.loads(read_ours(path, layout.root, LARGEST_NOTE))
            pauses = [_pause(each) for each in document["pauses"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, LookupError, TypeError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise Unavailable(
                f"{path}, the list of paused sessions, cannot be read: {reason}",
                hint=f"check the file, then `rm {path}`, which ends all pauses",
            ) from error
        _known[path] = stamp, pauses
        return pauses


def _pause(said: Any) -> Pause:
    since, until = (None if said[key] is None else _epoch(said[key]) for key in ("since", "until"))
    if since is None:
        raise ValueError("a pause has no beginning")
    return Pause(str(said["name"]), since, until, float(said["steady_until"]), str(said["boot"]))


def _epoch(moment: str) -> float:
    """Convert a time of the file to epoch seconds; raises ValueError if it is out of range."""
    epoch = datetime.fromisoformat(moment).timestamp()
    if not 0 <= epoch < _LATEST:
        raise ValueError(f"{moment} is no time of a pause")
    return epoch


def _write(layout: Layout, pauses: list[Pause]) -> None:
    document = [
        {
            "name": each.name,
            "since": iso_utc(each.since),
            "until": None if each.until is None else iso_utc(each.until),
            "steady_until": each.steady_until,
            "boot": each.boot,
        }
        for each in sorted(pauses, key=lambda each: each.name)
    ]
    path = layout.pauses_file
    try:
        write_private(path, orjson.dumps({"pauses": document}, option=orjson.OPT_INDENT_2) + b"\n")
    except OSError as error:
        raise os_problem(error, f"writing {path}") from error
