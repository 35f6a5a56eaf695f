"""What was logged, for tests to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from bsd.foundation import logs


class _Recorder:
    """Stands where the outputs stand."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self.tell = tell

    def write(self, level: str, event: str, fields: Mapping[str, object]) -> None:
        self.tell({"event": event, "log_level": level, **fields})

    def close(self) -> None:
        """Nothing is open."""


def tell_logs(tell: Callable[[dict[str, Any]], None]) -> None:
    """Pass every line of every level to `tell` from now on."""
    logs._State.writer = cast("Any", _Recorder(tell))
    logs._State.threshold = logs.LEVELS["trace"]


@contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    """Collect what is logged inside the block, at every level."""
    before = logs._State.writer, logs._State.threshold
    lines: list[dict[str, Any]] = []
    tell_logs(lines.append)
    try:
        yield lines
    finally:
        logs._State.writer, logs._State.threshold = before
