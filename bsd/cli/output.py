"""What a call prints: one JSON document for programs, tables for people (SPEC §9).

Tables are plain columns, not rich's: those fill the last column with spaces, fit the rest to the
terminal, and take eight seconds for 10,000 sessions where these take 40 ms. Of rich only the width
of characters is used, where some are not ASCII.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from shutil import get_terminal_size
from typing import IO, Any

from bsd.core.formatting import format_size

_GAP = 2  # between columns
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
    cells = [[safe(cell) for cell in row] for row in rows]
    widths = [max(map(_cells, column)) for column in zip(columns, *cells, strict=True)]
    if last_may_shrink and sys.stdout.isatty():
        left = get_terminal_size().columns - sum(widths[:-1]) - _GAP * (len(widths) - 1)
        widths[-1] = min(widths[-1], max(left, _LEAST_LAST))
    numbers = [name in right for name in columns]

    def line(row: Sequence[str]) -> str:
        padded = map(_padded, row, widths, numbers)
        return (" " * _GAP).join(padded).rstrip(" ")

    say(line(columns), style="1")
    sys.stdout.writelines(f"{line(row)}\n" for row in cells)


def _padded(text: str, width: int, right: bool) -> str:
    room = width - _cells(text)
    if room < 0:
        shown: str = _rich_cells().set_cell_size(text, width - 1)
        return shown + "…"
    return " " * room + text if right else text + " " * room


def _cells(text: str) -> int:
    """How wide a terminal shows it."""
    if text.isascii():
        return len(text)
    width: int = _rich_cells().cell_len(text)
    return width


def _rich_cells() -> Any:
    from rich import cells  # only here: most tables are quicker made than this is loaded

    return cells


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


size = format_size  # bytes, for people
# Joiners are not printable in Python's eyes, but emoji and several scripts need them.
_HARMLESS = "\u200c\u200d"


def safe(text: str, *, lines: bool = False) -> str:
    r"""Return `text` with everything escaped that could command or confuse a terminal.

    Control characters, lone surrogates, direction marks and unassigned characters appear as
    `\x1b` or `\u202e`; with `lines`, line breaks and tabs stay.
    """
    if text.isprintable():
        return text
    kept = _HARMLESS + ("\n\t" if lines else "")
    return "".join(c if c.isprintable() or c in kept else _escape(c) for c in text)


def one_line(text: str, length: int) -> str:
    """Return the beginning of `text` on one line of at most `length` characters, made safe."""
    line = safe(" ".join(text[: 8 * length].split()))
    return line if len(line) <= length else line[: length - 1] + "…"


def counted(count: int, noun: str) -> str:
    """Write a number with its noun: `1 entry`, `2 entries`, `0 sessions`."""
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{count:,} {plural}"


def minute(moment: str | None) -> str:
    """Write an ISO moment for a table; None is one that never comes."""
    return "never" if moment is None else moment[:16].replace("T", " ")


def share(part: int, whole: int) -> str:
    """Write what part of a whole something is, in per cent."""
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
