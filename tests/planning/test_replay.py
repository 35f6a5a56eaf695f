"""The replay of hand-made recordings, with costs computed by hand.

A turn sends 1000 tokens beside the transcript, a prompt of 100, answers of 50 and tool results. A
token costs a dollar, 0.1 if it is read from the cache, and 1.25 if it is written to it.
"""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import pytest

from bsd.core.prices import CacheLife, PeakHours, PriceStep
from bsd.planning.recorded import Beginning
from bsd.planning.replay import Played, PlayedCut
from bsd.planning.timing import Cause
from tests.bench.replay_oracle import best_cost
from tests.planning.recordings import BEGUN, DOLLARS, HandMade, price, timeline_of

LONG_PAUSE = 400.0  # seconds: longer than the cache lives


def costs(played: Played) -> list[float]:
    return [round(cost * 1e6 / DOLLARS, 6) for cost in played.cost]


def only_cut(played: Played) -> PlayedCut:
    (cut,) = played.cuts
    return cut


def worked(*pauses: float) -> HandMade:
    """Return a session with a result of 5000 tokens in its first turn, and further turns."""
    made = HandMade()
    made.turn(5000)
    for pause in pauses:
        made.turn(after=pause)
    return made


def test_without_bsd_a_call_reads_what_the_call_before_it_sent() -> None:
    played = worked(60, LONG_PAUSE).played(None)

    assert list(played.tokens) == [1100, 6150, 6300, 6450]
    assert list(played.read) == [0, 1100, 6150, 0]  # cold after the long pause
    assert costs(played) == [
        1100 * 1.25,
        1100 * 0.1 + 5050 * 1.25,
        6150 * 0.1 + 150 * 1.25,
        6450 * 1.25,
    ]
    assert not played.cuts


def test_a_warm_cut_writes_the_rest_of_the_context_again() -> None:
    played = worked(60, 60, 60).played("now")

    # Before the fourth call, the first turn's result leaves: 1150 tokens stand before it, and 150
    # of the 6300 tokens in the cache after it.
    assert list(played.tokens) == [1100, 6150, 6300, 1450, 1600]
    assert list(played.read) == [0, 1100, 6150, 1150, 1450]
    assert costs(played)[3] == 1150 * 0.1 + 300 * 1.25
    cut = only_cut(played)
    assert (cut.call, cut.values, cut.removed, cut.rewritten) == (3, 1, 5000, 150)
    assert cut.timing.cause is Cause.ASKED
    assert cut.at == BEGUN + 60 + 1 + 60 + 2  # the turn before is over for the quiet time


def test_a_cut_waits_until_the_cache_is_cold() -> None:
    played = worked(60, LONG_PAUSE).played("cold")

    cut = only_cut(played)
    assert (cut.call, cut.timing.cause, cut.rewritten) == (3, Cause.COLD, 0)
    assert cut.at == BEGUN + 60 + 1 + 60 + 300  # the moment at which the cache gets cold
    assert costs(played)[3] == 1450 * 1.25


def test_a_cut_in_a_warm_cache_waits_for_its_account() -> None:
    made = HandMade()
    made.turn(600)
    made.user(tokens=20_000)  # stands after the result of 600
    made.answer(ends=True)
    for _ in range(30):
        made.turn(3000)

    first = made.played("pays").cuts[0]

    assert first.timing.cause is Cause.PAYS
    assert first.call > made.played("now").cuts[0].call
    assert sum(made.played("pays").cost) < sum(made.played(None).cost)


def test_without_a_cache_each_call_pays_for_its_whole_prompt_and_a_cut_is_made_at_once() -> None:
    made = HandMade(cached=False)
    made.turn(5000)
    made.turn()
    made.turn()

    assert costs(made.played(None)) == [1100, 6150, 6300, 6450]
    played = made.played("pays")
    assert costs(played) == [1100, 6150, 6300, 1450]
    assert only_cut(played).timing.cause is Cause.NO_CACHE


def test_a_step_makes_the_whole_request_dearer() -> None:
    dear = price(steps=(PriceStep(6200, 5.0, 1.0),))
    made = worked(60, 60)

    assert costs(made.played(None, ("made-up", dear)))[2:] == [
        5 * (6150 * 0.1 + 150 * 1.25),
        5 * (6300 * 0.1 + 150 * 1.25),
    ]
    played = made.played("pays", ("made-up", dear))
    assert only_cut(played).timing.cause is Cause.STEP
    assert costs(played)[3] == 1150 * 0.1 + 300 * 1.25


def test_peak_hours_count_by_the_time_of_the_call() -> None:
    hour = int(BEGUN // 3600 % 24)
    made = HandMade()
    made.turn()
    made.turn(after=3600)

    played = made.played(None, ("made-up", price(peaks=(PeakHours(hour, hour + 1, 2.0),))))

    assert costs(played) == [2 * 1100 * 1.25, 1250 * 1.25]


def test_a_provider_that_charges_nothing_for_writing() -> None:
    played = worked(60, 86_500).played(None, ("made-up", price(life=None)))

    # Without a published lifetime, the cache lives for a day.
    assert costs(played) == [1100, 1100 * 0.1 + 5050, 6150 * 0.1 + 150, 6450]


def test_a_compaction_takes_extracted_text_out_of_both_contexts() -> None:
    made = worked(60, 60)
    made.begin(Beginning.COMPACTION)
    made.turn(3000)

    without, played = made.played(None), made.played("now")

    assert list(without.tokens)[4:] == list(played.tokens)[4:] == [1100, 4150]
    assert list(without.read)[4:] == [1000, 1100]  # only the constant part is shared
    assert only_cut(played).call == 3


def test_a_branch_lacks_what_left_before_it() -> None:
    made = worked(60, 60)
    made.begin(Beginning.BRANCH, (0, 4), shared_until=4)  # it continues the first turn
    made.turn()

    assert (made.played(None).tokens[-1], made.played(None).read[-1]) == (6300, 6200)
    played = made.played("now")
    assert (played.tokens[-1], played.read[-1]) == (1300, 1200)


def test_another_model_has_a_cache_and_a_price_of_its_own() -> None:
    made = worked(60)
    made.begin(Beginning.MODEL, (0, len(made)))
    made.model = "other"
    made.turn()
    made.turn()

    played = made.played(None)
    assert played.read[3] == 0
    assert [isnan(cost) for cost in played.cost] == [False, False, False, True, True]
    assert timeline_of(made).unpriced() == {"other": 2}
    both = made.played(None, ("made-up", price()), ("other", price(read=0.5)))
    assert costs(both)[3:] == [6450 * 1.25, 6450 * 0.5 + 150 * 1.25]


def test_a_clock_that_goes_back_makes_no_cache_cold() -> None:
    made = worked(60, -9000, 60)

    assert list(made.played(None).read) == [0, 1100, 6150, 6300, 6450]
    assert not made.played("cold").cuts


@pytest.mark.parametrize("odd", [{"timed": False}, {"usage": False}])
def test_money_is_unknown_without_times_and_without_usage(odd: dict[str, bool]) -> None:
    made = HandMade(**odd)  # type: ignore[arg-type]
    made.turn(5000)
    made.turn()
    made.turn()

    played = made.played("now")

    assert list(played.tokens) == [1100, 6150, 6300, 1450]
    assert all(map(isnan, played.cost))


def test_recorded_usage_tells_whether_the_cache_was_warm() -> None:
    made = worked(60)
    made.user(after=LONG_PAUSE)
    made.answer(ends=True, read=6300)  # it was, in spite of the pause
    made.user(after=10)
    made.answer(ends=True, read=0)  # it was not: the program had changed the beginning

    assert list(made.played(None).read) == [0, 1100, 6150, 6300, 0]
    assert list(made.played(None, assume_cache=True).read) == [0, 1100, 6150, 0, 6450]


def test_a_missed_cache_shows_the_shorter_lifetime() -> None:
    made = worked(60)
    made.user(after=1000)
    made.answer(ends=True, read=0)
    lives = (CacheLife(300, 1.25), CacheLife(3600, 2.0))

    timeline = timeline_of(made, ("made-up", replace(price(), lives=lives)))

    assert {(one.life_seconds, one.write) for one in timeline.charged} == {(300, 1.25)}


# --- which values leave, and when ---


def test_values_of_the_unfinished_turn_stay_and_no_cut_is_made_in_a_turn() -> None:
    made = HandMade()
    made.turn(5000)
    made.user()
    for _ in range(3):
        made.answer()
        made.result(700, after=60)
    made.answer(ends=True)
    made.turn()

    assert only_cut(made.played("now")).call == 6  # after the turn, both values leave
    assert only_cut(made.played("now")).removed == 5000 + 3 * 700 - 700  # the last is too recent
    in_turns = made.played("now", in_turns=True).cuts
    assert [(cut.call, cut.removed) for cut in in_turns] == [(3, 5000), (6, 1400)]


def test_a_pause_shorter_than_the_quiet_time_is_no_time_for_a_cut() -> None:
    assert not worked(5, 5).played("now", quiet=10).cuts
    assert worked(5, 5).played("now", quiet=5).cuts


def test_a_saving_too_small_for_writing_the_file_waits_for_an_hour() -> None:
    made = HandMade()
    made.user(tokens=50_000)
    made.answer(ends=True)
    made.turn(600)  # 1/85 of the session
    for _ in range(3):
        made.turn()
    assert not made.played("now").cuts

    made.turn(after=4000)
    cut = only_cut(made.played("now"))
    assert (cut.call, cut.removed) == (6, 600)
    began = made.recording.calls[3].time
    assert cut.at is not None
    assert began is not None
    assert cut.at == began + 2 + 3600


def test_a_file_that_keeps_its_length_is_written_once_an_hour() -> None:
    def cuts(*, keeps_length: bool) -> list[int]:
        made = HandMade()
        for _ in range(4):
            made.turn(5000)
        made.recording.keeps_length = keeps_length
        made.turn(after=4000)
        return [cut.call for cut in made.played("now").cuts]

    assert cuts(keeps_length=False) == [4, 6, 8]
    assert cuts(keeps_length=True) == [4, 8]


def test_a_signature_binds_earlier_values_until_its_thinking_leaves() -> None:
    made = HandMade()
    made.turn(5000)
    made.user()
    made.answer(400, ends=True, thinks=True)
    made.recording.leaves[0].bindings.append(5)
    made.turn()
    made.turn()

    # The thinking leaves once its turn is not the last one. That frees the result.
    assert [(cut.call, cut.removed) for cut in made.played("now").cuts] == [(4, 400), (4, 5000)]


def test_the_newest_values_leave_alone_where_that_pays() -> None:
    made = HandMade()
    made.turn(600)
    made.user(tokens=60_000)
    made.answer(ends=True)
    for _ in range(8):
        made.turn()
    made.turn(30_000)
    for _ in range(3):
        made.turn()

    cuts = made.played("pays", ("made-up", price(read=0.02))).cuts

    assert cuts[0].removed == 30_000
    assert cuts[0].rewritten < 1000  # not the 60,000 tokens after the value of 600


# --- from bsd's arrival ---


def test_calls_before_the_arrival_are_neither_cut_nor_counted() -> None:
    made = worked(60, 60, 60, 60)

    without, played = made.played(None, arrival=0.8), made.played("now", arrival=0.8)

    assert played.first == 4
    assert list(without.tokens) == [6600, 6750]
    assert list(played.tokens) == [1600, 1750]
    assert costs(played) == [1150 * 0.1 + 450 * 1.25, 1600 * 0.1 + 150 * 1.25]


# --- values that are wanted again ---


def test_a_value_is_wanted_again_only_if_all_holders_of_its_text_have_left() -> None:
    made = worked(60)
    made.want(0)  # before it leaves
    made.turn(5000)
    made.turn()
    made.want(0, 1)  # the second result still has the text
    assert not made.played("now").wanted

    made.want(0)
    made.want(0)  # counts once
    assert made.played("now").wanted == [(5, 0, 5000)]
    assert not made.played("cold").wanted
    made.recording.wants.clear()
    made.want(0, -1)  # an entry that never leaves has it, too
    assert not made.played("now").wanted


# --- the oracle of the bench ---


def test_the_oracle_costs_no_more_than_any_rule() -> None:
    made = HandMade()
    for number in range(24):
        made.turn(300 * number, 5000 - 200 * number, after=900 if number % 7 == 6 else 60)

    best = best_cost(timeline_of(made), made.recording.leaves[0])

    for when in ("now", "cold", "pays"):
        assert best <= sum(made.played(when).cost) + 1e-6
    assert best < sum(made.played("cold").cost)
