"""The page's first view: the overview, what an extraction would remove now, sizes by day."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import Annotated

from fastapi import APIRouter, Query, Request

from bsd.actions.context import ActionContext
from bsd.actions.overview import Overview, overview, would_leave
from bsd.actions.setup import WouldLeave
from bsd.http.dependencies import Context, JsonRoute
from bsd.maintenance.catalog import with_stats
from bsd.maintenance.daily_sizes import DailySizes, read_sizes
from bsd.planning.survey import fingerprint
from bsd.transcripts.agents.programs import titles

router = APIRouter(prefix="/api", tags=["state"], route_class=JsonRoute)

_LOOK_SECONDS = 2.0  # for the dry run, which occupies a child process of the daemon
_LEAST_AGE_SECONDS = 60.0
_MOST_LARGEST = 50


class LastForecast:
    """A cache of the last answer of `would_leave`.

    An answer stays valid for a minute, and afterwards until a session or a setting changes.
    Thread-safe: one thread computes the answer while the others wait for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of = b""
        self._at = 0.0
        self._answer: WouldLeave | None = None

    def answer(self, context: ActionContext) -> WouldLeave:
        """Return what an extraction would remove now; raises ConfigError."""
        with self._lock:
            now, state = time.monotonic(), _state_of(context)
            is_young = now - self._at < _LEAST_AGE_SECONDS
            if self._answer is None or not (is_young or state == self._of):
                self._answer = context.query(would_leave, seconds=_LOOK_SECONDS)
                self._of, self._at = state, time.monotonic()
            return self._answer


def _state_of(context: ActionContext) -> bytes:
    """Return a hash of the settings and of the sizes and times of all session files."""
    state = hashlib.blake2b(fingerprint(context.config.current).encode(), digest_size=16)
    for name, stat in with_stats(context.layout, strays=False):
        state.update(f"{name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return state.digest()


@router.get("/overview")
def show_overview(
    context: Context,
    largest: Annotated[int, Query(ge=0, le=_MOST_LARGEST)] = 8,
) -> Overview:
    """Return totals by agent and project, the largest sessions, and imminent deletions.

    Imminent deletions are those of the agents' own programs.
    """
    return overview(context, largest=largest)


@router.get("/overview/would-leave")
def would_leave_now(context: Context, request: Request) -> WouldLeave:
    """Estimate what an extraction would remove now; with many sessions, from a sample."""
    forecast: LastForecast = request.app.state.forecast
    return forecast.answer(context)


@router.get("/sizes")
def sizes(context: Context) -> DailySizes:
    """Return the disk use of sessions and of bsd for each day that bsd has recorded."""
    return DailySizes(read_sizes(context.layout.sizes_file), titles())
