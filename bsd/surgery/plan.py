"""What a planner returns: new bytes for lines, what the store must keep, and a report (DESIGN §1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from bsd.store.extracted import Keep
from bsd.transcript.change import Edit, Identity
from bsd.transcript.reader import Line


class Source(Protocol):
    """The session file a planner reads: every line in order, or one line again."""

    identity: Identity

    def lines(self) -> Iterator[Line]: ...

    def read(self, offset: int, length: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Report:
    """What a plan would do, in numbers for people."""

    action: str  # extract, restore, …
    entries: int = 0
    values: int = 0
    bytes_before: int = 0  # of the whole session
    bytes_after: int = 0
    reasons: Counter[str] = field(default_factory=Counter)  # SPEC §3: outcome of each entry

    @property
    def bytes_saved(self) -> int:
        return self.bytes_before - self.bytes_after


@dataclass(frozen=True, slots=True)
class Plan:
    """Edits of one session file and what must be kept before they are made."""

    planned_on: Identity
    edits: tuple[Edit, ...]
    report: Report
    keeps: tuple[Keep, ...] = ()
    complete: bool = True  # False: the budget ended it; plan again after the commit
    due_at: float | None = None  # epoch seconds at which planning again could find more
