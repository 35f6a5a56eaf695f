"""Plans what leaves a session: every entry is judged, and who gives up values gets a new line."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache, partial
from sys import maxsize

from bsd.core.config import PruningConfig
from bsd.core.formatting import iso_utc
from bsd.planning.locate import OriginalLine, Return, original_of, same_values
from bsd.planning.plan import Plan, Report, Saving
from bsd.planning.rules import Decision, Policy, Reason, decide, subject_of
from bsd.planning.survey import Judged, Progress, Settling, Survey
from bsd.store.entry_notes import Noting
from bsd.store.history import TouchedLine
from bsd.store.markers import Markers, away_paths
from bsd.store.originals import FileSpan, Missing, OriginalStore, StoredOriginal, digest
from bsd.store.state import Checkpoint
from bsd.transcripts.agents.entry import MARKER, PLACEHOLDER_START, Entry, Marker, placeholder
from bsd.transcripts.agents.format import Shape, TranscriptFormat, Value
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import MOST_EXTRA_EDITED, Transcript, is_too_large, parse_entry
from bsd.transcripts.spans import ValuePath, format_path
from bsd.transcripts.splice import (
    SpliceError,
    Stood,
    edit,
    edit_and_measure,
    encode_string,
    find,
    text_sizes,
)

BUDGET = 96 * 1024 * 1024  # bytes of memory that one plan may take, about
_COST = 1400  # bytes of memory of one edit and what is kept for it, beside the new line

# Outcomes beside SPEC §3's table: the entry was due, but its line must not be touched.
NOT_EDITABLE = "not_editable"  # a duplicate key on an edited path, a foreign `_extracted`
STORED_MISSING = "stored_missing"  # values are away whose file is gone or damaged

_PROGRESS_ENTRIES = 64
_PLACEHOLDER = PLACEHOLDER_START.encode()
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9_]+")
_MOST_DECISIONS = 256  # of which is remembered what leaves by them
_LONGEST_TYPE = 40  # characters of a file name


def plan_extraction(  # noqa: PLR0913 - wishes, each by its name
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
    undone: Collection[str] = (),
    by_hand: bool = False,
) -> Plan:
    """Plan the extraction of all that is due; `now` in epoch seconds.

    A dry run holds no edits and knows no budget, so its report tells of the whole session. `tell`
    gets every outcome, for a log; `progress` gets the bytes of the session read so far. From a
    checkpoint on (`since`, made by a plan with the same settings) the report tells of what was
    read. The entries in `undone`, whose extraction somebody has taken back, stay unless it is done
    `by_hand`.
    """
    policy = Policy.of(config)
    look = partial(
        Survey.of,
        source,
        fmt,
        policy,
        now,
        keep_names=tell is not None,
        progress=progress,
        undone=() if by_hand else undone,
    )
    survey = look(since=since)
    if survey.reaches_back:
        survey = look()
    extraction = _Extraction(source, fmt, stored, survey, iso_utc(now))
    tally = _Tally(maxsize if dry_run else budget_bytes, undone, dry_run=dry_run)
    settling = Settling(survey, policy)
    for number, outcome in enumerate(survey.outcomes()):
        if tell:
            tell(outcome)
        if progress and number % _PROGRESS_ENTRIES == 0:
            progress(source.identity.size)  # all is read, but not all is done
        _treat(outcome, extraction, tally, settling)
    if survey.too_large:
        tally.reasons[Reason.TOO_LARGE_IN_MEMORY] += survey.too_large
    checkpoint = None if dry_run else settling.checkpoint()
    return tally.plan(source, survey, checkpoint)


def why_it_stays(
    source: Transcript, fmt: TranscriptFormat, config: PruningConfig, now: float, index: int
) -> Reason | None:
    """Return why the entry in line `index` would stay if its `_extractable` were true.

    `now` is in epoch seconds. None if it would leave.
    """
    policy = Policy.of(config)
    for outcome in Survey.of(source, fmt, policy, now).outcomes():
        entry = None
        if outcome.index == index:
            entry = parse_entry(source.read(outcome.offset, outcome.length))
        if entry is not None:
            subject = subject_of(entry, fmt.info(entry), fmt.values(entry), policy)
            forced = replace(subject, extractable=True)
            reason = decide(forced, outcome.standing, policy, now).reason
            return None if reason is Reason.EXTRACT else reason
    return None


def _treat(outcome: Judged, extraction: _Extraction, tally: _Tally, settling: Settling) -> None:
    """Make an entry's new line, if that is what was decided."""
    decision = outcome.decision
    if decision.reason is not Reason.EXTRACT:
        tally.leave(decision.reason, decision.due_at)
        settling.add(outcome, decision.reason)
    elif tally.memory >= tally.budget:
        tally.complete = False
        settling.stop(outcome)
    else:
        made = extraction.new_line(outcome)
        tally.take(made)
        if isinstance(made, str):
            settling.add(outcome, made)
        else:
            settling.add(outcome, Reason.EXTRACT, made.growth)


class _LeaveAlone(Exception):
    """A line that must not be touched; `reason` is for the report."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _KeptAt:
    """Where an entry's original line is kept."""

    ref: str
    hash: str
    size: int
    line: FileSpan | bytes | None  # as in StoredOriginal
    away: Mapping[str, int] = field(default_factory=dict)  # keys that are away already: bytes


@dataclass(frozen=True, slots=True)
class _NewLine:
    """One entry's new line, and what it takes."""

    edit: Edit
    keep: StoredOriginal
    savings: Sequence[tuple[str, int, int]]  # of each value: type, bytes, tokens

    @property
    def growth(self) -> int:
        """Bytes by which the line gets longer."""
        return len(self.edit.new) - self.edit.length


@dataclass(frozen=True, slots=True)
class _Leaving:
    """What leaves an entry: the same for all about which the same was decided."""

    decision: Decision
    values: Sequence[Value]
    removes: Sequence[ValuePath]
    keys: tuple[str, ...]
    heads: Mapping[ValuePath, int]  # of the texts of which so many characters stay

    @classmethod
    def of(cls, decision: Decision) -> _Leaving:
        """Read a decision by which something leaves."""
        values = [one.value for one in decision.chosen]
        return cls(
            decision,
            values,
            [path for value in values for path in value.removes],
            tuple(format_path(value.path) for value in values),
            {one.value.path: one.keep_chars for one in decision.chosen if one.keep_chars},
        )

    @property
    def type(self) -> str | None:
        """The type of what leaves first."""
        return self.values[0].type

    def stand_ins(self, raw: bytes, entry_id: str) -> dict[ValuePath, bytes]:
        """The JSON that takes each value's place."""
        text = placeholder(entry_id)
        string = encode_string(text)
        new = {value.path: value.shape.holding(string) for value in self.values}
        for path, (start, end) in find(raw, self.heads).items() if self.heads else ():
            wrapped = parse_entry(b'{"text":%b}' % raw[start:end])
            whole = wrapped["text"] if wrapped else ""
            # A pair of surrogate escapes is one character by now, so no pair is ever cut.
            new[path] = encode_string(whole[: self.heads[path]] + text)
        return new


class _Extraction:
    """Makes the new line of one entry after the other."""

    def __init__(
        self,
        source: Transcript,
        fmt: TranscriptFormat,
        stored: OriginalStore,
        survey: Survey,
        at: str,
    ) -> None:
        self._source = source
        self._fmt = fmt
        self._stored = stored
        self._markers = Markers(source, fmt, stored)
        self._refs = survey.refs
        self._rate = survey.rate
        self._at = at
        self._leaving: dict[int, _Leaving] = {}  # by the number of the decision

    def new_line(self, outcome: Judged) -> _NewLine | str:
        """Return an entry's new line, or why its line is left alone."""
        raw = self._source.read(outcome.offset, outcome.length)
        if is_too_large(raw, MOST_EXTRA_EDITED):
            return Reason.TOO_LARGE_IN_MEMORY
        try:
            return self._new_line(outcome, raw)
        except _LeaveAlone as refusal:
            return refusal.reason
        except SpliceError:
            return NOT_EDITABLE

    def _new_line(self, outcome: Judged, raw: bytes) -> _NewLine:
        leaving, entry_id = self._leaving_by(outcome.decision), outcome.entry_id or ""
        type_ = _as_name(leaving.type or outcome.kind)
        new = leaving.stand_ins(raw, entry_id)
        at = self._kept_at(outcome, raw, leaving, f"{outcome.index:04d}_{type_}")
        keys = leaving.keys
        if at.away:
            if not at.away.keys().isdisjoint(keys):
                raise _LeaveAlone(Reason.ALREADY_EXTRACTED)
            keys = (*at.away, *keys)
        put = {MARKER: Marker(at.ref, at.hash, at.size, keys, self._at).to_json()}
        line, stood = edit_and_measure(
            raw, replace=new, remove=leaving.removes, put=put, seen=outcome.texts
        )
        if is_too_large(line, MOST_EXTRA_EDITED):  # the marker names too many
            raise _LeaveAlone(Reason.TOO_LARGE_IN_MEMORY)
        sizes, savings = self._savings(outcome, leaving, new, stood)
        keep = StoredOriginal(
            ref=at.ref,
            entry_id=entry_id,
            index=outcome.index,
            type=type_,
            hash=at.hash,
            size=at.size,
            keys=keys,
            sizes=(*at.away.values(), *sizes),
            line=at.line,
        )
        was = at.hash if isinstance(at.line, FileSpan) else None
        return _NewLine(Edit(outcome.offset, outcome.length, line, was), keep, savings)

    def _leaving_by(self, decision: Decision) -> _Leaving:
        found = self._leaving.get(id(decision))  # each is held, so that its number stays its own
        if found is None:
            if len(self._leaving) >= _MOST_DECISIONS:
                self._leaving.clear()
            found = self._leaving[id(decision)] = _Leaving.of(decision)
        return found

    def _savings(
        self,
        outcome: Judged,
        leaving: _Leaving,
        new: Mapping[ValuePath, bytes],
        stood: Stood,
    ) -> tuple[list[int], list[tuple[str, int, int]]]:
        """The sizes of the texts that leave, and what leaving saves."""
        sizes, savings = [], []
        rate = self._rate if outcome.sent else None
        for value in leaving.values:
            stand_in, was = new[value.path], stood[value.path]
            if value.shape is Shape.TEXT:
                size, characters, _ = outcome.texts[value.path]
            else:
                size, characters = text_sizes(bytes(was))
            sizes.append(size)
            freed = len(was) - len(stand_in)
            for path in value.removes:
                freed += len(stood[path])
            tokens = rate.tokens(value, characters - text_sizes(stand_in)[1]) if rate else 0
            savings.append((value.type or "other", freed, tokens))
        return sizes, savings

    def _kept_at(self, outcome: Judged, raw: bytes, leaving: _Leaving, first: str) -> _KeptAt:
        """Find the stored file that holds the entry's values already, or name a new one.

        `first` is the name that it gets if nothing is called so.
        """
        # `in` would take the bytes for a number first, and make an exception of that.
        some_away = outcome.subject.marked or raw.find(_PLACEHOLDER) >= 0
        if some_away and (entry := parse_entry(raw)) is not None:
            markers = self._markers.of(entry, self._fmt.info(entry), outcome.index)
            if len(markers) == 1:
                return self._kept_of_marked(outcome, raw, entry, markers[0], leaving, first)
            # Several have no place, or the member is another's.
            if markers or outcome.subject.marked:
                raise _LeaveAlone(NOT_EDITABLE)
        # Only what was in the store before can be there still, and looking has its price.
        hash_ = digest(raw)
        taken = self._stored.taken(first)
        if taken or outcome.subject.restored_ms is not None:
            # The second is what a crash left between keeping this line and committing.
            for found in (self._stored.find(outcome.entry_id or ""), (first, hash_)):
                if found and (at := self._again(*found, raw, leaving)):
                    return at
        span = FileSpan(outcome.offset, outcome.length)
        free = not taken and first not in self._refs
        ref = first if free else self._stored.free_ref(first, self._refs)
        return _KeptAt(ref, hash_, outcome.length, span)

    def _kept_of_marked(
        self,
        outcome: Judged,
        raw: bytes,
        entry: Entry,
        marker: Marker,
        leaving: _Leaving,
        first: str,
    ) -> _KeptAt:
        """Find one file for what is away and what leaves now: a marker names only one."""
        paths = away_paths(entry, marker)
        unmarked = [(MARKER,)] if outcome.subject.marked else []
        if not paths:  # what is there now is somebody's text
            whole = edit(raw, remove=unmarked)
            return self._in_new_file(first, whole)
        original = original_of(raw, entry, marker, self._fmt, self._stored)
        if original is Missing.FOREIGN:  # a placeholder is never written over another one
            raise _LeaveAlone(Reason.ALREADY_EXTRACTED)
        if isinstance(original, Missing):
            raise _LeaveAlone(STORED_MISSING)
        back = Return.of(entry, original, self._fmt, list(paths.values()))
        if len(back.replace) < len(paths):
            raise _LeaveAlone(STORED_MISSING)
        away = {key: back.sizes[path] for key, path in paths.items()}
        if at := self._again(marker.ref, marker.hash, raw, leaving, away):
            return at
        whole = back.apply(raw, remove=unmarked)
        return self._in_new_file(first, whole, away)

    def _again(
        self,
        ref: str,
        hash_: str,
        raw: bytes,
        leaving: _Leaving,
        away: Mapping[str, int] | None = None,
    ) -> _KeptAt | None:
        """Use a stored file again if it holds the very bytes that would leave now."""
        stored_line = self._stored.own(ref, hash_)
        if isinstance(stored_line, Missing):
            return None
        original = OriginalLine.of(stored_line)
        if original is None:
            return None
        paths, removes = [value.path for value in leaving.values], leaving.removes
        # A companion that is kept there and not here would come back where none was.
        if set(original.companions(self._fmt, paths)) != set(removes):
            return None
        if not same_values(raw, stored_line, [*paths, *removes]):
            return None
        return _KeptAt(ref, hash_, len(stored_line), None, away or {})

    def _in_new_file(
        self, first: str, whole: bytes, away: Mapping[str, int] | None = None
    ) -> _KeptAt:
        """Keep a line that stands nowhere, as it would be with everything inline."""
        ref = self._stored.free_ref(first, self._refs)
        return _KeptAt(ref, digest(whole), len(whole), whole, away or {})


@lru_cache(maxsize=64)
def _as_name(word: str) -> str:
    """A word for an entry in its file's name."""
    return _NOT_IN_A_NAME.sub("_", word.lower())[:_LONGEST_TYPE] or "value"


@dataclass(slots=True)
class _Tally:
    """What a plan comes to."""

    budget: int  # bytes of memory
    undone: Collection[str]  # entries whose extraction somebody has taken back
    _: KW_ONLY
    dry_run: bool  # edits are counted only
    edits: list[Edit] = field(default_factory=list)
    keeps: list[StoredOriginal] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    # By type: values, bytes, tokens.
    savings: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0]))
    freed: list[str] = field(default_factory=list)  # of the undone ones, those that leave
    memory: int = 0  # bytes
    saved: int = 0
    entries: int = 0
    complete: bool = True
    due_at: float | None = None

    def leave(self, reason: str, due_at: float | None = None) -> None:
        """Count an entry that stays as it is."""
        self.reasons[reason] += 1
        if due_at is not None and (self.due_at is None or due_at < self.due_at):
            self.due_at = due_at

    def take(self, new: _NewLine | str) -> None:
        """Add an entry's new line, or count why it has none."""
        if isinstance(new, str):
            self.leave(new)
            return
        self.reasons[Reason.EXTRACT] += 1
        self.entries += 1
        if new.keep.entry_id in self.undone:
            self.freed.append(new.keep.entry_id)
        self.saved += new.edit.length - len(new.edit.new)
        for type_, size, tokens in new.savings:
            sums = self.savings[type_]
            sums[0] += 1
            sums[1] += size
            sums[2] += tokens
        if not self.dry_run:
            self.edits.append(new.edit)
            self.keeps.append(new.keep)
            kept = new.keep.line
            self.memory += _COST + len(new.edit.new) + (len(kept) if type(kept) is bytes else 0)

    def plan(self, source: Transcript, survey: Survey, checkpoint: Checkpoint | None) -> Plan:
        """Return the plan."""
        size = source.identity.size
        reasons = Counter({str(reason): count for reason, count in self.reasons.items()})
        report = Report(
            "extract",
            entries=self.entries,
            values=sum(values for values, _, _ in self.savings.values()),
            bytes_before=size,
            bytes_after=size - self.saved,
            reasons=reasons,
            savings={type_: Saving(*sums) for type_, sums in self.savings.items()},
            leaked=tuple(survey.leaked),
            unreadable=survey.unreadable,
            partial=survey.is_partial,
            undone_before=len(self.freed),
            rate=survey.rate,
        )
        return Plan(
            source.identity,
            tuple(self.edits),
            report,
            tuple(self.keeps),
            tuple(TouchedLine(keep.index, keep.entry_id) for keep in self.keeps),
            complete=self.complete,
            due_at=self.due_at,
            checkpoint=checkpoint,
            noting=Noting(freed=tuple(self.freed)),
        )
