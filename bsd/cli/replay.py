"""`bsd replay`: plays recorded sessions back under other settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from bsd.actions.replay import replay as replay_sessions
from bsd.actions.replay_answers import Replay, ReplayedSetting, ReplaySums
from bsd.cli.call import BsdCommand, Call
from bsd.cli.options import sessions_argument
from bsd.cli.output import counted, note, print_table, say, say_wrapped, size
from bsd.cli.problem import Problem
from bsd.cli.sessions import short_tokens
from bsd.core.errors import LeftAlone, NotFound, Unavailable
from bsd.core.layout import SessionName
from bsd.core.price_list import PriceSources, problem_of, read_price_list
from bsd.planning.replay_settings import ReplaySetting
from bsd.planning.timing_words import SHORT_REASONS

_MOST_LEFT_OUT = 3  # sessions of a sample that are named, with the reason


@click.command("replay", cls=BsdCommand)
@sessions_argument
@click.option(
    "--keep-recent", default="", metavar="N,N", help="Numbers of newest messages that stay whole."
)
@click.option(
    "--min-value-length", default="", metavar="N,N", help="Characters; shorter values stay."
)
@click.option(
    "--trigger-types",
    default="",
    metavar="T+T,T",
    help="Types of values that leave; + joins types: thinking+tool_result,tool_result.",
)
@click.option("--when", default="", metavar="W,W", help="pays, now or cold.")
@click.option(
    "--prices",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Prices in the form of LiteLLM's model_prices_and_context_window.json.",
)
@click.option(
    "--all", "everything", is_flag=True, help="All sessions, instead of a sample of 256 MB."
)
@click.option(
    "--suggest", is_flag=True, help="Name the settings with the lowest cost, for each agent."
)
@click.pass_obj
def replay_command(
    call: Call,
    /,
    *,
    sessions: tuple[SessionName, ...],
    keep_recent: str,
    min_value_length: str,
    trigger_types: str,
    when: str,
    prices: Path | None,
    everything: bool,
    suggest: bool,
) -> int:
    """Play recorded sessions back under other settings.

    For each combination of the listed settings, shows what the calls of the sessions would have
    sent and cost, and how often text that had left was wanted again: by the same call with the same
    arguments, or by a quotation of at least 40 characters. A setting without a list has its value
    in force; without any list, the values of `when` are compared.

    Without names, a sample of all sessions is read: the newest and the largest of each agent.
    Nothing is changed, and no model is used. Ctrl-C ends it with the sessions so far.

    COST and TOKENS are relative to no bsd; WORST is the COST of the session in which it is highest.
    LEFT is the number of values that left; AGAIN is how many of them were wanted again, and their
    share of the tokens that left.

    Costs are those of input: input tokens, cache reads and cache writes, by the prices of `bsd
    prices` at the time of each call. Token counts are estimates; the deviation from the tokens that
    the programs recorded is shown below the table.

    \b
    Examples:
      bsd replay
      bsd replay main/4f2a --keep-recent 3,10,20 --when pays,now
      bsd replay --min-value-length 500,2000 --trigger-types thinking+tool_result,tool_result
      bsd replay --suggest
      bsd replay --json | jq '.settings[] | {keep_recent, when, cost_share}'
    """
    lists = {
        "keep_recent": keep_recent,
        "min_value_length": min_value_length,
        "trigger_types": trigger_types,
        "when": when,
    }
    with call.context(changes=False, ends_early=True) as context:
        sources = _price_sources(context.prices, prices)
        answer = replay_sessions(
            replace(context, prices=sources),
            sessions,
            lists=lists,
            everything=everything,
            suggest=suggest,
        )
    call.answer(answer, tell_replay)
    return _tell_left_out(answer, named=bool(sessions))


def _price_sources(known: PriceSources, file: Path | None) -> PriceSources:
    """Return the prices with another price list; raises Unavailable if it cannot be used."""
    if file is None:
        return known
    if problem := problem_of(read_price_list(file)):
        hint = "name a copy of LiteLLM's model_prices_and_context_window.json"
        raise Unavailable(problem.message, hint=hint)
    return replace(known, file=file)


def tell_replay(answer: Replay) -> None:
    found = f"{counted(answer.sessions, 'session')}, {counted(answer.calls, 'call')}"
    if answer.sample is not None:
        sample = answer.sample
        found += (
            f"; a sample of {size(sample.bytes)}: the newest and the largest of "
            f"{counted(sample.all_sessions, 'session')} ({size(sample.all_bytes)}). "
            "--all reads all of them"
        )
    say_wrapped(found)
    if answer.calls:
        say_wrapped(_without(answer))
        say()
        print_settings(answer.settings)
        say()
        say_wrapped(_deviation(answer))
        _tell_suggestions(answer)
    for text in answer.notes:
        note(text)
    if answer.stopped:
        note("Stopped before all sessions were read.")


def _tell_left_out(answer: Replay, *, named: bool) -> int:
    """Report sessions that were not played back; return the exit code.

    In a sample, it is no error that bsd leaves a session alone, or that its program has deleted it.
    """
    code, others = 0, 0
    for left in answer.left_out:
        problem = left.problem
        if problem is None or (not named and isinstance(problem, LeftAlone | NotFound)):
            others += 1
            if others <= _MOST_LEFT_OUT:
                note(f"{left.session} was left out: {left.reason}")
            continue
        text = f"{left.session} was not played back: {left.reason}"
        Problem(text, problem.exit_code, problem.hint).show()
        code = code or problem.exit_code
    if others > _MOST_LEFT_OUT:
        note(
            f"{others - _MOST_LEFT_OUT:,} further sessions were left out: `bsd sessions` tells why"
        )
    return code


def _without(answer: Replay) -> str:
    """Return what was sent without bsd."""
    text = f"Without bsd: {short_tokens(answer.without.tokens)} of input"
    if answer.without.cost is None:
        return f"{text}; no price is known"
    is_part = answer.priced_calls < answer.calls
    of = f" for {answer.priced_calls:,} of the calls" if is_part else ""
    return f"{text}, {dollars(answer.without.cost)}{of}"


def print_settings(settings: Sequence[ReplayedSetting]) -> None:
    """Print a table of settings and their results; settings that are all the same are left out."""
    varies = {
        name
        for name in ("keep_recent", "min_value_length", "trigger_types", "when")
        if len({getattr(one, name) for one in settings}) > 1
    }
    columns: dict[str, list[str]] = {
        "KEEP": [str(one.keep_recent) for one in settings],
        "MIN": [f"{one.min_value_length:,}" for one in settings],
        "WHEN": [one.when for one in settings],
        "COST": [percent(one.cost_share) for one in settings],
        "WORST": [percent(one.worst_cost_share) for one in settings],
        "TOKENS": [percent(one.tokens_share) for one in settings],
        "CUTS": [f"{one.cuts:,}" for one in settings],
        "LEFT": [f"{one.left_values:,}" for one in settings],
        "AGAIN": [_again(one) for one in settings],
        "IN FORCE": ["yes" if one.current else "" for one in settings],
        "REASONS": [_reasons(one) for one in settings],
        "TYPES": ["+".join(one.trigger_types) for one in settings],
    }
    names = {"KEEP": "keep_recent", "MIN": "min_value_length", "TYPES": "trigger_types"}
    shown = {
        title: cells
        for title, cells in columns.items()
        if names.get(title, "when") in varies or title != "TYPES"
    }
    print_table(
        tuple(shown),
        list(zip(*shown.values(), strict=True)),
        right=("KEEP", "MIN", "COST", "WORST", "TOKENS", "CUTS", "LEFT", "AGAIN"),
        spare=("REASONS", "CUTS", "LEFT"),
        wraps=("TYPES", "REASONS"),
    )


def percent(part: float | None) -> str:
    """Format a share of what was sent without bsd: `78.3 %`, or `?`."""
    return "?" if part is None else f"{part * 100:.1f} %"


def dollars(amount: float) -> str:
    """Format an amount: `$12.40`, or `$0.0012`."""
    return f"${amount:,.2f}" if amount >= 0.1 or amount == 0 else f"${amount:.4f}"


def _again(one: ReplayedSetting) -> str:
    """Return how many values were wanted again, and their share of the tokens that left."""
    if not one.wanted_again:
        return "0"
    part = one.wanted_again_tokens / one.left_tokens if one.left_tokens else 0.0
    return f"{one.wanted_again:,} ({part * 100:.1f} %)"


def _reasons(one: ReplayedSetting) -> str:
    words = {cause.value: text for cause, text in SHORT_REASONS.items()}
    return ", ".join(f"{count:,} {words[name]}" for name, count in one.cuts_by_reason.items())


def _deviation(answer: ReplaySums) -> str:
    """Return how far the estimate lies from the recorded tokens."""
    recorded = answer.recorded
    if recorded.deviation is None:
        return "The sessions record no tokens: how good the estimate is cannot be told."
    cost = "" if recorded.cost is None else f", {dollars(recorded.cost)} by the same prices"
    return (
        f"Recorded: {short_tokens(recorded.input_tokens)} of input in {recorded.calls:,} calls"
        f"{cost}. The estimate of a call differs from the recorded tokens by"
        f" {recorded.deviation * 100:.1f} % (median)."
    )


def _tell_suggestions(answer: Replay) -> None:
    if answer.suggestion is None and not any(agent.suggestion for agent in answer.agents):
        return
    say()
    told: list[tuple[str, ReplaySums]] = [(agent.agent, agent) for agent in answer.agents]
    if len(told) > 1:
        told.append(("all agents together", answer))
    for name, sums in told:
        found = sums.suggestion
        if found is None:
            say_wrapped(f"{name}: under none of these settings a value leaves.")
            continue
        worst = f"worst session {percent(found.worst_cost_share)}"
        by = f"cost {percent(found.cost_share)} ({worst}), " if found.cost_share is not None else ""
        say_wrapped(
            f"{name}: {setting_text(found.setting)}: {by}tokens {percent(found.tokens_share)},"
            f" wanted again {percent(found.wanted_again_share)} of the values. {found.reason}."
        )
        for command in found.commands:
            say(f"  {command}")
    if len(answer.agents) > 1:
        say_wrapped("The settings hold for all agents of this root.")


def setting_text(setting: ReplaySetting) -> str:
    """Return a setting in words."""
    return (
        f"keep_recent {setting.keep_recent}, min_value_length {setting.min_value_length:,}, "
        f"{'+'.join(setting.trigger_types) or 'no types'}, when {setting.when}"
    )
