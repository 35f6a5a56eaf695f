"""A progress bar on a terminal, for one action that reads much."""

from __future__ import annotations

import sys
import time
from typing import Self

from rich import progress
from rich.console import Console

_LEAST = 4 << 20  # bytes to read before a bar is worth it
_REFRESH_SECONDS = 0.1


class Progress:
    """Shows a bar on stderr while the `with` block runs, if that is a terminal.

    It is drawn by the caller, never by a thread of its own: a commit must not wait for one.
    """

    def __init__(self, least: int = _LEAST) -> None:
        self._least = least  # bytes to read; for fewer nothing is shown
        self._bar: progress.Progress | None = None
        self._drawn = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, of: int | None = None, text: str = "") -> None:
        """Show that `done` of `of` bytes are read, behind a text; little work shows nothing."""
        if of is None or of < self._least or not sys.stderr.isatty():
            return
        if self._bar is None:
            self._bar = bar(of)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=of, description=text)
        if time.monotonic() - self._drawn >= _REFRESH_SECONDS:
            self._bar.refresh()
            self._drawn = time.monotonic()


def bar(total: int) -> progress.Progress:
    """Make a bar with one task of `total` bytes; the caller refreshes it."""
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
