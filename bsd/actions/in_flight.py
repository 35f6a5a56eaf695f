"""Wait for replaced versions of sessions before bsd stops editing these sessions.

A program that has a session open may write to its replaced version for about a minute. bsd moves
such late lines into the session only as long as it edits the session.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bsd.actions.context import ActionContext
from bsd.core.layout import Layout
from bsd.maintenance.disk_use import in_flight_use
from bsd.sessions.commit.inflight import InFlight

_WATCHED_SECONDS = 90.0  # a replaced version is usually watched for a minute
_LOOK_AGAIN_SECONDS = 1.0


def replaced_versions(layout: Layout, kind: str | None = None) -> int:
    """Return the number of replaced versions that are watched for late lines.

    Args:
        layout: the layout of the root.
        kind: only those of the sessions of this agent's program; None: of all sessions.
    """
    if kind is None:
        return in_flight_use(layout).files
    names = (record.session.agent for record in InFlight(layout).readable())
    sources = map(layout.source_of, names)
    return sum(source is not None and source.kind == kind for source in sources)


def wait_for_in_flight(
    context: ActionContext, sleep: Callable[[float], object], *, kind: str | None = None
) -> bool:
    """Wait until no replaced version of a session is watched any more.

    Args:
        context: its `recover` removes the replaced versions whose time is over.
        sleep: waits for some seconds; may raise an exception to end the wait.
        kind: as in `replaced_versions`.

    Returns:
        False if replaced versions are still watched after 90 seconds.
    """
    end = time.monotonic() + _WATCHED_SECONDS
    while replaced_versions(context.layout, kind):
        if time.monotonic() >= end:
            return False
        sleep(_LOOK_AGAIN_SECONDS)
        context.recover()
    return True
