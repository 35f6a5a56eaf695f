"""The result of a planner: new bytes for lines, originals for the store, a report (DESIGN §1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bsd.planning.line_length import keeping_lengths
from bsd.planning.timing import Timing
from bsd.store.entry_notes import NOTHING, Noting
from bsd.store.history import TouchedLine
from bsd.store.originals import StoredOriginal
from bsd.store.state import Accounted, Checkpoint
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.change import Edit, Identity
from bsd.transcripts.reader import Line, Transcript


@dataclass(frozen=True, slots=True)
class Rate:
    """The number of characters per token, and whether it was measured."""

    # Default: the rule of thumb for English and code, for sessions that record no usage.
    characters: float = 4.0
    measured: bool = False  # from the usage that the session recorded
    # Characters of text for a character of thinking, or of its signature, of earlier turns. 0: it
    # is not sent again.
    thinking: float = field(default=1.0, compare=False)
    proof: float = field(default=0.0, compare=False)

    def thought(self, text: int, proof: int = 0) -> int:
        """Return the characters of text that thinking of an earlier turn counts as."""
        return int(self.thinking * max(0, text) + self.proof * proof)

    def tokens(self, characters: int) -> int:
        """Estimate the tokens of a text of `characters` characters."""
        return int(max(0, characters) / self.characters)


@dataclass(frozen=True, slots=True)
class Leaked:
    """A placeholder in the arguments of a tool call: the model may have written it into a file."""

    index: int  # line of the call
    entry_id: str | None
    tool: str
    mentions: str  # id of the entry that the placeholder stands for


@dataclass(frozen=True, slots=True)
class Saving:
    """The extracted values of one type, and the session bytes and estimated tokens they save."""

    values: int = 0
    bytes: int = 0  # without the marker, which belongs to no single value
    tokens: int = 0  # of entries in context only


@dataclass(frozen=True, slots=True)
class Report:
    """The effects of a plan, in numbers for people."""

    action: str  # extract, restore, …
    entries: int = 0
    values: int = 0
    bytes_before: int = 0  # of the whole session
    bytes_after: int = 0
    reasons: Counter[str] = field(default_factory=Counter)  # outcome (SPEC §3) → entries
    savings: Mapping[str, Saving] = field(default_factory=dict)  # by value type, or `other`
    leaked: tuple[Leaked, ...] = ()
    unreadable: int = 0  # lines that are not blank and hold no JSON object
    partial: bool = False  # covers only lines appended since the last report
    undone_before: int = 0  # entries whose earlier extraction had been undone
    rate: Rate = field(default_factory=Rate)  # used for the token estimates
    # Tokens that wait until the prompt cache is cold (in a dry run: that would wait).
    tokens_ready: int = 0

    @property
    def bytes_saved(self) -> int:
        return self.bytes_before - self.bytes_after

    @property
    def tokens_saved(self) -> int:
        return sum(saving.tokens for saving in self.savings.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """Edits of one session file, and the originals to store before the edits take effect."""

    planned_on: Identity
    edits: tuple[Edit, ...]
    report: Report
    keeps: tuple[StoredOriginal, ...] = ()
    touched: tuple[TouchedLine, ...] = ()  # for the history: one per edit
    undoes: int | None = None  # number of the operation that this plan undoes
    keeps_former: bool = True  # False: the history keeps no data to undo it
    noting: Noting = NOTHING  # notes about entries, to keep from now on
    complete: bool = True  # False: the budget was used up; plan again after the commit
    due_at: float | None = None  # epoch seconds: from then on another plan may find more
    warm_until: float | None = None  # epoch seconds: end of the prompt cache
    timing: Timing | None = None  # why values in context leave now, or why they wait
    checkpoint: Checkpoint | None = None  # start of the next plan, once this one is in effect
    further: Checkpoint | None = None  # its start unless the values that wait leave
    accounted: Accounted | None = None  # what requests have cost, once this plan is in effect

    @classmethod
    def of(
        cls,
        action: str,
        source: Transcript,
        fmt: TranscriptFormat,
        edits: Iterable[Edit],
        touched: Iterable[TouchedLine],
        *,
        values: int = 0,
    ) -> Plan:
        """Return a plan of these edits, in the order of the file, with a report of their sizes.

        Raises SpliceError if the lines must keep their lengths and cannot.
        """
        edits = tuple(edits)
        if fmt.keeps_length:
            edits = keeping_lengths(source, edits)
        size = source.identity.size
        report = Report(
            action,
            entries=len(edits),
            values=values,
            bytes_before=size,
            bytes_after=size + sum(len(edit.new) - edit.length for edit in edits),
        )
        return cls(source.identity, edits, report, touched=tuple(touched))

    def saving(self, type: str, tokens: int, rate: Rate) -> Plan:
        """Return the same plan with the tokens that its values, all of type `type`, save."""
        report = self.report
        saved = Saving(report.values, report.bytes_saved, tokens)
        return replace(self, report=replace(report, savings={type: saved}, rate=rate))


class Revised:
    """A session as several plans will leave it: the source for the next planner.

    Lines keep their present offset and number, so `#n` means the same line to planner and caller.
    Removed lines are not yielded.
    """

    def __init__(self, source: Transcript, fmt: TranscriptFormat) -> None:
        self._source = source
        self._fmt = fmt
        self.identity, self.size = source.identity, source.size
        # Offset → the line's edit, relative to the present file, and its record for the history.
        self._changed: dict[int, tuple[Edit, TouchedLine]] = {}
        self._keeps: list[StoredOriginal] = []
        self._noting = NOTHING
        self.values = 0

    def lines(self, start: int = 0, first_index: int = 0) -> Iterator[Line]:
        """Yield the lines from byte `start` on."""
        for line in self._source.lines(start, first_index):
            if line.offset not in self._changed:
                yield line
            elif new := self._changed[line.offset][0].new:
                yield replace(line, raw=new)

    def lines_holding(self, needle: bytes) -> Iterator[Line]:
        """Yield the lines that contain these bytes."""
        return (line for line in self.lines() if needle in line.raw)

    def read(self, offset: int, length: int) -> bytes:
        """Return the line at `offset`."""
        if offset in self._changed:
            return self._changed[offset][0].new[:length]
        return self._source.read(offset, length)

    def take(self, plan: Plan) -> None:
        """Add a plan that was made on this source.

        Raises ValueError if a line is not as it was planned on; then no edit of the plan is added.
        """
        for edit in plan.edits:
            before = self._changed.get(edit.offset)
            if before is not None and edit.length != len(before[0].new):
                raise ValueError(f"the line at byte {edit.offset} is not the planned one")
        for edit, touched in zip(plan.edits, plan.touched, strict=True):
            before = self._changed.get(edit.offset)
            if before is None:
                self._changed[edit.offset] = Edit(edit.offset, edit.length, edit.new), touched
                continue
            first, about = before
            if touched.gap is not None:  # without it, a removed line could not be put back
                about = replace(about, gap=touched.gap)
            self._changed[edit.offset] = replace(first, new=edit.new), about
        self._keeps += plan.keeps
        self._noting += plan.noting
        self.values += plan.report.values

    def plan(self, action: str) -> Plan:
        """Return all added plans as one plan."""
        changed = [self._changed[offset] for offset in sorted(self._changed)]
        edits, touched = [edit for edit, _ in changed], [about for _, about in changed]
        plan = Plan.of(action, self._source, self._fmt, edits, touched, values=self.values)
        return replace(plan, keeps=tuple(self._keeps), noting=self._noting)
