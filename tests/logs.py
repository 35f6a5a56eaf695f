"""Captured log records, for assertions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from bsd.core.logs import LEVELS, level_of_method

_bsd = logging.getLogger("bsd")


def tell_logs(tell: Callable[[dict[str, Any]], None]) -> Processor:
    """Pass every line of every level to `tell` from now on; the outputs get it, too.

    Unlike `structlog.testing.capture_logs`, it is safe while other threads log.
    """

    def recorder(_: Any, method: str, event: EventDict) -> EventDict:
        tell({**event, "log_level": level_of_method(method)})
        return event

    structlog.get_config()["processors"].insert(0, recorder)
    _bsd.setLevel(LEVELS["trace"])
    return recorder


@contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    """Collect all log records inside the block, at every level."""
    before = _bsd.level
    lines: list[dict[str, Any]] = []
    recorder = tell_logs(lines.append)
    try:
        yield lines
    finally:
        structlog.get_config()["processors"].remove(recorder)
        _bsd.setLevel(before)
