"""One session as its provider saw it: entries, requests, contexts, and text that is wanted again.

A `Recording` holds numbers and no text, so that the replay (SPEC §13) can play a session under many
settings at once. `recording_reader` makes one from a transcript. Entries are addressed by number:
their place among the entries of the file, without headers and damaged lines. Times are epoch
seconds; `nan` in a column means that the time is unknown.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from bsd.transcripts.agents.entry import Usage
from bsd.transcripts.agents.format import VALUE_TYPES, Turn

TURNS = tuple(Turn)  # a column holds the index
TYPES = (*VALUE_TYPES, None)  # likewise


@dataclass(slots=True)
class EntryColumns:
    """The entries of a session, a column for each property."""

    lines: array[int] = field(default_factory=lambda: array("Q"))  # 0-based line numbers
    ends: array[int] = field(default_factory=lambda: array("Q"))  # bytes of the file up to its end
    times: array[float] = field(default_factory=lambda: array("d"))
    messages: array[int] = field(default_factory=lambda: array("I"))  # up to and including it
    turns: bytearray = field(default_factory=bytearray)  # index in `TURNS`
    # Tokens that the entry adds to the context; 0 if it is never sent (notes, sub-agents, errors).
    tokens: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.lines)

    def positions(self, entry: int, seen: int) -> int:
        """Return the number of messages after an entry if the session ends before entry `seen`."""
        return (self.messages[seen - 1] if seen else 0) - self.messages[entry]


@dataclass(slots=True)
class ValueColumns:
    """The values that may leave under at least one policy, in the order of the session."""

    entries: array[int] = field(default_factory=lambda: array("L"))  # number of the entry
    types: bytearray = field(default_factory=bytearray)  # index in `TYPES`
    # 1: its leaving changes no request. It is never sent, or is thinking whose turn is over.
    displays: bytearray = field(default_factory=bytearray)
    characters: array[int] = field(default_factory=lambda: array("Q"))
    tokens: array[float] = field(default_factory=lambda: array("d"))  # 0 for display

    def __len__(self) -> int:
        return len(self.entries)


@dataclass(slots=True)
class LeaveColumns:
    """The values that leave under one policy, in the order of the session, and their conditions.

    A value leaves if `position` messages follow its entry, the time has come, its entry belongs
    neither to the open turn nor to the latest answer, and no signature binds it (`bindings`).
    Thinking also stays while it belongs to the last turn. A `ModelCall` names these entries.
    """

    values: array[int] = field(default_factory=lambda: array("L"))  # numbers of values, ascending
    positions: array[int] = field(default_factory=lambda: array("L"))  # least messages after it
    tokens: array[float] = field(default_factory=lambda: array("d"))  # R, less the placeholder
    # Epoch seconds before which the value stays; 0: no such time.
    not_before: array[float] = field(default_factory=lambda: array("d"))
    # Entries whose thinking signature binds the earlier entries of its context; ascending.
    bindings: array[int] = field(default_factory=lambda: array("L"))

    def __len__(self) -> int:
        return len(self.values)


class ModelCall(NamedTuple):
    """A request to the model, with its answer.

    The request was sent with the entries of its stretch before `entry`.
    """

    entry: int  # number of the first entry of the answer
    end: int  # number after the last entry of the answer
    stretch: int  # number of its stretch
    time: float | None  # of the answer
    asked: float | None  # of the last entry before the answer: when the request was sent
    provider: str | None
    model: str | None
    usage: Usage | None  # as recorded; None: none, or none that can be true
    prompt: int  # estimated tokens of the request without bsd
    lean: int  # tokens that bsd had extracted at that time: `usage` is without them
    output: int  # estimated tokens of the answer
    cost: float | None  # US dollars, as recorded
    life: float | None  # seconds that the cache lives, if the usage shows it
    # The state just before the request. Values of entries from `open_from` on never leave (the
    # unfinished turn), nor those of the latest answer, entries [latest_from, latest_end).
    open_from: int
    latest_from: int
    latest_end: int
    turn_from: int  # first entry of the last turn


class Beginning(StrEnum):
    """Why a stretch begins."""

    START = "start"
    COMPACTION = "compaction"
    BRANCH = "branch"
    ROLL_BACK = "roll_back"
    MODEL = "model"  # another provider or model


class Stretch(NamedTuple):
    """A part of the session with one growing context.

    The context of a call is the constant part, the entries of `kept`, and the entries from `begins`
    up to the call. Entries that are never sent have 0 tokens.
    """

    cause: Beginning
    begins: int  # number of the first entry after the kept ones
    kept: tuple[tuple[int, int], ...] = ()  # runs of entries in context at its start: [from, to)
    # Entries of `kept` with smaller numbers stand at the beginning of the previous stretch's
    # context too, after its constant part. 0: only the constant part is shared.
    shared_until: int = 0
    shares_constant: bool = False  # False: the provider or the model is another
    constant: int = 0  # tokens beside the transcript: system prompt and tools
    scale: float = 1.0  # factor on the tokens of entries and values, for this provider


class WantKind(StrEnum):
    """How a later call shows that a value is wanted again."""

    CALL = "call"  # the same tool call with the same arguments
    QUOTATION = "quotation"  # at least 40 characters of the value


class Want(NamedTuple):
    """A value that a call wants again.

    It is really wanted if every entry and value that holds the text is out of sight then.
    """

    call: int  # number of the call whose answer shows it
    kind: WantKind
    # Holders of the text before the call, in this context: (entry, value), value -1 if it cannot
    # leave under any policy.
    holders: tuple[tuple[int, int], ...]
    tokens: int  # of the newest holder that can leave


class Deviation(NamedTuple):
    """How far the estimate of the second half of the calls lies from the recorded usage.

    The estimate was fitted to the first half. Values are shares: 0.1 is a tenth.
    """

    calls: int  # compared calls
    median: float
    p90: float  # 90th percentile


@dataclass(slots=True)
class Recording:
    """One session, as its provider saw it."""

    entries: EntryColumns = field(default_factory=EntryColumns)
    values: ValueColumns = field(default_factory=ValueColumns)
    leaves: list[LeaveColumns] = field(default_factory=list)  # one for each policy
    calls: list[ModelCall] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    wants: list[Want] = field(default_factory=list)
    keeps_length: bool = False  # extraction saves no bytes (`TranscriptFormat.keeps_length`)
    characters_per_token: float = 4.0
    measured: bool = False  # the rate was fitted to the session's usage
    deviation: Deviation | None = None  # None: fewer than two calls with usage
    notes: dict[str, int] = field(default_factory=dict)  # words about odd input → how often

    def context(self, call: ModelCall) -> Iterator[int]:
        """Yield the numbers of the entries with which a request was sent, in order."""
        stretch = self.stretches[call.stretch]
        for start, end in stretch.kept:
            yield from range(start, end)
        yield from range(stretch.begins, call.entry)

    def prompt_without_bsd(self, call: ModelCall) -> int:
        """Return the tokens of a request without bsd: as recorded if possible, else estimated."""
        return call.prompt if call.usage is None else call.usage.prompt + call.lean
