"""What a call prints: one JSON document for programs, tables for people (SPEC §9)."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

from bsd.cli.text import safe

if TYPE_CHECKING:
    from rich.console import JustifyMethod

_LEAST_LAST = 20
_SIGNS = {"ok": ("✓", "32"), "warn": ("!", "33"), "fail": ("✗", "1;31")}


def print_json(document: Any) -> None:
    """Print the call's one JSON document, in ASCII: bytes that no terminal or pipe can harm."""
    try:
        text = json.dumps(document, indent=2, allow_nan=False)
    except ValueError:  # NaN and infinities stand in some transcripts; JSON has no word for them
        text = json.dumps(_finite(document), indent=2)
    sys.stdout.write(text + "\n")


def say(text: str = "", *, style: str = "") -> None:
    """Print a line (or several) for people; anything dangerous in it is escaped."""
    shown = safe(text, lines=True)
    sys.stdout.write((styled(shown, style, sys.stdout) if style else shown) + "\n")


def say_check(level: str, text: str) -> None:
    """Print how a check went: `ok`, `warn` or `fail`, and what was looked at."""
    sign, style = _SIGNS[level]
    sys.stdout.write(f"{styled(sign, style, sys.stdout)} {safe(text)}\n")


def note(text: str) -> None:
    """Print a line for people that is not the answer itself: to stderr."""
    sys.stderr.write(safe(text, lines=True) + "\n")


def styled(text: str, code: str, stream: IO[str]) -> str:
    """Return `text` in the SGR style `code` if `stream` is a terminal that shows it."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return text if plain else f"\x1b[{code}m{text}\x1b[0m"


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    last_may_shrink: bool = False,
) -> None:
    """Print a table; columns named in `right` are numbers.

    Names are never cut: a table wider than the terminal is left to it to wrap. With
    `last_may_shrink` the last column takes what room is left.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False, emoji=False, markup=False)
    cells = [[safe(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if last_may_shrink and sys.stdout.isatty():
        left = console.width - sum(widths[:-1]) - 2 * len(widths[:-1])
        widths[-1] = min(widths[-1], max(left, _LEAST_LAST))
    console.width = sum(widths) + 2 * len(widths)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, width in zip(columns, widths, strict=True):
        side: JustifyMethod = "right" if name in right else "left"
        table.add_column(Text(name), justify=side, no_wrap=True, width=width)
    for row in cells:
        table.add_row(*map(Text, row))
    with console.capture() as printed:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip(' ')}\n" for line in printed.get().split("\n")[:-1])


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
