"""What `bsd demo` shows: lines that stay, and on a terminal a table that moves."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from bsd.doors.cli.output import say, say_check
from bsd.doors.cli.text import share, size

if TYPE_CHECKING:
    from rich.live import Live

_BAR = 24  # characters
_STYLES = {"agent": "36", "bsd": "32", "you": "33"}


class ScreenRow(NamedTuple):
    """A session in the table; sizes are bytes."""

    name: str
    written: int
    now: int
    placeholders: int


class Screen:
    """Prints as the demo goes on; a quiet one only remembers the checks."""

    def __init__(self, *, quiet: bool) -> None:
        self.checks: list[dict[str, Any]] = []
        self._quiet = quiet
        self._began = time.monotonic()
        self._live: Live | None = None

    @property
    def seconds(self) -> float:
        """How long the demo takes so far."""
        return time.monotonic() - self._began

    @property
    def well(self) -> bool:
        return all(check["ok"] for check in self.checks)

    def title(self, text: str) -> None:
        self._say("")
        self._say(text, "1")

    def tell(self, text: str) -> None:
        self._say(f"  {text}")

    def event(self, who: str, text: str) -> None:
        """Somebody (agent, bsd, you) did something."""
        self._say(f"  {self.seconds:5.1f} s  {who:<6} {text}", _STYLES[who])

    def check(self, text: str, ok: bool) -> None:
        self.checks.append({"check": text, "ok": ok})
        if not self._quiet:
            say_check("ok" if ok else "fail", text)
            sys.stdout.flush()

    @contextmanager
    def table(self) -> Iterator[None]:
        """Show the table below all lines, while the block runs, where there is a terminal."""
        if self._quiet or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
            yield
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(file=sys.stdout, highlight=False, emoji=False, markup=False)
        with Live(console=console, transient=True, auto_refresh=False) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def show(self, rows: Iterable[ScreenRow]) -> None:
        """Draw the table anew."""
        if self._live is None:
            return
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 2), header_style="bold")
        for heading in ("SESSION", "WRITTEN", "IN THE FILE", "PLACEHOLDERS"):
            table.add_column(heading, justify="left" if heading == "SESSION" else "right")
        table.add_column("")
        for row in rows:
            full = round(_BAR * row.now / row.written) if row.written else 0
            bar = "█" * min(_BAR, max(1, full))
            table.add_row(
                row.name,
                size(row.written),
                size(row.now),
                str(row.placeholders),
                f"{bar:░<{_BAR}} {share(row.now, row.written):>5}",
            )
        self._live.update(table, refresh=True)

    def _say(self, text: str, style: str = "") -> None:
        if not self._quiet:
            say(text, style=style)
            sys.stdout.flush()
