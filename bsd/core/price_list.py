"""Prices of models from bsd.toml: its rows, and a file of LiteLLM's form that it names.

The file is `model_prices_and_context_window.json` of LiteLLM: for each model, prices of one token
in US dollars. A row whose prices are impossible or contradict each other is skipped and counted. A
row without prices of text, such as that of a model for pictures, is left out. Of a file that cannot
be used, no row counts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from bsd.core.errors import BsdError, Unavailable, os_problem
from bsd.core.files import read_plain
from bsd.core.prices import (
    ListedPrice,
    Price,
    PriceList,
    PriceRow,
    PriceStep,
    PriceTable,
    shipped_prices,
)

MOST_DOLLARS = 10_000  # for a million tokens; the dearest models cost hundreds
_MOST_WRITE = 10  # price of a written token, relative to an input token
_LONGEST_NAME = 256  # characters
_LARGEST_FILE = 16 << 20  # bytes; LiteLLM's has 3.5 MB
_TOKENS = 1e6  # prices are told for so many
_STEP = re.compile(r"input_cost_per_token_above_([1-9]\d{0,4})k_tokens")
_WRITES = {3600.0: "above_1hr", 43_200.0: "above_12hr"}  # lifetimes with prices of their own
_UNEQUAL = 0.01  # factors that differ by more contradict each other
_HINT = (
    "name a copy of LiteLLM's model_prices_and_context_window.json in `prices_file` of bsd.toml, "
    "or remove the key"
)


@dataclass(frozen=True, slots=True)
class PriceSources:
    """The prices that bsd.toml names, in addition to those that bsd is shipped with."""

    rows: tuple[PriceRow, ...] = ()
    file: Path | None = None  # in LiteLLM's form

    def table(self) -> PriceTable:
        """Return all prices. The file is read again only after it has changed."""
        if not self.rows and self.file is None:
            return shipped_prices()
        return _table(self, None if self.file is None else _identity(self.file))


@lru_cache(maxsize=2)
def _table(sources: PriceSources, _identity: object) -> PriceTable:
    listed = None if sources.file is None else read_price_list(sources.file)
    return PriceTable(sources.rows, listed, shipped_prices().shipped)


def _identity(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError as error:
        return (error.errno or 0,)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_price_list(path: Path) -> PriceList:
    """Read a file in LiteLLM's form. A file that cannot be used gives a list with a `problem`."""
    try:
        date = os.stat(path).st_mtime
        document = json.loads(read_plain(path, _LARGEST_FILE, follow=True))
    except (OSError, BsdError) as error:
        problem = os_problem(error, f"reading the price list {path}")
        return PriceList(str(path), {}, problem=problem.message, hint=_HINT)
    except (ValueError, RecursionError) as error:
        return _unusable(path, f"is not valid JSON: {error}")
    if not isinstance(document, dict):
        return _unusable(path, "is not a JSON object with a member for each model")
    day = datetime.fromtimestamp(date, UTC).date().isoformat()
    listed, skipped = {}, 0
    for name, members in document.items():
        try:
            price = _listed(name, members, str(path), day)
        except (ValueError, OverflowError):
            skipped += 1
            continue
        if price is not None:
            listed[name.lower()] = price
    if not listed:
        return _unusable(path, "has no model with the members that LiteLLM uses for prices")
    return PriceList(str(path), listed, date, skipped)


def _unusable(path: Path, why: str) -> PriceList:
    return PriceList(str(path), {}, problem=f"the price list {path} {why}", hint=_HINT)


def _listed(name: str, members: object, source: str, date: str) -> ListedPrice | None:
    """Return the price of a model; None if its row has no prices of text.

    Raises:
        ValueError, OverflowError: the row is damaged, or contradicts itself.
    """
    if not isinstance(members, dict) or len(name) > _LONGEST_NAME:
        raise ValueError(name)
    input_ = _dollars(members, "input_cost_per_token")
    output = _dollars(members, "output_cost_per_token")
    read = _dollars(members, "cache_read_input_token_cost")
    write = _dollars(members, "cache_creation_input_token_cost")
    if input_ is None or output is None or members.get("tiered_pricing"):
        return None
    if read is None and members.get("supports_prompt_caching"):
        return None  # its prices are incomplete
    provider = members.get("litellm_provider")
    if not isinstance(provider, str):
        raise ValueError(provider)  # noqa: TRY004 - of a row, not of a call
    writes = {
        seconds: _factor(dollars, input_, _MOST_WRITE)
        for seconds, ending in _WRITES.items()
        if (dollars := _dollars(members, f"cache_creation_input_token_cost_{ending}"))
    }
    price = Price(
        input_,
        output,
        1.0 if read is None else _factor(read, input_, 1),  # 1: reads are not cheaper
        (),
        _steps(members, input_, output, read),
        source=source,
        pattern=name,
        provider=provider,
        date=date,
    )
    return ListedPrice(
        provider.lower(),
        price,
        None if write is None else _factor(write, input_, _MOST_WRITE),
        writes,
    )


def _dollars(members: Mapping[str, Any], name: str) -> float | None:
    """Return a price for a million tokens; None if it is missing, or 0, which means unknown."""
    price = members.get(name)
    if price is None:
        return None
    if isinstance(price, bool) or not isinstance(price, int | float):
        raise ValueError(price)  # noqa: TRY004 - of a row, not of a call
    dollars = price * _TOKENS
    if not 0 <= dollars <= MOST_DOLLARS:  # NaN, too, is refused
        raise ValueError(price)
    return _rounded(dollars) or None


def _factor(dollars: float, base: float, most: float) -> float:
    factor = _rounded(dollars / base)
    if factor > most:
        raise ValueError(factor)
    return factor


def _rounded(number: float) -> float:
    """Return a number without the errors of binary fractions: 2e-06 is exactly 2 a million."""
    return float(f"{number:.9g}")


def _steps(
    members: Mapping[str, Any], input_: float, output: float, read: float | None
) -> tuple[PriceStep, ...]:
    """Return the steps; raises ValueError if the factors on input and cache differ."""
    steps = []
    for name in members:
        if not (found := _STEP.fullmatch(name)):
            continue
        ending = f"above_{found[1]}k_tokens"
        above = _dollars(members, name)
        if above is None:
            raise ValueError(name)
        factor = _factor(above, input_, MOST_DOLLARS)
        dearer = _dollars(members, f"output_cost_per_token_{ending}")
        if read is not None:
            reads = _dollars(members, f"cache_read_input_token_cost_{ending}")
            if reads is None or abs(reads / read / factor - 1) > _UNEQUAL:
                raise ValueError(ending)
        step = PriceStep(
            int(found[1]) * 1000,
            factor,
            1.0 if dearer is None else _factor(dearer, output, MOST_DOLLARS),
        )
        steps.append(step)
    return tuple(sorted(steps, key=lambda step: step.above))


def problem_of(prices: PriceList) -> BsdError | None:
    """Return the error for a list that cannot be used."""
    return None if prices.problem is None else Unavailable(prices.problem, hint=prices.hint)
