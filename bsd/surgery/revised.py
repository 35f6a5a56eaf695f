"""Several planners, one plan: each sees the session as those before it will have left it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bsd.store.entry_notes import NOTHING
from bsd.store.extracted import Keep
from bsd.store.history import TouchedLine
from bsd.surgery.plan import Plan, Report, Source
from bsd.text.change import Edit
from bsd.text.reader import Line


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

    def __init__(self, source: Source) -> None:
        self._source = source
        self.identity = source.identity
        self._changed: dict[int, _Changed] = {}
        self._keeps: list[Keep] = []
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
        size = self.identity.size
        report = Report(
            action,
            entries=len(changed),
            values=self.values,
            bytes_before=size,
            bytes_after=size + sum(len(one.new) - one.length for _, one in changed),
        )
        return Plan(
            self.identity,
            tuple(Edit(offset, one.length, one.new) for offset, one in changed),
            report,
            tuple(self._keeps),
            tuple(one.touched for _, one in changed),
            noting=self._noting,
        )
