"""pi's own directory: which files are sessions, and which values of its newer entries stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.transcripts.agents.format import NotOurs, TranscriptFormat, Turn
from bsd.transcripts.agents.pi import PI, PiProject

PROJECT = PiProject(Path("/none/sessions"), Path("/none/sessions/--p--"))
HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "2025-12-01T10:00:00.000Z"}


def message(role: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "id": "a", "message": {"role": role, "content": "text", **more}}


def detected(*entries: Any) -> TranscriptFormat | NotOurs:
    return PROJECT.detect([b"\n", *(json.dumps(entry).encode() + b"\n" for entry in entries)])


def test_the_header_tells() -> None:
    assert detected(HEADER, message("user")) is PI
    assert detected({**HEADER, "version": 2}) is PI


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [{**HEADER, "version": 4}],
        [{**HEADER, "version": None}],
        [{key: HEADER[key] for key in ("type", "id")}],
        [{**HEADER, "id": 5}],
        [message("user"), HEADER],
        [{"__id": "flat", "type": "tool_result", "content": "x"}],
    ],
)
def test_what_is_not_known_is_left_alone(entries: list[dict[str, Any]]) -> None:
    assert isinstance(detected(*entries), NotOurs)


MESSAGE = message("user") | {"parentId": None}


@pytest.mark.parametrize(
    ("entries", "is_read"),
    [
        ([{"type": "title", "v": 1, "pad": "  "}, HEADER, MESSAGE], True),
        ([MESSAGE], True),
        ([{**HEADER, "version": 4}], True),
        ([{**HEADER, "version": None}, MESSAGE], False),
        ([{"__id": "flat", "type": "tool_result", "content": "x"}], False),
        ([{"type": "note"}] * 3, False),
    ],
)
def test_lines_that_are_understood_are_read_all_the_same(
    entries: list[dict[str, Any]], *, is_read: bool
) -> None:
    found = detected(*entries)
    assert isinstance(found, NotOurs)
    assert found.reads is (PI if is_read else None)


def test_a_torn_line_in_the_headers_place_is_told() -> None:
    torn = b'{"type":"sess\n'
    for others in ([MESSAGE], [HEADER, MESSAGE]):
        found = PROJECT.detect([torn, *(json.dumps(entry).encode() for entry in others)])
        assert isinstance(found, NotOurs)
        assert found.reads is PI
        assert "damaged" in found.reason


@pytest.mark.parametrize(
    ("name", "is_session"),
    [
        ("2025-12-01T10-00-00-000Z_01997e76-d124-7592-9cac-2ec05abbca08.jsonl", True),
        ("2025-12-01T10-00-00-000Z_01997e76.jsonl.bak", False),
        ("01997e76-d124-7592-9cac-2ec05abbca08.jsonl", True),
        ("imported.jsonl", True),  # `/import` copies a file under its own name
        (".hidden.jsonl", False),
        ("2025-12-01T10-00-00-000Z_a b.jsonl", False),
    ],
)
def test_names(name: str, is_session: bool) -> None:
    assert PROJECT.is_session_file(name) is is_session


CALL = {"type": "toolCall", "id": "c", "name": "bash", "arguments": {}}


@pytest.mark.parametrize(
    ("more", "turn"),
    [
        ({"stopReason": "stop"}, Turn.CLOSES),
        ({"stopReason": "toolUse"}, Turn.OPEN),
        ({"stopReason": "aborted"}, Turn.BREAKS),
        ({"stopReason": "error"}, Turn.BREAKS),
        ({"stopReason": "length"}, Turn.CLOSES),
        ({"stopReason": "pending"}, Turn.NONE),
        ({"stopReason": "deferred"}, Turn.NONE),
        ({}, Turn.NONE),
        ({"content": [CALL]}, Turn.OPEN),
    ],
)
def test_only_an_answer_that_tells_its_end_ends_a_turn(more: dict[str, Any], turn: Turn) -> None:
    assert PI.info(message("assistant", **more)).turn is turn


def test_what_pi_begins_with_stays_and_what_it_edits_is_its_own() -> None:
    assert [value.fixed for value in PI.values(message("system"))] == [True]
    assert [value.fixed for value in PI.values(message("user"))] == [False]
    edit = {"type": "context_edit", "id": "b", "targetId": "a", "replacement": {"content": "x"}}
    assert PI.values(edit) == []
    assert not PI.info(edit).is_message
    assert PI.values({"type": "compaction", "id": "c", "summary": "x" * 900}) == []
