"""`Timing` in words for people. `http/web/timing.js` has the same words for the page.

The rule itself is in `timing`, the members of answers in `timing_members`. If the prices of a model
are unknown, the words name no money and say so. This module imports little, since `bsd --help`
imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import ceil, inf, isfinite
from typing import Any

from bsd.planning.timing import Cause, Cut, Timing

_DAY_SECONDS = 86_400.0
_MANY_TOKENS = 10_000  # from here on written in thousands
_CENT = 0.01


def rewritten(timing: Timing) -> int:
    """Return the tokens of a warm cache that the cut makes the provider write again."""
    return timing.cut.rewritten if timing.cold_at is not None else 0


def timing_in(answer: Mapping[str, Any]) -> Timing | None:
    """Return the timing that an answer about a session has as members; None if it has none."""
    reason, until = answer.get("cut_reason"), answer.get("cache_warm_until")
    if reason is None and until is None:
        return None
    removed = answer.get("tokens_ready") or answer.get("tokens_saved") or 0
    cold_at = None if until is None else datetime.fromisoformat(until).timestamp()
    if until is None and answer.get("tokens_rewritten"):
        cold_at = inf  # the cut is made, and the answer does not say until when the cache was warm
    return Timing(
        Cause(reason or Cause.WARM),  # a daemon of an older version gives no reason
        Cut(removed, answer.get("tokens_rewritten") or 0),
        cold_at=cold_at,
        dollars=answer.get("cost_now"),
        calls_needed=answer.get("calls_needed"),
        calls_expected=answer.get("calls_expected"),
        step=answer.get("price_step"),
    )


def wait_in(answer: Mapping[str, Any], now: float) -> Timing | None:
    """Return the wait that a daemon's answer about a session has as members; None if it is over.

    After a cut, the figures of the answer are those of the cut. The values left behind wait.
    """
    timing, until = timing_in(answer), answer.get("cache_warm_until")
    if timing is None or until is None:
        return None
    if not timing.waits:
        removed = answer.get("tokens_ready") or 0
        timing = Timing(Cause.WARM, Cut(removed, 0), timing.cold_at)
    return timing if timing.cold_at is not None and timing.cold_at > now else None


def words(timing: Timing, now: float) -> str:
    """Describe why values in context leave, or why they wait, with all figures.

    Args:
        now: epoch seconds.
    """
    if not timing.waits:
        cost = f"; it rewrites {_amount(timing)}" if rewritten(timing) else ""
        return f"cut because {reason_words(timing)}{cost}"
    text = wait_words(timing, now)
    if rewritten(timing):
        text += f"; a cut now rewrites {_amount(timing)}"
    if timing.calls_needed is not None and isfinite(timing.calls_needed):
        text += f" and pays after {_further(timing.calls_needed)}"
        if timing.calls_expected is not None:
            text += f", of which about {round(timing.calls_expected):,} are expected"
    return text


def wait_words(timing: Timing, now: float) -> str:
    """Describe a wait in short: `waits: cache warm until 14:05, 38k tokens ready`."""
    ready = f"{short(timing.cut.removed)} tokens ready"
    return f"waits: cache warm until {_moment(timing, now)}, {ready}"


def cost_words(timing: Timing, now: float) -> str:
    """Describe the cost of a cut now: `a cut now rewrites 31k cached tokens (about $0.12); …`."""
    if not rewritten(timing):
        return f"cache warm until {_moment(timing, now)}" if timing.cold_at else "no cache is warm"
    return f"a cut now rewrites {_amount(timing)}; cold at {_moment(timing, now)}"


def reason_words(timing: Timing) -> str:
    """Return why values in context leave now, as part of a sentence."""
    match timing.cause:
        case Cause.NO_CACHE:
            return "no cache is in use"
        case Cause.COLD:
            return "the cache was cold"
        case Cause.STEP:
            step = (
                "a price step" if timing.step is None else f"the price step at {short(timing.step)}"
            )
            return f"it keeps the next request below {step}"
        case Cause.PAYS:
            return f"it pays after {_calls(timing)}"
        case Cause.WARM:
            return "the cache is warm"
        case _:
            return "it was asked for"


# The reason of a cut, for a table or between parentheses.
SHORT_REASONS = {
    Cause.COLD: "cold cache",
    Cause.NO_CACHE: "no cache",
    Cause.STEP: "price step",
    Cause.PAYS: "pays",
    Cause.ASKED: "asked for",
}


def cuts_text(cuts: Mapping[str, int]) -> str:
    """Describe the cuts of a daemon: `3 cuts since the start (2 cold cache, 1 pays)`.

    Args:
        cuts: their numbers by cause; empty text if there are none.
    """
    parts = [f"{cuts[cause]:,} {text}" for cause, text in SHORT_REASONS.items() if cuts.get(cause)]
    number = sum(cuts.values())
    if not parts:
        return ""
    return f"{number:,} {'cut' if number == 1 else 'cuts'} since the start ({', '.join(parts)})"


def money(dollars: float) -> str:
    """Format an estimated amount: `about $0.12`, or `less than $0.01`."""
    return f"about ${dollars:,.2f}" if dollars >= _CENT else "less than $0.01"


def cost_text(dollars: float | None, unpriced: int) -> str:
    """Describe the cost of cuts in several sessions.

    Args:
        dollars: the sum; None if no price is known.
        unpriced: the number of sessions that the sum lacks, because their prices are unknown.
    """
    if dollars is None:
        return "prices unknown"
    more = f", without {unpriced:,} of unknown price" if unpriced else ""
    return f"{money(dollars)}{more}"


def clock_time(moment: float, now: float) -> str:
    """Format a time (epoch seconds): `14:05`, or with its date if it is a day or more ahead."""
    local = datetime.fromtimestamp(moment).astimezone()
    return f"{local:%H:%M}" if moment - now < _DAY_SECONDS else f"{local:%Y-%m-%d %H:%M}"


def short(tokens: int) -> str:
    """Format a number of tokens: `9,999`, `38k`."""
    return f"{tokens / 1000:,.0f}k" if tokens >= _MANY_TOKENS else f"{tokens:,}"


def _amount(timing: Timing) -> str:
    cost = "price unknown" if timing.dollars is None else money(timing.dollars)
    return f"{short(rewritten(timing))} cached tokens ({cost})"


def _calls(timing: Timing) -> str:
    """Return the calls that earn the cost of a cut: `14 of about 40 further calls`."""
    needed, expected = timing.calls_needed or 0.0, timing.calls_expected
    if expected is None:
        return _further(needed)
    return f"{ceil(needed):,} of about {round(expected):,} further calls"


def _further(calls: float) -> str:
    number = ceil(calls)
    return f"{number:,} further {'call' if number == 1 else 'calls'}"


def _moment(timing: Timing, now: float) -> str:
    return clock_time(now if timing.cold_at is None else timing.cold_at, now)
