"""What a planner returns: new bytes for lines, what the store must keep, a report (DESIGN §1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Protocol

from bsd.foundation.immutable import immutable
from bsd.foundation.layout import SessionName
from bsd.foundation.pruning_fields import PruningConfig
from bsd.store.entry_notes import NOTHING, Noting
from bsd.store.extracted import Keep, Stored
from bsd.store.history import TouchedLine
from bsd.store.state import Checkpoint
from bsd.surgery.tokens import Rate
from bsd.text.change import Edit, Identity
from bsd.text.reader import Line


class Source(Protocol):
    """The session file a planner reads: every line in order, or one line again."""

    identity: Identity

    def lines(self, start: int = 0, first_index: int = 0) -> Iterator[Line]: ...

    def lines_holding(self, needle: bytes) -> Iterator[Line]: ...

    def read(self, offset: int, length: int) -> bytes: ...


@immutable
class Means:
    """What a planner or a query may want beside the session itself."""

    name: SessionName
    stored: Stored  # what is away of it
    now: float  # epoch seconds
    # The settings; raises ConfigError. Broken ones are no business of whoever needs none.
    config: Callable[[], PruningConfig]


@immutable
class Leaked:
    """A placeholder in the arguments of a tool call: a model may have written it into a file."""

    index: int  # line of the call
    entry_id: str | None
    tool: str
    mentions: str  # the entry whose placeholder it is


@immutable
class Saving:
    """What values of one type give up, in session bytes and (roughly) in tokens of context."""

    values: int = 0
    bytes: int = 0  # without what the marker costs, which belongs to no value
    tokens: int = 0  # of what is sent as the session goes on now


@immutable
class Report:
    """What a plan would do, in numbers for people."""

    action: str  # extract, restore, …
    entries: int = 0
    values: int = 0
    bytes_before: int = 0  # of the whole session
    bytes_after: int = 0
    reasons: Counter[str] = field(default_factory=Counter)  # SPEC §3: outcome of each entry
    savings: Mapping[str, Saving] = field(default_factory=dict)  # by value type; `other`: none
    leaked: tuple[Leaked, ...] = ()
    unreadable: int = 0  # lines that are not blank and hold no JSON object
    partial: bool = False  # it tells of what was appended since the last one
    undone_before: int = 0  # of the entries: how many somebody had taken back by undo
    rate: Rate = field(default_factory=Rate)  # by which tokens were estimated

    @property
    def bytes_saved(self) -> int:
        return self.bytes_before - self.bytes_after

    @property
    def tokens_saved(self) -> int:
        return sum(saving.tokens for saving in self.savings.values())


@immutable
class Plan:
    """Edits of one session file and what must be kept before they are made."""

    planned_on: Identity
    edits: tuple[Edit, ...]
    report: Report
    keeps: tuple[Keep, ...] = ()
    touched: tuple[TouchedLine, ...] = ()  # for the history: what each of the edits is about
    undoes: int | None = None  # number of the operation that this one undoes
    noting: Noting = NOTHING  # what shall be known of entries from then on
    complete: bool = True  # False: the budget ended it; plan again after the commit
    due_at: float | None = None  # epoch seconds at which planning again could find more
    checkpoint: Checkpoint | None = None  # where to begin next time, once this is in effect
