"""Timings in words, and as members of answers; the page's words are compared in the browser."""

from __future__ import annotations

import pytest

from bsd.core.answers import as_json
from bsd.core.formatting import iso_utc
from bsd.planning.timing import Cause, Timing
from bsd.planning.timing_members import left_figures, members, wait_of
from bsd.planning.timing_words import (
    clock_time,
    cost_text,
    cost_words,
    cuts_text,
    timing_in,
    wait_in,
    wait_words,
    words,
)
from bsd.store.state import Left
from tests.planning.timings import MINUTE, NOW, PRICED, SAID, answer_with, result_with, timing


@pytest.mark.parametrize(("said", "expected"), SAID)
def test_a_timing_in_words(said: Timing, expected: str) -> None:
    assert words(said, NOW) == expected


def test_a_wait_and_a_cost_are_said_in_short() -> None:
    said = timing(Cause.WARM, **PRICED)
    assert wait_words(said, NOW) == "waits: cache warm until 10:01, 38k tokens ready"
    asked = timing(Cause.ASKED, **PRICED)
    cost = "a cut now rewrites 31k cached tokens (about $0.12); cold at 10:01"
    assert cost_words(asked, NOW) == cost
    assert cost_words(timing(Cause.ASKED, None), NOW) == "no cache is warm"


@pytest.mark.parametrize("said", [said for said, _ in SAID])
def test_members_of_an_answer_give_the_same_words(said: Timing) -> None:
    found = timing_in(answer_with(said))
    assert found is not None
    assert words(found, NOW) == words(said, NOW)


def test_an_answer_of_an_older_daemon_names_the_wait_only() -> None:
    found = timing_in({"cache_warm_until": iso_utc(MINUTE), "tokens_ready": 812})
    assert found is not None
    assert words(found, NOW) == "waits: cache warm until 10:01, 812 tokens ready"
    assert timing_in({"tokens_saved": 5}) is None


def test_a_wait_is_left_to_the_next_daemon() -> None:
    said = timing(Cause.WARM, **PRICED)
    left = Left(None, "", None, MINUTE, **left_figures(said))  # type: ignore[arg-type]
    found = wait_of(left, NOW)
    assert found is not None
    assert words(found, NOW) == words(said, NOW)
    assert wait_of(left._replace(warm_until=None), NOW) is None
    assert wait_of(left, MINUTE) is None


def test_a_cut_in_a_cold_cache_rewrites_nothing() -> None:
    assert members(timing(Cause.COLD, None))["tokens_rewritten"] is None
    assert members(timing(Cause.PAYS))["tokens_rewritten"] == 31_000


def test_sums_name_no_unknown_price() -> None:
    assert cost_text(None, 2) == "prices unknown"
    assert cost_text(0.4, 0) == "about $0.40"
    assert cost_text(0.4, 1) == "about $0.40, without 1 of unknown price"
    assert cuts_text({"pays": 1, "cold": 2}) == "3 cuts since the start (2 cold cache, 1 pays)"
    assert cuts_text({}) == ""
    assert clock_time(NOW + 86_400, NOW) == "2026-11-27 10:00"


def test_a_result_has_the_figures_of_its_cut_and_of_the_wait() -> None:
    waits = result_with(timing(Cause.WARM, **PRICED))
    assert (waits.cut_reason, waits.tokens_ready, waits.tokens_rewritten) == (
        *(Cause.WARM, 38_123, 31_000),
    )
    assert (waits.cost_now, waits.calls_needed, waits.calls_expected) == (0.124, 14, 40)
    assert waits.cache_warm_until == iso_utc(MINUTE)

    made = result_with(timing(Cause.PAYS, **PRICED))
    assert (made.cut_reason, made.tokens_rewritten, made.wait) == (Cause.PAYS, 31_000, None)
    assert (made.cache_warm_until, made.tokens_ready) == (None, None)

    both = result_with(timing(Cause.PAYS), timing(Cause.WARM))
    assert (both.cut_reason, both.timing, both.wait) == (
        *(Cause.PAYS, timing(Cause.PAYS), timing(Cause.WARM)),
    )
    partly = result_with(timing(Cause.PAYS, **PRICED), left=38_123)
    assert (partly.cut_reason, partly.tokens_rewritten) == (Cause.PAYS, 31_000)
    for each in (both, partly):
        found = wait_in(as_json(each), NOW)
        assert found is not None
        assert words(found, NOW) == "waits: cache warm until 10:01, 38k tokens ready"
        assert wait_in(as_json(each), MINUTE) is None
    over = result_with(timing(Cause.WARM), timing(Cause.COLD, None))
    assert (over.cut_reason, over.wait, over.cache_warm_until) == (Cause.COLD, None, None)


def test_a_dry_run_by_hand_names_the_wait_that_it_has_not() -> None:
    asked = result_with(timing(Cause.ASKED, **PRICED), dry_run=True)
    assert (asked.cut_reason, asked.wait) == (Cause.ASKED, None)
    assert (asked.cache_warm_until, asked.tokens_ready) == (iso_utc(MINUTE), 38_123)
    cold = result_with(timing(Cause.ASKED, None), dry_run=True)
    assert (cold.cache_warm_until, cold.tokens_rewritten) == (None, None)
