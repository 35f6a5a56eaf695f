from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.sessions.commit.late import missing, without
from bsd.transcripts.agents.programs import program_of
from tests.transcripts.agents.sources import KINDS
from tests.transcripts.agents.sources.tree import Home, Kind

A, B, C = (json.dumps({"id": name, "deep": {"id": name * 5}}).encode() + b"\n" for name in "abc")


def mended(late: bytes, after: bytes) -> bytes:
    offset, length, rest = missing(late, after, lambda entry: "id" in entry)
    return after[:offset] + rest + after[offset + length :]


@pytest.mark.parametrize(
    ("late", "after", "then"),
    [
        (A, b"", A),
        (A + B, A, A + B),
        (A + B, A + B, A + B),
        (A, B, A + B),  # lines of other writers begin alike, and come after
        (A + B, A + C, A + B + C),
        (A, A + C, A + C),
        (A, b"no json\n", A + b"no json\n"),
        (A, b"\n", A + b"\n"),
    ],
)
def test_late_lines_come_first_and_once(late: bytes, after: bytes, then: bytes) -> None:
    assert mended(late, after) == then


@pytest.mark.parametrize("others", [b"", C, C + C])
def test_lines_torn_off_anywhere_are_completed(others: bytes) -> None:
    late = A + B
    for torn in range(1, len(late)):
        assert mended(late, late[:torn] + others) == late + others


@pytest.mark.parametrize("others", [b"", C])
def test_zeros_that_a_power_cut_left_are_replaced(others: bytes) -> None:
    late = A + B
    for torn in range(len(late)):
        arrived = late[:torn].ljust(len(late), b"\0")
        assert mended(late, arrived + others) == late + others


@pytest.mark.parametrize("others", [b"", C])
def test_what_was_carried_into_late_bytes_is_left_out(others: bytes) -> None:
    carried = A + B
    for torn in range(1, len(carried) + 1):
        assert without(C + carried[:torn] + others, carried) == C + others


deep = st.dictionaries(
    st.sampled_from(["id", "message", 'q"', "\\", ""]),
    st.recursive(st.text(max_size=5) | st.integers(), lambda inner: st.lists(inner, max_size=2)),
    max_size=3,
)
many = st.lists(deep, max_size=4)


def told_by(writer: str, entries: list[dict[str, object]]) -> bytes:
    """Lines that begin alike, as real lines do, with ids of their own."""
    return b"".join(
        json.dumps({"type": "message", **entry, "by": f"{writer}{number}"}).encode() + b"\n"
        for number, entry in enumerate(entries)
    )


@given(many, many, st.data())
def test_whatever_is_torn_is_mended(
    late: list[dict[str, object]], others: list[dict[str, object]], data: st.DataObject
) -> None:
    whole, following = told_by("late", late), told_by("other", others)
    arrived = whole[: data.draw(st.integers(0, len(whole)))]
    assert mended(whole, arrived + following) == whole + following


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_program_says_by_what_its_lines_are_known(kind: Kind, tmp_path: Path) -> None:
    """A line that was carried before a crash is not carried twice, under any name of its id."""
    home = Home.of(kind, tmp_path, kind.lines())
    program = program_of(home.layout, home.name.agent)
    lines = home.path.read_bytes().splitlines(keepends=True)[1:]
    named = [line for line in lines if program.is_named(json.loads(line))]
    assert len(named) > len(lines) / 2
    others = b'{"theirs":1}\n'
    for line in named:
        assert missing(line, others + line, program.is_named)[2] == b""
