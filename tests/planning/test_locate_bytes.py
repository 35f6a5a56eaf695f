"""An id is searched by its bytes: if it is absent, no line is parsed."""

from __future__ import annotations

import json

import pytest

from bsd.core.errors import Conflict, NotFound
from bsd.planning import locate as locating
from bsd.planning.locate import locate
from bsd.transcripts.agents.codex import CODEX
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.reader import BytesTranscript, parse_entry
from tests.planning.test_extract import LONG, message, session, turn
from tests.planning.test_redact import consume
from tests.planning.test_undo import Patient
from tests.session_files import HEADER, Talk, call, jsonl, text


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
        ("a/b", "a\\/b"),
        ('q"q', 'q\\"q'),
        ("t\tt", "t\\tt"),
        ("ключ", "\\u043a\\u043b\\u044e\\u0447"),
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
    ],
)
def test_ids_that_a_dialect_makes_are_found_by_what_they_are_made_of(
    fmt: TranscriptFormat, line: bytes, name: str, parsed: list[bytes]
) -> None:
    others = [rollout("message", id=f"msg_{n}", text="words " * 50) for n in range(40)]
    source = BytesTranscript(b"".join([*others, line, *others]))
    found = locate(source, fmt, name)
    assert (found.line.index, found.info.id) == (40, name)
    with pytest.raises(NotFound):
        locate(source, fmt, "function_call_output.call_nosuch")
    if "call_" in name:  # the other names share these characters
        assert len(parsed) == 1


# --- lines that would take too much memory: left alone and counted, without effect on others ---


_MANY = b"[]," * 400_000
HEAVY = b'{"type":"message","id":"heavy","parentId":"e1","message":{"details":[%b0]}}\n' % _MANY


def test_a_line_that_is_too_large_is_left_alone_with_its_reason() -> None:
    old = session(message("e1", "toolResult", LONG), HEAVY, *turn(2), *turn(3))
    before = old.raw.splitlines(keepends=True)
    plan = old.extract(keep_recent=2)
    after = old.raw.splitlines(keepends=True)
    assert plan.report.reasons["too_large_in_memory"] == 1
    assert plan.report.unreadable == 0
    assert before[2] == after[2] == HEAVY
    assert b"[[extracted-e1]]" in after[1]
    assert plan.report.partial is False
    old.restore("e1")
    assert old.raw.splitlines()[2] + b"\n" == HEAVY


def test_a_signature_in_it_holds_what_is_before_it() -> None:
    signed = HEAVY.replace(b'"details"', b'"thinkingSignature":"s","details"')
    for line, leaves in ((HEAVY, 1), (signed, 0)):
        old = session(message("e1", "toolResult", LONG), line, *turn(2), *turn(3))
        plan = old.extract(keep_recent=2, prefix_bound_models=["opus-5"])
        assert plan.report.entries >= leaves
        assert (b"[[extracted-e1]]" in old.raw) is bool(leaves)
        assert plan.report.reasons["prefix_bound"] >= 1 - leaves
    free = session(message("e1", "toolResult", LONG), signed, *turn(2), *turn(3))
    free.extract(keep_recent=2, prefix_bound="extract")
    assert b"[[extracted-e1]]" in free.raw


def test_whoever_names_it_learns_why_it_cannot_be_had() -> None:
    old = session(message("e1", "toolResult", LONG), HEAVY)
    for name in ("heavy", "#2", "2"):
        with pytest.raises(Conflict, match="line 2 would take too much memory"):
            locate(old.source, OPENCLAW, name)
    assert locate(old.source, OPENCLAW, "e1").line.index == 1


def test_a_call_is_not_taken_out_where_something_may_follow_it_unread() -> None:
    talk = Talk()
    talk.user()
    talk.says(call("c1", session="s", entry="e0"))
    talk.answers("c1", LONG)
    talk.says(text("done"))
    patient = Patient(talk.raw + HEAVY.replace(b'"e1"', b'"e3"'), OPENCLAW)
    answer = consume(patient, "c1")
    assert [one.how for one in answer.redacted] == ["marked"]
    assert answer.entries_removed == ()
    assert json.loads(patient.raw.splitlines()[2])["id"] == "e2"
