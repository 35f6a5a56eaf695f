"""Where reading a session may begin instead of at its first line: after what is settled."""

from __future__ import annotations

from array import array
from collections.abc import Collection
from dataclasses import field
from typing import Protocol

from bsd.foundation.immutable import immutable

NO_ID = 0  # the number of an entry without id


class Ids(Protocol):
    """The ids of entries that need not be read again."""

    def among(self, ids: Collection[int]) -> set[int]:
        """Which of these they are."""
        ...


@immutable
class Checkpoint:
    """A place between two lines, and what the lines before it mean for those after it."""

    offset: int  # bytes
    index: int  # number of the line that begins here, 0-based
    messages: int  # message entries before
    ids: array[int]  # a number for the id of each entry before, but for the `earlier` ones
    own_calls: tuple[str, ...] = ()  # calls of our own tools whose results may follow
    leaf: int = NO_ID  # a number for the id of the last entry before that has one
    in_turn: bool = False  # in the last turn, which has come to its end
    on_way: bool = True  # whoever went on from the end came by it
    bound: bool = False  # values before stay only since a signature covers them
    characters_per_token: float = 0.0  # as recorded before; 0: not known
    earlier: Ids | None = field(default=None, compare=False)  # known without being listed

    def among(self, ids: Collection[int]) -> set[int]:
        """Which of these ids an entry before the checkpoint has."""
        found = set(ids).intersection(self.ids) if self.ids else set()
        return found | self.earlier.among(ids) if self.earlier else found
