"""What a call prints: one JSON document for programs, tables for people (SPEC §9)."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any

from bsd.cli.text import safe

# Wide enough for every name: what is not a terminal does not want anything cut or wrapped.
_UNBOUNDED = 100_000
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
    folding: str | None = None,
) -> None:
    """Print a table; columns named in `right` are numbers, `folding` takes what room is left."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True)
    for name in columns:
        narrow = name in right or (folding is not None and name != folding)
        table.add_column(
            Text(name),
            justify="right" if name in right else "left",
            no_wrap=narrow,
            overflow="ellipsis" if name == folding else "fold",
        )
        if name == folding:
            table.columns[-1].no_wrap = True
            table.columns[-1].ratio = None
    for row in rows:
        table.add_row(*(Text(safe(cell)) for cell in row))
    console = Console(
        file=sys.stdout,
        width=None if terminal else _UNBOUNDED,
        highlight=False,
        emoji=False,
        markup=False,
    )
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
