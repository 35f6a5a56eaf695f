"""Timings with their words, for the terminal and for the page."""

from __future__ import annotations

from datetime import datetime
from math import inf
from typing import Any

from bsd.core.formatting import iso_utc
from bsd.planning.plan import Plan, Report, Saving
from bsd.planning.result import SessionResult, Status
from bsd.planning.timing import Cause, Cut, Timing
from bsd.planning.timing_members import members
from bsd.transcripts.change import Identity

NOW = datetime(2026, 11, 26, 10).astimezone().timestamp()
MINUTE = NOW + 60


def timing(cause: Cause, until: float | None = MINUTE, **figures: Any) -> Timing:
    return Timing(cause, figures.pop("cut", Cut(38_123, 31_000)), until, **figures)


PRICED = {"loss": 24_800.0, "dollars": 0.124, "calls_needed": 13.02, "calls_expected": 40.0}
SAID = [
    (
        timing(Cause.WARM),
        (
            "waits: cache warm until 10:01, 38k tokens ready; "
            "a cut now rewrites 31k cached tokens (price unknown)"
        ),
    ),
    (
        timing(Cause.WARM, **PRICED),
        (
            "waits: cache warm until 10:01, 38k tokens ready; a cut now rewrites 31k cached tokens "
            "(about $0.12) and pays after 14 further calls, of which about 40 are expected"
        ),
    ),
    (
        timing(Cause.WARM, NOW + 2 * 86_400, cut=Cut(812, 0)),
        "waits: cache warm until 2026-11-28 10:00, 812 tokens ready",
    ),
    (
        timing(Cause.WARM, cut=Cut(9_999, 9), dollars=0.00004, calls_needed=inf),
        (
            "waits: cache warm until 10:01, 9,999 tokens ready; "
            "a cut now rewrites 9 cached tokens (less than $0.01)"
        ),
    ),
    (timing(Cause.COLD, None), "cut because the cache was cold"),
    (timing(Cause.NO_CACHE, None), "cut because no cache is in use"),
    (
        timing(Cause.STEP, **PRICED),
        (
            "cut because it keeps the next request below a price step; "
            "it rewrites 31k cached tokens (about $0.12)"
        ),
    ),
    (
        timing(Cause.STEP, step=272_000, dollars=0.002),
        (
            "cut because it keeps the next request below the price step at 272k; "
            "it rewrites 31k cached tokens (less than $0.01)"
        ),
    ),
    (
        timing(Cause.PAYS, **PRICED),
        (
            "cut because it pays after 14 of about 40 further calls; "
            "it rewrites 31k cached tokens (about $0.12)"
        ),
    ),
    (
        timing(Cause.ASKED, None),
        "cut because it was asked for",
    ),
]


def result_with(
    *timings: Timing, session: str = "main/a", dry_run: bool = False, left: int = 0
) -> SessionResult:
    """Return the result of plans with these timings, one after the other.

    Args:
        left: the tokens of values that a cut leaves behind.
    """
    result = SessionResult(session, Status.UNCHANGED, dry_run=dry_run)
    for said in timings:
        leaves = Saving(1, 100, 0 if said.waits else said.cut.removed)
        report = Report(
            "extract",
            entries=int(not said.waits),
            savings={"tool_result": leaves},
            tokens_ready=said.cut.removed if said.waits else left,
        )
        plan = Plan(Identity(1, 2, 3, 4, 5), (), report, warm_until=said.cold_at, timing=said)
        aim = Status.EXTRACTED
        result = result.plus(plan, aim, in_effect=not (said.waits or dry_run), left_as=None)
    return result


def answer_with(said: Timing) -> dict[str, Any]:
    """Return the members that an answer about a session has then."""
    answer = members(said) | {"tokens_saved": said.cut.removed, "price_step": said.step}
    if said.waits and said.cold_at is not None:
        answer |= {"cache_warm_until": iso_utc(said.cold_at), "tokens_ready": said.cut.removed}
    return {name: figure for name, figure in answer.items() if figure is not None}
