"""Rows of sessions: for all programs, in one part or many, and never of an excluded session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import NotFound
from bsd.core.layout import Layout, SessionName
from bsd.core.prices import shipped_prices
from bsd.fleet.rows import EntryFacts
from bsd.fleet.session_rows import SessionRows, Watermark, clean, read_rows
from bsd.maintenance import catalog, indexing
from tests.actions.performed import Caller
from tests.session_files import LONG, NAME, conversation, entry, jsonl, write
from tests.transcripts.agents import test_opencode
from tests.transcripts.agents.sources import CLAUDE_CODE, KINDS
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import Home, Kind

opencode = test_opencode.layout
PRICES = shipped_prices()


def _reader(layout: Layout, name: SessionName) -> SessionRows:
    return SessionRows.of(layout, name, prices=PRICES, text=True)


def _comparable(rows: list[EntryFacts]) -> list[EntryFacts]:
    return [replace(row, tokens=0) for row in rows]  # estimated from all that is read at once


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_parts_read_one_by_one_give_the_rows_of_the_whole_session(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home.of(kind, tmp_path, kind.lines())
    whole = _reader(home.layout, home.name)
    rows = [row for part in whole.parts() for row in part.rows]
    assert {row.role for row in rows} - {None}
    assert {row.tool for row in rows} - {None}
    assert all(row.time > 1.4e9 for row in rows)
    assert any(row.text for row in rows)

    monkeypatch.setattr(indexing, "PART_BYTES", 1)  # a line in each part
    found: list[EntryFacts] = []
    mark: Watermark | None = None
    reader = _reader(home.layout, home.name)
    while (part := next(reader.parts(mark), None)) is not None:
        assert part.fresh is (mark is not None)
        found += part.rows
        mark, reader = part.mark, _reader(home.layout, home.name)
    assert _comparable(found) == _comparable(rows)
    assert reader.facts() == whole.facts()


def test_a_session_in_a_database(opencode: Layout) -> None:
    (name,) = catalog.names(opencode)
    reader = _reader(opencode, name)
    rows = [row for part in reader.parts() for row in part.rows]
    facts = reader.facts()
    assert (facts.program, facts.calls, facts.cost) == ("opencode", 1, 0.5)
    assert "bash" in {row.tool for row in rows}
    assert any("Count to 3" in (row.text or "") for row in rows)


def test_an_answer_in_several_lines_is_one_call_with_the_price_of_its_model(
    tmp_path: Path,
) -> None:
    usage = {
        "input_tokens": 1000,
        "output_tokens": 100,
        "cache_read_input_tokens": 5000,
        "cache_creation_input_tokens": 200,
    }
    lines = claude_code_lines(1)
    answers = [line["message"] for line in lines if line["type"] == "assistant"]
    for each in answers:
        each |= {"id": "msg_1", "usage": usage, "model": "claude-opus-4-5"}
    home = Home.of(CLAUDE_CODE, tmp_path, lines)
    rows = list(read_rows(home.layout, home.name, prices=PRICES))
    (call,) = [row for row in rows if row.input_tokens is not None]
    assert len(answers) > 1
    assert (call.input_tokens, call.output_tokens) == (1000, 100)
    assert (call.cache_read_tokens, call.cache_write_tokens) == (5000, 200)
    assert call.model == "claude-opus-4-5"
    # 5 and 25 dollars a million; a tenth of it for what is read, two times for what is written.
    assert call.cost == pytest.approx((1000 * 5 + 5000 * 0.5 + 200 * 10 + 100 * 25) / 1e6)
    assert call.text is None


def test_an_extracted_value_has_its_words_and_savings(caller: Caller, layout: Layout) -> None:
    lines: list[dict[str, Any]] = [*conversation(2), entry(9, "user", "unusualword " * 100)]
    write(layout, [*lines, *(entry(n, "assistant", "seen") for n in range(10, 16))])
    before = {row.line: row for row in read_rows(layout, NAME, prices=PRICES, text=True)}
    caller.extract(NAME)
    after = {row.line: row for row in read_rows(layout, NAME, prices=PRICES, text=True)}
    changed = [line for line in before if before[line].digest != after[line].digest]
    assert changed
    for line in changed:
        assert after[line].stored
        assert after[line].saved > 0
        assert after[line].extracted_size == before[line].size
        assert after[line].text == before[line].text
        assert after[line].tokens < before[line].tokens
    assert sum(row.saved for row in after.values()) == _saved(layout)


def _saved(layout: Layout) -> int:
    reader = _reader(layout, NAME)
    list(reader.parts())
    return reader.facts().saved


def test_rewritten_sessions_are_read_again_and_unchanged_ones_are_not(layout: Layout) -> None:
    path = write(layout, conversation(2))
    (part,) = _reader(layout, NAME).parts()
    assert not list(_reader(layout, NAME).parts(part.mark))
    with path.open("ab") as stream:
        stream.write(jsonl(entry(20, "user", "more")))
    (appended,) = _reader(layout, NAME).parts(part.mark)
    assert [row.entry for row in appended.rows] == ["e20"]
    assert (appended.first, appended.fresh) == (len(part.rows), True)
    write(layout, [*conversation(2), entry(20, "user", "anything")])
    (again,) = _reader(layout, NAME).parts(appended.mark)
    assert (again.first, again.fresh, len(again.rows)) == (0, False, len(part.rows) + 1)
    (other,) = _reader(layout, NAME).parts(replace(appended.mark, state="of another version"))
    assert not other.fresh


def test_odd_lines(layout: Layout) -> None:
    odd = entry(1, "us\0er", "a\ud800b", timestamp="9999-01-01T00:00:00Z")
    path = write(layout, [*conversation(0)[:2], odd])
    with path.open("ab") as stream:
        stream.write(b"no JSON\n\n{}\n" + jsonl(entry(2, "user", LONG))[:-1])
    rows = list(read_rows(layout, NAME, prices=PRICES, text=True))
    assert [row.line for row in rows] == [0, 1, 2, 5, 6]
    assert rows[2].role == "us er"
    assert rows[2].time == rows[1].time  # the year 9999 is damage
    assert clean("a\ud800\0b" + "x" * 10, 5) == "a? bx"
    reader = _reader(layout, NAME)
    (part,) = reader.parts()
    assert part.mark.guard == b""  # the last line may go on


def test_an_excluded_session_is_not_read(layout: Layout) -> None:
    write(layout, conversation(1))
    excluding = replace(layout, exclude=(str(NAME),))
    with pytest.raises(NotFound, match="excluded"):
        list(read_rows(excluding, NAME, prices=PRICES))
