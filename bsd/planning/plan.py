"""The result of a planner: new bytes for lines, originals for the store, a report (DESIGN §1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bsd.store.entry_notes import NOTHING, Noting
from bsd.store.history import TouchedLine
from bsd.store.originals import StoredOriginal
from bsd.store.state import Checkpoint
from bsd.transcripts.change import Edit, Identity
from bsd.transcripts.reader import Line, Transcript


@dataclass(frozen=True, slots=True)
class Rate:
    """How many characters are a token, and how that is known."""

    # Where no usage is recorded, the usual rule of thumb for English and code.
    characters: float = 4.0
    measured: bool = False  # by the usage that the session itself has recorded

    def tokens(self, characters: int) -> int:
        """Estimate the tokens of a text of so many characters."""
        return int(max(0, characters) / self.characters)


@dataclass(frozen=True, slots=True)
class Leaked:
    """A placeholder in the arguments of a tool call: a model may have written it into a file."""

    index: int  # line of the call
    entry_id: str | None
    tool: str
    mentions: str  # the entry whose placeholder it is


@dataclass(frozen=True, slots=True)
class Saving:
    """The savings by values of one type, in session bytes and (roughly) in tokens of context."""

    values: int = 0
    bytes: int = 0  # without the bytes of the marker, which belongs to no value
    tokens: int = 0  # of the entries that are sent as the session goes on now


@dataclass(frozen=True, slots=True)
class Report:
    """The effects of a plan, in numbers for people."""

    action: str  # extract, restore, …
    entries: int = 0
    values: int = 0
    bytes_before: int = 0  # of the whole session
    bytes_after: int = 0
    reasons: Counter[str] = field(default_factory=Counter)  # SPEC §3: outcome of each entry
    savings: Mapping[str, Saving] = field(default_factory=dict)  # by value type; `other`: none
    leaked: tuple[Leaked, ...] = ()
    unreadable: int = 0  # lines that are not blank and hold no JSON object
    partial: bool = False  # it tells only of lines appended since the last one
    undone_before: int = 0  # of the entries: how many had been taken back by undo
    rate: Rate = field(default_factory=Rate)  # by which tokens were estimated
    # Tokens that leave once the prompt cache is cold (of a dry run: that would wait for that).
    tokens_ready: int = 0

    @property
    def bytes_saved(self) -> int:
        return self.bytes_before - self.bytes_after

    @property
    def tokens_saved(self) -> int:
        return sum(saving.tokens for saving in self.savings.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """Edits of one session file and the originals to store before they are made."""

    planned_on: Identity
    edits: tuple[Edit, ...]
    report: Report
    keeps: tuple[StoredOriginal, ...] = ()
    touched: tuple[TouchedLine, ...] = ()  # for the history: the subject of each edit
    undoes: int | None = None  # number of the operation that this one undoes
    keeps_former: bool = True  # False: the history keeps nothing by which it can be undone
    noting: Noting = NOTHING  # notes of entries to keep from then on
    complete: bool = True  # False: the budget ended it; plan again after the commit
    due_at: float | None = None  # epoch seconds at which planning again could find more
    warm_until: float | None = None  # epoch seconds until which the prompt cache is warm
    checkpoint: Checkpoint | None = None  # where to begin next time, once this is in effect

    @classmethod
    def of(
        cls,
        action: str,
        planned_on: Identity,
        edits: Iterable[Edit],
        touched: Iterable[TouchedLine],
        *,
        values: int = 0,
    ) -> Plan:
        """These edits, in the order of the file, and the report that follows from them."""
        edits = tuple(edits)
        size = planned_on.size
        report = Report(
            action,
            entries=len(edits),
            values=values,
            bytes_before=size,
            bytes_after=size + sum(len(edit.new) - edit.length for edit in edits),
        )
        return cls(planned_on, edits, report, touched=tuple(touched))

    def saving(self, type: str, tokens: int, rate: Rate) -> Plan:
        """Return the same plan with the tokens that its values, all of one type, save."""
        report = self.report
        saved = Saving(report.values, report.bytes_saved, tokens)
        return replace(self, report=replace(report, savings={type: saved}, rate=rate))


class Revised:
    """A session as several plans will leave it: the source of the next planner.

    Lines keep the offset and the number that they have now, so `#n` means the same line as to
    the caller; one that will be gone is not listed.
    """

    def __init__(self, source: Transcript) -> None:
        self._source = source
        self.identity = source.identity
        # By offset: the line's edit, made on the file as it is, and its record for the history.
        self._changed: dict[int, tuple[Edit, TouchedLine]] = {}
        self._keeps: list[StoredOriginal] = []
        self._noting = NOTHING
        self.values = 0

    def lines(self, start: int = 0, first_index: int = 0) -> Iterator[Line]:
        """The lines from an offset on."""
        for line in self._source.lines(start, first_index):
            if line.offset not in self._changed:
                yield line
            elif new := self._changed[line.offset][0].new:
                yield replace(line, raw=new)

    def lines_holding(self, needle: bytes) -> Iterator[Line]:
        """The lines in which these bytes stand."""
        return (line for line in self.lines() if needle in line.raw)

    def read(self, offset: int, length: int) -> bytes:
        """One line again."""
        if offset in self._changed:
            return self._changed[offset][0].new[:length]
        return self._source.read(offset, length)

    def take(self, plan: Plan) -> None:
        """Add a plan that was made on this source; on ValueError nothing of it is added."""
        for edit in plan.edits:
            before = self._changed.get(edit.offset)
            if before is not None and edit.length != len(before[0].new):
                raise ValueError(f"the line at byte {edit.offset} is not as it was planned on")
        for edit, touched in zip(plan.edits, plan.touched, strict=True):
            before = self._changed.get(edit.offset)
            if before is None:
                self._changed[edit.offset] = Edit(edit.offset, edit.length, edit.new), touched
                continue
            first, about = before
            if touched.gap is not None:  # a line that goes could not be put back without it
                about = replace(about, gap=touched.gap)
            self._changed[edit.offset] = replace(first, new=edit.new), about
        self._keeps += plan.keeps
        self._noting += plan.noting
        self.values += plan.report.values

    def plan(self, action: str) -> Plan:
        """Return all added plans as one plan."""
        changed = [self._changed[offset] for offset in sorted(self._changed)]
        edits, touched = [edit for edit, _ in changed], [about for _, about in changed]
        plan = Plan.of(action, self.identity, edits, touched, values=self.values)
        return replace(plan, keeps=tuple(self._keeps), noting=self._noting)
