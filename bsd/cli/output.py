"""The output of a call: a JSON document for programs, tables and lines for people (SPEC §9)."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from shutil import get_terminal_size
from typing import IO, Any

from bsd.cli.table_layout import TableColumn, fit_table, wrap_line
from bsd.core.formatting import format_size

_FURTHER = 2  # columns before continuation lines
_SIGNS = {"ok": ("✓", "32"), "warn": ("!", "33"), "fail": ("✗", "1;31")}


def print_json(document: Any) -> None:
    """Print the call's JSON document, in ASCII, which is safe for every terminal and pipe."""
    try:
        text = json.dumps(document, indent=2, allow_nan=False)
    except ValueError:  # some transcripts have NaN or infinities, which JSON lacks
        text = json.dumps(_finite(document), indent=2)
    sys.stdout.write(text + "\n")


def say(text: str = "", *, style: str = "") -> None:
    """Print one or more lines for people; characters that could harm a terminal are escaped."""
    shown = safe(text, lines=True)
    sys.stdout.write(f"{styled(shown, style, sys.stdout)}\n")


def say_wrapped(text: str, indent: int = _FURTHER, *, style: str = "") -> None:
    """Print a line for people.

    Args:
        indent: columns before continuation lines, on a terminal that is too narrow for one line.
    """
    shown = safe(text)
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    for line in wrap_line(shown, width, indent):
        sys.stdout.write(f"{styled(line, style, sys.stdout)}\n")


def say_check(level: str, text: str, indent: int = 2) -> None:
    """Print the subject of a check with its result, `ok`, `warn` or `fail`.

    Args:
        indent: columns before the continuation lines on a narrow terminal.
    """
    sign, style = _SIGNS[level]
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    first, *further = wrap_line(f"{sign} {safe(text)}", width, indent)
    sys.stdout.write(f"{styled(sign, style, sys.stdout)}{first[len(sign) :]}\n")
    sys.stdout.writelines(f"{line}\n" for line in further)


def note(text: str) -> None:
    """Print a note for people that is not part of the answer, to stderr.

    On a terminal, continuation lines of a long line are indented.
    """
    width = get_terminal_size().columns if sys.stderr.isatty() else None
    for line in safe(text, lines=True).split("\n"):
        for part in wrap_line(line, width, _FURTHER):
            sys.stderr.write(f"{part}\n")


def styled(text: str, code: str, stream: IO[str]) -> str:
    """Return `text` in the SGR style `code` if `stream` is a terminal that shows it."""
    return f"\x1b[{code}m{text}\x1b[0m" if code and _is_styled(stream) else text


def _is_styled(stream: IO[str]) -> bool:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and stream.isatty()


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    last_may_shrink: bool = False,
    wraps: Sequence[str] = (),
    spare: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> None:
    """Print a table whose texts are escaped; on a terminal, it is at most as wide as the terminal.

    Elsewhere, no cell is cut and no column left out. On a terminal, if a first column of long names
    leaves too little room, its names get lines of their own; they are never cut.

    Args:
        right: the columns that hold numbers; they are aligned to the right.
        last_may_shrink: the last column may be cut with an ellipsis.
        wraps: the columns whose cells may take several lines.
        spare: the columns that are left out on a narrow terminal, in this order.
        whole: the columns whose cells users copy: they are neither cut nor wrapped.
    """
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    how = {"right": right, "wraps": wraps, "spare": spare, "whole": whole}
    titles, lines = table_lines(columns, rows, width, last_may_shrink=last_may_shrink, **how)
    for line in titles:
        sys.stdout.write(styled(line, "1", sys.stdout) + "\n")
    sys.stdout.writelines(f"{line}\n" for line in lines)


def table_lines(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int | None,
    *,
    right: Sequence[str] = (),
    last_may_shrink: bool = False,
    wraps: Sequence[str] = (),
    spare: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """Return the title's lines and the rows' lines of a table, as `print_table` prints them."""
    cells = [[safe(cell) for cell in row] for row in rows]
    fitted = [
        TableColumn(
            title,
            tuple(row[number] for row in cells),
            right=title in right,
            cuts=last_may_shrink and number == len(columns) - 1,
            wraps=title in wraps,
            spare=spare.index(title) + 1 if title in spare else 0,
            whole=title in whole,
        )
        for number, title in enumerate(columns)
    ]
    return fit_table(fitted, width)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


size = format_size  # bytes, for people
# Python counts joiners as not printable, but emoji and several scripts need them.
_HARMLESS = "\u200c\u200d"


def safe(text: str, *, lines: bool = False) -> str:
    r"""Return `text` with all characters escaped that could control or confuse a terminal.

    Control characters, lone surrogates, direction marks and unassigned characters appear as `\x1b`
    or `\u202e`; with `lines`, line breaks and tabs stay.
    """
    if text.isprintable():
        return text
    kept = _HARMLESS + ("\n\t" if lines else "")
    return "".join(c if c.isprintable() or c in kept else _escape(c) for c in text)


def one_line(text: str, length: int) -> str:
    """Return the beginning of `text` as one line of at most `length` characters, escaped."""
    line = safe(" ".join(text[: 8 * length].split()))
    return line if len(line) <= length else line[: length - 1] + "…"


def counted(count: int, noun: str) -> str:
    """Format a number with its noun: `1 entry`, `2 entries`, `0 sessions`."""
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{count:,} {plural}"


def minute(moment: str | None) -> str:
    """Format an ISO 8601 moment for a table; None is `never`."""
    return "never" if moment is None else moment[:16].replace("T", " ")


def share(part: int, whole: int) -> str:
    """Format a part as a percentage of the whole."""
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
