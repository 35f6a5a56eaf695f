"""Leaving bsd: a session is restored to its state before bsd, except for other writers' changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.planning.plan import Plan
from bsd.planning.restore import plan_restore
from bsd.planning.uninstall import plan_leaving
from bsd.store.entry_notes import Stamps, learn
from bsd.store.history import ChangedLine, HistoryDamaged, Operation
from bsd.store.root_records import EntryOriginal
from bsd.transcripts.agents.entry import EXTRACTABLE
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import FLAT
from bsd.transcripts.reader import BytesTranscript, parse_entry
from bsd.transcripts.splice import SpliceError, edit
from tests.planning.in_memory import NOW
from tests.planning.sessions import sessions
from tests.planning.test_properties import EXAMPLES
from tests.planning.test_undo import Memory, Patient, something
from tests.session_files import jsonl
from tests.transcripts import nasty

LONG = "x" * 600
THEIRS = "2020-01-01T00:00:00.000Z"


@dataclass
class Witness:
    """The stored content of a root, in memory."""

    known: Stamps = field(default_factory=dict)
    elsewhere: list[Stamps] = field(default_factory=list)
    lines: list[EntryOriginal] = field(default_factory=list)

    def stamps(self) -> Stamps:
        return {entry_id: dict(values) for entry_id, values in self.known.items()}

    def stamps_elsewhere(self) -> Iterator[Stamps]:
        yield from self.elsewhere

    def originals(self, entry_ids: Collection[str]) -> Iterator[EntryOriginal]:
        yield from (one for one in self.lines if one.entry_id in entry_ids)


class Guest(Patient):
    """A session that bsd works on, with notes of its changes; then it leaves."""

    def __init__(self, raw: bytes, fmt: TranscriptFormat = FLAT) -> None:
        super().__init__(raw, fmt)
        self.witness = Witness()

    def carry_out(self, plan: Plan) -> Plan:
        learn(self.witness.known, plan.noting.stamps)
        return super().carry_out(plan)

    def leave(self, now: float = NOW, budget: int = 1 << 26, past: Memory | None = None) -> None:
        complete = False
        while not complete:
            plan, _ = plan_leaving(
                *(self.source, self.fmt, now, self.shelf, self.witness, past or self.memory),
                budget_bytes=budget,
            )
            assert not plan.noting
            assert plan.edits or plan.complete
            self.carry_out(plan)
            complete = plan.complete

    def restore_one(self, entry: str, now: float = NOW) -> None:
        plan, _ = plan_restore(self.source, self.fmt, entry, None, now, self.shelf)
        self.carry_out(plan)


def unpinned(raw: bytes) -> bytes:
    """A session without pins."""
    lines = []
    for line in BytesTranscript(raw).lines():
        new = line.raw
        if EXTRACTABLE in (parse_entry(new) or {}):
            try:
                new = edit(new, remove=[(EXTRACTABLE,)])
            except SpliceError:  # twice in one line: that cannot be a pin
                new = line.raw
        lines.append(new)
    return b"".join(lines)


class NoEdits:
    """Draws operations, but no edits: those would stay."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw

    def __call__(self, strategy: st.SearchStrategy[Any]) -> Any:
        found = self._draw(strategy)
        return "extract" if found == "edit" else found


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(sessions(), st.data())
def test_whatever_was_done_every_byte_is_as_before_but_for_pins(
    given: tuple[bytes, TranscriptFormat], data: st.DataObject
) -> None:
    guest = Guest(*given)
    for step in range(data.draw(st.integers(1, 10))):
        something(guest, NoEdits(data.draw), NOW + 700 * step)
    guest.leave(NOW + 10_000, data.draw(st.sampled_from([1, 300, 1 << 26])))
    assert unpinned(guest.raw) == unpinned(given[0])
    before = guest.raw
    guest.leave(NOW + 20_000)
    assert guest.raw == before


def result(**more: Any) -> dict[str, Any]:
    return {"__id": "e1", "type": "tool_result", "output": LONG, **more}


def visited(*, restored: bool = True, **more: Any) -> tuple[Guest, bytes]:
    """A session whose only long value left, and maybe came back; and its original content."""
    raw = jsonl(result(**more), {"__id": "u1", "type": "user", "content": "hm"})
    guest = Guest(raw)
    guest.extract(keep_recent=0)
    assert LONG.encode() not in guest.raw
    if restored:
        guest.restore_one("e1")
        assert b"_restored" in guest.raw
    return guest, raw


@pytest.mark.parametrize("restored", [True, False])
@pytest.mark.parametrize("theirs", [{}, {"_restored": THEIRS}, {"_restored": [1, "é"]}])
def test_what_stood_there_before_stands_there_again(restored: bool, theirs: dict[str, Any]) -> None:
    guest, raw = visited(restored=restored, **theirs)
    guest.leave()
    assert guest.raw == raw


def test_leaving_is_undone_as_a_whole() -> None:
    guest, raw = visited()
    restored = guest.raw
    guest.leave()
    guest.undo()
    assert guest.raw == restored
    guest.undo(len(guest.memory.acts))
    assert guest.raw == raw


def test_leaving_is_undone_even_when_nothing_is_stored_any_more() -> None:
    guest, raw = visited(restored=False)
    away = guest.raw
    guest.leave()
    guest.shelf.files.clear()
    guest.undo()
    assert guest.raw == away
    guest.leave()
    assert guest.raw == raw


def test_without_notes_the_original_line_tells() -> None:
    guest, raw = visited()
    guest.witness.known.clear()
    stored = next(iter(guest.shelf.files.values()))
    guest.witness.lines = [EntryOriginal("e1", stored, ("output",), own=True)]
    guest.leave(past=Memory())
    assert guest.raw == raw


def test_of_several_originals_one_without_it_tells() -> None:
    guest, raw = visited()
    guest.witness.known.clear()
    before, again = raw.split(b"\n")[0] + b"\n", guest.raw.split(b"\n")[0] + b"\n"
    originals = [
        EntryOriginal("e1", line, ("output",), own=True) for line in (again, before, again)
    ]
    guest.witness.lines = originals
    guest.leave(past=Memory())
    assert guest.raw == raw


@pytest.mark.parametrize("same", [True, False])
def test_anothers_original_tells_only_of_its_copies(same: bool) -> None:
    guest, raw = visited()
    guest.witness.known.clear()
    before = guest.raw
    line = jsonl(result(sessionId="other", output=LONG if same else "y" * 600))
    guest.witness.lines = [EntryOriginal("e1", line, ("output",), own=False)]
    guest.leave(past=Memory())
    assert guest.raw == (raw if same else before)


def test_a_copy_is_told_by_what_was_noted_of_the_session_it_was_copied_from() -> None:
    guest, raw = visited()
    fork = Guest(guest.raw)
    fork.leave()
    assert fork.raw == guest.raw, "nobody says whose it is"
    fork.witness.elsewhere = [{}, guest.witness.known]
    fork.leave()
    assert fork.raw == raw


def test_without_notes_and_originals_the_history_tells() -> None:
    guest, raw = visited()
    guest.witness.known.clear()
    guest.pin("e1", False)
    guest.leave()
    assert unpinned(guest.raw) == raw


def test_nobody_elses_is_taken_out() -> None:
    raw = jsonl(result(_restored=THEIRS), result(__id="e2", _restored="2020-01-01T00:00:00Z"))
    guest = Guest(raw)
    line = json.dumps(result(__id="e2")).encode() + b"\n"
    guest.witness.lines = [EntryOriginal("e2", line, ("output",), own=True)]
    guest.leave()
    assert guest.raw == raw


def test_what_cannot_come_back_stays_a_placeholder_and_is_named() -> None:
    guest, _ = visited(restored=False)
    guest.shelf.files.clear()
    before = guest.raw
    plan, answers = plan_leaving(
        *(guest.source, guest.fmt, NOW, guest.shelf, guest.witness, guest.memory)
    )
    assert not plan.edits
    assert answers[0].unavailable
    assert guest.raw == before


def test_a_history_that_is_damaged_tells_nothing() -> None:
    class Broken(Memory):
        def lines(self, operation: Operation) -> list[ChangedLine]:
            raise HistoryDamaged(f"{operation}")

    guest, _ = visited()
    guest.witness.known.clear()
    broken, before = Broken(), guest.raw
    broken.acts = guest.memory.acts
    guest.leave(past=broken)
    assert guest.raw == before


def test_what_comes_back_in_parts_keeps_the_restored_of_others() -> None:
    raw = jsonl(
        result(),
        {**result(_restored="2020-01-01T00:00:00Z"), "__id": "e2"},
        {"__id": "u1", "type": "user", "content": "hm"},
    )
    guest = Guest(raw)
    guest.extract(keep_recent=0)
    guest.restore_one("e1")
    guest.leave(NOW + 10_000, budget=1)
    assert guest.raw == raw
