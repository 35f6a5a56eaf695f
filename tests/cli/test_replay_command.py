"""`bsd replay` as people and programs call it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bsd.actions import replay as actions
from bsd.actions.context import ActionContext
from bsd.actions.replay_answers import ReplayedSetting, suggest
from bsd.cli.call import Call as Options
from bsd.core.config import PruningConfig
from bsd.core.errors import Invalid
from bsd.core.layout import SessionName
from bsd.planning.replay_settings import replay_grid
from bsd.planning.replay_sums import ReplayState, SessionSums, SettingSums
from tests.cli.conftest import Call, snapshot
from tests.openclaw_tree import add_session
from tests.session_files import sample

_LISTS = ("--keep-recent", "3,10", "--when", "pays,now")


@pytest.fixture
def ours(bsd: Call) -> Call:
    """A root without the session that bsd leaves alone."""
    (bsd.root / "agents/main/sessions/foreign.jsonl").unlink()
    return bsd


def test_the_document_of_a_replay(ours: Call) -> None:
    before = snapshot(ours.root)
    ended = ours("replay", *_LISTS, "--json")

    assert ended.code == 0
    document = ended.document
    assert (document["sessions"], "sample" in document) == (3, False)
    assert document["calls"] == sum(agent["calls"] for agent in document["agents"]) > 0
    assert {"input_tokens", "cost", "deviation"} <= document["recorded"].keys()
    assert document["recorded"]["input_tokens"] > 0
    settings = document["settings"]
    assert [(one["keep_recent"], one["when"], one["current"]) for one in settings] == [
        (3, "pays", True),
        (3, "now", False),
        (10, "pays", False),
        (10, "now", False),
    ]
    for one in settings:
        assert one["min_value_length"] == 500
        assert one["trigger_types"] == ["thinking", "tool_result"]
        assert one["tokens_share"] == round(one["tokens"] / document["without"]["tokens"], 4)
        assert one["cost_share"] == pytest.approx(one["cost"] / document["without"]["cost"], 1e-3)
        assert one["worst_cost_share"] >= one["cost_share"]
        assert one["cuts"] == sum(one["cuts_by_reason"].values())
        assert one["wanted_again"] <= one["left_values"]
    assert settings[1]["left_values"] >= settings[3]["left_values"] > 0
    assert snapshot(ours.root) == before


def test_the_table_for_people(bsd: Call) -> None:
    ended = bsd("replay", *_LISTS, "--suggest")

    assert ended.code == 0
    lines = ended.out.split("\n")
    assert lines[0].startswith("3 sessions, ")
    assert lines[1].startswith("Without bsd: ")
    assert lines[3].split()[:6] == ["KEEP", "MIN", "WHEN", "COST", "WORST", "TOKENS"]
    assert [line.split()[:3] for line in lines[4:8]] == [
        ["3", "500", "pays"],
        ["3", "500", "now"],
        ["10", "500", "pays"],
        ["10", "500", "now"],
    ]
    assert "The estimate of a call differs from the recorded tokens by" in ended.out
    assert "openclaw: keep_recent " in ended.out
    assert "main/foreign was left out: " in ended.err


@pytest.mark.parametrize(
    ("lists", "field"),
    [
        (("--keep-recent", "3,x"), "keep_recent"),
        (("--min-value-length", "-1"), "min_value_length"),
        (("--trigger-types", "thinking+tool"), "trigger_types"),
        (("--when", "soon"), "when"),
    ],
)
def test_a_value_that_is_not_valid(bsd: Call, lists: tuple[str, ...], field: str) -> None:
    ended = bsd("replay", *lists)
    assert ended.code == 2
    assert ended.err.startswith(f"Error: {field}")
    assert f"\nTry: {field} " in ended.err


def test_missing_and_odd_sessions_stop_no_other(bsd: Call, tmp_path: Path) -> None:
    add_session(bsd.root, "main/odd", b'{"type":"session","version":3,"id":"s"}\n{broken\n')
    names = ("main/alpha", "main/nowhere", "main/foreign", "main/odd")
    ended = bsd("replay", *names)
    assert ended.code == 1
    assert ended.out.startswith("2 sessions, ")
    assert "main/nowhere was not played back: there is no session main/nowhere\nTry: " in ended.err
    assert "main/foreign was not played back: " in ended.err
    assert "Sessions without an answer of a model: 1" in ended.err
    assert "damaged lines (1)" in ended.err

    broken = tmp_path / "prices.json"
    broken.write_text("[]")
    ended = bsd("replay", "main/alpha", "--prices", str(broken))
    assert (ended.code, ended.out) == (69, "")
    assert f"the price list {broken} is not a JSON object" in ended.err


def test_a_model_without_a_price_has_tokens_and_no_money(ours: Call) -> None:
    lines = sample(turns=8).replace(b"claude-opus-4-5", b"model-of-nobody")
    add_session(ours.root, "main/unknown", lines)

    ended = ours("replay", "main/unknown", "--when", "now")
    assert "; no price is known" in ended.out
    assert "The prices of model-of-nobody are not known" in ended.err
    document = ours("replay", "main/unknown", "--when", "now", "--json").document
    [one] = document["settings"]
    assert (one["cost_share"], document["recorded"]["cost"]) == (None, None)
    assert one["tokens_share"] < 1

    prices = ours.root / "prices.json"
    row: dict[str, Any] = {"input_cost_per_token": 1e-6, "output_cost_per_token": 5e-6}
    row |= {"cache_read_input_token_cost": 1e-7, "litellm_provider": "anthropic"}
    prices.write_text(json.dumps({"model-of-nobody": row}))
    named = ours("replay", "main/unknown", "--when", "now", "--prices", str(prices), "--json")
    assert named.document["settings"][0]["cost_share"] < 1


def test_an_interrupt_ends_a_replay_with_the_sessions_so_far(
    ours: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = actions._play

    def interrupted(*arguments: Any, **more: Any) -> Any:
        played = play(*arguments, **more)
        signal.raise_signal(signal.SIGINT)
        return played

    monkeypatch.setattr(actions, "_play", interrupted)
    ended = ours("replay")
    assert ended.code == 130
    assert ended.out.startswith("1 session, ")
    assert "Stopped before all sessions were read." in ended.err


@pytest.fixture
def context(ours: Call) -> Iterator[ActionContext]:
    options = Options()
    options.root = str(ours.root)
    with options.context(changes=False) as context:
        yield context


def test_portions_together_are_the_whole(
    context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "_PORTION_SECONDS", 0.0)
    lists = {"when": "now"}
    whole = actions.replay(context, lists=lists)
    portion, count = actions.replay_in_portions(context, lists=lists), 1
    while portion.cursor is not None:
        count += 1
        portion = actions.replay_in_portions(context, lists=lists, cursor=portion.cursor)
    assert (count, portion.sessions, portion.calls) == (3, whole.sessions, whole.calls)
    assert portion.settings == whole.settings
    assert (portion.recorded, portion.agents) == (whole.recorded, whole.agents)
    assert portion.read == portion.total

    first = actions.replay_in_portions(context, lists=lists).cursor
    odd = [
        ReplayState(1, read=-5).dumps(),
        ReplayState(1, programs={"p": SessionSums([SettingSums(cost=1e308)])}).dumps(),
    ]
    for lists, cursor in (
        ({"when": "now,pays"}, first),
        *(({"when": "now"}, text) for text in ("no cursor", *odd)),
    ):
        with pytest.raises(Invalid, match="not a cursor"):
            actions.replay_in_portions(context, lists=lists, cursor=cursor)


def test_the_calls_of_a_session_are_what_its_sums_add_up(context: ActionContext) -> None:
    found = actions.replay_session(context, SessionName.parse("main/alpha"))

    calls = len(found.calls.lines)
    assert [one.sums.when for one in found.settings] == ["pays", "now", "cold"]
    for column in ("times", "models", "recorded", "tokens", "read", "cost", "cold"):
        assert len(getattr(found.calls, column)) == calls
    assert sum(found.calls.tokens) == pytest.approx(found.without.tokens, abs=calls)
    assert found.without.cost == pytest.approx(sum(filter(None, found.calls.cost)), abs=1e-4)
    now = found.settings[1]
    assert len(now.tokens) == len(now.cost) == calls
    assert now.sums.cuts == len(now.cuts) > 0
    assert sum(cut.values for cut in now.cuts) == now.sums.left_values
    assert all(0 < cut.call < calls and cut.text for cut in now.cuts)
    first = now.cuts[0].call
    assert now.tokens[:first] == found.calls.tokens[:first]
    assert now.tokens[first] < found.calls.tokens[first]


def test_a_suggestion_is_the_cheapest_setting_whose_values_are_rarely_wanted_again() -> None:
    grid = replay_grid(PruningConfig(), {"keep_recent": "3,10,20"})
    names = ("tokens", "read", "written", "rewritten_tokens", "left_tokens", "cuts")
    zeros: dict[str, Any] = dict.fromkeys((*names, "wanted_again_tokens"), 0)

    def suggested(
        *results: tuple[float, int], worst: float = 1.0
    ) -> tuple[int, tuple[str, ...], str]:
        settings = [
            ReplayedSetting(
                **asdict(setting),
                **zeros,
                cost=None,
                tokens_share=cost,
                cost_share=cost,
                worst_cost_share=worst if setting.keep_recent == 10 else 1.0,
                cuts_by_reason={},
                left_values=100,
                wanted_again=again,
                current=setting == grid.current,
            )
            for setting, (cost, again) in zip(grid.settings, results, strict=True)
        ]
        found = suggest(settings, grid)
        assert found is not None
        return found.setting.keep_recent, found.commands, found.reason

    take_10 = ("bsd config set keep_recent 10",)
    assert suggested((0.9, 0), (0.7, 9), (0.6, 11))[:2] == (10, take_10)
    assert suggested((0.705, 0), (0.7, 9), (0.6, 11))[:2] == (3, ())  # not worth a change
    number, commands, reason = suggested((0.5, 60), (0.7, 30), (0.8, 40))
    assert (number, commands) == (10, take_10)
    assert reason.startswith("Each setting has more than 10 % of its values wanted again")
    assert (
        suggested((0.9, 0), (0.7, 9), (0.6, 11), worst=1.2)[0] == 3
    )  # a session costs a fifth more
    assert suggest((), grid) is None
