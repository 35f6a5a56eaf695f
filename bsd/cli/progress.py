"""The progress of a long call on a terminal: a bar with rate and time left, or the elapsed time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from rich import progress
from rich.console import Console

_LEAST = 4 << 20  # bytes; for less, a bar is shown only after _SOON_SECONDS
_SOON_SECONDS = 1.0
_REFRESH_SECONDS = 0.1


class Progress:
    """Shows a bar on stderr while the `with` block runs, if stderr is a terminal.

    The bar appears at once if much is to be read, else after a second. The caller draws it; a
    thread would make a commit wait.
    """

    def __init__(self, least: int = _LEAST) -> None:
        self._least = least  # bytes from which on the bar is shown at once
        self._began = time.monotonic()
        self._bar: progress.Progress | None = None
        self._drawn = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, of: int | None = None, text: str = "") -> None:
        """Show that `done` of `of` bytes are read, after a text; little work shows no bar."""
        if not of or not sys.stderr.isatty():
            return
        if of < self._least and time.monotonic() - self._began < _SOON_SECONDS:
            return
        if self._bar is None:
            self._bar = bar(of)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=of, description=text)
        if time.monotonic() - self._drawn >= _REFRESH_SECONDS:
            self._bar.refresh()
            self._drawn = time.monotonic()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show the elapsed time on a terminal, once the block has taken a second.

    For work whose progress is unknown. Threads draw the line, so the block must hold no leases: it
    asks another process, or it only reads.
    """
    if not sys.stderr.isatty():
        yield
        return
    shown = progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}", markup=False),
        progress.TimeElapsedColumn(),
        console=Console(stderr=True, markup=False, highlight=False),
        redirect_stdout=False,
        redirect_stderr=False,
        transient=True,
    )
    shown.add_task(what, total=None)
    timer = threading.Timer(_SOON_SECONDS, shown.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        shown.stop()


def bar(total: int) -> progress.Progress:
    """Return a bar with one task of `total` bytes; the caller refreshes it."""
    made = progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(compact=True),
        console=Console(stderr=True, markup=False, highlight=False),
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        transient=True,
    )
    made.add_task("", total=total)
    return made
