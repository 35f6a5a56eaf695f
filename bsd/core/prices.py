"""Prices of models, by date, as their providers publish them (SPEC §3a).

Shipped rows are in `prices.json`, which gives the source and its date for each row. A model that no
row fits has no price: bsd then counts tokens and names no money.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from math import inf
from pathlib import Path
from typing import Any

import orjson

_FILE = Path(__file__).with_name("prices.json")
_LONGEST_NAME = 128  # characters of the name of a model or provider that are compared
# Endings of a model's name that change no price: a date, and Claude Code's mark of the larger
# context window.
_ENDINGS = re.compile(r"(?:-(?:20\d{6}|20\d\d-\d\d-\d\d|latest))?(?:\[1m\])?$", re.IGNORECASE)
_HOUR, _DAY = 3600, 86_400
# Names of providers in sessions, and LiteLLM's names.
_VENDORS = {
    "amazon-bedrock": "bedrock",
    "azure-openai-responses": "azure",
    "google": "gemini",
    "google-gemini-cli": "gemini",
    "google-vertex": "vertex_ai",
    "openai-codex": "openai",
}


@dataclass(frozen=True, slots=True)
class CacheLife:
    """A lifetime of cached tokens that a provider offers."""

    seconds: float  # after the last use
    write: float  # price of a written token, relative to an input token


@dataclass(frozen=True, slots=True)
class PriceStep:
    """Other prices of a whole request whose prompt is larger than `above` tokens."""

    above: int
    input: float  # factor on input, cache reads and cache writes
    output: float  # factor on output


@dataclass(frozen=True, slots=True)
class PeakHours:
    """Hours of a day at which all prices are multiplied."""

    begin: int  # hour in UTC, 0 to 23
    end: int  # hour in UTC, exclusive, 1 to 24
    factor: float
    days: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)  # in UTC; 1 is Monday

    def include(self, at: float) -> bool:
        """Return whether a time is among these hours, in epoch seconds."""
        day, hour = at // _DAY, at // _HOUR % 24
        return self.begin <= hour < self.end and (day + 3) % 7 + 1 in self.days


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs from a date on. Money is US dollars per million tokens."""

    input: float
    output: float
    read: float  # price of a token read from the cache, relative to an input token
    lives: tuple[CacheLife, ...]  # shortest first; empty: no published lifetime
    steps: tuple[PriceStep, ...] = ()  # ascending by `above`
    peaks: tuple[PeakHours, ...] = ()
    valid_from: str = ""  # ISO date; empty: since ever
    source: str = ""
    pattern: str = ""  # of the models, as in the row
    provider: str = ""  # pattern of the providers, as in the row; empty: any
    date: str = ""  # ISO date on which the source was read
    valid_to: str = ""  # ISO date, the last day; empty: no end is known

    def life(self, seconds: float | None) -> CacheLife | None:
        """Return the lifetime that applies; None if none is published.

        Args:
            seconds: the lifetime that the session's usage shows, if any. Without it, the longest
                applies, since waiting too long never costs more than changing nothing.
        """
        if not self.lives:
            return None
        if seconds is None:
            return self.lives[-1]
        return min(self.lives, key=lambda life: abs(life.seconds - seconds))

    def step(self, tokens: int) -> PriceStep | None:
        """Return the step that a prompt of `tokens` tokens is above, the highest; None if none."""
        return next((step for step in reversed(self.steps) if tokens > step.above), None)

    def charged_at(self, at: float) -> Price:
        """Return the price with `input` and `output` as charged at a time in epoch seconds."""
        factor = next((peak.factor for peak in self.peaks if peak.include(at)), 1.0)
        if factor == 1:
            return self
        return replace(self, input=self.input * factor, output=self.output * factor)


@dataclass(frozen=True, slots=True)
class PriceRow:
    """The prices, or only the cache lifetimes, of the models that a row fits."""

    provider: str  # a regular expression for the whole name; empty: any
    model: str  # likewise
    since: float  # epoch seconds
    lives: tuple[CacheLife, ...]  # shortest first
    price: Price | None  # None: the row tells no money
    until: float = inf  # epoch seconds, exclusive

    def is_valid(self, at: float) -> bool:
        """Return whether the row applies at a time in epoch seconds."""
        return self.since <= at < self.until

    def fits(self, provider: str, names: Iterable[str]) -> bool:
        """Return whether the row is about a provider's model.

        Args:
            provider: empty if the session does not name it; the model's name then decides.
            names: the model's name, and shorter forms of it.
        """
        return any(_fits(self.model, name) for name in names) and (
            not (provider and self.provider) or _fits(self.provider, provider)
        )


def _fits(pattern: str, name: str) -> bool:
    return re.fullmatch(pattern, name, re.IGNORECASE) is not None


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """The price of a model in the user's price list (`price_list`), which has no lifetimes."""

    provider: str  # as LiteLLM names it
    price: Price
    write: float | None  # price of a written token, relative to an input token
    writes: Mapping[float, float]  # the same for longer lifetimes, by seconds

    def lives(self, published: Iterable[CacheLife]) -> tuple[CacheLife, ...]:
        """Return published lifetimes, the shortest first, with the prices of this list."""
        return tuple(
            replace(life, write=self.writes.get(life.seconds, life.write if n else self.write))
            if self.write is not None
            else life
            for n, life in enumerate(published)
        )


@dataclass(frozen=True, slots=True)
class PriceList:
    """A price list that the user has named, as far as bsd can use it."""

    path: str
    listed: Mapping[str, ListedPrice]  # by the model's name in lowercase
    date: float = inf  # of the file, in epoch seconds
    skipped: int = 0  # damaged or contradictory rows
    problem: str | None = None  # why the whole file cannot be used
    hint: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PriceTable:
    """All prices that bsd knows. The user's rows precede the user's list, and this bsd's own."""

    rows: tuple[PriceRow, ...] = ()
    price_list: PriceList | None = None
    shipped: tuple[PriceRow, ...] = ()


def price_of(table: PriceTable, provider: str | None, model: str | None, at: float) -> Price | None:
    """Return the price of a model at a time; None if it is unknown.

    The prices are those outside peak hours; see `Price.charged_at`.

    Args:
        provider: as in the session; None if the session does not name it.
        model: as in the session; None if the session does not name it.
        at: epoch seconds.
    """
    rows = _fitting(table, provider, model or "")
    return next((row.price for row in rows if row.price and row.is_valid(at)), None)


def life_seconds_of(
    table: PriceTable, provider: str | None, model: str | None, at: float
) -> float | None:
    """Return the longest time that a model's cache lives after its last use.

    None if the provider publishes none. The arguments are those of `price_of`.
    """
    lives = lives_of(table, provider, model, at)
    return lives[-1].seconds if lives else None


def lives_of(
    table: PriceTable, provider: str | None, model: str | None, at: float
) -> tuple[CacheLife, ...]:
    """Return the published lifetimes of a model's cache, the shortest first.

    They are known for more models than prices are. The arguments are those of `price_of`.
    """
    rows = _fitting(table, provider, model or "")
    return next((row.lives for row in rows if row.lives and row.is_valid(at)), ())


@lru_cache(maxsize=256)
def _fitting(table: PriceTable, provider: str | None, model: str) -> tuple[PriceRow, ...]:
    name = model[:_LONGEST_NAME]
    names = tuple(dict.fromkeys((name, _ENDINGS.sub("", name, count=1))))
    provider = (provider or "")[:_LONGEST_NAME]
    own = [row for row in table.rows if row.fits(provider, names)]
    listed = table.price_list and _listed_row(table.price_list, table.shipped, provider, names)
    shipped = [row for row in table.shipped if row.fits(provider, names)]
    return (*own, *((listed,) if listed else ()), *shipped)


def _listed_row(
    prices: PriceList, shipped: Iterable[PriceRow], provider: str, names: tuple[str, ...]
) -> PriceRow | None:
    """Return the row of a price list for a provider's model.

    A list has no dates, no lifetimes and no peak hours. It applies since the date of bsd's own row
    that was valid when the file was written; lifetimes are those that bsd knows for a model of this
    name. If bsd knows peak hours, the list, which has only the prices in them, does not apply.
    """
    found = _find_listed(prices.listed, provider, names)
    if found is None:
        return None
    known = [row for row in shipped if row.fits("", names)]
    dated = next((row for row in known if row.price and row.since <= prices.date), None)
    if dated and dated.price and dated.price.peaks and dated.fits(provider, names):
        return None
    lives = found.lives(next((row.lives for row in known if row.lives), ()))
    price = replace(found.price, lives=lives)
    return PriceRow("", price.pattern, dated.since if dated else -inf, lives, price)


def _find_listed(
    listed: Mapping[str, ListedPrice], provider: str, names: Iterable[str]
) -> ListedPrice | None:
    vendor = _VENDORS.get(provider.lower(), provider.lower())
    for name in names:
        if provider and (found := listed.get(f"{vendor}/{name.lower()}")):
            return found
        found = listed.get(name.lower())
        if found and (
            not provider
            or found.provider == vendor
            or found.provider.startswith((f"{vendor}-", f"{vendor}_converse"))
        ):
            return found
    return None


@cache
def shipped_prices() -> PriceTable:
    """Return the table of the rows that bsd is shipped with."""
    return PriceTable(shipped=price_rows(orjson.loads(_FILE.read_bytes())["prices"]))


def price_rows(found: Sequence[Mapping[str, Any]]) -> tuple[PriceRow, ...]:
    """Return rows from valid members, as in `prices.json`.

    Their order stays, but of rows with the same expressions the latest comes first.
    """
    rows = sorted(found, key=lambda members: str(members.get("valid_from") or ""), reverse=True)
    places: dict[tuple[str, str], int] = {}
    for members in found:
        places.setdefault(_expressions(members), len(places))
    rows.sort(key=lambda members: places[_expressions(members)])
    return tuple(map(_row, rows))


def _expressions(members: Mapping[str, Any]) -> tuple[str, str]:
    return members.get("provider") or "", members["model"]


def _row(members: Mapping[str, Any]) -> PriceRow:
    provider, model = _expressions(members)
    valid_from, valid_to = (members.get(name) or "" for name in ("valid_from", "valid_to"))
    lives = tuple(
        sorted(
            (CacheLife(**life) for life in members.get("lives") or ()),
            key=lambda life: life.seconds,
        )
    )
    price = None
    if members.get("input") is not None:
        price = Price(
            members["input"],
            members["output"],
            members["read"],
            lives,
            tuple(
                sorted(
                    (PriceStep(**step) for step in members.get("steps") or ()),
                    key=lambda step: step.above,
                )
            ),
            tuple(
                PeakHours(**peak | {"days": tuple(peak.get("days") or range(1, 8))})
                for peak in members.get("peaks") or ()
            ),
            valid_from,
            members.get("source") or "",
            model,
            provider,
            members.get("date") or "",
            valid_to,
        )
    since = _midnight(valid_from) if valid_from else -inf
    until = _midnight(valid_to) + _DAY if valid_to else inf
    return PriceRow(provider, model, since, lives, price, until)


def _midnight(day: str) -> float:
    """Return the beginning of a day in UTC, in epoch seconds."""
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
