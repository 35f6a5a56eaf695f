"""Computes the effect of undoing operations without writing anything.

Each undo is planned on the session as the previous undo leaves it. The caller names the operations
in the order in which they are undone: newest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from sys import maxsize

from bsd.core.errors import NotFound
from bsd.core.formatting import iso_utc
from bsd.planning.context_window import ContextWindow
from bsd.planning.edited_transcript import EditedTranscript
from bsd.planning.locate import entries
from bsd.planning.plan import Plan
from bsd.planning.prompt_cache import PromptCache
from bsd.planning.tokens import Meter
from bsd.planning.undo import NothingToUndo, Past, Undone, away_in, plan_undo
from bsd.planning.undo_effect import UndoEffect
from bsd.store.changed_lines import happened
from bsd.store.history import Act, ChangedLine, HistoryDamaged, Operation
from bsd.store.originals import Missing, OriginalStore, digest
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.reader import Transcript, parse_kept


def foresee_undo(
    source: Transcript,
    fmt: TranscriptFormat,
    numbers: Sequence[int | None],
    past: Past,
    stored: OriginalStore,
    now: float,
) -> tuple[list[Undone], UndoEffect]:
    """Return the answers and the effect that undoing these operations would have.

    Operations with nothing left to undo are skipped.

    Args:
        numbers: the operations in the order in which they are undone; None is the newest operation
            that is not undone yet.
        now: epoch seconds.

    Raises:
        NothingToUndo: no operation has anything left to undo.
        NotFound, Conflict: an operation cannot be undone; see `plan_undo`.
    """
    ahead, measured = _PastAhead(past, source), _Measured(fmt)
    at, answers = EditedTranscript(source), []
    nothing: NothingToUndo | None = None
    for number in numbers:
        try:
            plan, answer = plan_undo(at, fmt, number, ahead, stored, maxsize)
        except NothingToUndo as problem:
            nothing = problem
            continue
        measured.note(plan, at)
        ahead.note(plan)
        at = at.after(plan.edits)
        answers.append(answer)
    if nothing is not None and not answers:
        raise nothing
    return answers, measured.effect(answers, source, at, now)


class _PastAhead:
    """The history of a session, extended by the undos planned so far."""

    def __init__(self, past: Past, source: Transcript) -> None:
        self._past = past
        self._lines: dict[int, list[ChangedLine]] = {}
        operations = past.operations()
        self._operations = [one for one in operations if self._took_effect(one, source)]

    def _took_effect(self, operation: Operation, source: Transcript) -> bool:
        if not operation.pending:
            return True
        try:
            return happened(source, self._past.lines(operation))
        except (NotFound, HistoryDamaged):  # its record is incomplete, so it took no effect
            return False

    def operations(self) -> list[Operation]:
        return self._operations

    def lines(self, operation: Operation) -> list[ChangedLine]:
        if operation.number not in self._lines:
            self._lines[operation.number] = self._past.lines(operation)
        return self._lines[operation.number]

    def former(
        self, operation: Operation, line: ChangedLine, now: bytes, stored: OriginalStore
    ) -> bytes | Missing:
        return self._past.former(operation, line, now, stored)

    def note(self, plan: Plan) -> None:
        """Add the undo that a plan makes, with the fields of its lines that planners read."""
        report = plan.report
        sizes = report.bytes_before, report.bytes_after
        act = Act("undo", "", "", report.values, *sizes, undoes=plan.undoes)
        number = self._operations[-1].number + 1
        undo = replace(self._operations[-1], number=number, act=act, entries=len(plan.edits))
        self._operations = [*self._operations, undo]
        self._lines[number] = [
            ChangedLine(
                index=about.index,
                entry_id=about.entry_id,
                was="",
                was_size=edit.length,
                now=digest(edit.new),
                now_size=len(edit.new),
                ended=edit.new.endswith(b"\n"),
                undoes=about.undoes,
                ref=None,
                hash=None,
                recipe=(),
                kept_at=0,
                kept=0,
                gap=about.gap,
            )
            for edit, about in zip(plan.edits, plan.touched, strict=True)
        ]


@dataclass(slots=True)
class _Measured:
    """Adds up the gains and losses of the lines of several plans."""

    fmt: TranscriptFormat
    values_back: int = 0
    values_out: int = 0
    rewritten: int = 0
    lines_back: int = 0
    lines_out: int = 0
    entries: set[str | int] = field(default_factory=set)
    # Entry's id, else the line's hash → characters that a model reads more than before.
    characters: dict[str, int] = field(default_factory=dict)

    def note(self, plan: Plan, at: Transcript) -> None:
        """Add a plan that was made on the session `at` that point."""
        for edit, about in zip(plan.edits, plan.touched, strict=True):
            now, was = at.read(edit.offset, edit.length), edit.new
            self.entries.add(about.index if about.entry_id is None else about.entry_id)
            before, after = self._away(now), self._away(was)
            self.values_back += len(before - after)
            self.values_out += len(after - before)
            self.lines_back += not now
            self.lines_out += not was
            self.rewritten += bool(now and was) and before == after
            more = self._read_characters(was) - self._read_characters(now)
            if more:
                key = about.entry_id if about.entry_id is not None else digest(was)
                self.characters[key] = self.characters.get(key, 0) + more

    def _away(self, raw: bytes) -> set[str]:
        entry = parse_kept(raw) if raw else None
        return away_in(entry) if entry is not None else set()

    def _read_characters(self, raw: bytes) -> int:
        """Return the number of characters in a line that a model reads; pictures count as 0."""
        entry = parse_kept(raw) if raw else None
        if entry is None:
            return 0
        return sum(
            len(value.text)
            for value in self.fmt.values(entry, 1)
            if value.text is not None and not (value.display or value.shape.is_block)
        )

    def effect(
        self, answers: Sequence[Undone], source: Transcript, at: EditedTranscript, now: float
    ) -> UndoEffect:
        """Return the sum of all plans; `at` is the session after them."""
        tokens, warm_until = self._tokens(at, source, now) if self.characters else (0, None)
        return UndoEffect(
            operations=tuple(answer.undone for answer in answers),
            entries=len(self.entries),
            values_back=self.values_back,
            values_out=self.values_out,
            rewritten=self.rewritten,
            lines_back=self.lines_back,
            lines_out=self.lines_out,
            stays=len({entry for answer in answers for entry in answer.stays}),
            gone=len({entry for answer in answers for entry in answer.gone}),
            bytes_before=source.size,
            bytes_after=at.size,
            tokens=tokens,
            cache_warm_until=None if warm_until is None or not tokens else iso_utc(warm_until),
        )

    def _tokens(
        self, at: EditedTranscript, source: Transcript, now: float
    ) -> tuple[int, float | None]:
        """Return the change of tokens in context, and when the cache gets cold (epoch seconds)."""
        context, meter, cache = ContextWindow(), Meter(), PromptCache()
        changed: list[tuple[int, int]] = []  # row, characters
        rows = 0
        for one in entries(at.lines(), self.fmt):
            if one.info.is_header:
                continue
            context.follow(one.line.index, one.info)
            cache.follow(one.info)
            meter.follow(one.entry, one.info, self.fmt.values(one.entry, 1))
            more = self.characters.get(one.info.id) if one.info.id is not None else None
            if more is None and one.info.id is None:
                more = self.characters.get(digest(one.line.raw))
            if more:
                changed.append((rows, more))
            rows += 1
        characters = sum(more for row, more in changed if context.sent(row))
        tokens = meter.rate().tokens(abs(characters))
        warm_until = cache.warm_until(now, source.identity.mtime_ns / 1e9)
        return (tokens if characters > 0 else -tokens), warm_until
