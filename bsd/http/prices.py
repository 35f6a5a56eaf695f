"""The prices of models that bsd uses."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from bsd.actions.prices import PricesAt, list_prices
from bsd.http.dependencies import Context, JsonRoute

router = APIRouter(prefix="/api", tags=["prices"], route_class=JsonRoute)

_Name = Annotated[str | None, Query(min_length=1, max_length=500)]


@router.get("/prices")
def show_prices(
    context: Context,
    model: Annotated[_Name, Query(description="only of this model")] = None,
    provider: Annotated[_Name, Query(description="the provider of `model`")] = None,
    at: Annotated[_Name, Query(description="a day in UTC, or a time; left out: now")] = None,
    every: Annotated[bool, Query(alias="all", description="all known prices")] = False,  # noqa: FBT002
) -> PricesAt:
    """Return the prices of the models in sessions, or of one model.

    If no session's models are known, all prices are returned. A model of which neither a price nor
    a lifetime is known is answered with 404.
    """
    return list_prices(context, model, provider=provider, at=at, every=every)
