"""A pager for output that is longer than the screen, as `git log` has one."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from shutil import get_terminal_size

import click
from rich.cells import cell_len
from rich.text import Text


class _Screenful(io.StringIO):
    """Collects output for a terminal, so that its lines can be counted first."""

    def isatty(self) -> bool:
        return True


@contextmanager
def paged(*, wanted: bool = True) -> Iterator[None]:
    """Show the output of the block in the user's pager if it is longer than the screen.

    Without a terminal, or if `wanted` is False, the output is not changed. The pager is PAGER, else
    `less`, else `more`. If the block raises an error, the output before it is shown, too.
    """
    if not (wanted and sys.stdout.isatty()):
        yield
        return
    screen = _Screenful()
    try:
        with redirect_stdout(screen):
            yield
    finally:
        text = screen.getvalue()
        if _height(text) < get_terminal_size().lines:
            sys.stdout.write(text)
        else:
            click.echo_via_pager(text.removesuffix("\n"))


def _height(text: str) -> int:
    """Return the number of lines that a text takes on the terminal."""
    width = max(get_terminal_size().columns, 1)
    lines = (Text.from_ansi(line).plain if "\x1b" in line else line for line in text.splitlines())
    return sum(max(1, -(-cell_len(line) // width)) for line in lines)
