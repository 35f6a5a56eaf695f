"""Small recordings made by hand, for tests of the replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan

from bsd.planning.recorded import TURNS, TYPES, Call, LeaveColumns, Recording, Stretch, Want
from bsd.planning.recorded import Cause as Begin
from bsd.transcripts.agents.entry import Usage
from bsd.transcripts.agents.format import Turn

CONSTANT = 1000  # tokens beside the transcript
BEGUN = 1_790_000_000.0  # epoch seconds: in September 2026
PROVIDER, MODEL = "anthropic", "made-up"


@dataclass(slots=True)
class HandMade:
    """A recording that grows entry by entry. Text of `placeholder` tokens stays for each value."""

    keep_recent: int = 2
    placeholder: int = 0
    with_usage: bool = True
    cached: bool = True
    recording: Recording = field(default_factory=Recording)
    now: float | None = BEGUN
    _turn: int = 0  # first entry of the last turn
    _open: bool = False
    _latest: tuple[int, int] = (0, 0)
    _provider: str = PROVIDER
    _model: str = MODEL

    def __post_init__(self) -> None:
        self.recording.leaves.append(LeaveColumns())
        self.recording.stretches.append(Stretch(Begin.START, 0, (), 0, True, CONSTANT, 1.0))

    def __len__(self) -> int:
        return len(self.recording.entries)

    def add(self, turn: Turn, tokens: int, *, leaves: str | None = None, after: float = 0) -> int:
        """Add an entry `after` seconds; its one value of type `leaves` may leave."""
        entries, values = self.recording.entries, self.recording.values
        if self.now is not None:
            self.now += after
        number = len(self)
        entries.lines.append(number + 1)
        entries.times.append(nan if self.now is None else self.now)
        entries.messages.append(number + 1)
        entries.turns.append(TURNS.index(turn))
        entries.tokens.append(tokens)
        if leaves:
            columns = self.recording.leaves[0]
            columns.values.append(len(values))
            columns.positions.append(self.keep_recent)
            columns.tokens.append(tokens - self.placeholder)
            columns.not_before.append(0)
            values.entries.append(number)
            values.types.append(TYPES.index(leaves))
            values.displays.append(0)
            values.characters.append(4 * tokens)
            values.tokens.append(tokens)
        return number

    def user(self, tokens: int = 100, *, after: float = 60) -> None:
        """Begin a turn."""
        self._turn, self._open = self.add(Turn.STARTS, tokens, after=after), True

    def result(self, tokens: int, *, after: float = 1) -> None:
        """Add the result of a tool, which may leave."""
        self.add(Turn.OPEN, tokens, leaves="tool_result", after=after)

    def answer(self, tokens: int = 50, *, ends: bool = False, after: float = 1) -> None:
        """Send a request, and add its answer."""
        recording = self.recording
        asked, begins = self.now, len(self)
        prompt = self._context()
        self.add(Turn.CLOSES if ends else Turn.OPEN, tokens, after=after)
        usage = Usage(0, 1, prompt - 1, tokens) if self.cached else Usage(prompt, 0, 0, tokens)
        recording.calls.append(
            Call(
                begins,
                begins + 1,
                len(recording.stretches) - 1,
                self.now,
                asked,
                self._provider,
                self._model,
                usage if self.with_usage else None,
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

    def stretch(self, cause: Begin, kept: tuple[tuple[int, int], ...], shared_until: int) -> None:
        """Let the next entries have another context."""
        shares = cause is not Begin.MODEL
        self.recording.stretches.append(
            Stretch(cause, len(self), kept, shared_until, shares, CONSTANT, 1.0)
        )

    def switch(self, model: str, provider: str = PROVIDER) -> None:
        """Let another model answer from now on."""
        self._model, self._provider = model, provider
        self.stretch(Begin.MODEL, ((0, len(self)),), len(self))

    def want(self, kind: Want, *holders: tuple[int, int]) -> None:
        """Note that the newest call has used text again."""

    def _context(self) -> int:
        tokens, stretch = self.recording.entries.tokens, self.recording.stretches[-1]
        runs = (*stretch.kept, (stretch.begins, len(self)))
        return int(stretch.constant + sum(sum(tokens[start:end]) for start, end in runs))
