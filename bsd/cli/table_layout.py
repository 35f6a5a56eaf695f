"""Fits a table to a terminal: columns shrink, wrap, are left out or get lines of their own.

The functions take cells and return lines; they do no I/O. Widths are columns of the terminal, of
which a wide character takes two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console, OverflowMethod
from rich.text import Text

_GAP = 2  # between columns
_INDENT = 2  # before the cells below a name that has its own line
_LEAST = 20  # least width of a column that shrinks or wraps
_FOLDED = 8  # least width of any column, as a last resort
_LONG_HEAD = 3  # a name is long if it takes more than a third of the terminal
# Words: a command in backquotes, a number with its unit, or any text without spaces.
_WORD = re.compile(r"\s*(?:`[^`]*`|\d (?:[KMGT]?B\b|%)|\S)+")
_CONSOLE = Console(width=1 << 16, color_system=None, force_terminal=False)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column: its title, its cells, and how it may be narrowed.

    Attributes:
        right: it holds numbers, which are aligned to the right.
        cuts: its cells may be cut with an ellipsis.
        wraps: its cells may take several lines.
        spare: its place in the order in which columns are left out; 0: it always stays.
        whole: its cells never wrap, even if they are wider than the terminal.
    """

    title: str
    cells: tuple[str, ...]
    right: bool = False
    cuts: bool = False
    wraps: bool = False
    spare: int = 0
    whole: bool = False

    @property
    def width(self) -> int:
        """The width at which all cells are shown whole."""
        return max(map(cell_len, (self.title, *self.cells)))

    @property
    def least(self) -> int:
        """The smallest width to which the column may be narrowed."""
        return min(self.width, _LEAST) if self.cuts or self.wraps else self.width

    @property
    def is_empty(self) -> bool:
        """True if the column has no text in any row."""
        return not any(self.cells)


def fit_table(columns: Sequence[TableColumn], width: int | None) -> tuple[list[str], list[str]]:
    """Lay out a table for a terminal of this width; None: all cells are shown whole.

    If the table is too wide, empty columns are left out first. A first column with long cells then
    gets lines of its own above the rest of each row; it is never cut, so that users can copy the
    name. Then columns are left out in the order of `spare`. If the table is still too wide, the
    widest columns wrap.

    Returns:
        The lines of the title, and the lines of the rows; no line ends with spaces.
    """
    kept, head = list(columns), None
    if width is None or sum(_widths(kept, None)) + _gaps(kept) <= width:
        return _lines(kept, _widths(kept, None), None)
    kept = [column for column in kept if not column.is_empty]
    if _least_width(kept) > width and kept and kept[0].width * _LONG_HEAD > width:
        head, *kept = kept
        width = max(width - _INDENT, _FOLDED)
    for column in sorted((each for each in kept if each.spare), key=lambda each: each.spare):
        if _least_width(kept) > width:
            kept.remove(column)
    return _lines(kept, _widths(kept, width), head)


def wrap_line(text: str, width: int | None, indent: int) -> list[str]:
    """Break a line between words; continuation lines are indented. A width of None: do not break.

    A longer word, such as a path, a name or a command in backquotes, stays whole, so that users can
    copy it.
    """
    if width is None or cell_len(text) <= width or width <= 2 * indent:
        return [text]
    lines, line = [], ""
    for word in _WORD.findall(text):
        if line.strip() and cell_len(line + word) > width:
            lines.append(line)
            line = " " * indent + word.lstrip()
        else:
            line += word
    return [*lines, line]


def _least_width(columns: Sequence[TableColumn]) -> int:
    return sum(column.least for column in columns) + _gaps(columns)


def _gaps(columns: Sequence[TableColumn]) -> int:
    return _GAP * max(len(columns) - 1, 0)


def _widths(columns: list[TableColumn], width: int | None) -> list[int]:
    """Return the width of each column; the columns that can be narrowed share the missing space.

    If that is not enough, columns that neither cut nor wrap are made to wrap.
    """
    widths = [column.width for column in columns]
    if width is None:
        return widths
    over = sum(widths) + _gaps(columns) - width
    # If a whole cell breaks the lines anyway, narrower columns do not help.
    breaks = any(column.whole for column in columns)
    for is_last_resort in (False,) if breaks else (False, True):
        least = [_FOLDED if is_last_resort else column.least for column in columns]
        while over > 0:
            room = [have - want for have, want in zip(widths, least, strict=True)]
            if max(room, default=0) <= 0:
                break
            # Narrow the widest column that can be narrowed, down to the next widest.
            able = [number for number, each in enumerate(room) if each > 0]
            widest = max(able, key=lambda number: widths[number])
            next_width = max(
                (widths[number] for number in able if widths[number] < widths[widest]), default=0
            )
            given = min(over, room[widest], max(widths[widest] - next_width, 1))
            widths[widest] -= given
            over -= given
            if is_last_resort and not columns[widest].cuts:
                columns[widest] = replace(columns[widest], wraps=True)
    return widths


def _lines(
    columns: Sequence[TableColumn], widths: Sequence[int], head: TableColumn | None
) -> tuple[list[str], list[str]]:
    indent = " " * _INDENT if head else ""

    def row(cells: Sequence[str], first: str) -> list[str]:
        below = [indent + line for line in _row(columns, widths, cells)] if columns else []
        return [line.rstrip(" ") for line in ([first] if head else []) + below if line.strip()]

    title = row([column.title for column in columns], head.title if head else "")
    cells = list(zip(*(column.cells for column in columns), strict=True))
    names = head.cells if head else ("",) * len(cells)
    if not columns:
        cells = [()] * len(names)
    rows = [row(each, name) or [""] for each, name in zip(cells, names, strict=True)]
    return title, [line for lines in rows for line in lines]


def _row(columns: Sequence[TableColumn], widths: Sequence[int], cells: Sequence[str]) -> list[str]:
    """Return the lines of one row, side by side."""
    blocks = [
        _block(column, width, cell)
        for column, width, cell in zip(columns, widths, cells, strict=True)
    ]
    blank = [" " * width for width in widths]
    height = max(map(len, blocks))
    return [
        (" " * _GAP).join(
            block[number] if number < len(block) else blank[column]
            for column, block in enumerate(blocks)
        )
        for number in range(height)
    ]


def _block(column: TableColumn, width: int, cell: str) -> list[str]:
    """Return the lines of one cell, each as wide as its column."""
    lines = [cell]
    if cell_len(cell) > width:
        wraps = column.wraps and not column.cuts
        overflow: OverflowMethod = "fold" if wraps else "ellipsis"
        wrapped = Text(cell).wrap(_CONSOLE, width, overflow=overflow, no_wrap=not wraps)
        lines = [line.plain for line in wrapped]
    spaces = [" " * max(width - cell_len(line), 0) for line in lines]
    if column.right:
        return [space + line for space, line in zip(spaces, lines, strict=True)]
    return [line + space for space, line in zip(spaces, lines, strict=True)]
