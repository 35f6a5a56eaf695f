"""One run over everything that is kept for a time; or what it would do. For all doors."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bsd.care.expiry import Cleaned, ExpiredFile, Forecast, forecast, lifetime_seconds
from bsd.care.retention import HistoryShelf, StoreShelf, run_history_retention, run_retention
from bsd.care.trash_shelf import TrashShelf, run_trash_retention
from bsd.foundation.ages import Ages
from bsd.foundation.answers import INTERNAL, Answer, contract
from bsd.foundation.clock_record import look, steady
from bsd.foundation.layout import Layout
from bsd.foundation.pruning_fields import PruningConfig

_HELD = "Why nothing is deleted: the clock is not believed"


@dataclass(frozen=True, slots=True)
class CleanedPlace(Answer):
    """What a run has deleted in one place (bytes), and how much could not be."""

    keep: str
    held: str | None = field(metadata=contract(_HELD))
    done: Cleaned = field(metadata=INTERNAL)
    cleaned: int = field(init=False, metadata=contract(by=lambda one: one.done.cleaned))
    bytes: int = field(init=False, metadata=contract(by=lambda one: one.done.bytes))
    errors: int = field(init=False, metadata=contract(by=lambda one: one.done.errors))


@dataclass(frozen=True, kw_only=True)
class Retention(Answer):
    """What was deleted, or with dry_run what would be: of what was extracted, and of the rest."""

    store: CleanedPlace | Forecast = field(metadata=INTERNAL)
    dry_run: bool
    keep: str = field(init=False, metadata=contract(by=lambda one: one.store.keep))
    held: str | None = field(init=False, metadata=contract(_HELD, by=lambda one: one.store.held))
    cleaned: int = field(init=False, metadata=contract(by=lambda one: one.store.cleaned))
    bytes: int = field(init=False, metadata=contract(by=lambda one: one.store.bytes))
    history: CleanedPlace | Forecast
    trash: CleanedPlace | Forecast


@dataclass(frozen=True, kw_only=True)
class CleanedAll(Retention):
    """What a run has deleted."""

    store: CleanedPlace = field(metadata=INTERNAL)
    history: CleanedPlace
    trash: CleanedPlace
    dry_run: bool = False
    errors: int = field(init=False, metadata=contract(by=lambda one: one.store.errors))

    @property
    def failures(self) -> int:
        """How much could not be deleted, wherever it lies."""
        return self.store.errors + self.history.errors + self.trash.errors


@dataclass(frozen=True, kw_only=True)
class ForecastAll(Retention):
    """What a run would delete."""

    store: Forecast = field(metadata=INTERNAL)
    history: Forecast
    trash: Forecast
    dry_run: bool = True
    staying: int = field(init=False, metadata=contract(by=lambda one: one.store.staying))
    expires: str | None = field(
        init=False, metadata=contract(name="next_expiry", by=lambda one: one.store.expires)
    )
    files: tuple[ExpiredFile, ...] = field(
        init=False, metadata=contract(by=lambda one: one.store.files)
    )


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
    held, held_others = (ages.why_held(lifetime_seconds(one)) for one in (keep, others))
    store = run_retention(layout, keep, actor=actor, **how)
    history = run_history_retention(layout, others, actor=actor, **how)
    trash = run_trash_retention(layout, others, actor=actor, **how)
    return CleanedAll(
        store=CleanedPlace(keep, held, store),
        history=CleanedPlace(others, held_others, history),
        trash=CleanedPlace(others, held_others, trash),
    )


def forecast_all(layout: Layout, config: PruningConfig, ages: Ages) -> ForecastAll:
    """Say what would go; changes nothing. Raises BsdError."""
    keep, others = config.retention, config.trash_retention
    return ForecastAll(
        store=forecast(StoreShelf(layout, keep), ages),
        history=forecast(HistoryShelf(layout, others), ages),
        trash=forecast(TrashShelf(layout, others), ages),
    )
