"""The figures of a `Timing` as members of answers, and as the daemon leaves them in state.db."""

from __future__ import annotations

from math import ceil, isfinite
from typing import Annotated, Any

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY
from bsd.planning.timing import Cause, Cut, Timing
from bsd.planning.timing_words import rewritten
from bsd.store.state import Left

# Members of an answer about a session.
CutReason = Annotated[
    Cause | None,
    Field(
        description="Why values in context leave now: asked (by a user or an agent, or `when` is "
        "`now`), no_cache (no prompt cache is in use), cold (the cache is cold), step (the next "
        "request would cost more as a whole), pays (further calls earn the cost). warm: they wait"
    ),
    OMIT_EMPTY,
]
TokensRewritten = Annotated[
    int | None,
    Field(
        description="Estimated tokens of the warm prompt cache that the provider writes again "
        "because of the cut"
    ),
    OMIT_EMPTY,
]
CostNow = Annotated[
    float | None,
    Field(
        description="The cost of `tokens_rewritten` in US dollars; missing if the prices of the "
        "model are unknown"
    ),
    OMIT_EMPTY,
]
CallsNeeded = Annotated[
    int | None, Field(description="Further calls that earn `cost_now`"), OMIT_EMPTY
]
CallsExpected = Annotated[
    int | None, Field(description="Further calls that the warm cache will probably see"), OMIT_EMPTY
]

PriceStep = Annotated[
    int | None,
    Field(description="With `step`: the size of a prompt above which all its tokens cost more"),
    OMIT_EMPTY,
]


def cause_of(name: str | None) -> Cause | None:
    """Return a cause by its name; None if there is none, or it is of a newer version."""
    return next((cause for cause in Cause if cause == name), None)


def members(timing: Timing | None) -> dict[str, Any]:
    """Return the figures of a timing as members of an answer; `price_step` is not among them."""
    if timing is None:
        return {}
    needed, expected = timing.calls_needed, timing.calls_expected
    return {
        "cut_reason": timing.cause,
        "tokens_rewritten": rewritten(timing) or None,
        "cost_now": None if timing.dollars is None else round(timing.dollars, 6),
        "calls_needed": ceil(needed) if needed is not None and isfinite(needed) else None,
        "calls_expected": None if expected is None else round(expected),
    }


def left_figures(wait: Timing) -> dict[str, Any]:
    """Return the figures of a wait as fields of `Left`."""
    figures = members(wait)
    del figures["cut_reason"]
    return {
        **figures,
        "warm_until": wait.cold_at,
        "tokens_ready": wait.cut.removed,
        "tokens_rewritten": rewritten(wait),
    }


def wait_of(left: Left | None, now: float) -> Timing | None:
    """Return the wait of a session as the daemon left it; None if it does not wait any more.

    Args:
        now: epoch seconds.
    """
    if left is None or left.warm_until is None or left.warm_until <= now:
        return None
    return Timing(
        Cause.WARM,
        Cut(left.tokens_ready, left.tokens_rewritten),
        left.warm_until,
        dollars=left.cost_now,
        calls_needed=left.calls_needed,
        calls_expected=left.calls_expected,
    )
