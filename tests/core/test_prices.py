"""Prices of models: the shipped rows, dates, steps, peak hours, and names that no row fits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bsd.core.prices import (
    CacheLife,
    Price,
    PriceStep,
    PriceTable,
    life_seconds_of,
    price_of,
    price_rows,
    shipped_prices,
)

MINUTE, HOUR, DAY = 60, 3600, 86_400


def moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOW = moment("2026-11-26T12:00")


def shipped(model: str | None, provider: str | None = None, at: float = NOW) -> Price | None:
    return price_of(shipped_prices(), provider, model, at)


def money(price: Price | None) -> tuple[float, float, float] | None:
    return (price.input, price.output, price.read) if price else None


# --- the shipped rows ---


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-fable-5-1", (10, 50, 0.025)),
        ("claude-fable-5", (10, 50, 0.1)),
        ("claude-opus-5-5", (4, 20, 0.05)),
        ("Claude-Opus-5-5[1m]", (4, 20, 0.05)),
        ("claude-opus-4-5-20251101", (5, 25, 0.1)),
        ("claude-opus-4-1-20250805", (15, 75, 0.1)),
        ("claude-opus-4-20250514", (15, 75, 0.1)),
        ("claude-sonnet-4-5-20250929", (3, 15, 0.1)),
        ("claude-haiku-5-5", (0.1, 0.5, 0.1)),
        ("gpt-6.2-sol", (2, 10, 0.05)),
        ("gpt-6-astra", (10, 50, 0.1)),
        ("gpt-5-codex", (1.25, 10, 0.1)),
        ("gpt-5.2", (1.75, 14, 0.1)),
        ("gpt-5.4-2026-03-05", (2.5, 15, 0.1)),
        # Other prices than the model after which they are named, so none is known.
        ("claude-opus-4-6-fast", None),
        ("gpt-5.4-pro", None),
        ("gpt-6.2-sol-ultrafast", None),
        # A cloud sells the model, at its own prices.
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", None),
        ("claude-sonnet-4-5@20250929", None),
        ("claude-opus-6", None),
        ("kimi-code", None),
        ("", None),
        (None, None),
    ],
)
def test_published_price(model: str | None, expected: tuple[float, float, float] | None) -> None:
    assert money(shipped(model)) == expected


@pytest.mark.parametrize(
    ("provider", "is_known"),
    [(None, True), ("", True), ("anthropic", True), ("Anthropic", True), ("a-relay", False)],
)
def test_another_provider_may_have_other_prices(provider: str | None, is_known: bool) -> None:
    assert (shipped("claude-opus-5", provider) is not None) is is_known


@pytest.mark.parametrize(
    ("day", "read"),
    [("2026-09-28", 0.1), ("2026-10-06T23:59:59", 0.1), ("2026-10-07", 0.05), ("2030-01-01", 0.05)],
)
def test_a_price_applies_from_its_date_on(day: str, read: float) -> None:
    price = shipped("claude-sonnet-5-5", at=moment(day))
    assert price is not None
    assert price.read == read


@pytest.mark.parametrize(
    ("day", "input_"),
    [("2026-08-20", 5), ("2026-08-21", 4), ("2026-11-21T23:59:59", 4), ("2026-11-22", None)],
)
def test_a_price_whose_end_is_known_applies_until_then(day: str, input_: float | None) -> None:
    price = shipped("gpt-5.6", at=moment(day))
    assert (price.input if price else None) == input_
    assert life_seconds_of(shipped_prices(), None, "gpt-5.6", moment(day)) == 30 * MINUTE


def test_no_price_before_the_first_date() -> None:
    assert shipped("claude-sonnet-5-5", at=moment("2026-09-27T23:59:59")) is None
    assert shipped("claude-sonnet-5-5", at=float("nan")) is None


def test_steps() -> None:
    haiku, sol = shipped("claude-haiku-5-5"), shipped("gpt-6.1-sol")
    assert haiku is not None
    assert sol is not None
    assert haiku.step(100_000) is None
    assert haiku.step(100_001) == PriceStep(100_000, 5, 5)
    assert sol.step(300_000) == PriceStep(272_000, 2, 1.5)


@pytest.mark.parametrize(
    ("time", "factor"),
    [
        ("2026-11-26T00:59:59", 1),
        ("2026-11-26T01:00", 2),
        ("2026-11-26T04:00", 1),
        ("2026-11-26T09:59:59", 2),
        ("2026-11-26T10:00", 1),
        ("2026-11-28T09:00", 1),  # Saturday
        ("2026-11-29T09:00", 1),
        ("2026-11-30T09:00", 2),
    ],
)
def test_peak_hours(time: str, factor: float) -> None:
    price = shipped("deepseek-flash", "deepseek")
    assert price is not None
    charged = price.charged_at(moment(time))
    assert (charged.input, charged.output) == (0.15 * factor, 0.6 * factor)
    assert charged.read == price.read  # relative to input


@pytest.mark.parametrize(
    ("provider", "model", "seconds"),
    [
        (None, "claude-opus-4-6", HOUR),
        ("a-relay", "anthropic/claude-opus-9", HOUR),
        (None, "gpt-6.2-sol", 12 * HOUR),
        (None, "gpt-6-luna", 30 * MINUTE),
        ("openrouter", "openai/gpt-5.10-codex", 30 * MINUTE),
        (None, "gpt-5.5", DAY),
        (None, "openai/o3", DAY),
        (None, "gemini-2.5-pro", None),
        ("deepseek", "deepseek-flash", None),
        (None, "kimi-code", None),
    ],
)
def test_longest_life(provider: str | None, model: str, seconds: float | None) -> None:
    assert life_seconds_of(shipped_prices(), provider, model, NOW) == seconds


def test_every_shipped_row_is_sound() -> None:
    for row in shipped_prices().shipped:
        assert row.price or row.lives
        assert list(row.lives) == sorted(row.lives, key=lambda life: life.seconds)
        if price := row.price:
            assert 0 < price.read < 1
            assert 0 < price.input < price.output < 1000
            assert price.source
            assert price.date >= price.valid_from
            assert row.since < row.until
            assert list(price.steps) == sorted(price.steps, key=lambda step: step.above)
            assert all(0 <= peak.begin < peak.end <= 24 for peak in price.peaks)


# --- rows in any order ---


def test_of_rows_with_the_same_expressions_the_latest_counts() -> None:
    rows: list[dict[str, Any]] = [
        {"model": "m.*", "input": n, "output": 9, "read": 1, "valid_from": f"2026-0{n}-01"}
        for n in (2, 3, 1)
    ]
    table = PriceTable(price_rows([*rows, {"model": "m1", "input": 7, "output": 9, "read": 1}]))
    found = [price_of(table, None, "m1", moment(f"2026-0{n}-15")) for n in (4, 2, 1)]
    assert [price and price.input for price in found] == [3, 2, 1]
    before = price_of(table, None, "m1", moment("2025-01-01"))
    assert before is not None
    assert before.input == 7


def test_the_life_that_applies() -> None:
    price = Price(1, 2, 0.1, (CacheLife(300, 1.25), CacheLife(HOUR, 2)))
    assert price.life(None) == CacheLife(HOUR, 2)
    assert price.life(310) == CacheLife(300, 1.25)
    assert Price(1, 2, 0.1, ()).life(None) is None
