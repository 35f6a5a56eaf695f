"""Reads a session, or a copy of one, into the rows of the catalogue and of Parquet files.

A session is read in parts, so that memory stays bounded, and is open only while the bytes of a part
are read, because an open file blocks a commit. Nothing here depends on where the rows go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bsd.core.layout import Layout, SessionName
from bsd.core.prices import PriceTable
from bsd.fleet.rows import EntryFacts, SessionFacts
from bsd.transcripts.agents.program import AgentProgram
from bsd.transcripts.reader import InBlocks


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far a session was read; `state`: what later lines need from earlier ones."""

    file: tuple[int, int, int, int, int]  # dev, ino, size, mtime_ns, ctime_ns
    offset: int  # bytes
    lines: int
    guard: bytes  # hash of the bytes before the offset; empty: an append has all read again
    state: str


@dataclass(frozen=True, slots=True)
class RowsPart:
    """The rows of a part of a session."""

    first: int  # number of its first line
    rows: list[EntryFacts]
    mark: Watermark  # after this part
    more: bool  # further parts follow
    fresh: bool  # the lines follow those of the watermark with which the reader began


class SessionRows:
    """Reads one session: `parts` first, then `facts`.

    Raises, in all methods: NotFound (also if it is excluded), Busy, Forbidden, LeftAlone,
    Unavailable (a damaged copy).
    """

    def __init__(
        self,
        name: SessionName,
        open_source: Callable[[], InBlocks],
        program: AgentProgram,
        *,
        layout: Layout,
        prices: PriceTable,
        text: bool = False,
    ) -> None:
        """Read a session through `open_source`; `of` is the usual constructor.

        Args:
            name: of the session.
            open_source: opens its transcript, or a copy.
            program: its program.
            layout: the root whose store and archive have its originals.
            prices: for calls of which the program records no cost.
            text: give rows their words, also those of extracted values.
        """
        raise NotImplementedError

    @classmethod
    def of(
        cls, layout: Layout, name: SessionName, *, prices: PriceTable, text: bool = False
    ) -> SessionRows:
        """Return a reader of a session of this root, or of the copy of a deleted one."""
        raise NotImplementedError

    def parts(self, since: Watermark | None = None) -> Iterator[RowsPart]:
        """Yield the rows of the session, a part at a time; nothing if it has not changed.

        Args:
            since: begin after the lines that are read already, if they are as they were.
        """
        raise NotImplementedError

    def facts(self) -> SessionFacts:
        """Return the facts of the session, after `parts` has ended."""
        raise NotImplementedError


def read_rows(
    layout: Layout, name: SessionName, *, prices: PriceTable, text: bool = False
) -> Iterator[EntryFacts]:
    """Yield all rows of a session; raises as `SessionRows`."""
    for part in SessionRows.of(layout, name, prices=prices, text=text).parts():
        yield from part.rows
