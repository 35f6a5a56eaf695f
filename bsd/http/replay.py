"""Replay: recorded sessions under other settings, in portions, and call by call for a plot."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from bsd.actions.replay import replay_in_portions, replay_session
from bsd.actions.replay_answers import Replay, SessionReplay
from bsd.http.dependencies import Context, JsonRoute, SessionPath

router = APIRouter(prefix="/api", tags=["sessions"], route_class=JsonRoute)

_LONGEST_LIST, _LONGEST_CURSOR = 500, 32_000  # characters

KeepRecent = Annotated[
    str | None, Query(max_length=_LONGEST_LIST, description="Values with commas between them")
]
MinValueLength = Annotated[str | None, Query(max_length=_LONGEST_LIST, description="The same")]
TriggerTypes = Annotated[
    str | None,
    Query(max_length=_LONGEST_LIST, description="The same; + (%2B in a URL) joins types"),
]
When = Annotated[
    str | None, Query(max_length=_LONGEST_LIST, description="pays, now, cold, or several")
]


def _lists(
    keep_recent: str | None, min_value_length: str | None, types: str | None, when: str | None
) -> dict[str, str]:
    given = {
        "keep_recent": keep_recent,
        "min_value_length": min_value_length,
        "trigger_types": types,
        "when": when,
    }
    return {name: text for name, text in given.items() if text}


@router.get("/replay")
def replay_all(  # noqa: PLR0913 - parameters of the query
    context: Context,
    keep_recent: KeepRecent = None,
    min_value_length: MinValueLength = None,
    trigger_types: TriggerTypes = None,
    when: When = None,
    *,
    everything: Annotated[
        bool, Query(description="All sessions; by default a sample of at most 256 MB")
    ] = False,
    suggest: Annotated[bool, Query(description="Also return the best settings")] = False,
    cursor: Annotated[str | None, Query(max_length=_LONGEST_CURSOR)] = None,
) -> Replay:
    """Play recorded sessions back under several settings, and change nothing.

    Each combination of the listed values is played back. The answer comes after a short time; as
    long as it has a `cursor`, the same request with it continues. Figures are about all sessions so
    far.
    """
    lists = _lists(keep_recent, min_value_length, trigger_types, when)
    return replay_in_portions(
        context, lists=lists, everything=everything, suggest=suggest, cursor=cursor
    )


@router.get("/sessions/{agent}/{session}/replay")  # noqa: FAST003 - `SessionPath` has both
def replay_one(
    context: Context,
    session: SessionPath,
    keep_recent: KeepRecent = None,
    min_value_length: MinValueLength = None,
    trigger_types: TriggerTypes = None,
    when: When = None,
) -> SessionReplay:
    """Play a session back under several settings, and return its calls one by one."""
    lists = _lists(keep_recent, min_value_length, trigger_types, when)
    return context.query(replay_session, session, lists=lists)
