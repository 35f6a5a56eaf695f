"""Cuts by the rule: the requests of a session, what they have cost, and what an append reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bsd.core.prices import Price
from bsd.planning.extract import plan_extraction
from bsd.planning.plan import Plan
from bsd.planning.prompt_cache import PromptCache
from bsd.planning.timing import CacheState, Cause
from bsd.store.state import Accounted, CacheSeen
from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.reader import BytesTranscript, Line
from tests.planning.in_memory import NOW, Session, config
from tests.planning.test_prompt_cache import time_of
from tests.session_files import HEADER, jsonl
from tests.transcripts.agents.sources.claude_code import claude_code_line

MINUTE, HOUR = 60.0, 3600.0
MODEL = "claude-opus-4-6"  # read 0.1, write 1.25 for 5 minutes and 2 for an hour; $5
RESULT = "r" * 4000
SEEN = ("anthropic", MODEL)


class Gateway:
    """Writes a session as a gateway does: each answer has the usage that its provider charges."""

    def __init__(self, *, life: float = 300.0, system: int = 20_000) -> None:
        self.session = Session(jsonl(HEADER))
        self.now = NOW
        self.prompt = system  # tokens
        self.entries = 0
        self._life = life
        self._cached, self._used = 0, 0.0
        self._who = SEEN

    def entry(self, role: str, content: Any, **more: Any) -> dict[str, Any]:
        """Write a message with a text or blocks."""
        parent = f"e{self.entries - 1}" if self.entries else None
        message = {"role": role, "content": content, **more}
        line: dict[str, Any] = {"type": "message", "id": f"e{self.entries}", "parentId": parent}
        line |= {"timestamp": time_of(self.now), "message": message}
        self.entries += 1
        self.session.raw += jsonl(line)
        return line

    def call(self, wait: float = 10.0, *, result: str = RESULT, who: Any = None) -> None:
        """Write an answer that calls a tool, and its result."""
        self.now += wait
        is_warm = self.now - self._used <= self._life and (who or SEEN) == self._who
        read = min(self._cached, self.prompt) if is_warm else 0
        self._who = who or SEEN
        provider, model = self._who
        written = self.prompt - read
        usage = {"input": 0, "output": 100, "cacheRead": read, "cacheWrite": written}
        usage["cacheWrite1h"] = written if self._life > 300 else 0
        block = {"type": "toolCall", "id": f"c{self.entries}", "name": "read", "arguments": {}}
        about = {"usage": usage, "provider": provider, "model": model, "stopReason": "toolUse"}
        self.entry("assistant", [block], **about)
        self._cached, self._used = self.prompt, self.now
        text = [{"type": "text", "text": result}]
        self.entry("toolResult", text, toolCallId=block["id"], toolName="read")
        self.prompt += 100 + len(result) // 4

    def turn(self, calls: int = 1, wait: float = 10.0, **more: Any) -> None:
        """Write a prompt, calls, and the answer that ends the turn."""
        self.entry("user", "go on")
        for number in range(calls):
            self.call(wait if number == 0 else 10.0, **more)
        usage = {"input": 0, "output": 10, "cacheRead": self._cached, "cacheWrite": 0}
        usage["cacheWrite"] = self.prompt - self._cached
        usage["cacheWrite1h"] = usage["cacheWrite"] if self._life > 300 else 0
        self.now += 1
        provider, model = self._who
        about = {"usage": usage, "provider": provider, "model": model, "stopReason": "stop"}
        self.entry("assistant", [{"type": "text", "text": "done"}], **about)
        self._cached = self.prompt

    def plan(self, before: Plan | None = None, wait: float = 3.0, **fields: Any) -> Plan:
        """Plan after some quiet seconds, and carry the plan out."""
        plan = plan_extraction(
            Reading(self.session.raw),
            OPENCLAW,
            config(**fields),
            self.now + wait,
            self.session.shelf,
            since=before.checkpoint if before else None,
            further=before.further if before else None,
            accounted=before.accounted if before else None,
            waits=True,
        )
        self.session.carry_out(plan)
        if plan.edits and plan.timing:
            self.prompt -= plan.timing.cut.removed
            self._cached = min(self._cached, self.prompt - plan.timing.cut.rewritten)
        return plan


class Reading(BytesTranscript):
    """A transcript that counts the bytes that are read of it."""

    count = 0

    def lines(self, start: int = 0, first_index: int = 0) -> Iterator[Line]:
        for line in super().lines(start, first_index):
            Reading.count += len(line.raw)
            yield line

    def read(self, offset: int, length: int) -> bytes:
        Reading.count += length
        return super().read(offset, length)


# --- an append costs the append ---


def test_an_append_to_a_session_with_waiting_values_costs_the_append() -> None:
    gateway = Gateway(life=HOUR)
    gateway.turn(40)
    plan = gateway.plan(when="cold")
    whole = len(gateway.session.raw)
    assert plan.timing is not None
    assert plan.timing.cause is Cause.WARM
    assert plan.checkpoint is not None
    assert plan.further is not None
    assert plan.further.index - plan.checkpoint.index > 70
    ready = plan.report.tokens_ready
    for _ in range(3):
        before = len(gateway.session.raw)
        gateway.turn(2)
        Reading.count = 0
        plan = gateway.plan(plan, when="cold")
        # The last turn is read again, since its values were too recent to be judged for good.
        assert Reading.count < 4 * (len(gateway.session.raw) - before) < whole / 4
        assert plan.report.tokens_ready >= ready + 1500  # two results
        ready = plan.report.tokens_ready
    assert len(RESULT) * 45 < ready * 4

    gateway.now += HOUR
    cold = gateway.plan(plan, when="cold")
    assert cold.timing is not None
    assert (cold.timing.cause, cold.further) == (Cause.COLD, None)
    assert cold.report.tokens_saved == pytest.approx(ready, rel=0.01)
    assert gateway.session.raw.count(RESULT.encode()) <= 2
    assert plan.checkpoint is not None
    assert cold.checkpoint is not None
    assert cold.checkpoint.index > plan.checkpoint.index + 80


def test_a_compaction_after_waiting_values_takes_them_out_at_once() -> None:
    gateway = Gateway()
    gateway.turn(10)
    plan = gateway.plan()
    assert plan.further is not None
    compaction = {"type": "compaction", "id": f"e{gateway.entries}", "summary": "s"}
    compaction |= {"parentId": f"e{gateway.entries - 1}", "firstKeptEntryId": "e20"}
    gateway.session.raw += jsonl(compaction | {"timestamp": time_of(gateway.now)})
    gateway.entries += 1
    gateway.turn(1)
    after = gateway.plan(plan)
    assert after.report.entries >= 8
    assert after.due_at is None or after.report.tokens_ready < 3000


def test_the_newest_values_leave_alone_if_that_pays() -> None:
    """Much stands after the first value that waits, and little after the newest ones."""
    gateway = Gateway(system=5000)
    gateway.turn(3)
    plan = gateway.plan()
    for _ in range(120):
        gateway.turn(1, result="short")
    gateway.turn(1, result="x" * 60_000)
    plan = gateway.plan(plan)
    assert plan.timing is not None
    assert plan.timing.waits
    gateway.turn(1, result="short")
    plan = gateway.plan(plan)
    assert plan.report.partial, "only the end of the session was read"
    assert plan.timing is not None
    assert plan.timing.cause is Cause.PAYS
    assert plan.timing.cut.removed == pytest.approx(15_000, rel=0.01)
    assert plan.timing.cut.rewritten < 500
    assert gateway.session.raw.count(b"x" * 60_000) == 0
    assert gateway.session.raw.count(RESULT.encode()) == 3, "the first values wait"
    assert plan.further is not None
    assert plan.due_at == gateway.now + 300
    assert plan.report.tokens_ready > 2900
    gateway.now += 300
    last = gateway.plan(plan)
    assert gateway.session.raw.count(RESULT.encode()) == 0
    assert last.further is None


# --- the state of the cache ---


def state_of(
    gateway: Gateway, accounted: Accounted | None = None
) -> tuple[PromptCache, CacheState]:
    cache = PromptCache(None, None, accounted)
    for line in BytesTranscript(gateway.session.raw).lines():
        cache.follow(OPENCLAW.info(json.loads(line.raw)))
    return cache, cache.state(gateway.now, gateway.now)


def test_the_requests_of_a_run() -> None:
    gateway = Gateway()
    gateway.turn(5)
    cache, state = state_of(gateway)
    assert (state.in_use, cache.seen.calls) == (True, 6)
    assert state.cold_at == gateway.now + 300
    assert state.context == gateway.prompt + 10
    assert state.growth == 1100
    gateway.turn(1, wait=HOUR)
    cache, _ = state_of(gateway)
    assert cache.seen.calls == 2, "the run begins anew after the cache was cold"
    gateway.turn(1, wait=5, who=("openai", "gpt-6-sol"))
    cache, _ = state_of(gateway)
    assert cache.seen.calls == 2, "and with another model"
    price = cache.price(gateway.now)
    assert price is not None
    assert price.input == 2
    assert cache.life_seen(gateway.now) == 300


def test_an_answer_of_several_lines_counts_once() -> None:
    cache = PromptCache()
    for number, output in enumerate((1, 1, 90)):
        line = claude_code_line(number, "assistant", [{"type": "text", "text": "t"}])
        usage = {"input_tokens": 5, "cache_read_input_tokens": 900, "output_tokens": output}
        line["message"] |= {"id": "a", "usage": usage, "model": MODEL}
        cache.follow(CLAUDE_CODE.info(line | {"timestamp": time_of(NOW + number)}))
    state = cache.state(NOW, NOW)
    assert (cache.seen.calls, state.context) == (1, 995)


def test_a_missed_cache_shows_that_it_lives_shorter() -> None:
    gateway = Gateway(life=300)
    for wait in (10, 200, 600):
        gateway.turn(1, wait=wait)
    gateway.session.raw = gateway.session.raw.replace(b', "cacheWrite1h": 0', b"")
    cache, state = state_of(gateway)
    assert cache.life_seen(gateway.now) == 300, "an hour was assumed, and ten minutes were too long"
    assert state.cold_at == gateway.now + 300
    assert cache.seen.calls == 6, "the cache was not expected to be cold by then"


@pytest.mark.parametrize("ahead", [-3 * HOUR, 3 * HOUR])
def test_a_clock_that_jumps_gives_no_negative_figure_and_no_long_wait(ahead: float) -> None:
    gateway = Gateway()
    gateway.turn(2)
    plan = gateway.plan()
    gateway.now += ahead
    gateway.turn(2)
    now, gateway.now = gateway.now, max(NOW, gateway.now - ahead)
    for moment in (now, gateway.now):
        cache, state = state_of(gateway, plan.accounted)
        state = cache.state(moment, moment)
        assert state.cold_at is None or state.cold_at <= moment + 300
        assert min(state.context, state.growth) >= 0
        assert min(state.account.spent, state.account.without_bsd) >= 0


def test_what_stands_in_a_session_when_bsd_arrives_is_not_counted() -> None:
    gateway = Gateway()
    gateway.turn(5)
    plan = gateway.plan()
    assert plan.accounted == Accounted(until_ms=gateway.now * 1000)


def test_each_request_counts_once_and_with_what_a_cut_has_saved() -> None:
    gateway = Gateway()
    plan = gateway.plan()
    gateway.turn(5)
    plan = gateway.plan(plan, when="cold")
    assert plan.accounted is not None
    # 20,000 tokens are written, then each request reads what the one before it wrote.
    written = 20_000 + 5 * 1100
    read = sum(20_000 + 1100 * number for number in range(5))
    assert plan.accounted.spent == pytest.approx(5 * (1.25 * written + 0.1 * read))
    again = gateway.plan(replace(plan, checkpoint=None, further=None), when="cold")
    assert again.accounted == plan.accounted, "all lines were read again"

    gateway.now += HOUR
    cold = gateway.plan(plan, when="cold")
    assert cold.timing is not None
    assert cold.accounted is not None
    removed = cold.timing.cut.removed
    assert (cold.accounted.saved, cold.accounted.removed) == (0, removed)
    gateway.turn(2)
    plan = gateway.plan(cold, when="cold")
    assert plan.accounted is not None
    assert plan.accounted.saved == pytest.approx(5 * removed * (1.25 + 2 * 0.1)), "one came cold"
    assert plan.accounted.unseen == 0


def test_a_cut_in_a_warm_cache_costs_what_it_rewrites() -> None:
    gateway = Gateway()
    gateway.turn(10)
    plan = gateway.plan(when="now")
    gateway.turn(10)
    before = gateway.plan(plan, when="cold")
    by_hand = plan_extraction(
        gateway.session.source,
        OPENCLAW,
        config(),
        gateway.now + 3,
        gateway.session.shelf,
        accounted=before.accounted,
    )
    assert before.accounted is not None
    assert before.timing is not None
    assert by_hand.timing is not None
    assert by_hand.accounted is not None
    assert by_hand.timing.cause is Cause.ASKED
    assert by_hand.timing.cut.rewritten == pytest.approx(before.timing.cut.rewritten, abs=20)
    loss = 5 * (1.25 - 0.1) * by_hand.timing.cut.rewritten
    assert by_hand.accounted.saved == pytest.approx(before.accounted.saved - loss)
    assert by_hand.timing.dollars == pytest.approx(loss / 1e6)


def test_a_compaction_ends_the_savings_of_earlier_cuts() -> None:
    gateway = Gateway()
    gateway.turn(10)
    gateway.now += HOUR
    plan = gateway.plan(gateway.plan())
    seen = plan.accounted
    assert seen is not None
    cache = PromptCache(CacheSeen(), None, replace(seen, removed=500))
    line = {"type": "compaction", "id": "c", "parentId": "e0", "summary": "s"}
    line |= {"firstKeptEntryId": "e0", "timestamp": time_of(gateway.now + 5)}
    cache.follow(OPENCLAW.info(line))
    assert cache.accounted.removed == 0


def cut_in_the_cold() -> tuple[Gateway, Plan, int]:
    """A session after a cut in a cold cache, and the tokens that have left."""
    gateway = Gateway()
    gateway.turn(10)
    plan = gateway.plan()
    gateway.now += HOUR
    plan = gateway.plan(plan)
    assert plan.timing is not None
    assert plan.accounted is not None
    assert plan.accounted.removed == plan.timing.cut.removed > 5000
    return gateway, plan, plan.timing.cut.removed


def test_a_user_who_goes_back_ends_the_savings_of_earlier_cuts() -> None:
    gateway, plan, _ = cut_in_the_cold()
    gateway.turn(1)
    plan = gateway.plan(plan)
    assert plan.accounted is not None
    removed = plan.accounted.removed
    assert removed > 5000
    gateway.turn(2)
    plan = gateway.plan(plan, when="cold")
    assert plan.accounted is not None
    assert plan.accounted.removed == removed
    gateway.prompt -= 9000  # as after a return to an earlier entry
    gateway.turn(1)
    plan = gateway.plan(plan, when="cold")
    assert plan.accounted is not None
    assert plan.accounted.removed == 0


def test_without_a_price_tokens_are_counted_and_no_money() -> None:
    gateway = Gateway()
    plan = gateway.plan()
    gateway.turn(8, who=("home", "made-up-model"))
    plan = gateway.plan(plan)
    assert plan.timing is not None
    assert (plan.timing.cause, plan.timing.loss, plan.timing.dollars) == (Cause.WARM, None, None)
    assert plan.timing.cut.rewritten > 0
    assert plan.accounted is not None
    assert plan.accounted.spent == plan.accounted.saved == 0


def test_a_cut_before_a_price_step_does_not_wait() -> None:
    who = ("anthropic", "claude-haiku-5-5")
    gateway = Gateway(system=60_000)
    gateway.turn(38, who=who)
    plan = gateway.plan()
    assert plan.timing is not None
    price: Price | None = PromptCache(CacheSeen(model=who[1])).price(gateway.now)
    assert price is not None
    assert price.steps[0].above == 100_000
    assert plan.timing.cause is Cause.STEP


@pytest.mark.parametrize(("when", "cause"), [("now", Cause.ASKED), ("pays", Cause.NO_CACHE)])
def test_what_does_not_wait_says_why(when: str, cause: Cause) -> None:
    gateway = Gateway()
    gateway.turn(6)
    if cause is Cause.NO_CACHE:
        gateway.session.raw = gateway.session.raw.replace(b'"cache', b'"other')
    plan = gateway.plan(when=when)
    assert plan.timing is not None
    assert plan.timing.cause is cause
    assert plan.timing.cut.removed == plan.report.tokens_saved > 0
    assert plan.timing.loss is None if cause is Cause.NO_CACHE else plan.timing.loss
