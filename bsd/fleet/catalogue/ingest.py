"""Writes the rows of this host's sessions into the catalogue.

A watermark for each session, written in the transaction of its rows, says how far it was read: any
interruption resumes there, and nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout
from bsd.core.prices import PriceTable


@dataclass(frozen=True, slots=True)
class Behind:
    """What of this host is not in the bucket yet, for the catalogue's list of hosts."""

    files: int = 0
    bytes: int = 0
    seconds: float | None = None  # age of the oldest file; None: nothing waits


@dataclass(frozen=True, slots=True)
class Ingested:
    """The outcome of a run."""

    sessions: int  # that were written
    rows: int
    deleted: int  # sessions that are marked as deleted
    more: bool  # time ran out; another run goes on
    failed: tuple[str, ...] = ()  # sessions that could not be read, with the reason


def ingest(
    layout: Layout,
    settings: FleetSettings,
    *,
    prices: PriceTable,
    seconds: float = 60.0,
    stopping: Callable[[], bool] = lambda: False,
    behind: Behind | None = None,
) -> Ingested:
    """Write what has changed since the last run, for at most about `seconds`.

    Raises TemporaryFailure, Unavailable (full), Forbidden, ConfigError (a newer schema).
    """
    raise NotImplementedError
