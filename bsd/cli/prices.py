"""`bsd prices`: the prices of models that bsd uses."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from bsd.actions.prices import PriceInList, PricesAt, list_prices, models_in_sessions
from bsd.cli.call import BsdCommand, Call
from bsd.cli.completion import offering
from bsd.cli.output import counted, note, print_table, say, say_wrapped
from bsd.core.durations import spell_seconds
from bsd.core.prices import PeakHours

_WIDTH = 13  # columns before the text of a line
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@click.command("prices", cls=BsdCommand)
@click.argument(
    "model",
    required=False,
    metavar="[MODEL]",
    shell_complete=offering(lambda call, _: models_in_sessions(call.layout)),
)
@click.option("--provider", metavar="NAME", help="The provider of MODEL, as sessions name it.")
@click.option("--at", metavar="DATE", help="At a day (UTC) or time, as in 2026-10-07; default now.")
@click.option("--all", "every", is_flag=True, help="All known prices, not only of your models.")
@click.pass_obj
def prices_command(
    call: Call, /, model: str | None, provider: str | None, at: str | None, every: bool
) -> int:
    """Show what models cost, and since when.

    Lists the models that answered in your sessions, as far as the search index knows them. bsd uses
    these prices to tell what a change of a cached prompt costs, and never guesses one: a model
    without a price has no costs in dollars.

    bsd.toml can add prices (`[[prices]]`), and name a list in LiteLLM's form (`prices_file`). A
    provider that the prices do not name may charge other prices: such a session has none. Exit
    code 1 if the list cannot be used.

    \b
    Examples:
      bsd prices
      bsd prices claude-sonnet-5-5 --at 2026-10-01
      bsd prices --all
      bsd prices --json | jq '.prices[] | select(.input == null) | .model'
    """
    with call.context(changes=False) as context:
        answer = list_prices(context, model, provider=provider, at=at, every=every)
    call.answer(answer, _tell_model if model else _tell_prices)
    listed = answer.price_list
    if listed is not None and listed.problem is not None:
        note(f"bsd does not use the list of prices: {listed.problem}\nTry: {listed.hint}")
        return 1
    return 0


def _tell_prices(found: PricesAt) -> None:
    numbers = ("INPUT", "OUTPUT", "READ")
    columns: tuple[str, ...] = ("MODEL", "SESSIONS", *numbers, "WRITE", "SINCE", "ALSO")
    rows: list[tuple[str, ...]] = [
        (
            _readable(row.model),
            "" if row.sessions is None else f"{row.sessions:,}",
            "unknown" if row.input is None else _dollars(row.input) + "*" * row.is_peak,
            _dollars(row.output),
            _dollars(row.read),
            _writes(row),
            row.valid_from or "",
            "; ".join((*_steps(row), *_peaks(row))),
        )
        for row in found.prices
    ]
    if all(row.sessions is None for row in found.prices):
        columns, rows = _without(1, columns), [_without(1, row) for row in rows]
    print_table(
        columns,
        rows,
        right=("SESSIONS", *numbers),
        wraps=("WRITE", "ALSO"),
        spare=("SESSIONS", "SINCE"),
    )
    say()
    say_wrapped(
        f"{counted(len(rows), 'model')}, US dollars for a million tokens at {found.at[:16]}Z. "
        "READ: from the cache. WRITE: to the cache, and how long it lives after its last use."
    )
    if any(row.is_peak for row in found.prices):
        say("* in peak hours")
    _tell_list(found)
    if any(row.input is None and row.sessions for row in found.prices):
        note("Try: add prices that are unknown to [[prices]] in bsd.toml")


# Parts of the regular expressions of rows, and their form for people.
_EXPRESSIONS = (
    (r"\[(?:-\.|\.-)\]", "-"),
    (r"\[\.\]", "."),
    (r"\(\?:[^()]*\)\?|\(\?![^()]*\)", ""),
    (r"\(\?:", "("),
    (r"\.\*", "*"),
)


def _readable(model: str) -> str:
    """Return the names that a regular expression fits, in short; a plain name stays as it is."""
    for expression, text in _EXPRESSIONS:
        model = re.sub(expression, text, model)
    return model


def _without(number: int, row: tuple[str, ...]) -> tuple[str, ...]:
    return row[:number] + row[number + 1 :]


def _tell_list(found: PricesAt) -> None:
    listed = found.price_list
    if listed is None or listed.problem is not None:
        return
    skipped = f", {counted(listed.skipped, 'row')} cannot be used" if listed.skipped else ""
    say_wrapped(f"{listed.path} has {counted(listed.models, 'model')}{skipped}")


def _tell_model(found: PricesAt) -> None:
    [row] = found.prices
    since = f", since {row.valid_from}" if row.valid_from else ""
    since += f", until {row.valid_to}" if row.valid_to else ""
    if row.input is None:
        say_wrapped(f"No price is known for {row.model}.")
        _line("cache lives", _writes(row))
        say_wrapped("Try: add its price to [[prices]] in bsd.toml")
        return
    hours = " in peak hours" if row.is_peak else ""
    say_wrapped(f"{row.model}, US dollars for a million tokens{hours}{since}")
    _line("input", _dollars(row.input))
    _line("output", _dollars(row.output))
    _line("cache read", _dollars(row.read))
    _line("cache write", _writes(row) or "unknown: no lifetime is published")
    for step in _steps(row):
        _line("step", step)
    for peak in _peaks(row):
        _line("peak hours", peak)
    _line("provider", row.provider or "any")
    _line("source", ", ".join(filter(None, (row.source, row.source_date))))


def _line(name: str, text: str) -> None:
    say_wrapped(f"  {name:<{_WIDTH}}{text}", _WIDTH + 2)


def _dollars(amount: float | None) -> str:
    """Format dollars with two decimals, or more for small amounts."""
    if amount is None:
        return ""
    text = f"{amount:.6f}".rstrip("0")
    return text if len(text.partition(".")[2]) > 2 else f"{amount:,.2f}"


def _writes(row: PriceInList) -> str:
    return ", ".join(
        spell_seconds(life.seconds)
        if life.write is None
        else f"{_dollars(life.write)} ({spell_seconds(life.seconds)})"
        for life in row.lives
    )


def _steps(row: PriceInList) -> Iterator[str]:
    for step in row.steps:
        prices = f"input {_dollars(step.input)}, output {_dollars(step.output)}"
        yield f"above {step.above / 1000:g}k tokens: {prices}, read {_dollars(step.read)}"


def _peaks(row: PriceInList) -> Iterator[str]:
    for peak in row.peaks:
        yield f"{peak.begin:02}–{peak.end:02} h UTC{_days(peak)}: times {peak.factor:g}"


def _days(peak: PeakHours) -> str:
    """Return the days of peak hours, such as ` Mon–Fri` or ` Sat, Sun`; nothing for all days."""
    days = sorted(set(peak.days))
    if len(days) == len(_DAYS):
        return ""
    names = [_DAYS[day - 1] for day in days]
    is_row = len(days) > 2 and days[-1] - days[0] == len(days) - 1
    return " " + (f"{names[0]}–{names[-1]}" if is_row else ", ".join(names))
