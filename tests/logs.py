"""What was logged, for tests to look at."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bsd.core.logs import LEVELS, level_of, module_of

_ours = logging.getLogger("bsd")


class _Recorder(logging.Handler):
    """Stands beside the outputs."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self.tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        fields = dict(getattr(record, "fields", {}))
        if record.exc_info:
            fields["exc_info"] = record.exc_info
        told = {"event": record.getMessage(), "log_level": level_of(record)}
        self.tell({**told, "module": module_of(record), **fields})


def tell_logs(tell: Callable[[dict[str, Any]], None]) -> logging.Handler:
    """Pass every line of every level to `tell` from now on."""
    recorder = _Recorder(tell)
    logging.getLogger().addHandler(recorder)
    _ours.setLevel(LEVELS["trace"])
    return recorder


@contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    """Collect what is logged inside the block, at every level."""
    before = _ours.level
    lines: list[dict[str, Any]] = []
    recorder = tell_logs(lines.append)
    try:
        yield lines
    finally:
        logging.getLogger().removeHandler(recorder)
        _ours.setLevel(before)
