"""The first view of the page: the overview, what would leave now, and sizes by day."""

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

router = APIRouter(prefix="/api", tags=["state"], route_class=JsonRoute)

_LOOK_SECONDS = 2.0  # for the dry run; a child process of the daemon is busy with it
_LEAST_AGE_SECONDS = 60.0
_MOST_LARGEST = 50


class LastForecast:
    """The last answer of `would_leave`.

    It is given again as long as no session and no setting has changed, and for a minute anyway. May
    be asked from several threads: one of them works, the others wait for its answer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of = b""
        self._at = 0.0
        self._answer: WouldLeave | None = None

    def answer(self, context: ActionContext) -> WouldLeave:
        """Return what would leave now; raises ConfigError."""
        with self._lock:
            now, state = time.monotonic(), _state_of(context)
            is_young = now - self._at < _LEAST_AGE_SECONDS
            if self._answer is None or not (is_young or state == self._of):
                self._answer = context.query(would_leave, seconds=_LOOK_SECONDS)
                self._of, self._at = state, time.monotonic()
            return self._answer


def _state_of(context: ActionContext) -> bytes:
    """Return a hash of the settings, and of the state of all session files."""
    state = hashlib.blake2b(fingerprint(context.config.current).encode(), digest_size=16)
    for name, stat in with_stats(context.layout, strays=False):
        state.update(f"{name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return state.digest()


@router.get("/overview")
def show_overview(
    context: Context,
    largest: Annotated[int, Query(ge=0, le=_MOST_LARGEST)] = 8,
) -> Overview:
    """Sessions by agent and project, the largest ones, and what their programs delete soon."""
    return overview(context, largest=largest)


@router.get("/overview/would-leave")
def would_leave_now(context: Context, request: Request) -> WouldLeave:
    """What an extraction would take out now: by a sample of the sessions, if they are many."""
    forecast: LastForecast = request.app.state.forecast
    return forecast.answer(context)


@router.get("/sizes")
def sizes(context: Context) -> DailySizes:
    """What sessions and bsd took on disk, by day, since bsd has noted it."""
    return DailySizes(read_sizes(context.layout.sizes_file))
