"""`[[prices]]` of bsd.toml: the user's own rows of the table of prices (SPEC §3a)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    model_validator,
)

from bsd.core.config import Pattern
from bsd.core.price_list import MOST_DOLLARS

_MONTH_SECONDS = 31 * 86_400


def _day(value: object) -> object:
    is_day = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    if is_day or (isinstance(value, str) and re.fullmatch(r"\d{4}-\d{2}-\d{2}", value)):
        return value
    raise ValueError("a day is written as in 2026-10-07")


Dollars = Annotated[StrictFloat, Field(gt=0, le=MOST_DOLLARS)]
Factor = Annotated[StrictFloat, Field(gt=0, le=100)]
Hour = Annotated[StrictInt, Field(ge=0, le=24)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PriceLife(_Table):
    """A lifetime of cached tokens."""

    seconds: Annotated[StrictFloat, Field(gt=0, le=_MONTH_SECONDS)]
    write: Factor


class PriceAbove(_Table):
    """Factors for a whole request whose prompt has more tokens than `above`."""

    above: Annotated[StrictInt, Field(ge=1, le=1 << 40)]
    input: Factor
    output: Factor


class PricePeak(_Table):
    """Hours with other prices, in UTC."""

    begin: Hour
    end: Hour
    factor: Factor
    days: tuple[Annotated[StrictInt, Field(ge=1, le=7)], ...] = (1, 2, 3, 4, 5, 6, 7)

    @model_validator(mode="after")
    def _refuse_backwards(self) -> Self:
        if self.begin >= self.end:
            raise ValueError("`begin` is before `end`; hours around midnight are two tables")
        return self


class PriceSettings(_Table):
    """A row: what a model costs, or only how long its provider's cache lives."""

    provider: Pattern | None = Field(
        None, description="regular expression for the whole name of the provider; left out: any"
    )
    model: Annotated[Pattern, Field(min_length=1)] = Field(
        description="regular expression for the whole name of the model; a date at the end of the "
        "name, and `[1m]`, may be left out; needed"
    )
    valid_from: Annotated[dt.date | None, BeforeValidator(_day)] = Field(
        None, description="the day on which the row begins to apply, in UTC; left out: always"
    )
    valid_to: Annotated[dt.date | None, BeforeValidator(_day)] = Field(
        None, description="the last day on which it applies; left out: no end"
    )
    input: Dollars | None = Field(None, description="US dollars for a million input tokens")
    output: Dollars | None = Field(None, description="US dollars for a million output tokens")
    read: Annotated[StrictFloat, Field(gt=0, le=1)] | None = Field(
        None, description="price of a token read from the cache, as a part of `input`"
    )
    lives: tuple[PriceLife, ...] = Field(
        (),
        description="lifetimes of the cache: `seconds` after its last use, and `write`, the price "
        "of a written token as a multiple of `input`",
    )
    steps: tuple[PriceAbove, ...] = Field(
        (),
        description="factors on `input` (with the cache) and `output` of the whole request, if its "
        "prompt has more tokens than `above`",
    )
    peaks: tuple[PricePeak, ...] = Field(
        (),
        description="hours in UTC, from `begin` to `end`, in which all prices are multiplied by "
        "`factor`, on `days` (1: Monday; left out: every day)",
    )
    source: str = Field("bsd.toml", description="the place where the prices are published")
    date: str = Field("", description="the day on which they were read there")

    @model_validator(mode="after")
    def _refuse_incomplete(self) -> Self:
        money = (self.input, self.output, self.read)
        if None in money and (any(money) or self.steps or self.peaks):
            raise ValueError("`input`, `output` and `read` belong together")
        if None in money and not self.lives:
            raise ValueError("a row has `input`, `output` and `read`, or `lives`, or all of them")
        if self.valid_from and self.valid_to and self.valid_from > self.valid_to:
            raise ValueError("`valid_from` is not after `valid_to`")
        if len({life.seconds for life in self.lives}) < len(self.lives):
            raise ValueError("`seconds` of two `lives` are the same")
        if len({step.above for step in self.steps}) < len(self.steps):
            raise ValueError("`above` of two `steps` is the same")
        return self


_TABLES: dict[str, type[_Table]] = {"lives": PriceLife, "steps": PriceAbove, "peaks": PricePeak}


def members_of(tables: Sequence[str]) -> Iterable[str]:
    """Return the members of a row, or of a table in it."""
    return (_TABLES.get(tables[0], PriceSettings) if tables else PriceSettings).model_fields
