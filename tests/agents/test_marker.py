from __future__ import annotations

import json
from typing import Any

import pytest

from bsd.agents.marker import (
    Marker,
    is_placeholder,
    is_safe_id,
    mentioned_ids,
    placeholder,
)


@pytest.mark.parametrize("entry_id", ["a", "msg-123", "76d592b8", "a.b_c~d-e", "...", "a."])
def test_safe_ids(entry_id: str) -> None:
    assert is_safe_id(entry_id)
    assert is_placeholder(placeholder(entry_id))


@pytest.mark.parametrize("entry_id", ["", ".", "..", "a/b", "a b", "é", "a%2e", "a\n", "a]]"])
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
