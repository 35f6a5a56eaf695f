"""An outline gives the same facts about every entry as reading the whole session."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.actions.outlines import Outlines
from bsd.core.layout import SessionName
from bsd.planning.plan import Plan, Report, Revised
from bsd.planning.view import EntryView, outline_of, views
from bsd.sample import session_lines
from bsd.store.history import TouchedLine
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.change import Edit, Identity
from bsd.transcripts.reader import BytesTranscript, parse_entry

MARKER = (
    b'"_extracted":{"ref":"0002_tool_result","hash":"sha256:00","size":9,'
    b'"keys":["message.content[0].text"],"at":"2026-01-05T08:30:00Z"}'
)
AWAY = (
    b'{"type":"message","id":"away","message":{"role":"toolResult","content":[]},' + MARKER + b"}\n"
)
LINES = [*session_lines(turns=3, seed=9), b"no json\n", b"\n", AWAY, AWAY]
SESSION = b"".join(LINES)
NAME = SessionName("main", "s")


class Counted(BytesTranscript):
    """Counts the bytes that are read."""

    def __init__(self, data: bytes, number: int = 1) -> None:
        super().__init__(data)
        self.identity = Identity(1, 1, len(data), number, number)
        self.bytes = 0

    def read(self, offset: int, length: int) -> bytes:
        self.bytes += length
        return super().read(offset, length)


def rows(source: Counted, **wanted: Any) -> list[EntryView]:
    outline = outline_of(source, OPENCLAW)
    return list(outline.views(source, OPENCLAW, outline.entries(range(outline.lines), **wanted)))


def test_position_and_hash_of_a_row_depend_on_all_lines() -> None:
    parsed = {index: entry for index, raw in enumerate(LINES) if (entry := parse_entry(raw))}
    hashes = {index: hashlib.sha256(LINES[index]).hexdigest() for index in parsed}
    found = list(views(Counted(SESSION), OPENCLAW))
    assert [row.index for row in found] == list(parsed)
    for row in found:
        later = [OPENCLAW.info(entry) for index, entry in parsed.items() if index > row.index]
        assert row.position == sum(info.is_message for info in later)
        alike = [one for one in hashes.values() if one.startswith(row.hash)]
        assert hashes[row.index] in alike
        assert len(row.hash) == (64 if len(alike) > 1 else 6)
    assert list(views(Counted(SESSION), OPENCLAW, start=3, limit=4)) == found[3:7]


def test_a_session_as_a_plan_will_leave_it_has_rows_too() -> None:
    session = [line for line in LINES if parse_entry(line)]
    revised = Revised(BytesTranscript(b"".join(session)), OPENCLAW)
    first, *_, last = revised.lines()
    longer = last.raw.replace(b"[]", b'[{"type":"text","text":"%b"}]' % (b"x" * 9000))
    edits = (Edit(first.offset, len(first.raw), b""), Edit(last.offset, len(last.raw), longer))
    touched = (TouchedLine(first.index, None), TouchedLine(last.index, None))
    revised.take(Plan(revised.identity, edits, Report("x"), touched=touched))
    found = list(views(revised, OPENCLAW))
    after = list(views(BytesTranscript(b"".join([*session[1:-1], longer])), OPENCLAW))
    assert found == [replace(row, index=row.index + 1) for row in after]


def test_it_says_what_the_whole_session_says() -> None:
    source = Counted(SESSION)
    expected = list(views(source, OPENCLAW))
    assert rows(source) == expected
    assert rows(source, extracted=True) == [row for row in expected if row.extracted]
    assert rows(source, extracted=False) == [row for row in expected if not row.extracted]
    kinds = frozenset({"thinking", "tool_result"})
    assert rows(source, types=kinds) == [row for row in expected if row.type in kinds]
    assert len({row.hash for row in expected[-2:]}) == 1, "the same line twice has no short name"
    assert len(expected[-1].hash) == 64


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, len(SESSION)), max_size=4))
def test_it_grows_with_the_session(cuts: list[int]) -> None:
    outline = None
    for number, cut in enumerate([*sorted(cuts), len(SESSION)]):
        source = Counted(SESSION[:cut], number)
        if outline is not None and not outline.is_begun_of(source):
            assert len(SESSION[:cut]) == outline.identity.size
            continue
        outline = outline_of(source, OPENCLAW, outline)
    assert outline is not None
    whole = Counted(SESSION)
    found = list(outline.views(whole, OPENCLAW, outline.entries(range(outline.lines))))
    assert found == list(views(whole, OPENCLAW))


def test_another_session_is_no_growth() -> None:
    outline = outline_of(Counted(SESSION), OPENCLAW)
    assert outline.is_of(Counted(SESSION))
    assert not outline.is_of(Counted(SESSION, 2))
    assert not outline.is_begun_of(Counted(SESSION, 2))
    assert outline.is_begun_of(Counted(SESSION + AWAY, 2))
    assert not outline.is_begun_of(Counted(SESSION[:-9] + b" " * 9 + AWAY, 2))


def test_a_page_costs_its_own_bytes() -> None:
    source = Counted(SESSION)
    outline = outline_of(source, OPENCLAW)
    source.bytes = 0
    found = list(outline.views(source, OPENCLAW, [5, 6, 7]))
    assert [row.index for row in found] == [5, 6, 7]
    assert source.bytes == sum(map(len, LINES[5:8]))


def test_outlines_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    small = outline_of(Counted(SESSION), OPENCLAW).memory
    kept = Outlines(most_bytes=3 * small)
    sources: list[Any] = [Counted(SESSION, number) for number in range(5)]
    for number, source in enumerate(sources):
        kept.of(SessionName("main", f"s{number}"), source, OPENCLAW)
        assert kept.memory <= 3 * small
    monkeypatch.setattr("bsd.actions.outlines.outline_of", None)
    for number in (2, 3, 4):
        kept.of(SessionName("main", f"s{number}"), sources[number], OPENCLAW)
    with pytest.raises(TypeError):
        kept.of(SessionName("main", "s0"), sources[0], OPENCLAW)
    assert kept.memory <= 3 * small
