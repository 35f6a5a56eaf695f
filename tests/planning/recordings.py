"""Small recordings made by hand, for tests of the replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, nan

from bsd.core.prices import CacheLife, PeakHours, Price, PriceRow, PriceStep, PriceTable
from bsd.planning.recorded import (
    TURNS,
    TYPES,
    Beginning,
    LeaveColumns,
    ModelCall,
    Recording,
    Stretch,
    Want,
    WantKind,
)
from bsd.planning.replay import Played, play
from bsd.planning.replay_timeline import Conditions, Timeline
from bsd.transcripts.agents.entry import Usage
from bsd.transcripts.agents.format import Turn

CONSTANT = 1000  # tokens beside the transcript
BEGUN = 1_790_000_000.0  # epoch seconds: 21 September 2026, 13:33 UTC
LIFE = 300.0
# The hand-made prices: input tokens cost 1 dollar each, so that costs are tokens.
DOLLARS, READ, WRITE = 1e6, 0.1, 1.25


def price(
    *,
    read: float = READ,
    write: float = WRITE,
    life: float | None = LIFE,
    steps: tuple[PriceStep, ...] = (),
    peaks: tuple[PeakHours, ...] = (),
) -> Price:
    """Return the price of a made-up model."""
    lives = () if life is None else (CacheLife(life, write),)
    return Price(DOLLARS, 5 * DOLLARS, read, lives, steps, peaks)


def table(*prices: tuple[str, Price]) -> PriceTable:
    """Return the prices of models by their names."""
    rows = (PriceRow("", model, -inf, one.lives, one) for model, one in prices)
    return PriceTable(tuple(rows))


@dataclass(slots=True)
class HandMade:
    """A recording that grows entry by entry; each entry is a message."""

    keep_recent: int = 2
    usage: bool = True  # programs record it
    cached: bool = True  # the usage shows a cache
    timed: bool = True  # entries have a time
    recording: Recording = field(default_factory=Recording)
    now: float = BEGUN
    model: str = "made-up"
    provider: str = "maker"
    _turn: int = 0  # first entry of the last turn
    _open: bool = False
    _latest: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.recording.leaves.append(LeaveColumns())
        self.recording.stretches.append(Stretch(Beginning.START, 0, constant=CONSTANT))

    def __len__(self) -> int:
        return len(self.recording.entries)

    def add(
        self, turn: Turn, tokens: int, *, leaves: str | None = None, after: float = 0, to: int = 0
    ) -> int:
        """Add an entry; its value of the type `leaves` may leave but for `to` tokens."""
        entries, values = self.recording.entries, self.recording.values
        self.now += after
        number = len(self)
        entries.lines.append(number + 1)
        entries.ends.append((entries.ends[-1] if entries.ends else 0) + 4 * tokens)
        entries.times.append(self.now if self.timed else nan)
        entries.messages.append(number + 1)
        entries.turns.append(TURNS.index(turn))
        entries.tokens.append(tokens)
        if leaves:
            columns = self.recording.leaves[0]
            columns.values.append(len(values))
            columns.positions.append(self.keep_recent)
            columns.tokens.append(tokens - to)
            columns.not_before.append(0)
            values.entries.append(number)
            values.types.append(TYPES.index(leaves))
            values.displays.append(0)
            values.characters.append(4 * tokens)
            values.tokens.append(tokens)
        return number

    def user(self, tokens: int = 100, *, after: float = 60) -> None:
        """Begin a turn."""
        self._turn = self.add(Turn.STARTS, tokens, after=after)
        self._open = True

    def result(self, tokens: int, *, after: float = 1) -> None:
        """Add the result of a tool, which may leave."""
        self.add(Turn.OPEN, tokens, leaves="tool_result", after=after)

    def answer(
        self,
        tokens: int = 50,
        *,
        ends: bool = False,
        after: float = 0,
        thinks: bool = False,
        read: int | None = None,
    ) -> None:
        """Send a request, and add its answer; `read`: tokens that the usage says were cached."""
        recording, asked, begins, prompt = self.recording, self.now, len(self), self._context()
        turn = Turn.CLOSES if ends else Turn.OPEN
        self.add(turn, tokens, after=after, leaves="thinking" if thinks else None)
        read = 1 if read is None else read
        usage = Usage(0, read, prompt - read, tokens) if self.cached else Usage(prompt, 0, 0, 0)
        recording.calls.append(
            ModelCall(
                begins,
                begins + 1,
                len(recording.stretches) - 1,
                self.now if self.timed else None,
                asked if self.timed else None,
                self.provider,
                self.model,
                usage if self.usage else None,
                prompt,
                0,
                tokens,
                None,
                None,
                self._turn if self._open else begins,
                *self._latest,
                self._turn,
            )
        )
        self._latest, self._open = (begins, begins + 1), not ends

    def turn(self, *results: int, after: float = 60) -> None:
        """Add a turn: a prompt of 100 tokens, tools with these results, answers of 50 tokens."""
        self.user(after=after)
        for tokens in results:
            self.answer()
            self.result(tokens)
        self.answer(ends=True)

    def begin(self, cause: Beginning, *kept: tuple[int, int], shared_until: int = 0) -> None:
        """Let the next entries have a context of their own, after entries that it keeps."""
        shares = cause is not Beginning.MODEL
        self.recording.stretches.append(
            Stretch(cause, len(self), kept, shared_until, shares, CONSTANT)
        )

    def want(self, *values: int) -> None:
        """Note that the newest answer has used a text that only these values hold."""
        columns, call = self.recording.values, len(self.recording.calls) - 1
        holders = tuple(
            (columns.entries[value], value) if value >= 0 else (0, -1) for value in values
        )
        tokens = round(columns.tokens[max(values)])
        self.recording.wants.append(Want(call, WantKind.CALL, holders, tokens))

    def played(self, when: str | None, *prices: tuple[str, Price], **conditions: float) -> Played:
        """Play the recording; `when` None: without bsd. Conditions as in `Conditions`."""
        leaves = None if when is None else self.recording.leaves[0]
        return play(timeline_of(self, *prices, **conditions), leaves, when or "now")

    def _context(self) -> int:
        tokens, stretch = self.recording.entries.tokens, self.recording.stretches[-1]
        runs = (*stretch.kept, (stretch.begins, len(self)))
        return int(stretch.constant + sum(sum(tokens[start:end]) for start, end in runs))


def timeline_of(made: HandMade, *prices: tuple[str, Price], **conditions: float) -> Timeline:
    """Return the timeline of a recording, with the made-up price unless others are given."""
    known = table(*(prices or (("made-up", price()),)))
    return Timeline(made.recording, Conditions(known, **conditions))  # type: ignore[arg-type]
