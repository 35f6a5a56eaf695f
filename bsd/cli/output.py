"""The output of a call: one JSON document for programs, tables and lines for people (SPEC §9)."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from shutil import get_terminal_size
from typing import IO, Any

from bsd.cli.table_layout import TableColumn, fit_table, wrap_line
from bsd.core.formatting import format_size

_DAY_SECONDS = 86_400.0
_MANY_TOKENS = 10_000  # from which on they are told in thousands
_FURTHER = 2  # columns before further lines of a sentence
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
    sys.stdout.write(f"{styled(shown, style, sys.stdout)}\n")


def say_wrapped(text: str, indent: int = _FURTHER, *, style: str = "") -> None:
    """Print a line for people; on a terminal its further lines are indented by so many columns."""
    shown = safe(text)
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    for line in wrap_line(shown, width, indent):
        sys.stdout.write(f"{styled(line, style, sys.stdout)}\n")


def say_check(level: str, text: str, indent: int = 2) -> None:
    """Print the result of a check, `ok`, `warn` or `fail`, and its subject.

    Args:
        indent: columns before the further lines, if the terminal is too narrow for one.
    """
    sign, style = _SIGNS[level]
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    first, *further = wrap_line(f"{sign} {safe(text)}", width, indent)
    sys.stdout.write(f"{styled(sign, style, sys.stdout)}{first[len(sign) :]}\n")
    sys.stdout.writelines(f"{line}\n" for line in further)


def note(text: str) -> None:
    """Print a line for people that is not the answer itself: to stderr.

    On a terminal, further lines of a line that is too long are indented.
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
    """Print a table of texts, which are made safe. On a terminal it is as wide as that at most.

    Without a terminal nothing is cut or left out. On one, a first column of long names stands on
    lines of its own if there is no room beside it; names in it are never cut.

    Args:
        right: the columns that hold numbers.
        last_may_shrink: the last column may be cut with an ellipsis.
        wraps: the columns whose cells may take several lines.
        spare: the columns that are left out on a narrow terminal, the first of them first.
        whole: the columns whose cells are to be copied: they are neither cut nor wrapped.
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
    """Return the lines of a table, as `print_table` prints it and `fit_table` returns them."""
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


def cache_wait(until: str, tokens: int | None, now: float) -> str:
    """Write until when a session waits: `cache warm until 14:05, 38k tokens ready`.

    Args:
        until: ISO 8601.
        tokens: the tokens that leave then.
        now: epoch seconds.
    """
    moment = datetime.fromisoformat(until).astimezone()
    is_near = moment.timestamp() - now < _DAY_SECONDS
    ready = f"{tokens / 1000:.0f}k" if tokens and tokens >= _MANY_TOKENS else f"{tokens or 0:,}"
    time = f"{moment:%H:%M}" if is_near else f"{moment:%Y-%m-%d %H:%M}"
    return f"cache warm until {time}, {ready} tokens ready"


def share(part: int, whole: int) -> str:
    """Write a part as a share of a whole, in per cent."""
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
