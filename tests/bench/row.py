"""A line of the bench's table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_FORM = "{:<44} {:>16} {:>22} {:>8}  {}"
HEADINGS = _FORM.format("what", "bsd", "beside", "ratio", "target")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table."""

    what: str
    ours: str
    beside: str
    ratio: float
    target: str
    met: bool

    def __str__(self) -> str:
        mark = "" if self.met else "  MISSED"
        return _FORM.format(
            self.what, self.ours, self.beside, f"{self.ratio:.2f}", self.target + mark
        )


Rows = Iterator[Row]
