"""An id is looked for by its bytes: of one that stands nowhere, no line is parsed."""

from __future__ import annotations

import json

import pytest

from bsd.agents.codex import CODEX
from bsd.agents.dialect import Format
from bsd.agents.openclaw.dialect import OPENCLAW
from bsd.foundation.errors import NotFound
from bsd.surgery import locate as locating
from bsd.surgery.locate import locate
from bsd.text.reader import BytesTranscript, parse_entry
from tests.sessions import HEADER, jsonl


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines that were parsed."""
    seen: list[bytes] = []

    def parse(raw: bytes) -> object:
        seen.append(raw)
        return parse_entry(raw)

    monkeypatch.setattr(locating, "parse_entry", parse)
    return seen


def lines(count: int, entry_id: str = "e") -> list[bytes]:
    text = 'grün \x1b[1m "quoted" \\ and\n'
    return [
        json.dumps(
            {"type": "message", "id": f"{entry_id}{n}", "message": {"content": text * 9}}
        ).encode()
        + b"\n"
        for n in range(count)
    ]


def test_of_an_id_that_stands_nowhere_no_line_is_parsed(parsed: list[bytes]) -> None:
    source = BytesTranscript(jsonl(HEADER, *lines(50)))
    for name in ("nosuch", "xyz-123", "zzzz"):
        with pytest.raises(NotFound):
            locate(source, OPENCLAW, name)
    assert parsed == []
    assert locate(source, OPENCLAW, "e7").line.index == 8
    assert len(parsed) == 1


@pytest.mark.parametrize(
    ("entry_id", "spelled"),
    [
        ("abc", "\\u0061bc"),
        ("abc", "ab\\u0063"),
        ("jkz", "\\u006Ak\\u007a"),
        ("a/b", "a\\/b"),
        ('q"q', 'q\\"q'),
        ("t\tt", "t\\tt"),
        ("ключ", "\\u043a\\u043B\\u044e\\u0447"),
        ("x😀", "x\\ud83d\\ude00"),
        ("x\ud83d", "x\\uD83D"),
    ],
)
def test_an_id_is_found_however_it_is_spelled(entry_id: str, spelled: str) -> None:
    line = '{"type":"message","id":"' + spelled + '","message":{}}\n'
    source = BytesTranscript(jsonl(HEADER, *lines(3), line.encode(), *lines(3, "f")))
    assert locate(source, OPENCLAW, entry_id).line.index == 4


def rollout(what: str, **payload: object) -> bytes:
    entry = {
        "timestamp": "2026-11-22T20:15:24.123Z",
        "type": "response_item",
        "payload": {"type": what, **payload},
    }
    return json.dumps(entry).encode() + b"\n"


@pytest.mark.parametrize(
    ("fmt", "line", "name"),
    [
        (CODEX, rollout("function_call_output", call_id="call_a1"), "function_call_output.call_a1"),
        (CODEX, rollout("message"), "message.2026-11-22T201524.123Z"),
        (CODEX, rollout("reasoning", id="rs:9:z"), "reasoning.rs9z"),
        (CODEX, rollout("a.b", id="c.d"), "a.b.c.d"),
        (CODEX, rollout("a", id="c").replace(b'"c"', b'"\\u0063"'), "a.c"),
    ],
)
def test_ids_that_a_dialect_makes_are_found_by_what_they_are_made_of(
    fmt: Format, line: bytes, name: str, parsed: list[bytes]
) -> None:
    others = [rollout("message", id=f"msg_{n}", text="words " * 50) for n in range(40)]
    source = BytesTranscript(b"".join([*others, line, *others]))
    found = locate(source, fmt, name)
    assert (found.line.index, found.facts.id) == (40, name)
    with pytest.raises(NotFound):
        locate(source, fmt, "function_call_output.call_nosuch")
    if "call_" in name:  # the others have in common what they are made of
        assert len(parsed) == 1
