"""The rule that says when a cut is made: each cause, its edges, and the bound that it promises."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from math import inf

import pytest

from bsd.core.prices import CacheLife, Price, PriceStep
from bsd.planning.timing import (
    Account,
    CacheState,
    Cause,
    Cut,
    Timing,
    best_timing,
    timing_of,
)

MINUTES, HOUR, HALF_A_DAY = 300.0, 3600.0, 43_200.0
OPUS = Price(4.0, 20.0, 0.05, (CacheLife(MINUTES, 1.25), CacheLife(HOUR, 2.0)))
HAIKU = Price(0.1, 0.5, 0.1, (CacheLife(MINUTES, 1.25),), (PriceStep(100_000, 5.0, 5.0),))
# The prices at which SPEC §3a holds the rule to its bound: read, write, life.
ROWS = (
    (0.1, 1.25, MINUTES),
    (0.05, 1.25, MINUTES),
    (0.05, 2.0, HOUR),
    (0.025, 1.25, MINUTES),
    (0.05, 2.5, HALF_A_DAY),
)
BOUND = 1.1
COLD_AT = 1_800_000_300.0
RICH = Account(spent=1_000_000.0)
WARM = CacheState(True, COLD_AT, context=100_000, growth=1000, account=RICH)
CUT = Cut(removed=20_000, rewritten=8_000)


def decide(
    cut: Cut = CUT, cache: CacheState = WARM, price: Price | None = OPUS, when: str = "pays"
) -> Timing:
    return timing_of(cut, cache, price, when, MINUTES)


def test_each_setting_and_state_of_the_cache_has_its_cause() -> None:
    assert decide(when="now").cause is Cause.ASKED
    assert decide(cache=replace(WARM, in_use=False)).cause is Cause.NO_CACHE
    assert decide(cache=replace(WARM, cold_at=None)).cause is Cause.COLD
    assert decide(cache=replace(WARM, cold_at=None), when="cold").cause is Cause.COLD
    assert decide().cause is Cause.PAYS
    assert decide(when="cold").cause is Cause.WARM
    assert decide(when="cold").waits


def test_a_decision_in_a_warm_cache_has_its_figures() -> None:
    timing = decide(when="cold")

    assert timing.cold_at == COLD_AT
    assert timing.loss == pytest.approx((1.25 - 0.05) * 8000)
    assert timing.dollars == pytest.approx(9600 * 4.0 / 1e6)
    assert timing.calls_needed == pytest.approx(9600 / (0.05 * 20_000))
    # A quarter of the calls since bsd's arrival, as dear as the next one, and ten.
    following = 0.05 * 100_000 + 1.25 * 1000
    assert timing.calls_expected == pytest.approx(10 + 1_000_000 / following / 4)


def test_the_lifetime_that_the_usage_shows_has_its_own_price_of_a_write() -> None:
    assert timing_of(CUT, WARM, OPUS, "pays", HOUR).loss == pytest.approx((2.0 - 0.05) * 8000)
    # Without evidence the longest counts, with the dearest write.
    assert timing_of(CUT, WARM, OPUS, "pays").loss == pytest.approx((2.0 - 0.05) * 8000)


def test_without_a_price_a_warm_cut_waits_and_names_no_figure() -> None:
    nameless = replace(OPUS, lives=())
    for price in (None, nameless):
        assert decide(price=price) == Timing(Cause.WARM, CUT, COLD_AT)


def test_a_cut_waits_until_the_account_can_bear_it() -> None:
    assert decide(cache=replace(WARM, account=Account())).waits
    # The next request adds 9600 and saves 0.05 x 20,000; each counts a fifth to the worse.
    regret = 1.2 * 9600 - 0.8 * 1000
    enough = regret / 0.08 - 0.05 * 100_000
    assert decide(cache=replace(WARM, account=Account(enough + 1))).cause is Cause.PAYS
    assert decide(cache=replace(WARM, account=Account(enough - 1))).waits
    # What was saved before may be lost, and what was lost before is missing.
    for spent, saved, waits in (
        (0.0, 12_000.0, False),
        (0.0, 11_000.0, True),
        (2 * enough, -0.5 * enough, True),
    ):
        assert decide(cache=replace(WARM, account=Account(spent, saved))).waits is waits


def test_a_cut_waits_if_too_few_calls_are_expected() -> None:
    # 12,000 / (0.05 x 1000): 240 calls.
    assert decide(Cut(1000, 10_000)).waits
    patient = replace(WARM, account=Account(spent=240 * 4 * 6250.0))
    assert decide(Cut(1000, 10_000), patient).cause is Cause.PAYS


def test_nothing_that_must_be_rewritten_pays_at_once() -> None:
    assert decide(Cut(1000, 0), replace(WARM, account=Account())).cause is Cause.PAYS


@pytest.mark.parametrize(
    ("cut", "price"),
    [
        (Cut(0, 0), OPUS),
        (Cut(0, 10_000), OPUS),
        (CUT, replace(OPUS, read=0.0)),  # a request saves nothing, however small it is
    ],
)
def test_a_cut_that_saves_nothing_waits(cut: Cut, price: Price) -> None:
    timing = decide(cut, price=price)

    assert timing.waits
    assert timing.calls_needed == inf


def test_a_write_that_is_as_cheap_as_a_read_costs_nothing() -> None:
    free = replace(OPUS, read=0.5, lives=(CacheLife(MINUTES, 0.5),))
    timing = decide(price=free, cache=replace(WARM, account=Account()))

    assert (timing.cause, timing.loss) == (Cause.PAYS, 0)


def test_a_session_without_known_sizes_waits() -> None:
    assert decide(cache=CacheState(True, COLD_AT)).waits


def test_a_cut_that_gets_below_a_step_needs_no_account() -> None:
    above = CacheState(True, COLD_AT, context=101_500, growth=1000)
    timing = decide(cache=above, price=HAIKU)

    assert timing.cause is Cause.STEP
    assert decide(cache=above, price=HAIKU, when="cold").waits
    # It does not get below the step; it is below it.
    assert decide(cache=replace(above, context=130_000), price=HAIKU).waits
    assert decide(cache=replace(above, context=50_000), price=HAIKU).waits


def test_a_cut_before_a_step_that_may_come_needs_an_account() -> None:
    near = CacheState(True, COLD_AT, context=99_500, growth=1000)

    assert decide(cache=near, price=HAIKU).waits
    assert decide(cache=replace(near, context=100_500), price=HAIKU).waits
    rich = replace(near, account=Account(spent=200_000.0))
    assert decide(cache=rich, price=HAIKU).cause is Cause.STEP


def test_a_cut_before_a_step_that_many_calls_must_earn_needs_an_account() -> None:
    gpt = Price(2.0, 10.0, 0.05, (CacheLife(HALF_A_DAY, 2.5),), (PriceStep(272_000, 2.0, 1.5),))
    cut = Cut(20_000, 240_000)
    near = CacheState(True, COLD_AT, context=273_500, growth=1000)

    assert timing_of(cut, near, gpt, "pays").waits
    account = Account(spent=10_000_000.0)
    assert timing_of(cut, replace(near, account=account), gpt, "pays").cause is Cause.STEP


def test_of_several_cuts_the_most_profitable_is_made() -> None:
    whole, part, newest = Cut(30_000, 60_000), Cut(10_000, 2000), Cut(1000, 300)
    cuts = (whole, part, newest)

    def best(account: Account, when: str = "pays") -> Timing:
        return best_timing(cuts, replace(WARM, account=account), OPUS, when, MINUTES)

    assert best(Account()).cut is newest
    assert best(Account(saved=-10_000.0)).waits
    assert best(Account(saved=-10_000.0)).cut is whole  # the figures are those of all values
    assert best(Account(spent=40_000.0)).cut is part
    assert best(Account(spent=2_000_000.0)).cut is whole
    assert best(RICH, "now").cut is whole
    assert best(RICH, "cold").cut is whole
    cold = replace(WARM, cold_at=None)
    assert best_timing(cuts, cold, OPUS, "pays").cut is whole


@dataclass
class Replayed:
    """A session whose requests are charged with and without bsd, after which values become due.

    `error` is the factor by which the estimates of tokens are wrong.
    """

    read: float
    write: float
    life: float
    error: float
    context: float = 0.0  # tokens of the newest request without bsd
    values: list[tuple[float, float]] = field(default_factory=list)  # place, tokens; in context
    away: list[tuple[float, float]] = field(default_factory=list)
    cost: float = 0.0
    never: float = 0.0
    account: Account = field(default_factory=Account)
    cuts: int = 0

    def look(self, fresh: int, growth: int) -> float:
        """Let the rule decide about the due values; return the tokens that are rewritten."""
        price = Price(1.0, 5.0, self.read, (CacheLife(self.life, self.write),))
        starts = [0, *range(max(1, len(self.values) - fresh), len(self.values))]
        offers = [Cut(*(round(self.error * size) for size in self._sizes(at))) for at in starts]
        context = round(self.context - self._away_after(-1))
        state = CacheState(True, COLD_AT, context, growth, account=self.account)
        timing = best_timing(offers, state, price, "pays", self.life)
        if timing.waits:
            return 0.0
        start = next(at for at, cut in zip(starts, offers, strict=True) if cut is timing.cut)
        _, rewritten = self._sizes(start)
        self.leave(start)
        self.cuts += 1
        loss = (self.write - self.read) * self.error * rewritten
        self.account = replace(self.account, saved=self.account.saved - loss)
        return rewritten

    def _sizes(self, start: int) -> tuple[float, float]:
        """Return the tokens that leave, and those that are rewritten."""
        place = self.values[start][0]
        removed = sum(tokens for _, tokens in self.values[start:])
        return removed, max(0.0, self.context - place - removed - self._away_after(place))

    def _away_after(self, place: float) -> float:
        return sum(tokens for at, tokens in self.away if at > place)

    def leave(self, start: int = 0) -> None:
        self.away += self.values[start:]
        del self.values[start:]

    def request(self, size: float, rewritten: float, *, cold: bool) -> None:
        """Charge the next request, which without bsd has `size` tokens."""
        rate = self.write if cold else self.read
        removed = self._away_after(-1)
        never = rate * self.context + self.write * (size - self.context)
        cost = never - rate * removed + (self.write - self.read) * rewritten
        self.never += never
        self.cost += cost
        saved = self.account.saved + rate * removed * self.error
        self.account = Account(self.account.spent + cost, saved)
        self.context = size


def grown(
    chance: random.Random, size: float, values: int
) -> tuple[float, list[tuple[float, float]]]:
    """Append values and other text to `size` tokens; return the new size and the values."""
    added = []
    for _ in range(values):
        size += chance.choice((10.0, chance.expovariate(1 / 3000)))
        tokens = chance.choice((200.0, chance.expovariate(1 / 3000)))
        added.append((size, tokens))
        size += tokens
    return size + chance.choice((0.0, 50.0, chance.expovariate(1 / 1000))), added


def play(seed: int, error: float) -> Replayed:
    """Play a random session; check the bound after each request."""
    chance = random.Random(seed)
    read, write, life = chance.choice(ROWS)
    session = Replayed(read, write, life, error)
    # Values from the time before bsd's arrival are due.
    session.context, session.values = grown(chance, 2000.0, chance.randrange(30))
    pause, fresh = chance.choice((0.0, 0.01, 0.1)), 0
    for _ in range(chance.randrange(1, 150)):
        rewritten = 0.0
        cold = chance.random() < pause
        if cold:
            session.leave()
        elif session.values:
            rewritten = session.look(fresh, chance.choice((0, 1000, 30_000)))
        fresh = chance.choice((0, 0, 1, 1, 2, 5))
        size, added = grown(chance, session.context, fresh)
        session.request(size, rewritten, cold=cold)
        session.values += added
        assert session.cost <= BOUND * session.never, (seed, error)
        if chance.random() < 0.01:  # a compaction
            session.context /= 10
            session.values, session.away, fresh = [], [], 0
    return session


def test_no_session_costs_more_than_a_tenth_above_changing_nothing_wherever_it_ends() -> None:
    played = [play(seed, error) for seed in range(100) for error in (1.0, 0.8, 1.2)]

    assert sum(session.cuts for session in played) > 500  # the rule does cut
    assert sum(s.cost for s in played) < 0.9 * sum(s.never for s in played)
