"""The texts of entries as people read them; extracted texts appear as they were."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bsd.planning.entry_texts import EntryText, Original, entry_texts
from bsd.planning.locate import Located, entries
from bsd.planning.originals import original_of
from bsd.planning.restore import unavailable
from bsd.store.originals import Missing
from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE
from bsd.transcripts.agents.codex import CODEX
from bsd.transcripts.agents.entry import Marker
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from tests.pictures import PNG
from tests.planning.in_memory import Session, data
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import EVERYTHING, LONG, raw

ALL = 1 << 30
_EVERYTHING: Any = EVERYTHING
_DISPLAY = "never shown to a model, " * 20
HEADER: dict[str, Any] = {"type": "session", "version": 3, "id": "s", "cwd": "/tmp"}
CALL: dict[str, Any] = {
    "type": "toolCall",
    "id": "c1",
    "name": "edit",
    "arguments": {"path": "a.py", "old_string": "old " * 400, "new_string": "new " * 500},
}


def openclaw(*messages: dict[str, Any]) -> Session:
    lines: list[dict[str, Any]] = [HEADER]
    for number, message in enumerate(messages):
        lines.append({"type": "message", "id": f"e{number}", "message": message})
    return Session(raw(lines), OPENCLAW)


def located(session: Session, index: int) -> Located:
    found = entries(session.source.lines(), session.fmt)
    return next(one for one in found if one.line.index == index)


def texts(session: Session, index: int, most: int = ALL) -> list[EntryText]:
    entry = located(session, index)
    marker, original = Marker.of(entry.entry), Original()
    if marker is not None:
        found = original_of(entry.line.raw, entry.entry, marker, session.fmt, session.shelf)
        if isinstance(found, Missing):
            original = Original(unavailable=unavailable(found, session.shelf))
        else:
            original = Original(found.entry)
    return list(entry_texts(entry, session.fmt, original, most))


def shown(one: EntryText) -> tuple[Any, ...]:
    return one.path, one.type, one.text, one.length, one.media


def test_a_text_that_is_away_is_given_as_it_was() -> None:
    result = {
        "role": "toolResult",
        "toolCallId": "c1",
        "toolName": "edit",
        "details": {"diff": _DISPLAY},
        "content": [
            {"type": "text", "text": LONG},
            {"type": "image", "data": PNG * 40, "mimeType": "image/png"},
        ],
    }
    user = {"role": "user", "content": [{"type": "text", "text": "Please."}]}
    said = {"role": "assistant", "content": [{"type": "text", "text": "Yes."}, CALL]}
    done = {"role": "assistant", "content": "Done.", "stopReason": "stop"}
    session = openclaw(user, said, result, done, user, done)
    before = [texts(session, index) for index in range(1, 5)]
    assert session.extract(**_EVERYTHING).edits
    after = [texts(session, index) for index in range(1, 5)]
    assert any(one.extracted for row in after for one in row)
    assert [list(map(shown, row)) for row in before] == [list(map(shown, row)) for row in after]
    text, picture, display = after[2]
    assert (text.type, text.text, text.length) == ("tool_result", LONG, len(LONG))
    assert picture.type == "image"
    assert picture.media is not None
    assert (picture.media.type, picture.text) == ("image/png", "")
    assert (display.path, display.display) == ("message.details.diff", True)
    cut = texts(session, 3, 10)[0]
    assert (cut.text, cut.length) == (LONG[:10], len(LONG))


def test_the_arguments_of_a_call_stay_json_when_they_are_cut() -> None:
    session = openclaw({"role": "assistant", "content": [CALL]})
    [whole] = texts(session, 1)
    assert json.loads(whole.text) == CALL["arguments"]
    assert (whole.call, whole.name, whole.length) == ("c1", "edit", len(whole.text))
    [cut] = texts(session, 1, 600)
    given = json.loads(cut.text)
    assert list(given) == ["path", "old_string", "new_string"]
    assert given["path"] == "a.py"
    assert CALL["arguments"]["old_string"].startswith(given["old_string"])
    assert len(cut.text) <= 1200 < cut.length == whole.length


def test_what_is_lost_is_said_and_the_rest_is_there() -> None:
    session = openclaw(
        {"role": "toolResult", "toolCallId": "c", "content": [{"type": "text", "text": LONG}]},
        {"role": "assistant", "content": [CALL], "stopReason": "stop"},
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes."}], "stopReason": "stop"},
    )
    session.extract(**_EVERYTHING)
    session.shelf.files.clear()
    [result], [call] = texts(session, 1), texts(session, 2)
    for lost in (result, call):
        assert lost.extracted
        assert "unavailable" in (lost.unavailable or "")
    assert json.loads(call.text)["path"] == "a.py", "what is inline is there"


def test_entries_without_values_give_their_text() -> None:
    lines = [
        HEADER,
        {"type": "compaction", "id": "k", "summary": "All is well.", "firstKeptEntryId": "x"},
    ]
    [summary] = texts(Session(raw(lines), OPENCLAW), 1)
    assert (summary.type, summary.text, summary.display) == ("system", "All is well.", False)


@pytest.mark.parametrize(
    ("name", "fmt"),
    [
        ("claude-code-long.jsonl", CLAUDE_CODE),
        ("codex-rollout.jsonl", CODEX),
        ("openclaw-v3-medium.jsonl", OPENCLAW),
    ],
)
def test_recorded_entries_have_texts_of_known_kinds(name: str, fmt: TranscriptFormat) -> None:
    found: set[str] = set()
    session = Session(data(name), fmt)
    for entry in entries(session.source.lines(), fmt):
        for one in entry_texts(entry, fmt, Original(), 4000):
            assert len(one.text) <= 8000
            found.add(one.type)
    kinds = {"user", "assistant", "thinking", "tool_call", "tool_result", "system", "image"}
    assert {"user", "assistant", "tool_call", "tool_result"} <= found <= kinds


def test_a_call_of_claude_code_keeps_its_place() -> None:
    session = Session(raw(claude_code_lines(1)), CLAUDE_CODE)
    rows = [texts(session, index) for index in range(8)]
    assert [[one.type for one in row if not one.display] for row in rows] == [
        [],
        ["user"],
        ["thinking"],
        ["tool_call"],
        ["tool_result"],
        ["tool_call"],
        ["image"],
        ["assistant"],
    ]
