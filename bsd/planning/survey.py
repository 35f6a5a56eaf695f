"""One forward pass over a session that collects the facts needed to judge each entry.

Every line is parsed once and dropped. Each entry leaves a `Row`, and entries that are alike to the
rules share one `Subject`. A checkpoint notes how far all outcomes are final; the next pass starts
there.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from operator import itemgetter
from sys import intern, maxsize

from bsd.core.config import UNSETTLING, PruningConfig
from bsd.core.errors import UnknownForm
from bsd.core.prices import PriceTable
from bsd.planning.context_window import ContextWindow, LastTurn
from bsd.planning.copies import are_copies
from bsd.planning.plan import Leaked, Rate
from bsd.planning.prompt_cache import PromptCache
from bsd.planning.rules import (
    Decision,
    Policy,
    Reason,
    Standing,
    Subject,
    decide,
    own_tool,
    subject_of,
)
from bsd.planning.timing import CacheState
from bsd.planning.tokens import Meter
from bsd.store.state import NO_ID, Accounted, CacheSeen, Checkpoint, WaitingValues
from bsd.transcripts.agents.entry import MARKER, PLACEHOLDER_START, Entry, Marker, mentioned_ids
from bsd.transcripts.agents.format import EntryInfo, ToolCall, TranscriptFormat
from bsd.transcripts.reader import Line, Transcript, is_too_large, parse_entry
from bsd.transcripts.spans import value_at

Progress = Callable[[int], None]
_PLACEHOLDER_START = PLACEHOLDER_START.encode()
_PROGRESS_STEP = 1 << 20  # bytes
_MOST_WARNINGS = 100
# Deeper than any `keep_recent` may reach (SPEC §4).
_DEEP = 101
# A standing in which only the entry itself can keep its values.
_BEST_STANDING = Standing(position=maxsize, time_ms=-maxsize, superseded=True)
# Final at any place in the session.
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
# Final once the entry is older than every rule's window: until then, a rule for another of its
# values may still apply. A signature binds an entry until a compaction takes it out of context; a
# checkpoint notes whether such an entry is before it.
_WHEN_OLD = frozenset(
    (
        Reason.EXTRACT,
        Reason.VALUES_TOO_SMALL,
        Reason.PREFIX_BOUND,
        Reason.TOO_LARGE_IN_MEMORY,
        "not_editable",
        "not_sent",
    )
)
# Version of the rules. Outcomes of earlier versions are judged again.
_RULES = 3


@dataclass(slots=True)
class Row:
    """The data of one entry that stays in memory during the pass."""

    index: int  # 0-based line number
    offset: int
    length: int
    entry_id: str | None  # also None if it cannot be extracted and `keep_names` is false
    kind: str
    time_ms: float | None  # when it was written
    messages: int  # message entries up to and including it
    subject: Subject


@dataclass(frozen=True, slots=True)
class Judged:
    """An entry with its decision."""

    row: Row
    standing: Standing
    decision: Decision
    sent: bool = True  # it is in context

    @property
    def index(self) -> int:
        """The 0-based line number."""
        return self.row.index

    @property
    def kind(self) -> str:
        """The entry's type, for people."""
        return self.row.kind

    def age_s(self, now: float) -> float | None:
        """Return the entry's age in seconds, None if unknown; `now` is in epoch seconds."""
        time_ms = self.standing.time_ms
        return None if time_ms is None else max(0.0, now - time_ms / 1000)


class Survey:
    """The result of one pass over a session. Times are epoch seconds."""

    def __init__(  # noqa: PLR0913 - as `of`
        self,
        fmt: TranscriptFormat,
        policy: Policy,
        now: float,
        *,
        keep_names: bool = False,
        since: Checkpoint | None = None,
        undone: Container[str] = (),
        restored: Mapping[str, float] = {},
        mtime: float | None = None,
        turn_over: bool = False,
        prices: PriceTable | None = None,
        accounted: Accounted | None = None,
    ) -> None:
        self._fmt = fmt
        self._policy = policy
        self._shortest, self._limits = policy.shortest, policy.limits()
        self._now = now
        self._keep_names = keep_names
        self._since = since
        self._undone = undone
        self._restored = restored
        self._source: Transcript | None = None
        self._mtime = mtime
        self._turn_over = turn_over
        self.messages = since.messages if since else 0
        # Offset and number of the next line.
        self.end_offset, self.end_index = (since.offset, since.index) if since else (0, 0)
        self.unreadable = 0  # lines that are not blank and hold no JSON object
        self.too_large = 0  # lines that would take too much memory
        self.leaked: list[Leaked] = []
        self.refs: set[str] = set()  # names of stored files in markers
        self.rows: list[Row] = []
        # Subject → (the one object for all equal subjects, whether it can leave now or later).
        self._subjects: dict[Subject, tuple[Subject, bool]] = {}
        self._decisions: dict[tuple[int, bool, bool, bool, bool], Decision] = {}
        self._own_calls = dict.fromkeys(since.own_calls, 0) if since else {}  # id → line
        self._context = ContextWindow(policy.binds, since)
        self._last_turn = LastTurn(since.index if since and since.in_turn else None)
        self._meter = Meter(since)
        self.cache = PromptCache(since.cache if since else None, prices, accounted)
        # (row, facts from the entries up to it), for each row that changes them.
        self._seen: list[tuple[int, CacheSeen]] = []

    @classmethod
    def of(  # noqa: PLR0913 - options, each by name
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
        restored: Mapping[str, float] = {},
        turn_over: bool = False,
        prices: PriceTable | None = None,
        accounted: Accounted | None = None,
    ) -> Survey:
        """Read a session to its last line.

        Args:
            keep_names: also keep the ids of entries that cannot be extracted.
            progress: called with the bytes that were read so far.
            since: a checkpoint of the session to start at, instead of the first line.
            undone, restored: as in `plan_extraction`.
            turn_over: treat the last turn as ended, whether or not its entries show an end.
            prices, accounted: as in `PromptCache`.

        Raises:
            UnknownForm: a line has a form that bsd does not know.
        """
        survey = cls(
            fmt,
            policy,
            now,
            keep_names=keep_names,
            since=since,
            undone=undone,
            restored=restored,
            mtime=source.identity.mtime,
            turn_over=turn_over,
            prices=prices,
            accounted=accounted,
        )
        survey._source = source
        told, last = survey.end_offset, None
        for last in source.lines(survey.end_offset, survey.end_index):
            entry = parse_entry(last.raw)
            if entry is not None:
                if why := fmt.why_unknown_form(entry):
                    raise UnknownForm(why)
                survey._add(last, entry, fmt.info(entry))
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
                self._context.pass_over(line.raw)
        elif line.raw.strip():
            self.unreadable += 1

    def _add(self, line: Line, entry: Entry, info: EntryInfo) -> None:
        if info.is_header:
            return
        self.messages += info.is_message
        self._last_turn.follow(line.index, info)
        self._context.follow(line.index, info)
        goes_back = self._context.goes_back
        if info.is_assistant or info.cache is not None or info.is_compaction or goes_back:
            self.cache.follow(info, goes_back=goes_back)
            self._seen.append((len(self.rows), self.cache.seen))
        if MARKER in entry or info.calls:
            self._note_bsd(line, entry, info)
        values = self._fmt.values(entry, self._shortest)
        self._meter.follow(entry, info, values)
        subject = subject_of(
            entry,
            info,
            values,
            self._policy,
            self._limits,
            own_result=info.result_of in self._own_calls
            or any(call.answered and own_tool(call.name) for call in info.calls),
            undone=info.id in self._undone,
            restored_ms=self._restored.get(info.id or ""),
        )
        known = self._subjects.get(subject)
        if known is None:
            best = decide(subject, _BEST_STANDING, self._policy, self._now)
            leaves = best.reason is Reason.EXTRACT or best.due_at is not None
            known = self._subjects[subject] = subject, leaves
        subject, candidate = known
        self.rows.append(
            Row(
                line.index,
                line.offset,
                len(line.raw),
                info.id if candidate or self._keep_names else None,
                intern(info.kind),
                info.time_ms,
                self.messages,
                subject,
            )
        )

    def _note_bsd(self, line: Line, entry: Entry, info: EntryInfo) -> None:
        """Note traces of bsd: markers, calls of its tools, leaked placeholders."""
        marker = Marker.of(entry) if MARKER in entry else None
        if marker:
            self.refs.add(marker.ref)
        for call in info.calls:
            if call.id and own_tool(call.name):
                self._own_calls[call.id] = line.index
        if info.calls and _PLACEHOLDER_START in line.raw:
            leaks = _leaks(line.index, entry, info, extracted=marker is not None)
            self.leaked += islice(leaks, _MOST_WARNINGS - len(self.leaked))

    def cache_state(self, written: float) -> CacheState:
        """Return the state of the prompt cache; `written` as in `PromptCache.warm_until`."""
        return self.cache.state(self._now, written)

    def cache_seen(self, rows: int) -> CacheSeen:
        """Return the facts about the prompt cache from the entries before the first `rows` rows."""
        at = bisect_left(self._seen, rows, key=itemgetter(0))
        if at:
            return self._seen[at - 1][1]
        return self._since.cache if self._since else CacheSeen()

    @property
    def waiting(self) -> WaitingValues | None:
        """The values before the checkpoint that wait."""
        return self._since.waiting if self._since else None

    def outcomes(
        self, warm_until: float | None = None, leave_from: int = maxsize
    ) -> Iterator[Judged]:
        """Yield the judged entries in the order of the file.

        Args:
            warm_until: values in context wait until this time (epoch seconds); None: they leave.
            leave_from: from this line on they leave in any case.
        """
        duplicates = self._duplicates()
        context, last_turn, signed = self._context, self._last_turn, self._context.signed
        if self._turn_over:
            last_turn.end()
        last_turn.end_if_silent(self._now, self._mtime)
        for number, row in enumerate(self.rows):
            sent = context.sent(number)
            standing = Standing(
                self.messages - row.messages,
                row.time_ms,
                context.ids[number] in duplicates,
                last_turn.is_open(row.index),
                last_turn.includes(row.index),
                signed and context.is_bound(number),
                last_turn.over_at(row.index),
                warm_until if sent and row.index < leave_from else None,
                context.superseded(number),
            )
            decision = self._decide(row.subject, standing)
            yield Judged(row, standing, decision, sent)

    def _decide(self, subject: Subject, standing: Standing) -> Decision:
        """Judge an entry. Most are so deep in the session that their place makes no difference."""
        varies = subject.own_result or subject.window is not None or self._policy.age_threshold_s
        is_deep = standing.position >= _DEEP and not varies
        if not is_deep or standing.duplicate or standing.turn_open:
            return decide(subject, standing, self._policy, self._now)
        waits = standing.warm_until is not None
        key = id(subject), standing.last_turn, standing.prefix_bound, waits, standing.superseded
        known = self._decisions.get(key)
        if known is None:
            known = self._decisions[key] = decide(subject, standing, self._policy, self._now)
        return known

    def _duplicates(self) -> set[int]:
        """Return the ids (as hashes) that several lines share, unless these are copies.

        Ids that also occur before the checkpoint are included.
        """
        ids = sorted(self._context.ids)
        twice = {one for one, other in pairwise(ids) if one == other} - {NO_ID}
        if not twice:
            return self._earlier
        rows: dict[int, list[Row]] = defaultdict(list)
        for number, row in zip(self._context.ids, self.rows, strict=True):
            if number in twice:
                rows[number].append(row)
        others = {number for number, found in rows.items() if not self._are_copies(found)}
        return self._earlier | others

    def _are_copies(self, rows: list[Row]) -> bool:
        """Read the lines of one id again and compare them, if one of them could be extracted."""
        if self._source is None or not any(map(self._is_candidate, rows)):
            return True  # no value leaves these entries in any case
        lines = (self._source.read(row.offset, row.length) for row in rows)
        entries = (entry for line in lines if (entry := parse_entry(line)) is not None)
        return are_copies(entries, self._fmt)

    def _is_candidate(self, row: Row) -> bool:
        return self._subjects[row.subject][1]

    @property
    def repeats_earlier(self) -> bool:
        """True if an extractable entry has an id that also occurs before the checkpoint.

        Only the line before the checkpoint tells whether it is the same entry.
        """
        return any(
            number in self._earlier and self._is_candidate(row)
            for number, row in zip(self._context.ids, self.rows, strict=True)
        )

    @cached_property
    def _earlier(self) -> set[int]:
        """The ids of entries (as hashes) that also occur before the checkpoint."""
        return self._since.among(self._context.ids) - {NO_ID} if self._since else set()

    @property
    def is_partial(self) -> bool:
        """True if the pass began at a checkpoint and did not read the lines before it."""
        return self._since is not None

    @property
    def signed(self) -> bool:
        """True if there are signatures that bind entries before them."""
        return self._context.signed

    @property
    def reaches_back(self) -> bool:
        """True if the entries that signatures bind, or that may wait, depend on earlier lines.

        They do if a later entry supersedes the entries before the checkpoint, takes them out of
        context, or back into it, or if a signature binds values there that wait.
        """
        since = self._since
        if since is not None and since.waiting and self.signed:
            return True
        if self._context.supersedes_earlier:
            return True
        if since is None or not (since.bound or self.signed or self.cache.seen.in_use):
            return False
        return self._context.reaches_back

    @property
    def rate(self) -> Rate:
        """Characters per token in this session."""
        return self._meter.rate()

    def checkpoint(
        self, rows: int, offset: int, *, bound: bool, waiting: WaitingValues | None = None
    ) -> Checkpoint:
        """Return the checkpoint after the first `rows` rows.

        Args:
            offset: start of the next line once the plan is in effect.
            bound: whether a signature keeps values of these rows in the session.
            waiting: the values of these rows that wait.
        """
        since, rate = self._since, self.rate
        index = self.rows[rows].index if rows < len(self.rows) else self.end_index
        leaf, on_way = self._context.leaf(rows)
        messages = since.messages if since else 0
        return Checkpoint(
            offset,
            index,
            self.rows[rows - 1].messages if rows else messages,
            self._context.ids[:rows],
            tuple(call for call, line in self._own_calls.items() if line < index),
            leaf=leaf,
            in_turn=self._last_turn.reaches(index),
            on_way=on_way,
            bound=bound or (since.bound if since else False),
            characters_per_token=rate.characters if rate.measured else 0.0,
            cache=self.cache_seen(rows),
            waiting=waiting,
            earlier=since.earlier if since and not since.ids else since,
        )


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
    except RecursionError:  # nested too deeply for Python: no model writes that by mistake
        return ""


def fingerprint(config: PruningConfig) -> str:
    """Return a hash of the settings that decide about entries.

    Outcomes are final only under one hash.
    """
    decides = {name: value for name, value in config.as_json().items() if name in UNSETTLING}
    text = json.dumps(decides | {"rules": _RULES}, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class FinalOutcomes:
    """Follows the outcomes of a survey up to the first that is not final (DESIGN §3).

    An outcome is final if no later line and no passing of time can change it. An outdated
    checkpoint may hide a value that could leave its session. It never makes an edit wrong, since
    edits are made from the lines that were read.

    Args:
        waiting: the values before the survey's first line that wait, to which those that follow are
            added; outcomes of values that wait count as final. None: they do not.
    """

    def __init__(
        self, survey: Survey, policy: Policy, waiting: WaitingValues | None = None
    ) -> None:
        self._survey, self._signed = survey, survey.signed
        self.waiting = waiting
        self._window = max((trigger.keep_recent for trigger in policy.triggers), default=0)
        self._rows = 0
        self._shift = 0  # bytes by which later lines move
        self._end: Judged | None = None  # the first outcome that is not final
        self._unbinds = False  # a signature that binds earlier entries leaves
        self._bound = False  # a signature binds an entry before `_end`
        self._any_bound = False  # a signature binds any entry

    def add(self, outcome: Judged, reason: str, shift: int = 0, waiting: int = 0) -> None:
        """Add an outcome.

        Args:
            reason: the reason for the report, which tells whether the outcome is final.
            shift: bytes by which the entry's line gets longer.
            waiting: characters of the entry's values that wait, without their placeholders.
        """
        if self._signed and reason == Reason.EXTRACT:
            self._unbinds |= any(one.value.removes for one in outcome.decision.chosen)
        standing = outcome.standing
        self._any_bound |= standing.prefix_bound
        if self._end is not None:
            return
        is_old = standing.position >= self._window
        waits = bool(outcome.decision.waiting) and self.waiting is None
        is_waiting = reason == Reason.CACHE_WARM
        is_final = reason in _ANYWHERE
        is_final |= (reason in _WHEN_OLD or is_waiting) and is_old and not waits
        # After the checkpoint, neither a turn that begins before it nor the time of that turn's
        # newest entry would be known. A line without its line end is still being written.
        is_held = standing.turn_open or (standing.last_turn and outcome.row.subject.thinks)
        is_held |= standing.over_at is not None
        if not is_final or is_held or outcome.row.offset >= self._survey.end_offset:
            self._end = outcome
            return
        if waiting and self.waiting is not None:
            reached = self.waiting.reached
            if not self.waiting.characters:
                reached = self._survey.cache_seen(self._rows).reached
            self.waiting = WaitingValues(self.waiting.characters + waiting, reached)
        self._rows += 1
        self._shift += shift
        self._bound |= standing.prefix_bound

    @property
    def sets_free(self) -> bool:
        """True if more may leave once the plan is in effect, since a binding signature leaves."""
        return self._unbinds and self._any_bound

    def stop(self, outcome: Judged) -> None:
        """End at an entry that was not treated."""
        self._end = self._end or outcome

    def checkpoint(self) -> Checkpoint | None:
        """Return the start of the next pass, once the plan is in effect; None: the first line."""
        if self._unbinds:
            return None
        offset = self._end.row.offset if self._end else self._survey.end_offset
        return self._survey.checkpoint(
            self._rows, offset + self._shift, bound=self._bound, waiting=self.waiting
        )
