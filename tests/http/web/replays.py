"""Answers of a replay for the view of cost: a session of 60 calls, with and without prices."""

from __future__ import annotations

from dataclasses import asdict
from itertools import accumulate
from typing import Any, Literal

from bsd.actions.replay_answers import (
    CallsWithBsd,
    CallsWithoutBsd,
    RecordedInput,
    Replay,
    ReplayedCut,
    ReplayedInput,
    ReplayedSetting,
    ReplayedStep,
    ReplayOfAgent,
    SessionReplay,
    WantedAgain,
)
from tests.http.web.sample import HOSTILE

_CALLS = 60
_COLD = 40  # the call before which the cache is cold
_REMOVED = 90_000
_START = 1_793_000_000.0


def session_replay(session: str, *, priced: bool = True) -> dict[str, Any]:
    """Return the answer for one session with two settings."""
    tokens = list(accumulate([20_000, *[6_000] * (_CALLS - 1)]))
    cold = [call in {0, _COLD} for call in range(_CALLS)]
    answer = SessionReplay(
        session=session,
        recorded=RecordedInput(input_tokens=sum(tokens), cost=None, deviation=0.042, calls=_CALLS),
        without=_input(tokens, cold, priced=priced),
        calls=CallsWithoutBsd(
            lines=[2 * call for call in range(_CALLS)],
            times=[_START + 60 * call for call in range(_CALLS)],
            models=["m"] * _CALLS,
            recorded=list(tokens),
            tokens=tokens,
            read=[0 if is_cold else size for size, is_cold in zip(tokens, cold, strict=True)],
            cost=_costs(tokens, cold, priced=priced),
            cold=cold,
        ),
        settings=(
            _with_bsd(tokens, cold, "pays", _COLD, priced=priced),
            _with_bsd(tokens, cold, "now", _COLD - 5, priced=priced),
        ),
        steps=(ReplayedStep("m", 272_000, 2.0), ReplayedStep("n", 10_000_000, 2.0)),
        compactions=(50,),
        notes=(f"no price for {HOSTILE}",),
    )
    return asdict(answer)


def replay_portion(number: int, portions: int) -> dict[str, Any]:
    """Return the answer for all sessions after this many portions."""
    calls = [20_000] * 10
    cold = [True, *[False] * 9]
    sums: dict[str, Any] = {
        "sessions": 3 * number,
        "calls": 10 * number,
        "priced_calls": 10 * number - 1,
        "recorded": RecordedInput(input_tokens=9, cost=None, deviation=None, calls=0),
        "without": _input(calls, cold, priced=True),
        "settings": (_setting(calls, cold, "pays", 0), _setting([15_000] * 10, cold, "cold", 1)),
    }
    answer = Replay(
        agents=(ReplayOfAgent(agent="openclaw", **sums), ReplayOfAgent(agent=HOSTILE, **sums)),
        cursor=str(number) if number < portions else None,
        read=number << 20,
        total=portions << 20,
        **sums,
    )
    return asdict(answer)


def _costs(tokens: list[int], cold: list[bool], *, priced: bool) -> list[float | None]:
    return [*_dollars(tokens, cold)] if priced else [None] * len(tokens)


def _dollars(tokens: list[int], cold: list[bool]) -> list[float]:
    pairs = zip(tokens, cold, strict=True)
    return [size * (5e-6 if is_cold else 2e-7) for size, is_cold in pairs]


def _input(tokens: list[int], cold: list[bool], *, priced: bool) -> ReplayedInput:
    return ReplayedInput(tokens=sum(tokens), read=0, written=0, cost=_sum(tokens, cold, priced))


def _sum(tokens: list[int], cold: list[bool], priced: bool) -> float | None:
    return sum(_dollars(tokens, cold)) if priced else None


def _setting(
    tokens: list[int],
    cold: list[bool],
    when: Literal["pays", "now", "cold"],
    cuts: int,
    *,
    priced: bool = True,
    without: int = 200_000,
) -> ReplayedSetting:
    return ReplayedSetting(
        keep_recent=3,
        min_value_length=500,
        trigger_types=("thinking", "tool_result"),
        when=when,
        tokens=sum(tokens),
        read=0,
        written=0,
        cost=_sum(tokens, cold, priced),
        tokens_share=sum(tokens) / without,
        cost_share=0.75 if priced else None,
        worst_cost_share=1.02 if priced else None,
        cuts=cuts,
        cuts_by_reason={"cold": cuts},
        rewritten_tokens=0,
        left_values=212 * cuts,
        left_tokens=_REMOVED * cuts,
        wanted_again=cuts,
        wanted_again_tokens=600 * cuts,
        current=when == "pays",
    )


def _with_bsd(
    tokens: list[int],
    cold: list[bool],
    when: Literal["pays", "now", "cold"],
    cut: int,
    *,
    priced: bool,
) -> CallsWithBsd:
    shorter = [size - _REMOVED if call >= cut else size for call, size in enumerate(tokens)]
    return CallsWithBsd(
        sums=_setting(shorter, cold, when, 1, priced=priced, without=sum(tokens)),
        tokens=shorter,
        read=shorter,
        cost=_costs(shorter, cold, priced=priced),
        cuts=(
            ReplayedCut(cut, _START + 60 * cut, "cold", f"cold {HOSTILE}", 212, _REMOVED, 30_000),
        ),
        wanted_again=(WantedAgain(55, 17, 600),),
    )
