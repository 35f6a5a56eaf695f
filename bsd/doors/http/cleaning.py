"""One retention run over everything that is kept for a time, in the fields of `bsd retention`."""

from __future__ import annotations

from typing import Any

from bsd.care import retention
from bsd.doors.http.desk import Desk
from bsd.foundation.ages import look


def forecast_all(desk: Desk) -> dict[str, Any]:
    """What would go now; changes nothing."""
    ages = look(desk.layout, desk.patience.clock, keep=False)
    return retention.forecast_all(desk.layout, desk.config.current, ages).as_json()


def run_all(desk: Desk, actor: str) -> dict[str, Any]:
    """Delete what is expired now."""
    clock = desk.patience.clock
    started = clock()
    run = retention.RetentionRun(desk.layout, actor=actor, clock=clock)
    done = run.clean_all(desk.config.current)
    if done.held is None:
        desk.config.note_run("last_retention_run_at", started)
    desk.cleaned()
    return done.as_json()
