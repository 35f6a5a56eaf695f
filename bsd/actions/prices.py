"""list_prices: the prices of models that bsd uses (SPEC §3a), by the models in sessions."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.core.answers import OMIT_EMPTY
from bsd.core.errors import BsdError, FieldError, Invalid, NotFound
from bsd.core.formatting import iso_utc, shown
from bsd.core.layout import Layout, SessionName
from bsd.core.prices import (
    CacheLife,
    PeakHours,
    Price,
    PriceList,
    PriceTable,
    lives_of,
    price_of,
)
from bsd.store.search import ask

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class LifeInList:
    """A lifetime of a provider's cache."""

    seconds: Annotated[float, Field(description="After the last use")]
    write: Annotated[float | None, Field(description="Price of written tokens; null: unknown")]


@dataclass(frozen=True, slots=True)
class StepInList:
    """The prices of a whole request whose prompt has more than `above` tokens."""

    above: int
    input: float
    output: float
    read: float


@dataclass(frozen=True, slots=True)
class PriceInList:
    """The price of a model at a time, in US dollars for a million tokens; null: unknown."""

    model: Annotated[str, Field(description="Its name; with `all`, a regular expression")]
    provider: Annotated[str | None, Field(description="Regular expression; null: any provider")]
    sessions: Annotated[
        int | None, Field(description="Sessions in which the model answered; null: not counted")
    ]
    input: float | None
    output: float | None
    read: Annotated[float | None, Field(description="Tokens read from the cache")]
    lives: Annotated[
        tuple[LifeInList, ...], Field(description="The shortest first; empty: none is published")
    ]
    steps: tuple[StepInList, ...]
    peaks: Annotated[
        tuple[PeakHours, ...],
        Field(description="Hours in UTC; `days`: 1 is Monday; all prices are times `factor`"),
    ]
    is_peak: Annotated[bool, Field(description="True if the prices are those of peak hours")]
    valid_from: Annotated[str | None, Field(description="Date; null: no earlier price is known")]
    valid_to: Annotated[str | None, Field(description="The last day; null: no end is known")]
    source: str | None
    source_date: Annotated[str | None, Field(description="When the source was read")]


@dataclass(frozen=True, slots=True)
class PriceListState:
    """The list that the setting `prices_file` names."""

    path: str
    models: Annotated[int, Field(description="Number of models with prices")]
    skipped: Annotated[int, Field(description="Rows that are damaged or contradict themselves")]
    problem: Annotated[str | None, Field(description="Why it cannot be used")]
    hint: Annotated[str | None, OMIT_EMPTY] = None


@dataclass(frozen=True, slots=True)
class PricesAt:
    """The prices that apply at a time."""

    at: str
    prices: tuple[PriceInList, ...]
    price_list: Annotated[PriceListState | None, OMIT_EMPTY] = None


def list_prices(
    context: ActionContext,
    model: str | None = None,
    *,
    provider: str | None = None,
    at: str | None = None,
    every: bool = False,
) -> PricesAt:
    """Return the prices of a model, else of the models in the root's sessions, else of all rows.

    The models in sessions are those that the search index knows. If it knows none, all rows of
    bsd.toml and of bsd's own table are returned.

    Args:
        provider: the model's provider, if the sessions name it.
        at: a day (its beginning in UTC) or a time, in ISO 8601; None: now.
        every: return all rows, even if the sessions' models are known.

    Raises:
        NotFound: neither a price nor a lifetime is known for the model.
        Invalid: `at` is no date, or `every` is given with a model.
    """
    time = context.now() if at is None else _moment(at)
    table = context.prices.table()
    found: tuple[PriceInList, ...]
    if model is not None:
        if every:
            raise Invalid("all prices do not need a model", hint="leave out the model, or --all")
        found = (_named(table, provider, model, time, None),)
        if found[0].input is None and not found[0].lives:
            raise NotFound(f"no price is known for {shown(model)}", hint=_how_to_add(provider))
    else:
        counts = Counter[str]() if every else _models(context.layout)
        found = tuple(
            _named(table, provider, name, time, count) for name, count in counts.most_common()
        ) or tuple(_all(table, time))
    listed = table.price_list
    return PricesAt(iso_utc(time), found, _state(listed) if listed else None)


def _how_to_add(provider: str | None) -> str:
    of = f" of {provider}" if provider else ""
    return f"add its price{of} to [[prices]] in bsd.toml; `bsd prices --all` lists known ones"


def _moment(text: str) -> float:
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(text.strip())
        if _DAY.fullmatch(text.strip()):
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    problem = f"{shown(text)} is not a date"
    hint = "2026-10-07 or 2026-10-07T14:30"
    raise Invalid(problem, hint=hint, errors=(FieldError("at", problem),))


def models_in_sessions(layout: Layout) -> list[str]:
    """Return the models that the search index knows, the most frequent first."""
    return [name for name, _ in _models(layout).most_common()]


def _models(layout: Layout) -> Counter[str]:
    """Count the sessions of each model; nothing if the index cannot be read."""
    counts: Counter[str] = Counter()
    with suppress(BsdError):
        nothing: dict[str, str] = {}
        known = ask(layout.search_db, lambda index: index.models(), nothing)
        for session, models in known.items():
            if models and not layout.excluded(SessionName.parse(session)):
                counts.update(json.loads(models))
    return counts


def _all(table: PriceTable, at: float) -> Iterator[PriceInList]:
    """Yield the rows of bsd.toml and of bsd's own table; of each, the one that is valid."""
    seen = set()
    for row in (*table.rows, *table.shipped):
        about = row.provider, row.model
        if row.is_valid(at) and about not in seen:
            seen.add(about)
            yield _in_list(row.model, row.provider, row.price, row.lives, at, None)


def _named(
    table: PriceTable, provider: str | None, model: str, at: float, sessions: int | None
) -> PriceInList:
    price = price_of(table, provider, model, at)
    lives = price.lives if price else ()
    return _in_list(
        model,
        price.provider if price else "",
        price,
        lives or lives_of(table, provider, model, at),
        at,
        sessions,
    )


def _in_list(
    model: str,
    provider: str,
    price: Price | None,
    lives: tuple[CacheLife, ...],
    at: float,
    sessions: int | None,
) -> PriceInList:
    if price is None:
        unpriced = tuple(LifeInList(life.seconds, None) for life in lives)
        return PriceInList(
            model,
            provider or None,
            sessions,
            *(None, None, None),
            unpriced,
            *((), ()),
            is_peak=False,
            valid_from=None,
            valid_to=None,
            source=None,
            source_date=None,
        )
    now = price.charged_at(at)
    return PriceInList(
        model,
        provider or None,
        sessions,
        _exact(now.input),
        _exact(now.output),
        _exact(now.input * now.read),
        tuple(
            LifeInList(life.seconds, _exact(now.input * life.write) if price.lives else None)
            for life in lives
        ),
        tuple(
            StepInList(
                step.above,
                _exact(now.input * step.input),
                _exact(now.output * step.output),
                _exact(now.input * now.read * step.input),
            )
            for step in price.steps
        ),
        price.peaks,
        is_peak=now is not price,
        valid_from=price.valid_from or None,
        valid_to=price.valid_to or None,
        source=price.source or None,
        source_date=price.date or None,
    )


def _exact(dollars: float) -> float:
    """Return an amount without the errors of binary fractions."""
    return float(f"{dollars:.6g}")


def _state(listed: PriceList) -> PriceListState:
    return PriceListState(
        listed.path, len(listed.listed), listed.skipped, listed.problem, listed.hint
    )
