"""Where a line was that is no longer there: between which two others."""

from __future__ import annotations

from typing import Any, Self

from bsd.foundation.immutable import immutable


@immutable
class Neighbour:
    """A line beside the gap, as the operation left it."""

    entry_id: str | None
    hash: str  # `sha256:…` of the raw line with its end

    def is_like(self, other: Neighbour) -> bool:
        """Whether it is the same entry, changed meanwhile or not."""
        if self.entry_id is not None and self.entry_id == other.entry_id:
            return True
        return self.hash == other.hash


@immutable
class Gap:
    """The nearest lines that stayed; None is an end of the file."""

    after: Neighbour | None
    before: Neighbour | None

    @property
    def neighbours(self) -> tuple[Neighbour, ...]:
        return tuple(one for one in (self.after, self.before) if one is not None)

    def as_json(self) -> list[Any]:
        return [one and [one.entry_id, one.hash] for one in (self.after, self.before)]

    @classmethod
    def of(cls, document: Any) -> Self:
        """Read what `as_json` wrote; raises ValueError, TypeError."""
        after, before = (one and Neighbour(*one) for one in document)
        return cls(after or None, before or None)
