"""How parts of the daemon look in status."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from bsd.care.disk_use import SavedByHour, disk_use
from bsd.care.expiry import Shelf, forecast
from bsd.care.retention import StoreShelf, TrashShelf
from bsd.daemon.clock import Clocks
from bsd.daemon.health import Health, Trouble, WatchProblem
from bsd.daemon.queue import WorkQueue
from bsd.foundation.ages import Ages, look
from bsd.foundation.claims import elsewhere, served_by
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout
from bsd.foundation.sources import Source
from bsd.foundation.spelling import iso_utc, lifetime_seconds
from bsd.session.commit.orphans import list_orphans
from bsd.session.commit.reach import unreached

# What looks at every store file may take a hundredth of the time, not more.
_LOOKING_SHARE = 100
_LONGEST_PAUSE_SECONDS = 60.0

# These pass, or are nobody's fault.
_HARMLESS = {Trouble.AGENTS_MISSING, Trouble.UNWATCHED}


def is_trouble(problem: WatchProblem) -> bool:
    """Whether somebody should do something about it."""
    return problem.kind not in _HARMLESS


def watcher(health: Health, scan_problems: tuple[WatchProblem, ...]) -> dict[str, Any]:
    """What is watched, and what is in the way."""
    problems = dict.fromkeys((*health.problems, *scan_problems))
    return {
        "directories": health.dirs + health.scan_only,
        "watched": health.watched,
        "scan_only": health.scan_only,
        "problems": [
            {"kind": str(each.kind), "text": each.text, "remedy": each.remedy} for each in problems
        ],
    }


def queue(work: WorkQueue, debouncing: int, gathering: int) -> dict[str, Any]:
    """How much is to be done; `debouncing` wait for quiet, `gathering` for more to be saved."""
    counts = work.counts()
    return {
        "debouncing": debouncing,
        "waiting": counts.waiting,
        "ready": counts.ready,
        "working": counts.working,
        "gathering": gathering,
        "refused": counts.refused,
        "retried": counts.retried,
        "parked": [
            {"session": str(each.session), "error": each.error, "failures": each.failures}
            for each in work.parked()
        ],
    }


def orphans(layout: Layout) -> dict[str, int]:
    """Late bytes that wait for a person."""
    found = list_orphans(layout)
    return {"count": len(found), "bytes": sum(orphan.size for orphan in found)}


def sources(layout: Layout) -> list[dict[str, Any]]:
    """Directories of other programs, which root serves each of them, and whether it can."""
    return [_source(layout, source) for source in layout.sources]


def _source(layout: Layout, source: Source) -> dict[str, Any]:
    left_alone = elsewhere(layout, source)
    found = None if left_alone else unreached(layout, source)
    return {
        "name": source.name,
        "kind": source.kind,
        "path": str(source.path),
        "served_by": served_by(layout, source),
        "left_alone": left_alone,
        "problem": {"text": found.why, "remedy": found.remedy} if found else None,
    }


def source_problems(layout: Layout) -> list[str]:
    """Why sources that this root should serve cannot be served, and what helps."""
    problems = (each["problem"] for each in sources(layout))
    return [f"{each['text']} (try: {each['remedy']})" for each in problems if each]


class _Paced:
    """An answer that takes long to find: worked out anew only now and then, or after `forget`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._answer: dict[str, Any] | None = None
        self._asked: object = None
        self._until = 0.0

    def forget(self) -> None:
        """Something has changed."""
        with self._lock:
            self._answer = None

    def _answered(self, asked: object, look: Callable[[float], dict[str, Any]]) -> dict[str, Any]:
        now = self._clock()
        with self._lock:
            if self._answer is None or self._asked != asked or now >= self._until:
                self._answer = look(now)
                took = max(0.0, self._clock() - now)
                pause = min(_LOOKING_SHARE * took, _LONGEST_PAUSE_SECONDS)
                self._asked, self._until = asked, now + took + pause
            return self._answer


class PacedDiskUse(_Paced):
    """What bsd itself takes on disk."""

    def __init__(self, layout: Layout, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._layout = layout
        self._saved = SavedByHour(layout.audit_file)

    def snapshot(self) -> dict[str, Any]:
        """As status tells it."""
        return self._answered(None, lambda _: disk_use(self._layout, self._saved).as_json())


class NextRetention(_Paced):
    """What the next run of the retention will delete."""

    def __init__(self, layout: Layout, clocks: Clocks) -> None:
        super().__init__(clocks.wall)
        self._layout = layout
        self._clocks = clocks

    def snapshot(self, keep: str, keep_trash: str, next_run: float | None) -> dict[str, Any]:
        """As status tells it; times are epoch seconds."""
        asked = (keep, keep_trash, next_run)
        return self._answered(asked, lambda now: self._look(keep, keep_trash, next_run, now))

    def _look(
        self, keep: str, keep_trash: str, next_run: float | None, now: float
    ) -> dict[str, Any]:
        at = now if next_run is None else next_run
        ages = look(self._layout, self._clocks.wall, self._clocks.steady, keep=False)
        trash = _forecast(TrashShelf(self._layout, keep_trash), ages, at)
        trash["sessions"] = trash.pop("files")  # each of them is one
        return {
            "next_run": None if next_run is None else iso_utc(next_run),
            **_forecast(StoreShelf(self._layout, keep), ages, at),
            "trash": trash,
        }


def _forecast(shelf: Shelf, ages: Ages, at: float) -> dict[str, Any]:
    """What goes at a later moment, and why nothing goes now."""
    held = ages.why_held(lifetime_seconds(shelf.keep))
    answer = {"keep": shelf.keep, "held": held, "files": 0, "bytes": 0, "next_expiry": None}
    try:
        found = forecast(shelf, ages.at(at))
    except BsdError as problem:
        return {**answer, "problem": problem.message}
    expiry = found.next_expiry
    return {
        **answer,
        "files": len(found.going),
        "bytes": found.bytes,
        "next_expiry": None if expiry is None else iso_utc(expiry),
    }
