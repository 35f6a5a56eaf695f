"""Plans extraction: judges every entry and makes a new line for each entry that values leave."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from sys import maxsize

from bsd.core.config import PruningConfig
from bsd.core.formatting import iso_utc
from bsd.core.prices import PriceTable
from bsd.planning.line_length import as_long
from bsd.planning.originals import OriginalLine, Return, original_of, same_values
from bsd.planning.plan import Plan, Report, Saving
from bsd.planning.ready import ReadyValues, cut_at, timing_without_wait
from bsd.planning.rules import Decision, Policy, Reason, decide, subject_of
from bsd.planning.survey import FinalOutcomes, Judged, Progress, Survey
from bsd.planning.timing import CacheState, Cause, Cut, Timing
from bsd.store.entry_notes import Noting
from bsd.store.history import TouchedLine
from bsd.store.markers import Markers, away_paths
from bsd.store.originals import FileSpan, Missing, OriginalStore, StoredOriginal, digest
from bsd.store.state import Accounted, Checkpoint, Checkpoints, WaitingValues
from bsd.transcripts.agents.entry import MARKER, PLACEHOLDER_START, Entry, Marker, placeholder
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import MOST_EXTRA_EDITED, Transcript, is_too_large, parse_entry
from bsd.transcripts.spans import ValuePath
from bsd.transcripts.splice import (
    NoRoom,
    SpliceError,
    Stood,
    edit,
    edit_and_measure,
    encode_string,
    find,
    text_sizes,
)

BUDGET = 96 * 1024 * 1024  # approximate bytes of memory for one plan
_COST = 1400  # bytes of memory for one edit and its record, without the new line

# Outcomes beyond SPEC §3's table: the entry was due, but its line must not be changed.
NOT_EDITABLE = "not_editable"  # duplicate key on an edited path, or foreign `_extracted`
NOT_SENT = "not_sent"  # out of context, in a format whose lines keep their lengths
STORED_MISSING = "stored_missing"  # the stored file of extracted values is missing or damaged

_PROGRESS_ENTRIES = 64
_PLACEHOLDER = PLACEHOLDER_START.encode()
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9_]+")
_LONGEST_TYPE = 40  # characters of a file name


def plan_extraction(  # noqa: PLR0913 - options, each by name
    source: Transcript,
    fmt: TranscriptFormat,
    config: PruningConfig,
    now: float,
    stored: OriginalStore,
    *,
    budget_bytes: int = BUDGET,
    dry_run: bool = False,
    tell: Callable[[Judged], None] | None = None,
    progress: Progress | None = None,
    since: Checkpoint | None = None,
    further: Checkpoint | None = None,
    undone: Collection[str] = (),
    restored: Mapping[str, float] = {},
    by_hand: bool = False,
    turn_over: bool = False,
    waits: bool = False,
    prices: PriceTable | None = None,
    accounted: Accounted | None = None,
) -> Plan:
    """Plan the extraction of every value that is due.

    Args:
        now: epoch seconds.
        budget_bytes: memory for a plan. If it is used up, the plan is not `complete`.
        dry_run: keep no edits and ignore the budget; the report covers the whole session.
        tell: called with every outcome, for a log.
        progress: called with the bytes of the session that were read so far.
        since: a checkpoint made with the same settings. Only the lines after it are read, and the
            report covers only these.
        further: a checkpoint after `since` and after values that wait. Reading begins there unless
            these values leave now.
        undone: ids of entries whose extraction was undone. They stay unless `by_hand` is set.
        restored: when entries without a `_restored` of their own were restored, by id, in epoch
            milliseconds.
        turn_over: treat the last turn as ended, whether or not its entries show an end.
        waits: keep values in context in the session until the rule of `timing` says that they
            leave. Without it they leave now.
        prices: the prices that bsd knows; None: those that it is shipped with.
        accounted: what the session's requests have cost; None: bsd looks at it for the first time.
    """
    policy = Policy.of(config)
    may_wait = waits and config.when != "now"
    look = partial(
        Survey.of,
        source,
        fmt,
        policy,
        now,
        keep_names=tell is not None,
        progress=progress,
        undone=() if by_hand else undone,
        restored=restored,
        turn_over=turn_over,
        prices=prices,
        accounted=accounted,
    )
    survey = _survey(look, further if may_wait else None, since)
    cache = survey.cache_state(source.identity.mtime_ns / 1e9)
    ready = ReadyValues(survey, cache)
    timing = None
    if may_wait and cache.cold_at is not None:
        ready.find(source, fmt, cache.cold_at)
        timing = ready.decide(config.when, now)
    if survey.waiting and (timing is None or ready.leaves_all):
        survey = _survey(look, since)
    extraction = _Extraction(
        source,
        fmt,
        stored,
        survey,
        policy,
        iso_utc(now),
        ready=ready,
        budget_bytes=maxsize if dry_run else budget_bytes,
        dry_run=dry_run,
        undone=undone,
    )
    outcomes = survey.outcomes(cache.cold_at if timing else None, ready.leave_from)
    for number, outcome in enumerate(outcomes):
        if tell:
            tell(outcome)
        if progress and number % _PROGRESS_ENTRIES == 0:
            progress(source.size)  # all is read; planning goes on
        extraction.treat(number, outcome)
    if timing is None and (cut := extraction.cut(cache)) is not None:
        when = config.when if may_wait else None
        timing = timing_without_wait(survey, cut, cache, when, now)
    return extraction.plan(cache.cold_at, timing, since, now)


def _survey(look: Callable[..., Survey], *starts: Checkpoint | None) -> Survey:
    """Return the survey from the first of some checkpoints after which all facts can be found."""
    for start in filter(None, starts):
        survey = look(since=start)
        if not (survey.reaches_back or survey.repeats_earlier):
            return survey
    return look()


def why_it_stays(
    source: Transcript, fmt: TranscriptFormat, config: PruningConfig, now: float, index: int
) -> Reason | None:
    """Return why the entry in line `index` would stay if its `_extractable` were true.

    None if it would leave. `now` is in epoch seconds.
    """
    policy = Policy.of(config)
    for outcome in Survey.of(source, fmt, policy, now).outcomes():
        row, entry = outcome.row, None
        if row.index == index:
            entry = parse_entry(source.read(row.offset, row.length))
        if entry is not None:
            reasons = []
            for at_least in (policy.shortest, 0):  # as extraction does, then with all short values
                values = fmt.values(entry, at_least)
                subject = subject_of(entry, fmt.info(entry), values, policy, policy.limits())
                forced = subject._replace(forced=True, pinned=False, window=None)
                reasons.append(decide(forced, outcome.standing, policy, now).reason)
            return None if Reason.EXTRACT in reasons else reasons[-1]
    return None


class _LeaveAlone(Exception):
    """A line must not be changed; `reason` is for the report."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Original:
    """The place of an entry's original line in the store, present or planned."""

    ref: str
    hash: str
    size: int
    line: FileSpan | bytes | None  # as in StoredOriginal
    away: Mapping[str, int] = field(default_factory=dict)  # keys extracted earlier → bytes


class _Extraction:
    """Makes the new lines of a session entry by entry, and a plan of all of them."""

    def __init__(  # noqa: PLR0913 - made in one place
        self,
        source: Transcript,
        fmt: TranscriptFormat,
        stored: OriginalStore,
        survey: Survey,
        policy: Policy,
        at: str,
        *,
        ready: ReadyValues,
        budget_bytes: int,
        dry_run: bool,
        undone: Collection[str],
    ) -> None:
        self._source = source
        self._fmt = fmt
        self._stored = stored
        self._markers = Markers(source, fmt, stored)
        self._survey = survey
        self._rate = survey.rate
        self._final = FinalOutcomes(survey, policy)
        self._further = FinalOutcomes(survey, policy, survey.waiting or WaitingValues(0, 0))
        self._ready = ready
        self._at = at
        self._budget_bytes = budget_bytes
        self._dry_run = dry_run
        self._undone = undone
        self._edits: list[Edit] = []
        self._keeps: list[StoredOriginal] = []
        self._reasons: Counter[str] = Counter()
        # Type of value → [values, bytes, tokens].
        self._savings: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        self._freed: list[str] = []  # entries that leave although their extraction was undone
        self._memory = 0  # bytes
        self._saved = 0  # bytes
        self._complete = True
        self._due_at: float | None = None
        self._number = 0  # of the present row
        self._reached: int | None = None  # position in context of the first value that leaves it

    def treat(self, number: int, outcome: Judged) -> None:
        """Make an entry's new line if the decision is to extract; `number` is that of its row."""
        self._number = number
        decision, row = outcome.decision, outcome.row
        if decision.due_at is not None:
            self._due_at = min(decision.due_at, self._due_at or decision.due_at)
        if decision.reason is not Reason.EXTRACT:
            self._leave(outcome, decision.reason)
        elif self._fmt.keeps_length and not outcome.sent:  # neither bytes nor tokens would be saved
            self._leave(outcome, NOT_SENT)
        elif self._memory >= self._budget_bytes:
            self._complete = False
            self._final.stop(outcome)
            self._further.stop(outcome)
        else:
            raw = self._source.read(row.offset, row.length)
            try:
                self._extract(outcome, raw)
            except _LeaveAlone as refusal:
                self._leave(outcome, refusal.reason)
            except NoRoom:  # placeholders and marker are longer than the values
                self._leave(outcome, Reason.VALUES_TOO_SMALL)
            except SpliceError:
                self._leave(outcome, NOT_EDITABLE)

    def cut(self, cache: CacheState) -> Cut | None:
        """Return the cut of the values in context that leave; None if none leaves."""
        removed = sum(tokens for _, _, tokens in self._savings.values())
        return (
            None if self._reached is None else cut_at(self._survey, removed, self._reached, cache)
        )

    def _leave(self, outcome: Judged, reason: str) -> None:
        self._reasons[reason] += 1
        self._add_final(outcome, reason)

    def _add_final(self, outcome: Judged, reason: str, shift: int = 0) -> None:
        self._final.add(outcome, reason, shift)
        waits = bool(outcome.decision.waiting)
        characters = self._ready.characters(outcome.index) if waits else 0
        self._further.add(outcome, reason, shift, characters)

    def _extract(self, outcome: Judged, raw: bytes) -> None:
        """Add an entry's new line to the plan; raises _LeaveAlone, SpliceError."""
        if is_too_large(raw, MOST_EXTRA_EDITED):
            raise _LeaveAlone(Reason.TOO_LARGE_IN_MEMORY)
        decision, row = outcome.decision, outcome.row
        entry_id = row.entry_id or ""
        type_ = _as_name(decision.chosen[0].value.type or row.kind)
        new = _stand_ins(raw, decision, placeholder(entry_id))
        original = self._original(outcome, raw, f"{row.index:04d}_{type_}")
        keys = decision.keys
        if original.away:
            if not original.away.keys().isdisjoint(keys):
                raise _LeaveAlone(Reason.ALREADY_EXTRACTED)
            keys = (*original.away, *keys)
        marker = Marker(original.ref, original.hash, original.size, keys, self._at)
        put = {MARKER: marker.to_json()}
        line, stood = edit_and_measure(raw, replace=new, remove=decision.removes, put=put)
        line = self._as_long(raw, line)
        if is_too_large(line, MOST_EXTRA_EDITED):  # the marker names too many values
            raise _LeaveAlone(Reason.TOO_LARGE_IN_MEMORY)
        sizes = self._note_savings(outcome, new, stood)
        self._reasons[Reason.EXTRACT] += 1
        self._add_final(outcome, Reason.EXTRACT, len(line) - row.length)
        self._saved += row.length - len(line)
        if entry_id in self._undone:
            self._freed.append(entry_id)
        if self._dry_run:
            return
        was = original.hash if isinstance(original.line, FileSpan) else None
        self._edits.append(Edit(row.offset, row.length, line, was))
        keep = StoredOriginal(
            ref=original.ref,
            entry_id=entry_id,
            index=row.index,
            type=type_,
            hash=original.hash,
            size=original.size,
            keys=keys,
            sizes=(*original.away.values(), *sizes),
            line=original.line,
        )
        self._keeps.append(keep)
        in_memory = len(keep.line) if isinstance(keep.line, bytes) else 0
        self._memory += _COST + len(line) + in_memory

    def _as_long(self, raw: bytes, line: bytes) -> bytes:
        """Return the new form of a line, with its old length if the format requires that."""
        return as_long(raw, line) if self._fmt.keeps_length else line

    def _note_savings(
        self, outcome: Judged, new: Mapping[ValuePath, bytes], stood: Mapping[ValuePath, Stood]
    ) -> list[int]:
        """Count the values that leave; return the UTF-8 bytes of each one's text."""
        sizes = []
        for value, _ in outcome.decision.chosen:
            stand_in, was = new[value.path], stood[value.path]
            sizes.append(was.size)
            sums = self._savings[value.type or "other"]
            sums[0] += 1
            if not self._fmt.keeps_length:
                sums[1] += was.length - len(stand_in)
                sums[1] += sum(stood[path].length for path in value.removes)
            # Providers charge an image by its pixels, which its characters do not show.
            if outcome.sent and not (value.display or value.shape.is_block):
                characters = was.characters - text_sizes(stand_in)[1]
                if value.is_thought:
                    proof = sum(stood[path].characters for path in value.removes)
                    characters = self._rate.thought(characters, proof)
                sums[2] += self._rate.tokens(characters)
                if self._reached is None and characters > 0:
                    self._reached = self._survey.cache_seen(self._number).reached
        return sizes

    def _original(self, outcome: Judged, raw: bytes, first: str) -> _Original:
        """Find the stored file that already holds the entry's values, or name a new file.

        `first` is the preferred name of a new file. Raises _LeaveAlone.
        """
        row, marked = outcome.row, outcome.row.subject.marked
        # Not `in`: it first tries the bytes as a number, and raises and catches an error each time.
        some_away = marked or raw.find(_PLACEHOLDER) >= 0
        if some_away and (entry := parse_entry(raw)) is not None:
            # Placeholders of copied values stay: they name the originals of other entries.
            markers = self._markers.of(entry, self._fmt.info(entry), row.index, copied=False)
            if len(markers) == 1:
                return self._original_of_marked(outcome, raw, entry, markers[0], first)
            # A line has no room for several markers, and a foreign `_extracted` stays.
            if markers or marked:
                raise _LeaveAlone(NOT_EDITABLE)
        # A lookup costs time, and only lines that were stored before can be found.
        hash_ = digest(raw)
        taken = self._stored.taken(first)
        if taken or row.subject.restored_ms is not None:
            # A crash between storing this line and committing leaves the second.
            for found in (self._stored.find(row.entry_id or ""), (first, hash_)):
                if found and (used := self._use_again(*found, raw, outcome.decision)):
                    return used
        span = FileSpan(row.offset, row.length)
        refs = self._survey.refs
        is_free = not taken and first not in refs
        ref = first if is_free else self._stored.free_ref(first, refs)
        return _Original(ref, hash_, row.length, span)

    def _original_of_marked(
        self, outcome: Judged, raw: bytes, entry: Entry, marker: Marker, first: str
    ) -> _Original:
        """Find one file for the values already extracted and those that leave now.

        One file, because a line has one marker and a marker names one file.
        """
        paths = away_paths(entry, marker)
        unmarked = [(MARKER,)] if outcome.row.subject.marked else []
        if not paths:  # other text has replaced all extracted values
            return self._in_new_file(first, self._as_long(raw, edit(raw, remove=unmarked)), {})
        original = original_of(raw, entry, marker, self._fmt, self._stored)
        if original is Missing.FOREIGN:  # never replace a placeholder by another
            raise _LeaveAlone(Reason.ALREADY_EXTRACTED)
        if isinstance(original, Missing):
            raise _LeaveAlone(STORED_MISSING)
        back = Return.of(entry, original, self._fmt, list(paths.values()))
        if len(back.replace) < len(paths):
            raise _LeaveAlone(STORED_MISSING)
        away = {key: back.sizes[path] for key, path in paths.items()}
        used = self._use_again(marker.ref, marker.hash, raw, outcome.decision, away)
        if used:
            return used
        return self._in_new_file(first, self._as_long(raw, back.apply(raw, remove=unmarked)), away)

    def _use_again(
        self,
        ref: str,
        hash_: str,
        raw: bytes,
        decision: Decision,
        away: Mapping[str, int] | None = None,
    ) -> _Original | None:
        """Return a stored file if it holds exactly the bytes that would leave now."""
        line = self._stored.own(ref, hash_)
        original = None if isinstance(line, Missing) else OriginalLine.of(line)
        if original is None:
            return None
        paths = [value.path for value, _ in decision.chosen]
        # A companion member that only the stored line has would be added on return.
        if set(original.companions(self._fmt, paths)) != set(decision.removes):
            return None
        if not same_values(raw, original.raw, [*paths, *decision.removes]):
            return None
        return _Original(ref, hash_, len(original.raw), None, away or {})

    def _in_new_file(self, first: str, whole: bytes, away: Mapping[str, int]) -> _Original:
        """Store a new line: the entry as it would be with all values inline."""
        ref = self._stored.free_ref(first, self._survey.refs)
        return _Original(ref, digest(whole), len(whole), whole, away)

    def plan(
        self, warm_until: float | None, timing: Timing | None, since: Checkpoint | None, now: float
    ) -> Plan:
        """Return the plan for all treated entries.

        Args:
            warm_until: end of the prompt cache, in epoch seconds like `now`; None: it is cold.
            timing: why values in context leave or wait; None: none does.
            since: the checkpoint before all values that wait.
        """
        survey, size = self._survey, self._source.size
        if survey.too_large:
            self._reasons[Reason.TOO_LARGE_IN_MEMORY] += survey.too_large
        report = Report(
            "extract",
            entries=self._reasons[Reason.EXTRACT],
            values=sum(values for values, _, _ in self._savings.values()),
            bytes_before=size,
            bytes_after=size - self._saved,
            reasons=Counter({str(reason): n for reason, n in self._reasons.items()}),
            savings={type_: Saving(*sums) for type_, sums in self._savings.items()},
            leaked=tuple(survey.leaked),
            unreadable=survey.unreadable,
            partial=survey.is_partial,
            undone_before=len(self._freed),
            rate=self._rate,
        )
        if tokens := self._ready.tokens_left:
            report = replace(report, tokens_ready=tokens)
            if warm_until is not None:  # also if all values that wait are before the checkpoint
                self._due_at = min(warm_until, self._due_at or warm_until)
        elif self._dry_run and warm_until and timing and timing.cause is Cause.ASKED:
            # Extraction by hand does not wait. A dry run counts the tokens that would wait.
            report = replace(report, tokens_ready=report.tokens_saved)
        first, further = self._checkpoints(since)
        return Plan(
            self._source.identity,
            tuple(self._edits),
            report,
            tuple(self._keeps),
            tuple(TouchedLine(keep.index, keep.entry_id) for keep in self._keeps),
            complete=self._complete and not self._final.sets_free,
            due_at=self._due_at,
            warm_until=warm_until,
            timing=timing,
            checkpoint=first,
            further=further,
            accounted=None if self._dry_run else self._accounted(timing, now),
            noting=Noting(freed=tuple(self._freed)),
        )

    def _checkpoints(self, since: Checkpoint | None) -> Checkpoints:
        """Return where the next plan starts, once this one is in effect."""
        first, further = self._final.checkpoint(), self._further.checkpoint()
        if self._dry_run or first is None or further is None:
            return Checkpoints()
        if self._survey.waiting:  # it began after values that wait
            return Checkpoints(since, further)
        waits = further.waiting is not None and further.waiting.characters
        return Checkpoints(first, further if waits else None)

    def _accounted(self, timing: Timing | None, now: float) -> Accounted | None:
        """Return what the requests have cost, once the plan is in effect; None: nothing to note."""
        cache = self._survey.cache
        accounted, seen = cache.accounted, cache.seen
        if seen.usage is None and seen.used_ms is not None:
            return None  # its answers show no usage
        if timing is None or timing.waits:
            return accounted
        price, removed = cache.price(now), timing.cut.removed
        return replace(
            accounted,
            saved=accounted.saved - (timing.loss or 0.0) * (price.input if price else 0.0),
            removed=accounted.removed + removed,
            unseen=accounted.unseen + removed,
        )


def _stand_ins(raw: bytes, decision: Decision, text: str) -> dict[ValuePath, bytes]:
    """Return the JSON for each value's place: the kept beginning of its text, then `text`.

    `text` is the placeholder.
    """
    string = encode_string(text)
    new = {value.path: value.shape.holding(string) for value, _ in decision.chosen}
    heads = {value.path: keep_chars for value, keep_chars in decision.chosen if keep_chars}
    for path, (start, end) in find(raw, heads).items() if heads else ():
        wrapped = parse_entry(b'{"text":%b}' % raw[start:end])
        whole = wrapped["text"] if wrapped else ""
        # A pair of surrogate escapes is now one character, so no pair is cut.
        new[path] = encode_string(whole[: heads[path]] + text)
    return new


@lru_cache(maxsize=64)
def _as_name(word: str) -> str:
    """Return a word in a form that fits into a file name."""
    return _NOT_IN_A_NAME.sub("_", word.lower())[:_LONGEST_TYPE] or "value"
