"""One retention run over everything that is kept for a time, in the fields of `bsd retention`."""

from __future__ import annotations

from typing import Any

from bsd.api.desk import Desk
from bsd.lifecycle.expiry import forecast
from bsd.lifecycle.retention import HistoryShelf, StoreShelf, run_history_retention, run_retention
from bsd.lifecycle.trash_shelf import TrashShelf, run_trash_retention


def forecast_all(desk: Desk) -> dict[str, Any]:
    """What would go now; changes nothing."""
    keep, keep_trash = _kept(desk)
    now = desk.patience.clock()
    return {
        "dry_run": True,
        **forecast(StoreShelf(desk.layout, keep), now).as_json(),
        "history": forecast(HistoryShelf(desk.layout, keep_trash), now).as_json(),
        "trash": forecast(TrashShelf(desk.layout, keep_trash), now).as_json(),
    }


def run_all(desk: Desk, actor: str) -> dict[str, Any]:
    """Delete what is expired now."""
    keep, keep_trash = _kept(desk)
    clock = desk.patience.clock
    started = clock()
    done = run_retention(desk.layout, keep, actor=actor, clock=clock)
    history = run_history_retention(desk.layout, keep_trash, actor=actor, clock=clock)
    trash = run_trash_retention(desk.layout, keep_trash, actor=actor, clock=clock)
    desk.config.note_run("last_retention_run_at", started)
    desk.cleaned()
    return {
        "dry_run": False,
        "keep": keep,
        **done.as_json(),
        "history": {"keep": keep_trash, **history.as_json()},
        "trash": {"keep": keep_trash, **trash.as_json()},
    }


def _kept(desk: Desk) -> tuple[str, str]:
    config = desk.config.current
    return config.retention, config.trash_retention
