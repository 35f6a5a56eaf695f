"""Damaged lines: how they are recognised, the kind of the damage, and its description."""

from __future__ import annotations

import json

import pytest

from bsd.transcripts.damage import (
    MOST_LISTED,
    Damage,
    DamageCount,
    DamagedLine,
    DamagedLines,
    damage_of,
    is_damaged,
)
from bsd.transcripts.reader import BytesTranscript, parse_entry

ENTRY = json.dumps(
    {
        "type": "message",
        "id": "e1",
        "message": {"role": "user", "content": [{"type": "text", "text": 'a {"b": 1} c'}]},
    }
).encode()


@pytest.mark.parametrize(
    ("raw", "damage"),
    [
        (ENTRY[:70], Damage.TORN),
        (ENTRY[70:], Damage.TORN),
        (ENTRY[:-1], Damage.TORN),
        (b'{"a":{"b":1}', Damage.TORN),  # its value is whole, but the line is only a part
        (b'{"a":[{"b":1}', Damage.TORN),
        (b'{"a":1, {"b":1}', Damage.TORN),
        (ENTRY + ENTRY, Damage.GLUED),
        (ENTRY + b" \t" + ENTRY, Damage.GLUED),
        (ENTRY[:66] + ENTRY, Damage.GLUED),
        (ENTRY + ENTRY[:66], Damage.GLUED),
        (ENTRY[:33] + ENTRY[:50] + ENTRY, Damage.GLUED),
        (ENTRY + b"\0" * 9000, Damage.ZEROS),
        (b"\0" * 600, Damage.ZEROS),
        (ENTRY[:70] + b"\0" * 90, Damage.ZEROS),
        (b"null", Damage.OTHER),
        (b'["a"]', Damage.OTHER),
        (b"killed by signal 9", Damage.OTHER),
        (b"\xff\xfe", Damage.OTHER),
        (b'{"n":NaN}', Damage.OTHER),
        (b'{"a":"half a character: \xc3"}', Damage.OTHER),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_kinds(raw: bytes, damage: Damage, end: bytes) -> None:
    assert is_damaged(raw + end, parse_entry(raw + end))
    assert damage_of(raw + end) is damage


@pytest.mark.parametrize("raw", [ENTRY, b"{}", b"", b"\n", b"  \t\r\n"])
def test_what_is_not_damaged(raw: bytes) -> None:
    assert not is_damaged(raw, parse_entry(raw))


def test_a_line_that_would_take_too_much_memory_is_not_damaged() -> None:
    raw = b'{"a":' + b"[]," * (2 << 20)
    assert not is_damaged(raw, parse_entry(raw))


def test_a_torn_line_of_many_objects_is_told_in_a_moment() -> None:
    assert damage_of(b'{"a":"' + b'x{"b":1}' * 300_000) is Damage.TORN
    assert damage_of(b'{"a":"' + b"x" * (5 << 20) + ENTRY) is Damage.TORN  # not looked into


def count(*lines: bytes) -> DamagedLines:
    found = DamageCount()
    for line in BytesTranscript(b"".join(line + b"\n" for line in lines)).lines():
        found.look_at(line, parse_entry(line.raw))
    return found.lines


def test_they_are_counted_with_their_numbers() -> None:
    found = count(ENTRY, ENTRY[:50], b"", ENTRY + ENTRY, ENTRY, ENTRY[:60])
    torn = [DamagedLine(1, Damage.TORN), DamagedLine(5, Damage.TORN)]
    assert found == DamagedLines(3, (torn[0], DamagedLine(3, Damage.GLUED), torn[1]))
    assert found.in_words() == (
        "3 damaged lines: torn (1, 5), several entries in one line (3); kept as they are"
    )


def test_one_is_said_in_the_singular_and_none_not_at_all() -> None:
    assert count(b"\0\0").in_words() == "1 damaged line: zero bytes (0); kept as it is"
    assert count(ENTRY) == DamagedLines()
    assert count(ENTRY).in_words() == ""


def test_of_very_many_the_first_are_listed() -> None:
    found = count(*[b"{"] * (MOST_LISTED + 1500))
    assert (found.count, len(found.lines)) == (MOST_LISTED + 1500, MOST_LISTED)
    assert found.in_words().endswith("18, 19), and 1,500 more; kept as they are")
