"""What a planner returns: new bytes for lines, what the store must keep, a report (DESIGN §1).

And how many tokens of a model's context that is: an estimate, always called one. Answers say how
many tokens were sent with them. What stands between two answers makes the difference, so characters
and tokens of one session tell how many of its characters are a token, whatever its language, model
and provider. Where no usage is recorded, four characters are one: the usual rule of thumb for
English and code.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bsd.core.config import PruningConfig
from bsd.core.layout import SessionName
from bsd.store.entry_notes import NOTHING, Noting
from bsd.store.history import TouchedLine
from bsd.store.originals import OriginalStore, StoredOriginal
from bsd.store.state import Checkpoint
from bsd.transcripts.agents.entry import MARKER, Entry, Sent, answer_of, sent_tokens
from bsd.transcripts.agents.format import EntryInfo, Value
from bsd.transcripts.change import Edit, Identity
from bsd.transcripts.reader import Line, Transcript

# --- tokens ---


_RULE_OF_THUMB = 4.0
_UNCHARGED = frozenset(("user", "toolResult", "tool"))  # whose messages count no tokens
# Between two answers: what is less says more of the program's own additions than of texts.
_LEAST_CHARACTERS = 500
_LEAST_IN_ALL = 4000
_SANE = (0.5, 10.0)  # characters a token; what is beyond was not counted as we do


def is_charged(value: Value) -> bool:
    """Whether a value's characters cost tokens, as long as it is sent at all.

    What is only shown is never sent. An image is paid by its pixels, which its characters do not
    tell, so it counts as nothing rather than as text.
    """
    return not (value.display or value.shape.is_block)


@dataclass(frozen=True, slots=True)
class Rate:
    """How many characters are a token, and how that is known."""

    characters: float = _RULE_OF_THUMB
    measured: bool = False  # by the usage that the session itself has recorded

    def tokens(self, value: Value, characters: int) -> int:
        """Estimate what so many characters of a value cost in tokens.

        A signature that leaves with its thinking is not text: leave it out.
        """
        return self.of(characters) if is_charged(value) else 0

    def of(self, characters: int) -> int:
        """So many tokens are so many characters of text."""
        return int(max(0, characters) / self.characters)


class Meter:
    """Follows a session, and compares the characters it holds with the tokens it was charged for.

    The median counts, weighted by characters: what a program sends without noting it (reminders,
    files it looks at by itself) falls between some answers, and not between others.
    """

    def __init__(self, since: Checkpoint | None = None) -> None:
        self._known = since.characters_per_token if since else 0.0
        self._rates, self._weights = array("d"), array("d")
        self._characters = 0  # since the answer before
        self._tokens: int | None = None  # that were sent with it; None: it tells nothing
        self._answer: str | None = None

    def follow(self, entry: Entry, info: EntryInfo, values: Iterable[Value]) -> None:
        """Note the next entry."""
        usage = None if info.role in _UNCHARGED else self._usage(entry)
        if usage and not usage.with_answer:
            self._compare(usage.tokens)
        for value in values:
            if value.display or value.type == "thinking":
                continue  # thinking of earlier turns is not sent to some models
            if value.text is None:
                self._tokens = None  # an image, paid by its pixels
            else:
                self._characters += len(value.text)
        if usage and usage.with_answer:
            self._compare(usage.tokens)
        if info.is_compaction or info.rolls_back or MARKER in entry:
            self._tokens = None  # what is sent with the next answer is not what stands here

    def _usage(self, entry: Entry) -> Sent | None:
        """What an answer was charged for; of one in several entries, the first tells."""
        before, answer = self._answer, answer_of(entry)
        self._answer = answer or before
        return None if answer is not None and answer == before else sent_tokens(entry)

    def _compare(self, tokens: int) -> None:
        if self._tokens is not None and self._characters >= _LEAST_CHARACTERS:
            more = tokens - self._tokens
            if more > 0:
                self._rates.append(self._characters / more)
                self._weights.append(self._characters)
        if self._tokens != tokens:
            self._tokens, self._characters = tokens, 0

    def rate(self) -> Rate:
        """What has come out."""
        half = sum(self._weights) / 2
        if 2 * half >= _LEAST_IN_ALL:
            for rate, weight in sorted(zip(self._rates, self._weights, strict=True)):
                half -= weight
                if half <= 0:
                    if _SANE[0] <= rate <= _SANE[1]:
                        return Rate(rate, measured=True)
                    break
        return Rate(self._known, measured=True) if self._known else Rate()


# --- a plan, and its report ---


@dataclass(frozen=True, slots=True)
class Means:
    """What a planner or a query may want beside the session itself."""

    name: SessionName
    stored: OriginalStore  # what is away of it
    now: float  # epoch seconds
    # The settings; raises ConfigError. Broken ones are no business of whoever needs none.
    config: Callable[[], PruningConfig]


@dataclass(frozen=True, slots=True)
class Leaked:
    """A placeholder in the arguments of a tool call: a model may have written it into a file."""

    index: int  # line of the call
    entry_id: str | None
    tool: str
    mentions: str  # the entry whose placeholder it is


@dataclass(frozen=True, slots=True)
class Saving:
    """What values of one type give up, in session bytes and (roughly) in tokens of context."""

    values: int = 0
    bytes: int = 0  # without what the marker costs, which belongs to no value
    tokens: int = 0  # of what is sent as the session goes on now


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Plan:
    """Edits of one session file and what must be kept before they are made."""

    planned_on: Identity
    edits: tuple[Edit, ...]
    report: Report
    keeps: tuple[StoredOriginal, ...] = ()
    touched: tuple[TouchedLine, ...] = ()  # for the history: what each of the edits is about
    undoes: int | None = None  # number of the operation that this one undoes
    noting: Noting = NOTHING  # what shall be known of entries from then on
    complete: bool = True  # False: the budget ended it; plan again after the commit
    due_at: float | None = None  # epoch seconds at which planning again could find more
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
        """The same, of which is known what its values, all of one type, save in tokens."""
        report = self.report
        saved = Saving(report.values, report.bytes_saved, tokens)
        return replace(self, report=replace(report, savings={type: saved}, rate=rate))


# --- several planners, one plan ---


@dataclass(slots=True)
class _Changed:
    """A line as it will be, and how long it is now."""

    length: int
    new: bytes
    touched: TouchedLine


class Revised:
    """A session as it will be: the source of the next planner.

    Lines keep the offset and the number that they have now, so `#n` means what it meant to whoever
    wrote it; one that will be gone is not listed.
    """

    def __init__(self, source: Transcript) -> None:
        self._source = source
        self.identity = source.identity
        self._changed: dict[int, _Changed] = {}
        self._keeps: list[StoredOriginal] = []
        self._noting = NOTHING
        self.values = 0

    def lines(self, start: int = 0, first_index: int = 0) -> Iterator[Line]:
        """The lines from an offset on."""
        for line in self._source.lines(start, first_index):
            changed = self._changed.get(line.offset)
            if changed is None:
                yield line
            elif changed.new:
                yield replace(line, raw=changed.new)

    def lines_holding(self, needle: bytes) -> Iterator[Line]:
        """The lines in which these bytes stand."""
        return (line for line in self.lines() if needle in line.raw)

    def read(self, offset: int, length: int) -> bytes:
        """One line again."""
        changed = self._changed.get(offset)
        if changed is None:
            return self._source.read(offset, length)
        return changed.new[:length]

    def take(self, plan: Plan) -> None:
        """Add a plan that was made on this source; all of it, or (ValueError) nothing."""
        for edit in plan.edits:
            changed = self._changed.get(edit.offset)
            if changed is not None and edit.length != len(changed.new):
                raise ValueError(f"the line at byte {edit.offset} is not as it was planned on")
        for edit, touched in zip(plan.edits, plan.touched, strict=True):
            changed = self._changed.get(edit.offset)
            if changed is None:
                self._changed[edit.offset] = _Changed(edit.length, edit.new, touched)
                continue
            changed.new = edit.new
            if touched.gap is not None:  # else it could not be put back
                changed.touched = replace(changed.touched, gap=touched.gap)
        self._keeps += plan.keeps
        self._noting += plan.noting
        self.values += plan.report.values

    def plan(self, action: str) -> Plan:
        """All of it as one plan."""
        changed = sorted(self._changed.items())
        plan = Plan.of(
            action,
            self.identity,
            [Edit(offset, one.length, one.new) for offset, one in changed],
            [one.touched for _, one in changed],
            values=self.values,
        )
        return replace(plan, keeps=tuple(self._keeps), noting=self._noting)
