"""One run over everything that is kept for a time; or what it would do. For all doors."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bsd.care.expiry import Cleaned, Forecast, forecast
from bsd.care.retention import HistoryShelf, StoreShelf, run_history_retention, run_retention
from bsd.care.trash_shelf import TrashShelf, run_trash_retention
from bsd.foundation.ages import Ages, look, steady
from bsd.foundation.layout import Layout
from bsd.foundation.pruning_fields import PruningConfig
from bsd.foundation.spelling import lifetime_seconds


@dataclass(frozen=True, slots=True)
class CleanedAll:
    """What a run has deleted; `held` and `held_others` say why something was not."""

    keep: str
    keep_others: str
    store: Cleaned
    history: Cleaned
    trash: Cleaned
    held: str | None  # of what was extracted
    held_others: str | None  # of history and trash, which are kept equally long

    @property
    def errors(self) -> int:
        return self.store.errors + self.history.errors + self.trash.errors

    def as_json(self) -> dict[str, Any]:
        """The fields of the contract."""
        others = {"keep": self.keep_others, "held": self.held_others}
        return {
            "dry_run": False,
            "keep": self.keep,
            "held": self.held,
            **self.store.as_json(),
            "history": {**others, **self.history.as_json()},
            "trash": {**others, **self.trash.as_json()},
        }


@dataclass(frozen=True, slots=True)
class ForecastAll:
    """What a run would delete."""

    store: Forecast
    history: Forecast
    trash: Forecast

    def as_json(self) -> dict[str, Any]:
        """The fields of the contract."""
        more = {"history": self.history.as_json(), "trash": self.trash.as_json()}
        return {"dry_run": True, **self.store.as_json(), **more}


def clean_all(
    layout: Layout,
    config: PruningConfig,
    *,
    actor: str,
    clock: Callable[[], float] = time.time,
    steady: Callable[[], float] = steady,
    stopping: Callable[[], bool] = lambda: False,
) -> CleanedAll:
    """Delete what has been kept long enough, as far as the clock can be believed."""
    keep, others = config.retention, config.trash_retention
    ages = look(layout, clock, steady)
    how: dict[str, Any] = {"clock": clock, "steady": steady, "stopping": stopping}
    return CleanedAll(
        keep,
        others,
        run_retention(layout, keep, actor=actor, **how),
        run_history_retention(layout, others, actor=actor, **how),
        run_trash_retention(layout, others, actor=actor, **how),
        ages.why_held(lifetime_seconds(keep)),
        ages.why_held(lifetime_seconds(others)),
    )


def forecast_all(layout: Layout, config: PruningConfig, ages: Ages) -> ForecastAll:
    """Say what would go; changes nothing. Raises BsdError."""
    keep, others = config.retention, config.trash_retention
    return ForecastAll(
        forecast(StoreShelf(layout, keep), ages),
        forecast(HistoryShelf(layout, others), ages),
        forecast(TrashShelf(layout, others), ages),
    )
