"""What the daemon answers when doors ask how it is; `status.Service` says what stands in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from bsd import __version__
from bsd.daemon import snapshot
from bsd.daemon.clock import awake
from bsd.daemon.parts import Ground, Parts
from bsd.foundation.json_text import document
from bsd.foundation.settings import Settings
from bsd.foundation.spelling import iso_utc


@dataclass(slots=True)
class Life:
    """How far the daemon has come, and by which settings; those may be read again."""

    settings: Settings
    started_at: float  # epoch seconds
    state: str = "starting"


class DaemonReport:
    """`next_retention` and `crashes` (of loops) are asked when somebody asks."""

    def __init__(
        self,
        life: Life,
        ground: Ground,
        parts: Parts,
        *,
        next_retention: Callable[[], float | None],
        crashes: Callable[[], int],
    ) -> None:
        self._life = life
        self._ground = ground
        self._parts = parts
        self._next_run = next_retention
        self._crashes = crashes
        self._disk_use = snapshot.PacedDiskUse(ground.layout, ground.clocks.wall)
        self._next_retention = snapshot.NextRetention(ground.layout, ground.clocks)

    def health(self) -> dict[str, Any]:
        parts, life, config = self._parts, self._life, self._ground.config
        late = parts.beats.late(awake())
        problems = [str(p) for p in parts.watcher.health.problems if snapshot.is_trouble(p)]
        problems += [str(p) for p in parts.scan.problems if snapshot.is_trouble(p)]
        if not life.settings.readonly:
            problems += snapshot.source_problems(self._ground.layout)
        problems += parts.mounts.problems()
        if config.problem:
            problems.append(config.problem.message)
        well = "degraded" if late or problems else "ok"
        return {
            "status": well if life.state == "running" else life.state,
            "version": __version__,
            "pid": os.getpid(),
            "uptime_seconds": self._uptime(),
            "late": late,
            "problems": list(dict.fromkeys(problems)),
        }

    def status(self) -> dict[str, Any]:
        sessions = json.loads(self._parts.ledger.sessions())
        return self._status(sessions)

    def status_json(self) -> bytes:
        """The same, for whoever passes it on: what became of sessions is JSON already."""
        sessions = orjson.Fragment(self._parts.ledger.sessions())
        try:
            return orjson.dumps(self._status(sessions), option=orjson.OPT_NON_STR_KEYS)
        except TypeError:  # a path whose bytes are no UTF-8
            return document(self.status())

    def _status(self, sessions: object) -> dict[str, Any]:
        parts, ground, life = self._parts, self._ground, self._life
        config, problem = ground.config.current, ground.config.problem
        return {
            "state": life.state,
            "pid": os.getpid(),
            "version": __version__,
            "root": str(ground.layout.root),
            "started_at": iso_utc(life.started_at),
            "uptime_seconds": self._uptime(),
            "enabled": config.enabled,
            "readonly": life.settings.readonly,
            "auto_refresh_ms": life.settings.auto_refresh_ms,
            "roots": parts.mounts.snapshot(),
            "watcher": snapshot.watcher(parts.watcher.health, parts.scan.problems),
            "queue": snapshot.queue(parts.queue, len(parts.intake), len(parts.savings)),
            "workers": parts.workers.snapshot(),
            "totals": {"sessions": len(parts.scan), **self._totals()},
            "left_alone": parts.ledger.left_alone(),
            "sessions": sessions,
            "orphans": snapshot.orphans(ground.layout),
            "disk": self._disk_use.snapshot(),
            "sources": snapshot.sources(ground.layout),
            "clock": parts.chores.clock_in_doubt,
            "search": parts.indexer.state(),
            "config": {
                "path": str(ground.layout.config_file),
                "problem": problem.message if problem else None,
            },
            "retention": self._next_retention.snapshot(
                config.retention, config.trash_retention, self._next_run()
            ),
        }

    def in_short(self) -> str:
        """One line for the service manager."""
        health, counts = self._parts.watcher.health, self._parts.queue.counts()
        return (
            f"{len(self._parts.scan)} sessions, "
            f"{health.watched} of {health.dirs} directories watched, "
            f"{counts.parked} sessions parked"
        )

    def forget_retention(self) -> None:
        """What goes next, and when, is to be worked out anew."""
        self._next_retention.forget()
        self._disk_use.forget()

    def _uptime(self) -> float:
        return round(self._ground.clocks.wall() - self._life.started_at, 3)

    def _totals(self) -> dict[str, Any]:
        totals = self._parts.ledger.totals()
        totals["crashes"] += self._crashes()
        return totals
