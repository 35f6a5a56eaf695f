"""Permanently removes deleted text from the search index, or logs the reason why it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from bsd.core.errors import BsdError
from bsd.core.layout import SessionName
from bsd.store.search import SearchIndex, ask

_log = structlog.stdlib.get_logger(module="search")


def forget_sessions(path: Path, names: Iterable[SessionName]) -> None:
    """Permanently remove deleted sessions from the index; a problem is logged."""
    wanted = [str(name) for name in names]

    def drop(index: SearchIndex) -> None:
        with index.change():
            for name in wanted:
                index.forget(name)

    drop_for_good(path, drop)


def drop_for_good(path: Path, drop: Callable[[SearchIndex], object]) -> bool:
    """Call `drop`, and overwrite the words of the rows that it deleted.

    Returns False if there was a problem, which is logged.
    """

    def work(index: SearchIndex) -> None:
        drop(index)
        if index.dead():
            index.sweep()

    try:
        ask(path, work, None)
    except BsdError as problem:  # the next search brings the index up to date
        _log.error("Deleted text is still in the search index", problem=problem.message)
        return False
    return True
