"""The user's list of prices in LiteLLM's form: its rows, damaged ones, and files that are wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bsd.core.price_list import PriceSources, read_price_list
from bsd.core.prices import (
    CacheLife,
    Price,
    PriceStep,
    life_seconds_of,
    price_of,
    price_rows,
    shipped_prices,
)

WRITTEN = 1_795_000_000.0  # in November 2026
EARLY_OCTOBER = 1_790_900_000.0
GPT = {
    "input_cost_per_token": 2e-06,
    "output_cost_per_token": 1e-05,
    "cache_read_input_token_cost": 2e-07,
    "cache_creation_input_token_cost": 2.5e-06,
    "input_cost_per_token_above_272k_tokens": 4e-06,
    "input_cost_per_token_above_272k_tokens_priority": 8e-06,
    "output_cost_per_token_above_272k_tokens": 1.5e-05,
    "cache_read_input_token_cost_above_272k_tokens": 4e-07,
    "litellm_provider": "openai",
}
PLAIN = {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "litellm_provider": "acme"}


def listed(path: Path, rows: dict[str, Any], *, also: dict[str, Any] | None = None) -> PriceSources:
    path.write_text(json.dumps(rows))
    os.utime(path, (WRITTEN, WRITTEN))
    return PriceSources(price_rows([also] if also else []), path)


def found(
    sources: PriceSources, model: str, provider: str | None = None, at: float = WRITTEN
) -> Price | None:
    return price_of(sources.table(), provider, model, at)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "prices.json"


def test_a_row_of_the_list(file: Path) -> None:
    price = found(listed(file, {"gpt-9-sol": GPT}), "GPT-9-Sol-2027-01-01", "openai-codex")
    assert price is not None
    assert (price.input, price.output, price.read) == (2, 10, 0.1)
    assert price.steps == (PriceStep(272_000, 2, 1.5),)
    assert (price.source, price.date) == (str(file), "2026-11-18")
    assert price.lives == (CacheLife(1800, 1.25),)  # the seconds are bsd's own


def test_writes_for_longer_lives(file: Path) -> None:
    write = {"cache_creation_input_token_cost_above_1hr": 5e-06}
    price = found(listed(file, {"claude-x": GPT | write}), "claude-x")
    assert price is not None
    assert price.lives == (CacheLife(300, 1.25), CacheLife(3600, 2.5))


def test_no_lives_are_made_up(file: Path) -> None:
    sources = listed(file, {"acme/own": PLAIN | {"cache_creation_input_token_cost": 1e-06}})
    price = found(sources, "own", "acme")
    assert price is not None
    assert (price.lives, price.read) == ((), 1)
    assert life_seconds_of(sources.table(), "acme", "own", WRITTEN) is None


@pytest.mark.parametrize(
    ("provider", "model", "is_found"),
    [
        ("acme", "own", True),
        ("ACME", "Own", True),
        ("another", "own", False),
        (None, "own", False),  # the list has the name only with its provider
        (None, "acme/own", True),
        ("google-vertex", "gem", True),
        ("google", "gem", False),
        ("amazon-bedrock", "cloud.claude", True),
    ],
)
def test_names_in_the_list(file: Path, provider: str | None, model: str, *, is_found: bool) -> None:
    rows = {
        "acme/own": PLAIN,
        "gem": PLAIN | {"litellm_provider": "vertex_ai-language-models"},
        "cloud.claude": PLAIN | {"litellm_provider": "bedrock_converse"},
    }
    assert (found(listed(file, rows), model, provider) is not None) is is_found


def test_precedence(file: Path) -> None:
    own = {"model": "gpt-6-luna", "input": 9, "output": 9, "read": 1, "valid_from": "2026-11-01"}
    sources = listed(file, {"gpt-6-luna": GPT, "gpt-6-sol": GPT}, also=own)
    shipped = shipped_prices()

    def inputs(model: str, at: float) -> list[float | None]:
        both = found(sources, model, at=at), price_of(shipped, None, model, at)
        return [price.input if price else None for price in both]

    assert inputs("gpt-6-luna", WRITTEN) == [9, 0.1]
    assert inputs("gpt-6-luna", EARLY_OCTOBER) == [2, 0.1]  # the list has no dates of its own
    assert inputs("gpt-6-astra", WRITTEN) == [10, 10]


def test_the_past_keeps_its_price(file: Path) -> None:
    sources = listed(file, {"claude-sonnet-5-5": GPT | {"litellm_provider": "anthropic"}})
    now, then = (found(sources, "claude-sonnet-5-5", at=at) for at in (WRITTEN, EARLY_OCTOBER))
    assert now is not None
    assert then is not None
    assert now.source == str(file)
    assert (then.read, then.valid_from) == (0.1, "2026-09-28")


def test_a_list_tells_no_peak_hours(file: Path) -> None:
    sources = listed(file, {"deepseek-flash": GPT | {"litellm_provider": "deepseek"}})
    price = found(sources, "deepseek-flash", "deepseek")
    assert price is not None
    assert price.peaks


@pytest.mark.parametrize(
    ("members", "is_damaged"),
    [
        ({"input_cost_per_token": -1e-06}, True),
        ({"input_cost_per_token": float("nan")}, True),
        ({"output_cost_per_token": float("inf")}, True),
        ({"input_cost_per_token": 1}, True),  # a million dollars
        ({"input_cost_per_token": 10**400}, True),
        ({"input_cost_per_token": "1e-06"}, True),
        ({"input_cost_per_token": True}, True),
        ({"litellm_provider": 3}, True),
        ({"cache_read_input_token_cost": 3e-06}, True),  # dearer than input
        ({"cache_creation_input_token_cost": 1e-03}, True),
        ({"cache_read_input_token_cost_above_272k_tokens": 2e-07}, True),  # a step of input alone
        ({"cache_read_input_token_cost_above_272k_tokens": None}, True),
        ({"input_cost_per_token": 0}, False),  # means that the price is unknown
        ({"output_cost_per_token": None}, False),
        ({"cache_read_input_token_cost": None, "supports_prompt_caching": True}, False),
        ({"tiered_pricing": [{}]}, False),
    ],
)
def test_rows_that_are_left_out(file: Path, members: dict[str, Any], *, is_damaged: bool) -> None:
    file.write_text(json.dumps({"gpt-9": GPT | members, "good": PLAIN}))
    prices = read_price_list(file)
    assert (list(prices.listed), prices.skipped) == (["good"], int(is_damaged))
    assert prices.problem is None
    assert found(PriceSources(file=file), "gpt-9") is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ("[1]", "is not a JSON object"),
        ("{}", "has no model with the members"),
        ('{"a": 3, "b": {"name": "B"}}', "has no model with the members"),
        ("\udc80", "is not valid JSON"),
    ],
)
def test_a_wrong_file_is_told_and_changes_no_price(file: Path, content: str, problem: str) -> None:
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    sources = PriceSources(file=file)
    prices = sources.table().price_list
    assert prices is not None
    assert prices.problem is not None
    assert problem in prices.problem
    assert str(file) in prices.problem
    assert found(sources, "gpt-6-luna") == price_of(shipped_prices(), None, "gpt-6-luna", WRITTEN)


def test_files_that_cannot_be_read(file: Path) -> None:
    for path in (file, file.parent):
        prices = PriceSources(file=path).table().price_list
        assert prices is not None
        assert f"reading the price list {path}" in (prices.problem or "")


def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(file: Path) -> None:
    sources = PriceSources(file=file)
    assert found(sources, "acme/own") is None
    listed(file, {"acme/own": PLAIN})
    table = sources.table()
    assert found(sources, "acme/own") is not None
    assert sources.table() is table
    listed(file, {"acme/own": PLAIN | {"input_cost_per_token": 5e-06}})
    price = found(sources, "acme/own")
    assert price is not None
    assert price.input == 5


def test_without_settings_the_shipped_table_applies() -> None:
    assert PriceSources().table() is shipped_prices()
