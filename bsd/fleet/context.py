"""The environment that functions of this package need; an `ActionContext` has all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bsd.core.config_file import ConfigService
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout
from bsd.sessions.idle import RetryBudget


class FleetContext(Protocol):
    """The environment of a push, and of reading other hosts: see `ActionContext`."""

    @property
    def layout(self) -> Layout: ...
    @property
    def config(self) -> ConfigService: ...
    @property
    def actor(self) -> str: ...
    @property
    def fleet(self) -> FleetSettings: ...
    @property
    def budget(self) -> RetryBudget: ...
    @property
    def stopping(self) -> Callable[[], bool]: ...
    @property
    def cleaned(self) -> Callable[[], None]: ...

    def now(self) -> float:
        """Return the time in epoch seconds."""
