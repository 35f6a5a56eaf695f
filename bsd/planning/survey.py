"""One forward pass over a session: what must be known of all lines before one can be judged.

Every line is parsed once and forgotten. What stays is a few numbers a line, the names of entries
that could lose values, and one description of all entries that are alike to the rules. How far all
is settled a checkpoint notes, where the next pass begins.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from bisect import bisect_right
from collections.abc import Callable, Container, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isnan, nan
from operator import attrgetter
from sys import intern, maxsize

import orjson

from bsd.core.config import UNSETTLING, PruningConfig
from bsd.planning.context_window import LastTurn, SignatureCoverage
from bsd.planning.plan import Leaked, Meter, Rate
from bsd.planning.rules import (
    Decision,
    Option,
    Policy,
    Reason,
    Standing,
    Subject,
    decide,
    own_tool,
    subject_of,
    thinks,
)
from bsd.store.state import NO_ID, Checkpoint
from bsd.transcripts.agents.entry import MARKER, PLACEHOLDER_START, Entry, Marker, mentioned_ids
from bsd.transcripts.agents.format import EntryInfo, ToolCall, TranscriptFormat
from bsd.transcripts.reader import Line, Transcript, is_too_large, parse_entry
from bsd.transcripts.spans import ValuePath, value_at
from bsd.transcripts.splice import SeenText

Progress = Callable[[int], None]
_Where = tuple[tuple[ValuePath, tuple[ValuePath, ...]], ...]  # path and companions of each value
_PLACEHOLDER_START = PLACEHOLDER_START.encode()
_PROGRESS_STEP = 1 << 20  # bytes
_BEGINNING = 24  # characters of a text
_MOST_WARNINGS = 100
# What makes a difference to the rules.
_TRAITS: Callable[[Subject], tuple[Hashable, ...]] = attrgetter(
    *("id_problem", "some_away", "marked", "own_result", "undone", "restored_ms", "extractable")
)
_OPTION_TRAITS: Callable[[Option], tuple[Hashable, ...]] = attrgetter(
    *("value.shape", "value.type", "value.display", "value.leaf", "value.custom", "trigger")
)
_PLACES: Callable[[Option], tuple[ValuePath, tuple[ValuePath, ...]]] = attrgetter(
    "value.path", "value.removes"
)
_NUMBERS = 5  # of each entry
# Deeper than any `keep_recent` may reach (SPEC §4).
_DEEP = 101
# Where nothing but the entry itself can keep its values in.
_BEST_STANDING = Standing(position=maxsize, time_ms=-maxsize)
# Settled wherever the entry stands.
_ANYWHERE = frozenset(
    (
        Reason.NO_ENTRY_ID,
        Reason.UNSAFE_ENTRY_ID,
        Reason.DUPLICATE_ENTRY_ID,
        Reason.ALREADY_EXTRACTED,
        Reason.PINNED,
        Reason.UNDONE,
        Reason.TYPE_NOT_MATCHED,
    )
)
# Settled once the entry is older than every rule's window: before, a rule that fits another of
# its values may still have its say. What a signature binds, it binds until a compaction takes it
# out of context; a checkpoint says whether there is such an entry before it.
_WHEN_OLD = frozenset(
    (
        Reason.EXTRACT,
        Reason.VALUES_TOO_SMALL,
        Reason.PREFIX_BOUND,
        Reason.TOO_LARGE_IN_MEMORY,
        "not_editable",
    )
)
# Of the rules by which entries are judged: what earlier ones settled is looked at again.
_RULES = 2


@dataclass(frozen=True, slots=True)
class Judged:
    """One entry, judged."""

    index: int  # 0-based line number
    offset: int
    length: int
    entry_id: str | None  # None too if it could not be extracted and nobody asked for names
    kind: str
    subject: Subject  # without its texts
    standing: Standing
    decision: Decision
    sent: bool = True  # it is in context: sent if the session goes on as it is now
    texts: Mapping[ValuePath, SeenText] = field(default_factory=dict)  # that could leave

    def age_s(self, now: float) -> float | None:
        """Seconds since it was written, if that is known; `now` in epoch seconds."""
        time_ms = self.standing.time_ms
        return None if time_ms is None else max(0.0, now - time_ms / 1000)


class Survey:
    """What one pass over a session found. Times are epoch seconds."""

    def __init__(
        self,
        policy: Policy,
        now: float,
        *,
        keep_names: bool = False,
        since: Checkpoint | None = None,
        undone: Container[str] = (),
    ) -> None:
        self._policy = policy
        self._undone = undone
        self._shortest = policy.shortest
        self._now = now
        self._keep_names = keep_names
        self._since = since
        self.messages = since.messages if since else 0
        # Where the next line will begin, and its number.
        self.end_offset, self.end_index = (since.offset, since.index) if since else (0, 0)
        self.unreadable = 0  # lines that are not blank and hold no JSON object
        self.too_large = 0  # lines that would take too much memory
        self.leaked: list[Leaked] = []
        self.refs: set[str] = set()  # names of stored files that markers use

        # One row per entry; of those with several numbers, one entry after the other.
        self._coverage = SignatureCoverage(policy.binds, since)
        self._index, self._id = self._coverage.lines, self._coverage.ids
        self._time = array("d")
        self._places = array("Q")  # offset of its line; end of its name among the names
        # Length of its line, messages up to it, number of its subject and of its kind, and where
        # its texts begin.
        self._numbers = array("I")
        self._names = bytearray()  # one after the other
        # Of the texts of those that could lose values, one after the other: to measure them here,
        # where they are at hand, takes less than to parse them again. Bytes, characters, start.
        self._measured = array("I")
        self._subjects: list[Subject] = []
        self._steady: list[bool] = []  # whether what is decided of one is the same deep down
        self._outlines: dict[Hashable, tuple[int, bool]] = {}
        self._candidates: dict[tuple[int, _Where], int] = {}
        self._paths: dict[int, list[ValuePath]] = {}  # of the values of each candidate
        self._grades = policy.grades
        self._deep: dict[tuple[int, bool, bool], Decision] = {}
        self._kinds: dict[str, int] = {}

        self._last_turn = LastTurn(since.index if since and since.in_turn else None)
        self._meter = Meter(since)
        self._own_calls = dict.fromkeys(since.own_calls, 0) if since else {}  # id → line

    @classmethod
    def of(  # noqa: PLR0913 - wishes, each by its name
        cls,
        source: Transcript,
        fmt: TranscriptFormat,
        policy: Policy,
        now: float,
        *,
        keep_names: bool = False,
        progress: Progress | None = None,
        since: Checkpoint | None = None,
        undone: Container[str] = (),
    ) -> Survey:
        """Read a session to its last line, from its first or `since` a checkpoint of it.

        `undone` are the entries whose extraction somebody has taken back.
        """
        survey = cls(policy, now, keep_names=keep_names, since=since, undone=undone)
        start = (since.offset, since.index) if since else (0, 0)
        told, last = start[0], None
        for last in source.lines(*start):
            entry = parse_entry(last.raw)
            if entry is not None:
                survey._add(last, entry, fmt)
            else:
                survey._pass_over(last)
            if progress and last.offset - told >= _PROGRESS_STEP:
                told = last.offset
                progress(told)
        if last:
            whole = last.raw.endswith(b"\n")
            survey.end_index = last.index + whole
            survey.end_offset = last.offset + (len(last.raw) if whole else 0)
            if progress:
                progress(last.offset + len(last.raw))
        return survey

    def _pass_over(self, line: Line) -> None:
        if is_too_large(line.raw):
            self.too_large += 1
            if self._policy.bound_models:
                self._coverage.pass_over(line.index, line.raw)
        elif line.raw.strip():
            self.unreadable += 1

    def _add(self, line: Line, entry: Entry, fmt: TranscriptFormat) -> None:
        info = fmt.info(entry)
        if info.is_header:
            return
        self.messages += info.is_message
        self._last_turn.follow(line.index, info)
        self._coverage.follow(line.index, info)
        if MARKER in entry or info.calls:
            self._note_bsd(line, entry, info)

        values = fmt.values(entry, self._shortest)
        self._meter.follow(entry, info, values)
        own_result = info.result_of in self._own_calls
        undone = info.id in self._undone
        subject = subject_of(
            entry, info, values, self._policy, own_result=own_result, undone=undone
        )
        number, candidate = self._hold(subject)
        texts_from = len(self._measured)
        if candidate:
            self._measure(subject, line.raw)
        if info.id is not None and (candidate or self._keep_names):
            self._names += info.id.encode("utf-8", "surrogatepass")
        self._time.append(nan if info.time_ms is None else info.time_ms)
        self._places.extend((line.offset, len(self._names)))
        kind = self._kinds.setdefault(info.kind, len(self._kinds))
        self._numbers.extend((len(line.raw), self.messages, number, kind, texts_from))

    def _note_bsd(self, line: Line, entry: Entry, info: EntryInfo) -> None:
        """Note what has to do with bsd itself: markers, calls of its tools, leaked placeholders."""
        marker = Marker.of(entry) if MARKER in entry else None
        if marker:
            self.refs.add(marker.ref)
        for call in info.calls:
            if call.id and own_tool(call.name):
                self._own_calls[call.id] = line.index
        if info.calls and _PLACEHOLDER_START in line.raw:
            for leak in _leaks(line.index, entry, info, extracted=marker is not None):
                if len(self.leaked) < _MOST_WARNINGS:
                    self.leaked.append(leak)

    def _hold(self, subject: Subject) -> tuple[int, bool]:
        """Return the number under which a subject is held, and whether it could be extracted.

        Subjects between which the rules make no difference are held once: lengths are rounded
        down to the next one that a rule asks for, and paths count only for who could lose values.
        """
        options = subject.options
        grades = [self._grades[bisect_right(self._grades, one.value.length) - 1] for one in options]
        # True is the same key as 1, and not the same wish.
        wish = type(subject.extractable)
        outline = (*_TRAITS(subject), wish, *map(_OPTION_TRAITS, options), *grades)
        known = self._outlines.get(outline)
        if known is None:
            best = decide(subject, _BEST_STANDING, self._policy, self._now)
            known = self._keep(subject, grades, ()), best.reason is Reason.EXTRACT
            self._outlines[outline] = known
        if not known[1]:
            return known
        where = tuple(map(_PLACES, options))
        number = self._candidates.get((known[0], where))
        if number is None:
            number = self._candidates[known[0], where] = self._keep(subject, grades, where)
            self._paths[number] = [path for path, _ in where]
        return number, True

    def _measure(self, subject: Subject, raw: bytes) -> None:
        """Note how large each value is that could leave; one that is no text counts as nothing."""
        for option in subject.options:
            text = option.value.text
            if not text:
                self._measured.extend((0, 0, 0))
                continue
            ascii_only = text.isascii()
            size = len(text) if ascii_only else len(text.encode("utf-8", "surrogatepass"))
            self._measured.extend((size, len(text), _start(text, raw)))

    def _texts(self, number: int, start: int) -> dict[ValuePath, SeenText]:
        """The same, of the candidate of this number whose texts are the ones from `start` on."""
        paths = self._paths[number]
        measured = iter(self._measured[start : start + 3 * len(paths)])
        return dict(zip(paths, map(SeenText, measured, measured, measured), strict=True))

    def _keep(self, subject: Subject, grades: list[int], where: _Where) -> int:
        """Keep a subject without texts, at these paths; without any if it has none to lose."""
        nowhere: _Where = (((), ()),) * len(subject.options)
        options = tuple(
            Option(
                replace(
                    option.value,
                    path=path,
                    removes=removes,
                    length=grade,
                    text=None,
                ),
                option.trigger,
            )
            for option, grade, (path, removes) in zip(
                subject.options, grades, where or nowhere, strict=True
            )
        )
        self._subjects.append(replace(subject, options=options))
        varies = subject.own_result or type(subject.extractable) is int
        self._steady.append(not (varies or self._policy.age_threshold_s))
        return len(self._subjects) - 1

    def outcomes(self) -> Iterator[Judged]:
        """Judge every entry, in the order of the file."""
        duplicates = self._duplicates()
        kinds, last_turn, context = list(self._kinds), self._last_turn, self._coverage.context
        covers = self._coverage.covers if self.signed else None
        earliest = last_turn.earliest
        places, numbers, name_start = iter(self._places), iter(self._numbers), 0
        rows = zip(
            self._index,
            self._id,
            self._time,
            zip(places, places, strict=True),
            zip(numbers, numbers, numbers, numbers, numbers, strict=True),
            strict=True,
        )
        for row, (index, id_, time, (offset, name_end), more) in enumerate(rows):
            length, messages, number, kind, texts = more
            sent = context.sent(row)
            near = index >= earliest
            standing = Standing(
                self.messages - messages,
                None if isnan(time) else time,
                id_ in duplicates,
                near and last_turn.holds(index),
                near and last_turn.includes(index),
                covers is not None and covers(index) and (sent or not context.compacted(row)),
            )
            decision = self._decide(number, standing)
            name = self._names[name_start:name_end].decode("utf-8", "surrogatepass")
            name_start = name_end
            yield Judged(
                index,
                offset,
                length,
                name or None,
                kinds[kind],
                self._subjects[number],
                standing,
                decision,
                sent,
                self._texts(number, texts) if decision.chosen else {},
            )

    def _decide(self, number: int, standing: Standing) -> Decision:
        """Judge a subject; most stand so deep in their session that where makes no difference."""
        deep = standing.position >= _DEEP and self._steady[number]
        if not deep or standing.duplicate or standing.turn_open:
            return decide(self._subjects[number], standing, self._policy, self._now)
        key = number, standing.last_turn, standing.prefix_bound
        known = self._deep.get(key)
        if known is None:
            known = decide(self._subjects[number], standing, self._policy, self._now)
            self._deep[key] = known
        return known

    def _duplicates(self) -> set[int]:
        ids = sorted(self._id)
        twice = {one for one, other in pairwise(ids) if one == other}
        if since := self._since:
            twice |= since.among(ids)
        return twice - {NO_ID}

    @property
    def is_partial(self) -> bool:
        """Whether it began at a checkpoint, and knows of earlier lines only what that says."""
        return self._since is not None

    @property
    def signed(self) -> bool:
        """Whether there are signatures that bind what is before them."""
        return self._coverage.signed

    @property
    def reaches_back(self) -> bool:
        """Whether what signatures bind cannot be told without what is before the checkpoint.

        So it is if something after it takes out of context what stands before it, or back in.
        """
        since = self._since
        if since is None or not (since.bound or self.signed):
            return False
        return self._coverage.context.reaches_back

    @property
    def rate(self) -> Rate:
        """How many characters of this session are a token."""
        return self._meter.rate()

    def checkpoint(self, rows: int, offset: int, *, bound: bool) -> Checkpoint:
        """Return the checkpoint after so many entries; `offset`: where the next will begin.

        `bound`: whether a signature keeps something of them.
        """
        since = self._since
        index = self._index[rows] if rows < len(self._index) else self.end_index
        before = since.messages if since else 0
        leaf, on_way = self._coverage.context.leads_by(rows)
        rate = self.rate
        return Checkpoint(
            offset,
            index,
            self._numbers[_NUMBERS * (rows - 1) + 1] if rows else before,
            self._id[:rows],
            tuple(call for call, line in self._own_calls.items() if line < index),
            leaf=leaf,
            in_turn=self._last_turn.reaches(index),
            on_way=on_way,
            bound=bound or (since.bound if since else False),
            characters_per_token=rate.characters if rate.measured else 0.0,
            earlier=since.earlier if since and not since.ids else since,
        )


def _start(text: str, raw: bytes) -> int:
    """Where in its line a text begins, most likely; 0 if it does not look so."""
    try:  # to look for all of a long one would take as much time as to parse the line again
        return max(0, raw.find(orjson.dumps(text[:_BEGINNING])[:-1]))
    except TypeError:  # half a pair of surrogates
        return 0


def _leaks(index: int, entry: Entry, info: EntryInfo, *, extracted: bool) -> Iterator[Leaked]:
    for call in info.calls:
        if own_tool(call.name):
            continue
        for mentioned in mentioned_ids(_arguments_text(entry, call)):
            if not (extracted and mentioned == info.id):
                yield Leaked(index, info.id, intern(call.name), mentioned)


def _arguments_text(entry: Entry, call: ToolCall) -> str:
    try:
        return json.dumps(value_at(entry, call.arguments)) if call.arguments else ""
    except RecursionError:  # nested deeper than Python can follow: nobody wrote that by mistake
        return ""


# --- what is settled ---


def fingerprint(config: PruningConfig) -> str:
    """Tell settings apart by which entries are judged: what one settles, it settles for itself."""
    decides = {name: value for name, value in config.as_json().items() if name in UNSETTLING}
    text = json.dumps(decides | {"rules": _RULES}, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Settling:
    """Follows the outcomes of a survey, as far as they are settled without a gap (DESIGN §3).

    An outcome is settled if no later line and no passing of time can change it. A checkpoint that
    is out of date may hide something that could leave its session; it can never make an edit wrong,
    since edits are made of the lines that were read.
    """

    def __init__(self, survey: Survey, policy: Policy) -> None:
        self._survey, self._signed = survey, survey.signed
        self._window = max((trigger.keep_recent for trigger in policy.triggers), default=0)
        self._rows = 0
        self._shift = 0  # bytes by which what follows moves
        self._end: Judged | None = None  # the first that is not settled
        self._unbinds = False  # a signature leaves that binds what is before it
        self._bound = False  # one binds an entry before the end

    def add(self, outcome: Judged, reason: str, shift: int = 0) -> None:
        """Go on past an entry, if `reason` settles it; `shift` is how much longer its line gets."""
        if self._signed and reason == Reason.EXTRACT:
            self._unbinds |= any(one.value.removes for one in outcome.decision.chosen)
        if self._end is not None:
            return
        standing = outcome.standing
        settled = reason in _ANYWHERE or (reason in _WHEN_OLD and standing.position >= self._window)
        # A turn that begins before the checkpoint would not be known after it, and a line without
        # its end is still being written.
        held = standing.turn_open or (standing.last_turn and thinks(outcome.subject))
        if not settled or held or outcome.offset >= self._survey.end_offset:
            self._end = outcome
            return
        self._rows += 1
        self._shift += shift
        self._bound |= standing.prefix_bound

    def stop(self, outcome: Judged) -> None:
        """End here, at an entry that was not looked at."""
        self._end = self._end or outcome

    def checkpoint(self) -> Checkpoint | None:
        """Return where to begin next time, once the plan is in effect; None: at the first line."""
        if self._unbinds:
            return None
        offset = self._end.offset if self._end else self._survey.end_offset
        return self._survey.checkpoint(self._rows, offset + self._shift, bound=self._bound)
