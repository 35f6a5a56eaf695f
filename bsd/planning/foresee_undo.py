"""Foresees what undoing operations would change in a session, and writes nothing.

Each undo is planned on the session as the one before leaves it, so several operations are foreseen
as they are undone: one after the other, the newest first.
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
    """Return what undoing these operations would answer and change.

    Operations of which nothing is left to undo are passed over.

    Args:
        numbers: of the operations, in the order in which they are undone; None for the newest one
            that is not undone.
        now: epoch seconds.

    Raises:
        NothingToUndo: nothing is left of any of them.
        NotFound, Conflict: as `plan_undo`, if one of them cannot be undone.
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
    """A history in which more operations are undone than those of the session are."""

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
        except (NotFound, HistoryDamaged):  # it was never complete, so nothing followed
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
        """Add the undo of a plan; of its lines only those are told that planners ask for."""
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
    """Adds up what the lines of several plans gain and lose."""

    fmt: TranscriptFormat
    values_back: int = 0
    values_out: int = 0
    rewritten: int = 0
    lines_back: int = 0
    lines_out: int = 0
    entries: set[str | int] = field(default_factory=set)
    # Characters that a changed line has more for a model: by the entry's id, else the line's hash.
    characters: dict[str, int] = field(default_factory=dict)

    def note(self, plan: Plan, at: Transcript) -> None:
        """Note a plan that was made on the session as it is `at` that point."""
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
        """Count the characters of a line that a model reads; pictures have none."""
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
        """Return what all plans change; `at` is the session after them."""
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
            bytes_before=source.identity.size,
            bytes_after=at.identity.size,
            tokens=tokens,
            cache_warm_until=None if warm_until is None or not tokens else iso_utc(warm_until),
        )

    def _tokens(
        self, at: EditedTranscript, source: Transcript, now: float
    ) -> tuple[int, float | None]:
        """Return the tokens of the changed entries that are in context, and the cache's end."""
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
