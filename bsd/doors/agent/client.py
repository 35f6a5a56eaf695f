"""The program that asks us: which sessions it has at work, so that it need not name its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bsd.agents.owner import Process
from bsd.agents.owners import at_work
from bsd.foundation import process
from bsd.foundation.layout import Layout, SessionName

_MOST_ANCESTORS = 12  # shells and launchers between a program and what it starts


def sessions_of_client(layout: Layout, pid: int | None = None) -> tuple[SessionName, ...]:
    """The sessions of the nearest process above us that has any; `pid` is the first to be asked.

    More than one if the program does not tell which of them asks.
    """
    for each in ancestors(os.getppid() if pid is None else pid):
        if found := at_work(layout, each):
            return tuple(dict.fromkeys(found))
    return ()


def ancestors(pid: int) -> Iterator[Process]:
    """A process, the one that started it, and so on; only the first where /proc does not tell."""
    above: int | None = pid
    for _ in range(_MOST_ANCESTORS):
        if not above:
            return
        yield _process(above)
        above = process.parent(above)


def _process(pid: int) -> Process:
    started, directory = process.starttime(pid), process.directory(pid)
    return Process(
        pid,
        started,
        None if started is None else process.begun(started),
        None if directory is None else Path(directory),
        process.argv(pid),
    )
