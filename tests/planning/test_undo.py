"""Undo in memory: whatever was done, in whatever order, all of it can be taken back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.core.errors import Conflict, NotFound
from bsd.planning.edit import plan_edit, plan_set_extractable, read_document, setting
from bsd.planning.plan import Plan
from bsd.planning.restore import plan_restore
from bsd.planning.undo import Undone, _already_undone, plan_undo, tell_history
from bsd.store.history import (
    Act,
    ChangedLine,
    Operation,
    undone_entries,
)
from bsd.store.originals import FileSpan, Missing, OriginalStore, StoredOriginal, digest
from bsd.store.recipes import follow, whole_file, write_recipe, write_recipe_with
from bsd.transcripts.agents.entry import Marker
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.reader import parse_entry
from bsd.transcripts.spans import parse_path
from tests.planning.in_memory import NOW, Session, data
from tests.planning.sessions import sessions
from tests.planning.test_properties import EXAMPLES, policies
from tests.session_files import HEADER, jsonl
from tests.transcripts import nasty


class Memory:
    """A history in memory, made as the one on disk is."""

    def __init__(self) -> None:
        self.acts: list[tuple[Operation, list[ChangedLine], list[bytes]]] = []

    def operations(self) -> list[Operation]:
        return [operation for operation, _, _ in self.acts]

    def lines(self, operation: Operation) -> list[ChangedLine]:
        return self._find(operation)[1]

    def former(
        self, operation: Operation, line: ChangedLine, now: bytes, stored: OriginalStore
    ) -> bytes | Missing:
        _, lines, kept = self._find(operation)
        content = stored.load(line.ref, line.hash or "") if line.ref else b""
        if isinstance(content, Missing):
            return content
        was = follow(line.recipe, now, content, kept[lines.index(line)])
        assert digest(was) == line.was
        return was

    def _find(self, operation: Operation) -> tuple[Operation, list[ChangedLine], list[bytes]]:
        return next(found for found in self.acts if found[0].number == operation.number)

    def note(self, plan: Plan, before: bytes, session: Session) -> None:
        number = len(self.acts) + 1
        report = plan.report
        act = Act(
            *(report.action, "test", f"t{number}", report.values),
            *(report.bytes_before, report.bytes_after, plan.undoes),
        )
        keeps = {keep.index: keep for keep in plan.keeps}
        lines, all_kept = [], []
        for edit, about in zip(plan.edits, plan.touched, strict=True):
            was = before[edit.offset : edit.offset + edit.length]
            keep: StoredOriginal | None = keeps.get(about.index)
            if keep and isinstance(keep.line, FileSpan):
                recipe, kept = whole_file(keep.size), b""
            elif keep:
                paths = [parse_path(key) for key in keep.keys]
                stored = session.shelf.files[keep.ref]
                recipe, kept = write_recipe_with(was, edit.new, stored, paths)
            else:
                recipe, kept = write_recipe(was, edit.new)
            lines.append(
                ChangedLine(
                    *(about.index, about.entry_id, digest(was), len(was), digest(edit.new)),
                    *(len(edit.new), edit.new.endswith(b"\n"), about.undoes),
                    *(keep.ref if keep else None, keep.hash if keep else None, recipe),
                    *(0, len(kept), about.gap),
                )
            )
            all_kept.append(kept)
        operation = Operation(number, act, len(lines), Path(f"{number}.jsonl"))
        self.acts.append((operation, lines, all_kept))


class Patient(Session):
    """A session with a history."""

    def __init__(self, raw: bytes, fmt: TranscriptFormat) -> None:
        super().__init__(raw, fmt)
        self.memory = Memory()

    def carry_out(self, plan: Plan) -> Plan:
        before = self.raw
        super().carry_out(plan)
        assert len(plan.touched) == len(plan.edits)
        if plan.edits:
            self.memory.note(plan, before, self)
        return plan

    def undo(self, number: int | None = None, budget: int = 1 << 26) -> Undone:
        complete = False
        while not complete:
            plan, answer = plan_undo(self.source, self.fmt, number, self.memory, self.shelf, budget)
            self.carry_out(plan)
            number, complete = answer.of.number, plan.complete
        return answer

    def undo_all(self) -> None:
        while any(operation.act.undoes is None for operation in self.standing()):
            self.undo()

    def pin(self, entry: str, value: bool | int | None) -> None:
        self.carry_out(plan_set_extractable(self.source, self.fmt, entry, value)[0])

    def edit(self, entry: str, path: str, value: object) -> None:
        wish = setting([(parse_path(path), read_document(json.dumps(value)))])
        self.carry_out(plan_edit(self.source, self.fmt, entry, wish)[0])

    def entries(self) -> list[tuple[int, dict[str, Any]]]:
        found = [(line.index, parse_entry(line.raw)) for line in self.source.lines()]
        return [
            (index, entry) for index, entry in found if entry and not self.fmt.info(entry).is_header
        ]

    def id_of(self, line: bytes) -> str | None:
        entry = parse_entry(line)
        return self.fmt.info(entry).id if entry else None

    def standing(self) -> list[Operation]:
        operations = self.memory.operations()
        undone = undone_entries(operations)
        return [
            operation for operation in operations if undone[operation.number] < operation.entries
        ]

    def left_of(self, operation: Operation) -> set[str | None]:
        """The entries of an operation that are not undone yet."""
        over = _already_undone(self.memory, operation)
        lines = self.memory.lines(operation)
        return {line.entry_id for at, line in enumerate(lines) if at not in over}

    def states(self) -> dict[int, str]:
        told = tell_history(self.memory, self.source)
        return {one.operation: one.state for one in told}


def something(session: Patient, draw: Callable[[st.SearchStrategy[Any]], Any], now: float) -> None:
    """Do one random thing to a session; things that are refused are refused."""
    entries = session.entries()
    kind = draw(st.sampled_from(["extract", "restore", "pin", "edit", "undo", "redo"]))
    if kind == "extract":
        session.extract(now, **draw(policies))
        return
    if kind in {"undo", "redo"}:
        numbers = [operation.number for operation in session.memory.operations()]
        number = draw(st.sampled_from([None, *numbers])) if kind == "redo" else None
        before = session.raw
        try:
            session.undo(number, draw(st.sampled_from([1, 300, 1 << 26])))
        except Conflict:
            assert session.raw == before
        return
    if not entries:
        return
    index, entry = draw(st.sampled_from(entries))
    before = session.raw
    try:
        if kind == "pin":
            session.pin(f"#{index}", draw(st.sampled_from([True, False, 3, None])))
        elif kind == "edit":
            session.edit(f"#{index}", "note", draw(st.sampled_from(["", "é", [1, {"a": None}]])))
        elif marker := Marker.of(entry):
            keys = draw(st.lists(st.sampled_from(marker.keys), min_size=1, unique=True))
            plan, _ = plan_restore(
                session.source, session.fmt, f"#{index}", keys, now, session.shelf
            )
            session.carry_out(plan)
    except Conflict:  # a line with a key that stands twice, say
        assert session.raw == before


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(sessions(), st.data())
def test_undoing_everything_brings_back_every_byte(
    given: tuple[bytes, TranscriptFormat], data: st.DataObject
) -> None:
    session = Patient(*given)
    appended = b""
    thrown_away: set[str] = set()
    for step in range(data.draw(st.integers(1, 10))):
        something(session, data.draw, NOW + 700 * step)
        if given[0].endswith(b"\n") and data.draw(st.booleans()):
            line = b'{"__id":"late%d","type":"user","text":"x"}\n' % step
            session.raw += line
            appended += line
            thrown_away |= throw_away(session, data.draw)
    if not thrown_away:
        session.undo_all()
        assert all(operation.act.undoes is not None for operation in session.standing())
    for operation in reversed(session.standing()):
        if operation.act.undoes is None and session.left_of(operation) - thrown_away:
            session.undo(operation.number)
    assert session.raw == without(session, given[0] + appended, thrown_away)


def throw_away(session: Patient, draw: Callable[[st.SearchStrategy[Any]], Any]) -> set[str]:
    """Take out an entry or none, as the session's owner may."""
    lines = session.raw.split(b"\n")
    ids = [session.id_of(line) for line in lines]
    once = [one for one in ids[1:] if one and ids.count(one) == 1]
    if not once or not draw(st.booleans()):
        return set()
    chosen = draw(st.sampled_from(once))
    session.raw = without(session, session.raw, {chosen})
    return {chosen}


def without(session: Patient, raw: bytes, ids: set[str]) -> bytes:
    return b"\n".join(line for line in raw.split(b"\n") if session.id_of(line) not in ids)


@pytest.mark.parametrize("name", ["medium", "long"])
def test_undoing_everything_on_a_recorded_session(name: str) -> None:
    raw = data(f"openclaw-v3-{name}.jsonl")
    session = Patient(raw, OPENCLAW)
    session.extract(keep_recent=0, min_value_length=200)
    away = [f"#{i}" for i, entry in session.entries() if Marker.of(entry)]
    assert away
    session.restore(away[0])
    session.pin(away[0], False)
    session.restore_all()
    session.extract(NOW + 700, keep_recent=0, min_value_length=100)
    session.undo()
    session.undo()
    session.undo(len(session.memory.acts))  # redo
    session.undo_all()
    assert session.raw == raw


def conversation() -> bytes:
    results = [
        {
            "type": "message",
            "id": f"e{n}",
            "message": {"role": "toolResult", "content": [{"type": "text", "text": f"{n}" * 700}]},
        }
        for n in range(1, 4)
    ]
    answer = {"role": "assistant", "content": [], "stopReason": "stop"}
    return jsonl(HEADER, *results, {"type": "message", "id": "e4", "message": answer})


@pytest.fixture
def session() -> Patient:
    return Patient(conversation(), OPENCLAW)


def test_newest_first_and_again(session: Patient) -> None:
    session.extract(keep_recent=0)
    session.pin("e1", False)
    extracted_and_pinned = session.raw
    assert session.undo().of.act.action == "set_extractable"
    assert session.undo().entries == ("e1", "e2", "e3")
    assert session.raw == conversation()
    assert session.states() == {1: "undone", 2: "undone", 3: "done", 4: "done"}
    session.undo(4)
    session.undo(3)
    assert session.raw == extracted_and_pinned
    assert session.states() == {
        1: "done",
        2: "done",
        3: "undone",
        4: "undone",
        5: "done",
        6: "done",
    }


def test_an_older_operation_is_undone_if_nothing_touched_its_lines(session: Patient) -> None:
    session.pin("e1", False)
    session.pin("e2", 7)
    session.undo(1)
    assert b"_extractable" not in session.raw.splitlines()[1]
    assert session.entry(2)["_extractable"] == 7


def test_an_operation_below_another_stays_even_if_its_bytes_are_back(session: Patient) -> None:
    for value in (True, None, True):
        session.pin("e1", value)
    with pytest.raises(Conflict, match="operation 3"):
        session.undo(1)
    session.undo_all()
    assert session.raw == conversation()


def test_what_stands_in_the_way_is_named(session: Patient) -> None:
    session.extract(keep_recent=0)
    session.pin("e2", False)
    before = session.raw
    with pytest.raises(Conflict) as error:
        session.undo(1)
    assert "operation 2 (set_extractable, t2) changed e2 afterwards" in error.value.message
    assert error.value.hint == "undo operation 2 first"
    assert session.raw == before
    session.undo(2)
    session.undo(1)
    assert session.raw == conversation()


def test_a_line_that_another_program_changed_is_named(session: Patient) -> None:
    session.pin("e1", False)
    session.pin("e2", False)
    session.raw = session.raw.replace(b'"id": "e2"', b'"id":"e2"')
    with pytest.raises(Conflict, match=r"another program .*e2 changed"):
        session.undo()
    session.raw = b"".join(line for line in session.raw.splitlines(True) if b'"e2"' not in line)
    with pytest.raises(Conflict, match=r"another program .*e2 gone"):
        session.undo()
    session.undo(1)


def test_lines_that_moved_are_found(session: Patient) -> None:
    session.extract(keep_recent=0)
    head, *rest = session.raw.splitlines(keepends=True)
    note = jsonl({"type": "label", "id": "n", "label": "x"})
    session.raw = b"".join([head, note, *rest, note])
    session.undo()
    head, *rest = conversation().splitlines(keepends=True)
    assert session.raw == b"".join([head, note, *rest, note])


def test_entries_that_their_owner_has_thrown_away_stand_in_nobodys_way(session: Patient) -> None:
    session.edit("e2", "message.content[0].text", "y" * 700)
    session.extract(keep_recent=0)
    session.raw = without(session, session.raw, {"e1"})
    answer = session.undo()
    assert (answer.entries, answer.gone) == (("e2", "e3"), ("e1",))
    assert session.states() == {3: "done", 2: "partly_undone", 1: "done"}
    assert session.undo().of.number == 1, "nothing is left of operation 2"
    assert session.raw == without(session, conversation(), {"e1"})
    with pytest.raises(Conflict, match="no operation left to undo"):
        session.undo()
    with pytest.raises(Conflict, match=r"e1 gone"):
        session.undo(2)


def test_of_equal_lines_the_one_at_its_old_place_is_meant() -> None:
    line = {"type": "message", "message": {"role": "user", "content": "hi"}}
    session = Patient(jsonl(HEADER, line, line, {**line, "_extractable": 5}), OPENCLAW)
    before = session.raw
    session.pin("#2", 5)
    session.undo()
    assert session.raw == before


def test_a_last_line_that_was_ended_since(session: Patient) -> None:
    session.raw = session.raw.rstrip(b"\n")
    session.pin("e4", False)
    session.raw += b"\n" + jsonl({"type": "label", "id": "n"})
    session.undo()
    assert session.raw == conversation() + jsonl({"type": "label", "id": "n"})


def test_undo_of_an_extraction_whose_content_is_gone_changes_nothing(session: Patient) -> None:
    session.extract(keep_recent=0)
    before = session.raw
    del session.shelf.files["0002_tool_result"]
    with pytest.raises(Conflict, match=r"0002_tool_result of e2 is gone; nothing was changed"):
        session.undo()
    with pytest.raises(Conflict, match="gone"):
        session.undo(1, 1)  # in parts, too, it is all or nothing
    assert session.raw == before


def test_undo_of_a_restore_stores_content_anew_that_is_stored_nowhere(session: Patient) -> None:
    for step in range(2):  # the second time there is a `_restored` already
        session.extract(NOW + 700 * step, keep_recent=0)
        away = session.raw
        session.restore("e2", now=NOW + 700 * step)
        files = dict(session.shelf.files)
        session.shelf.files.clear()
        session.undo()
        assert session.raw == away
        (ref,) = session.shelf.files
        assert session.shelf.files[ref] == files[ref]
        session.shelf.files |= files
        session.restore_all(NOW + 700 * step)
    assert session.memory.acts[-1][0].act.action == "restore"


def test_undo_of_a_restore_never_drops_content_that_is_stored_nowhere() -> None:
    blocks = [{"type": "text", "text": letter * 700} for letter in "ab"]
    result = {"role": "toolResult", "content": blocks}
    answer = {"role": "assistant", "content": [], "stopReason": "stop"}
    lines = [
        {"type": "message", "id": f"e{n}", "message": m} for n, m in ((2, result), (3, answer))
    ]
    session = Patient(jsonl(HEADER, *lines), OPENCLAW)
    session.extract(keep_recent=0)
    session.restore("e2", ["message.content[1].text"])
    session.shelf.files.clear()
    before = session.raw
    with pytest.raises(Conflict, match="0001_tool_result"):
        session.undo()
    assert session.raw == before


def test_undo_of_a_restore_uses_the_stored_file_again(session: Patient) -> None:
    session.extract(keep_recent=0)
    extracted = session.raw
    session.restore_all()
    session.undo()
    assert session.raw == extracted
    assert sorted(session.shelf.used_again) == sorted(session.shelf.files)


def test_unpinning_needs_no_stored_file(session: Patient) -> None:
    session.extract(keep_recent=0)
    extracted = session.raw
    session.pin("e1", False)
    session.shelf.files.clear()
    session.undo()
    assert session.raw == extracted


def test_content_that_is_stored_is_not_kept_by_the_history(session: Patient) -> None:
    session.extract(keep_recent=0)
    session.restore("e1")
    session.pin("e2", 3)
    session.undo()
    session.undo()
    for _, _, kept in session.memory.acts:
        assert sum(map(len, kept)) < 600


def test_in_parts_and_interrupted(session: Patient) -> None:
    session.extract(keep_recent=0)
    plan, _ = plan_undo(session.source, session.fmt, None, session.memory, session.shelf, 1)
    assert len(plan.edits) == 1
    assert not plan.complete
    session.carry_out(plan)  # and then the process ended
    assert session.states() == {1: "partly_undone", 2: "done"}
    answer = session.undo(budget=1)
    assert answer.of.number == 1
    assert session.raw == conversation()
    assert session.states()[1] == "undone"
    session.undo(3)
    assert session.states()[1] == "partly_undone"


def test_numbers_that_are_not_there(session: Patient) -> None:
    with pytest.raises(Conflict, match="no operation left to undo"):
        session.undo()
    with pytest.raises(NotFound, match="no operation 7"):
        session.undo(7)
    session.pin("e1", True)
    session.undo()
    with pytest.raises(Conflict, match="is undone already") as error:
        session.undo(1)
    assert error.value.hint == "to do it again, undo operation 2"


def test_who_wants_it_done_again_is_told_the_undoing_that_holds(session: Patient) -> None:
    session.pin("e1", True)
    for number in (1, 2, 1, 4, 3):  # undone, done again, undone, done again; then undone by 2
        session.undo(number)
    with pytest.raises(Conflict, match="is undone already") as error:
        session.undo(1)
    assert error.value.hint == "to do it again, undo operation 2"
    session.undo(2)
    assert session.states()[1] == "done"


def test_a_redo_is_blocked_by_what_came_after(session: Patient) -> None:
    session.pin("e1", True)
    session.undo()
    session.edit("e1", "note", 1)
    with pytest.raises(Conflict, match=r"operation 3 \(edit, t3\) changed e1"):
        session.undo(2)


def test_a_pending_operation_counts_only_if_the_session_shows_it(session: Patient) -> None:
    session.pin("e1", True)
    operation, lines, kept = session.memory.acts[0]
    session.memory.acts[0] = (replace(operation, path=Path("1.pending")), lines, kept)
    assert list(session.states()) == [1]
    session.raw = conversation()
    assert not session.states()


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=20))
def test_a_recipe_makes_the_former_bytes(head: bytes, tail: bytes, middle: bytes) -> None:
    was, now = head + middle + tail, head + tail
    for one, other in ((was, now), (now, was), (was, b""), (b"", was), (was, was)):
        recipe, kept = write_recipe(one, other)
        assert follow(recipe, other, b"", kept) == one
    assert len(write_recipe(was, now)[1]) <= len(middle)


def test_a_recipe_takes_values_from_the_stored_file() -> None:
    stored = jsonl({"a": "x" * 500, "b": {"c": "y" * 500}, "z": 1})
    was = jsonl({"b": {"c": "y" * 500}, "n": "n" * 90, "a": "x" * 500, "e": "new"})
    now = jsonl({"b": {"c": "[[1]]"}, "n": "n" * 90, "a": "[[1]]", "e": "new"})
    recipe, kept = write_recipe_with(was, now, stored, [("a",), ("b", "c"), ("gone",)])
    assert follow(recipe, now, stored, kept) == was
    assert b"x" * 9 not in kept
    assert b"y" * 9 not in kept
    assert b"n" * 9 not in kept


def test_lines_of_one_id_come_back_in_several_steps() -> None:
    line = {"type": "message", "id": "twice", "message": {"role": "user", "content": "y" * 900}}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "y"}], "stopReason": "stop"}
    end = {"type": "message", "id": "end", "message": answer}
    raw = jsonl(HEADER, line, line, end)
    session = Patient(raw, OPENCLAW)
    session.extract(NOW, keep_recent=0, min_value_length=100, trigger_types=["user"])
    assert session.raw.count(b'"[[extracted-twice]]"') == 2
    session.undo(budget=1)
    assert session.raw == raw
