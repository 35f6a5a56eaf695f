from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.transcripts.agents.entry import (
    LINES_LOOKED_AT,
    Marker,
    is_placeholder,
    is_safe_id,
    mentioned_ids,
    placeholder,
    time_ms,
)
from bsd.transcripts.agents.format import NotOurs
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW, detect
from tests.daemon.zones import zone

DATA = Path(__file__).parents[4] / "shared" / "data"


@pytest.mark.parametrize(
    "lines",
    [
        [b'{"type":"session","version":2,"id":"a"}\n'],
        [b'{"type":"session","version":3,"id":"a"}\n', b'{"type":"message"}\n'],
        [b"\n", b'{"version":3, "type":"session"}\r\n'],
        # Half a character, as JavaScript cuts it: every other line may hold it, too.
        [b'{"type":"session","version":3,"id":"a","title":"cut \\ud83d"}\n'],
    ],
)
def test_a_header_of_version_2_or_3_is_openclaw(lines: list[bytes]) -> None:
    assert detect(lines) is OPENCLAW


@pytest.mark.parametrize(
    ("header", "word"),
    [
        (b'{"type":"session","id":"a"}', "version 1"),
        (b'{"type":"session","version":1}', "version 1"),
        (b'{"type":"session","version":"3"}', "unknown version '3'"),
        (b'{"type":"session","version":true}', "unknown version True"),
        (b'{"type":"session","version":4}', "unknown version 4"),
    ],
)
def test_other_headers_are_left_alone_even_above_flat_entries(header: bytes, word: str) -> None:
    found = detect([header, b'{"__id":"a","type":"user"}'])
    assert isinstance(found, NotOurs)
    assert word in found.reason


@pytest.mark.parametrize(
    "line",
    [
        b'{"__id":"a"}',
        b'{"__id":"a","type":"whatever"}',
        b'{"id":"a","type":"tool_result","output":"x"}',
        b'{"id":"a","customType":"thinking"}',
    ],
)
def test_entries_of_the_seeds_are_flat(line: bytes) -> None:
    assert detect([b"not json\n", b'{"type":"note"}\n', line]) is FLAT


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":"a","type":"message"}',
        b'{"id":5,"type":"user"}',
        b'{"__id":"","type":"user"}',
        b'{"type":"user","message":{"role":"user"},"uuid":"x"}',
        b'{"type":"session_meta","payload":{"id":"x"}}',
        b'{"id":"a","type":["user"]}',
    ],
)
def test_anything_else_is_foreign(line: bytes) -> None:
    assert detect([line]) == NotOurs("foreign format")


MESSAGE = b'{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"x"}}'


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([b'{"type":"sess', MESSAGE], "the session header is missing or damaged"),
        ([MESSAGE], "the session header is missing or damaged"),
        ([b"\0" * 90, MESSAGE], "the session header is missing or damaged"),
        (
            [b'{"type":"note"}', b'{"type":"session","version":3}', MESSAGE],
            "its first entry is not the session header",
        ),
    ],
)
def test_a_session_whose_header_is_not_as_it_should_be_is_only_read(
    lines: list[bytes], reason: str
) -> None:
    assert detect(lines) == NotOurs(reason, OPENCLAW)


def test_a_header_of_unknown_version_is_an_unknown_form() -> None:
    reason = "session header of unknown version '3'"
    found = detect([b'{"type":"session","version":"3"}'])
    assert found == NotOurs(reason, OPENCLAW, is_unknown_form=True)


def test_a_file_without_entries_is_nobodys() -> None:
    assert detect([]) == NotOurs("no entries")
    assert detect([b"\n", b"\x00\x00", b"{broken", b'["__id"]']) == NotOurs("no entries")


def test_only_the_first_lines_are_looked_at() -> None:
    foreign = [b'{"type":"note"}'] * (LINES_LOOKED_AT - 1)
    flat = b'{"__id":"a"}'
    assert detect([*foreign, flat]) is FLAT
    assert isinstance(detect([*foreign, b"{}", flat]), NotOurs)

    def endless() -> object:
        yield from [b'{"type":"note"}'] * LINES_LOOKED_AT
        raise AssertionError("read on")

    assert isinstance(detect(endless()), NotOurs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "ours"),
    [
        ("openclaw-v3-*.jsonl", True),
        ("claude-code-*.jsonl", False),
        ("codex-*.jsonl", False),
        ("pi-v1-*.jsonl", False),
    ],
)
def test_recorded_transcripts(pattern: str, ours: bool) -> None:
    paths = list(DATA.glob(pattern))
    if not paths:
        pytest.skip("no recorded transcripts here")
    for path in paths:
        with path.open("rb") as lines:
            assert (detect(lines) is OPENCLAW) is ours, path.name


# --- times in entries ---


MIDNIGHT = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize("where", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_a_time_without_an_offset_is_utc_wherever_the_machine_stands(where: str) -> None:
    with zone(where):
        assert time_ms("2026-01-01T00:00:00") == MIDNIGHT
        assert time_ms("2026-01-01T00:00:00Z") == MIDNIGHT
        assert time_ms("2026-01-01T02:00:00+02:00") == MIDNIGHT


@pytest.mark.parametrize(
    "value", [None, True, "", "yesterday", "2026-13-01", float("nan"), 10**400, [MIDNIGHT]]
)
def test_what_is_no_time(value: Any) -> None:
    assert time_ms(value) is None


@pytest.mark.parametrize(
    "entry_id", ["a", "msg-123", "76d592b8", "a.b_c~d-e", "...", "a.", "i" * 200]
)
def test_safe_ids(entry_id: str) -> None:
    assert is_safe_id(entry_id)
    assert is_placeholder(placeholder(entry_id))


@pytest.mark.parametrize(
    "entry_id", ["", ".", "..", "a/b", "a b", "é", "a%2e", "a\n", "a]]", "i" * 201]
)
def test_unsafe_ids(entry_id: str) -> None:
    assert not is_safe_id(entry_id)


@pytest.mark.parametrize(
    "text", ["", "[[extracted-]]", " [[extracted-a]]", "[[extracted-a]]\n", "x[[extracted-a]]"]
)
def test_what_is_more_or_less_than_a_placeholder(text: str) -> None:
    assert not is_placeholder(text)


def test_mentions() -> None:
    assert mentioned_ids("see [[extracted-a]], [[extracted-b.c]] [[extracted-") == ["a", "b.c"]


def test_a_marker_reads_what_it_writes() -> None:
    marker = Marker("0001_x", "sha256:0", 5, ("a.b", 'é["c d"]'), "2026-01-01T00:00:00Z")
    assert Marker.of({"_extracted": json.loads(marker.to_json())}) == marker


@pytest.mark.parametrize(
    "member",
    [
        *(None, True, [], {}, {"ref": "r", "hash": "h", "keys": []}),
        *({"ref": "r", "hash": "h", "keys": [1]}, {"ref": 1, "hash": "h", "keys": ["a"]}),
    ],
)
def test_a_foreign_member_is_no_marker(member: Any) -> None:
    assert Marker.of({"_extracted": member}) is None
    assert Marker.of({}) is None
