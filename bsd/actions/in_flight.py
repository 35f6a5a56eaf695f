"""Waits before sessions are no longer known to bsd, while their replaced versions are watched.

A program that holds a session open may write to its replaced version for a minute; such late lines
are put into the session only as long as bsd knows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bsd.actions.context import ActionContext
from bsd.core.layout import Layout
from bsd.maintenance.disk_use import in_flight_use
from bsd.sessions.commit.inflight import InFlight

_WATCHED_SECONDS = 90.0  # a replaced version of a session is watched for a minute, mostly
_LOOK_AGAIN_SECONDS = 1.0


def replaced_versions(layout: Layout, kind: str | None = None) -> int:
    """Return how many replaced versions of sessions are watched for late lines.

    Args:
        layout: the root.
        kind: only of the sessions of this agent's program; None: of all.
    """
    if kind is None:
        return in_flight_use(layout).files
    names = (record.session.agent for record in InFlight(layout).readable())
    sources = map(layout.source_of, names)
    return sum(source is not None and source.kind == kind for source in sources)


def wait_for_in_flight(
    context: ActionContext, sleep: Callable[[float], object], *, kind: str | None = None
) -> bool:
    """Wait until no replaced version of a session needs to be watched any more.

    Args:
        context: its `recover` lets go what is due.
        sleep: waits for some seconds; may raise an exception to end the wait.
        kind: as in `replaced_versions`.

    Returns:
        False if some still are watched after a minute and a half.
    """
    end = time.monotonic() + _WATCHED_SECONDS
    while replaced_versions(context.layout, kind):
        if time.monotonic() >= end:
            return False
        sleep(_LOOK_AGAIN_SECONDS)
        context.recover()
    return True
