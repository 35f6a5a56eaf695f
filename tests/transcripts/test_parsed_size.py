"""Estimate the memory of a text's parsed form without parsing it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bsd.transcripts import reader
from bsd.transcripts.reader import MOST_EXTRA, is_too_large, parse_entry, parse_kept

_SIZE = 12 << 20


def listed(element: bytes) -> bytes:
    return b'{"id":"a","d":[' + element * (_SIZE // len(element)) + b"0]}"


def text(content: bytes) -> bytes:
    return b'{"id":"a","t":"' + content + b'"}'


def lines_of_code() -> bytes:
    line = b'if (a[0] == {}) { return [1, \\"two\\"]; }\\n\\t'
    return line * (_SIZE // len(line))


# Made for each test, and dropped again: together they take 900 MB. Every process that only collects
# tests would hold these, and copy their page tables at every fork.
_TOO_LARGE: dict[str, Callable[[], bytes]] = {
    **{
        element: partial(listed, element.encode())
        for element in (
            *("[],", "{},", '{"a":{}},', '{"a":1},', "7,"),
            *('"",', '"ab",', "1.5,", "null,", "1e5,"),
        )
    },
    "deep lists": lambda: listed(b"[" * 500 + b"]" * 500 + b","),
    "members": lambda: b'{"id":"a",' + b'"a":{},' * (_SIZE // 7) + b'"b":0}',
    "unclosed lists": lambda: b'{"id":"a","d":' + b"[" * _SIZE,
    "an emoji at the end": lambda: text(b"x" * 2 * _SIZE + "😀".encode()),
    "an omega at the start": lambda: text("Ω".encode() + b"x" * 6 * _SIZE),
    "an escaped emoji": lambda: text(b"x" * 2 * _SIZE + b"\\ud83d\\ude00"),
    "an emoji elsewhere": lambda: (
        b'{"emoji":"\xf0\x9f\x98\x80","lone":"\\ud83d","t":"' + b"x" * 2 * _SIZE + b'"}'
    ),
    "no object": lambda: b"[],x" * (_SIZE // 4),
}
_ORDINARY: dict[str, Callable[[], bytes]] = {
    "ascii": lambda: text(b"x" * 5 * _SIZE),
    "code": lambda: text(lines_of_code()),
    "escaped zeros": lambda: text(b"\\u0000" * (_SIZE // 6)),
    "russian": lambda: text("Привет, мир. ".encode() * (5 * _SIZE // 22)),
    "japanese": lambda: text("日本語".encode() * (5 * _SIZE // 9)),
    "emoji": lambda: text("😀".encode() * (5 * _SIZE // 4)),
    "one emoji": lambda: text(b"x" * _SIZE + "😀".encode()),
    "an emoji and an image": lambda: (
        text("😀".encode())[:-1] + b',"image":"' + b"x" * 5 * _SIZE + b'"}'
    ),
    "strings": lambda: listed(b'"' + b"x" * 500 + b'",'),
    "brackets in a string": lambda: text(b"[" * _SIZE),
    "backslashes": lambda: text(b"\\\\" * (_SIZE // 2) + b"[,{:" * (_SIZE // 4)),
    "few lists": lambda: b'{"d":[' + b"[]," * 1000 + b"0]}",
}


@pytest.mark.parametrize("kind", _TOO_LARGE)
def test_what_would_take_many_times_its_size_is_not_parsed(kind: str) -> None:
    line = _TOO_LARGE[kind]()
    assert is_too_large(line)
    assert parse_entry(line) is None


@pytest.mark.parametrize("kind", _ORDINARY)
def test_ordinary_lines_are_parsed_however_long(kind: str) -> None:
    line = _ORDINARY[kind]()
    assert not is_too_large(line)
    assert parse_entry(line) is not None


def test_short_lines_are_not_even_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_extra", None)
    assert not is_too_large(listed(b"[],")[: 1 << 20])


def test_what_is_kept_is_read_in_any_case() -> None:
    line = listed(b"[],")[: 3 << 19] + b"0]}"
    assert parse_entry(line) is None
    assert (parse_kept(line) or {})["id"] == "a"


_pieces = st.lists(
    st.sampled_from(
        [
            *("[", "]", "{", "}", ",", ":", '"', "x" * 5, "é", "😀", "Ω"),
            *("\\\\", '\\"', "\\n", "\\u0041", "\\u03a9", "\\ud83d"),
        ]
    ),
    max_size=60,
)


def marks_outside_strings(document: str) -> dict[str, int]:
    """The same, character by character."""
    found = dict.fromkeys("[{:,", 0)
    inside = escaped = False
    for character in document:
        if escaped:
            escaped = False
        elif inside and character == "\\":
            escaped = True
        elif character == '"':
            inside = not inside
        elif not inside and character in found:
            found[character] += 1
    return found


@given(
    value=st.recursive(
        st.text() | st.integers(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)
    )
)
@example(value=["\\" * 9, {'\\"' * 3: "\\" * 8 + '"'}])
def test_what_stands_in_strings_does_not_count(value: Any) -> None:
    document = json.dumps(value)
    found = marks_outside_strings(document)
    costs = {mark.decode(): cost for mark, cost in reader._COSTS}
    wanted = sum(costs[mark] * count for mark, count in found.items())
    for piece in (1 << 18, 8, 4, 2):  # even, as the reader's own: a row of backslashes is pairs
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reader, "_PIECE", piece)
            patch.setattr(reader, "_width", lambda *_, **__: 1)
            patch.setattr(reader, "_STRING_COST", 0)
            assert reader._extra(document.encode(), MOST_EXTRA) == wanted


@given(_pieces)
def test_any_bytes_are_gone_through(pieces: list[str]) -> None:
    raw = "".join(pieces).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_PIECE", 4)
        assert reader._extra(raw, MOST_EXTRA) >= 0


def test_a_string_is_as_wide_as_its_widest_character_wherever_that_stands() -> None:
    for content in ("😀" + "x" * 999, "x" * 999 + "😀", "x" * 500 + "😀" + "x" * 499):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reader, "_PIECE", 100)
            patch.setattr(reader, "_STRING_COST", 0)
            found = reader._extra(f'"{content}"'.encode(), MOST_EXTRA)
        assert 2900 < found <= 3100
