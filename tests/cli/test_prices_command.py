"""`bsd prices`: the models of a root's sessions, one model, all rows, and the user's list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.core.layout import Layout
from bsd.store.search import SearchIndex
from tests.cli.conftest import Call


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the models that the search index knows, by session; a test fills it."""
    known: dict[str, str] = {}
    monkeypatch.setattr(SearchIndex, "models", lambda *_: known)
    return known


def prices(bsd: Call, *arguments: str) -> dict[str, dict[str, Any]]:
    answer = bsd("prices", *arguments, "--json")
    assert answer.code == 0, answer.err
    return {row["model"]: row for row in answer.document["prices"]}


def test_models_of_the_sessions(bsd: Call, models: dict[str, str]) -> None:
    bsd("search", "word")  # makes the index
    bsd("exclude", "main/beta")
    models |= {
        "main/alpha": json.dumps(["claude-opus-5-5[1m]", "own-model"]),
        "other/gamma": '["claude-opus-5-5[1m]"]',
        "main/beta": '["of-an-excluded-session"]',
        "main/delta": "",
    }
    found = prices(bsd)
    assert {name: row["sessions"] for name, row in found.items()} == {
        "claude-opus-5-5[1m]": 2,
        "own-model": 1,
    }
    opus, own = found.values()
    assert (opus["input"], opus["output"], opus["read"]) == (4, 20, 0.2)
    assert opus["lives"] == [{"seconds": 300, "write": 5}, {"seconds": 3600, "write": 8}]
    assert (own["input"], own["lives"], own["source"]) == (None, [], None)
    told = bsd("prices")
    assert "5.00 (5 min), 8.00 (1 h)" in told.out
    assert "unknown" in told.out
    assert "Try: add prices" in told.err
    assert len(prices(bsd, "--all")) > 20


def test_without_an_index_all_prices_are_shown(bsd: Call) -> None:
    assert not Layout(bsd.root).search_db.exists()
    assert prices(bsd) == prices(bsd, "--all")
    assert prices(bsd)["claude-sonnet-5[-.]5"]["valid_from"] == "2026-10-07"
    assert prices(bsd, "--at", "2026-10-06")["claude-sonnet-5[-.]5"]["read"] == 0.2


def test_one_model(bsd: Call) -> None:
    told = bsd("prices", "claude-haiku-5-5", "--at", "2026-11-20").out.splitlines()
    assert told == [
        "claude-haiku-5-5, US dollars for a million tokens, since 2026-10-07",
        "  input        0.10",
        "  output       0.50",
        "  cache read   0.01",
        "  cache write  0.125 (5 min), 0.20 (1 h)",
        "  step         above 100k tokens: input 0.50, output 2.50, read 0.05",
        "  provider     anthropic",
        "  source       platform.claude.com/docs/en/models/haiku-5-5/overview, 2026-11-20",
    ]


def test_peak_hours(bsd: Call) -> None:
    peak = prices(bsd, "deepseek-v4-pro", "--at", "2026-11-20T09:00Z")["deepseek-v4-pro"]
    calm = prices(bsd, "deepseek-v4-pro", "--at", "2026-11-20T11:00Z")["deepseek-v4-pro"]
    assert (peak["is_peak"], peak["input"], peak["read"]) == (True, 1.32, 0.044)
    assert (calm["is_peak"], calm["input"], calm["read"]) == (False, 0.66, 0.022)
    told = bsd("prices", "deepseek-v4-pro", "--at", "2026-11-20T09:00Z").out
    assert "in peak hours" in told
    assert "01–04 h UTC Mon–Fri: times 2" in told


@pytest.mark.parametrize(
    ("line", "told", "code"),
    [
        (("own-model",), "no price is known for 'own-model'", 1),
        (("x", "--at", "soon"), "'soon' is not a date", 2),
        (("x", "--at", "2026-02-30"), "'2026-02-30' is not a date", 2),
        (("x", "--all"), "all prices do not need a model", 2),
    ],
)
def test_refusals(bsd: Call, line: tuple[str, ...], told: str, code: int) -> None:
    ended = bsd("prices", *line)
    assert (ended.code, told in ended.err) == (code, True), ended.err
    assert "Try: " in ended.err


def test_a_price_that_another_provider_does_not_have(bsd: Call) -> None:
    ended = bsd("prices", "claude-opus-5", "--provider", "a-relay")
    assert ended.code == 0
    assert ended.out.startswith("No price is known for claude-opus-5.\n  cache lives  5 min, 1 h\n")


def test_the_users_list_and_rows(bsd: Call, tmp_path: Path) -> None:
    listed, settings = tmp_path / "prices.json", tmp_path / "bsd.toml"
    row = {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "litellm_provider": "a"}
    listed.write_text(json.dumps({"a/listed": row, "bad": row | {"litellm_provider": 1}}))
    settings.write_text(
        f'prices_file = "{listed}"\n[[prices]]\nmodel = "own"\ninput = 3\noutput = 4\nread = 0.5\n'
    )
    named = ("--config", str(settings))
    answer = bsd("prices", "listed", "--provider", "a", *named, "--json").document
    assert answer["prices"][0]["source"] == str(listed)
    state = {"path": str(listed), "models": 1, "skipped": 1, "problem": None}
    assert answer["price_list"] == state
    assert prices(bsd, "own", *named)["own"]["read"] == 1.5
    checks = bsd("doctor", *named, "--json").document["checks"]
    [check] = [check for check in checks if check["name"] == "prices"]
    assert check["level"] == "ok"
    assert "damaged rows, or rows that contradict themselves: 1" in check["message"]

    listed.write_text("[]")
    ended = bsd("prices", "own", *named)
    assert ended.code == 1
    assert f"the price list {listed} is not a JSON object" in ended.err
    assert "Try: name a copy of LiteLLM's" in ended.err
    [check] = [
        c for c in bsd("doctor", *named, "--json").document["checks"] if c["name"] == "prices"
    ]
    assert check["level"] == "warn"
