"""Content of an entry for an agent: each part that its program sends, once, and no other part."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from bsd.mcp.scope import Scope
from bsd.transcripts.agents.page_size import OTHERS
from tests.actions import performed
from tests.mcp.conftest import NAME, UNKNOWN, Agent, Desk, Flat, call, call_tool, text_of
from tests.mcp.test_text_at_once import extracted_home
from tests.pictures import GIF, JPEG, PDF, PNG, SVG, WEBP, encoded
from tests.transcripts.agents.sources import CLAUDE_CODE, CODEX
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import LONG, Home, Kind

LARGE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"A" * 3_800_000).decode()


# --- pictures ---


def blocks_of(media_type: str, data: str) -> list[dict[str, Any]]:
    """Return a picture in the form of each program."""
    return [
        {"type": "image", "data": data, "mimeType": media_type},
        {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}},
    ]


def given_of(desk: Desk, agent: Agent, block: dict[str, Any], tool: str) -> dict[str, Any]:
    """Return a tool's answer about an extracted result with this block."""
    agent.user("look")
    agent.calls(("c0", "read", {"path": "a"}))
    result = agent.result("c0", "read", "it is below")
    entries = desk.entries()
    entries[-1]["message"]["content"].append(block)
    desk.path.write_text("")
    desk.append(*entries)
    for _ in range(4):
        agent.says("well")
        agent.user("go on")
    desk.look()
    assert "_extracted" in desk.entry(result)
    named: dict[str, Any] = {"entry_id" if tool == "restore" else "entry": result}
    return call(desk, tool, session="s1", **named)


@pytest.mark.parametrize("tool", ["read_extracted", "restore"])
@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize(
    ("media_type", "data"),
    [("image/png", PNG), ("image/jpeg", JPEG), ("image/gif", GIF), ("image/webp", WEBP)],
)
def test_pictures_that_models_take_are_given(
    desk: Desk, agent: Agent, tool: str, form: int, media_type: str, data: str
) -> None:
    answer = given_of(desk, agent, blocks_of(media_type, data)[form], tool)
    assert list(answer["pictures"].values()) == [{"media_type": media_type, "data": data}]


@pytest.mark.parametrize("tool", ["read_extracted", "restore"])
@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize(
    ("media_type", "data", "why"),
    [
        ("image/svg+xml", SVG, "png, jpeg, gif and webp only"),
        ("image/tiff", encoded(b"II*\x00"), "png, jpeg, gif and webp only"),
        ("image/jpeg", PNG, "its bytes are not image/jpeg"),
        ("image/png", JPEG, "its bytes are not image/png"),
        ("image/webp", encoded(b"RIFF\x00\x00\x00\x00WAVEfmt "), "its bytes are not image/webp"),
        ("image/png", "not base64! " * 100, "not valid base64"),
        ("image/png", PNG[:-1], "not valid base64"),
        ("image/png", "\u00e4" * 1000, "not valid base64"),
        ("image/png", LARGE, "larger than 5,000,000"),
        ("image/" + "x" * 5000, PNG, "application/octet-stream"),
    ],
    ids=lambda value: value[:12],
)
def test_others_are_described(
    desk: Desk, agent: Agent, tool: str, form: int, media_type: str, data: str, why: str
) -> None:
    answer = given_of(desk, agent, blocks_of(media_type, data)[form], tool)
    assert "pictures" not in answer
    (text,) = answer["texts"].values()
    assert text.startswith("[a")
    assert why in text
    assert len(json.dumps(answer)) < 1000


def test_a_data_url_that_no_model_takes_is_described(tmp_path: Path) -> None:
    url = f"data:image/svg+xml;base64,{SVG}"
    lines = json.loads(json.dumps(CODEX.lines()).replace(f"data:image/png;base64,{PNG}", url))
    texts = [text for one in all_given(tmp_path, CODEX, lines) for text in one["texts"].values()]
    assert sum("not shown: image/svg+xml" in text for text in texts) >= 1
    assert not any(SVG in text for text in texts)


def test_a_document_is_described(tmp_path: Path) -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    lines = claude_code_lines(3)
    block = {"type": "document", "source": source}
    lines[6]["message"]["content"][0]["content"] = [block]
    lines[6]["toolUseResult"] = {"type": "pdf", "file": {"base64": PDF}}
    answers = all_given(tmp_path, CLAUDE_CODE, lines)
    (text,) = [one for answer in answers for one in answer["texts"].values() if "pdf" in one]
    assert text.startswith("[a file that is not shown: application/pdf, 60000 bytes;")
    assert PDF not in json.dumps(answers)


@pytest.mark.parametrize("data", [PDF, f"data:application/pdf;base64,{PDF}"])
def test_a_text_that_is_a_file_in_base64_is_described(desk: Desk, flat: Flat, data: str) -> None:
    small = {"type": "image", "mimeType": "image/svg+xml", "data": SVG[:300]}
    rows = {"a": data, "b": f"data:image/svg+xml;base64,{SVG}"}
    flat({"__id": "e", "type": "tool_result", "content": data, "result": rows})
    flat({"__id": "f", "type": "tool_result", "result": {"rows": [[small]] * 9}})
    flat(*({"__id": f"m{n}", "type": "user", "content": "x"} for n in range(4)))
    desk.look()
    answer = call(desk, "read_extracted", session="s1", entry="e")
    assert "application/pdf, 60000 bytes" in answer["texts"]["content"]
    for one in (answer, call(desk, "read_extracted", session="s1", entry="f")):
        assert "QUFBQUFB" not in json.dumps(one)
        assert "svg" in json.dumps(one)
        assert len(json.dumps(one)) < 3000


@pytest.mark.parametrize("text", ["0123456789abcdef" * 100, "QUJD" * 1000, "x" * 700])
def test_a_text_that_only_looks_so_is_given(desk: Desk, flat: Flat, text: str) -> None:
    flat({"__id": "e", "type": "tool_result", "content": text})
    flat(*({"__id": f"m{n}", "type": "user", "content": "x"} for n in range(4)))
    desk.look()
    assert call(desk, "read_extracted", session="s1", entry="e")["texts"] == {"content": text}


# --- once ---


def all_given(
    top: Path,
    kind: Kind,
    lines: list[dict[str, Any]],
    tool: str = "read_extracted",
    **settings: Any,
) -> list[dict[str, Any]]:
    """Return a tool's answer about each entry of a fully extracted session."""
    home = Home.of(kind, top, lines)
    context, entries = extracted_home(home, **settings)
    named, scope = {"restore": "entry_id"}.get(tool, "entry"), Scope(session=home.name)
    return [call_tool(context, tool, scope, **{named: entry}) for entry in entries]


@pytest.mark.parametrize("tool", ["read_extracted", "restore", "restore_remote"])
def test_claude_codes_copy_is_named(tmp_path: Path, tool: str) -> None:
    answers = all_given(tmp_path, CLAUDE_CODE, claude_code_lines(3), tool)
    copies = [one for one in answers if "toolUseResult.stdout" in one.get("beside", {})]
    assert copies
    for answer in copies:
        assert answer["texts"] == {"message.content[0].content": LONG}
        assert answer["beside"] == {
            "toolUseResult.stdout": "the same as message.content[0].content"
        }


def test_what_the_program_only_shows_is_named_and_given_by_its_key(tmp_path: Path) -> None:
    lines = claude_code_lines(3)
    lines[4]["toolUseResult"] = {"stdout": f"{LONG} in colours"}
    home = Home.of(CLAUDE_CODE, tmp_path, lines)
    context, _ = extracted_home(home)
    scope = Scope(session=home.name)
    asked: dict[str, Any] = {"entry": lines[4]["uuid"]}
    answer = call_tool(context, "read_extracted", scope, **asked)
    assert list(answer["texts"]) == ["message.content[0].content"]
    (said,) = answer["beside"].values()
    assert said.startswith(f"{len(LONG) + 11} characters that only the program shows")
    asked["keys"] = list(answer["beside"])
    answer = call_tool(context, "read_extracted", scope, **asked)
    assert answer["texts"] == {"toolUseResult.stdout": f"{LONG} in colours"}
    assert "beside" not in answer


def test_where_only_copies_are_away_they_are_given_once(tmp_path: Path) -> None:
    lines = claude_code_lines(3)
    lines[4]["toolUseResult"] = {"stdout": LONG, "output": LONG, "stderr": LONG[::-1]}
    answers = all_given(tmp_path, CLAUDE_CODE, lines, scope="display")
    (answer,) = [one for one in answers if len(one["texts"]) == 2]
    assert answer["texts"] == {"toolUseResult.stdout": LONG, "toolUseResult.stderr": LONG[::-1]}
    assert answer["beside"] == {"toolUseResult.output": "the same as toolUseResult.stdout"}


def test_pis_details_are_named(desk: Desk, agent: Agent) -> None:
    text = "lorem ipsum " * 100
    agent.user("look")
    agent.calls(("c0", "read", {"path": "a"}))
    result = agent.result("c0", "read", text)
    entries = desk.entries()
    entries[-1]["message"]["details"] = {"text": text}
    desk.path.write_text("")
    desk.append(*entries)
    for _ in range(4):
        agent.says("well")
        agent.user("go on")
    desk.look()
    for tool, named in (("read_extracted", "entry"), ("restore", "entry_id")):
        asked: dict[str, Any] = {named: result}
        answer = call(desk, tool, session="s1", **asked)
        assert answer["texts"] == {"message.content[0].text": text}
        if tool == "read_extracted":
            same = "the same as message.content[0].text"
            assert answer["beside"] == {"message.details.text": same}
    assert desk.entry(result)["message"]["details"] == {"text": text}, "all of it came back"
    # An inline value is read in the same way.
    answer = call(desk, "read_extracted", session="s1", entry=result)
    assert list(answer["texts"]) == ["message.content[0].text"]


# --- in a transcript ---


def test_calls_in_a_transcript_get_pages_for_any_program(desk: Desk, agent: Agent) -> None:
    agent.user("read the file")
    agent.calls(("c0", "read", {"path": "a.txt"}))
    text = "".join(f'{number}\t"größer"\n' for number in range(9000))
    old = agent.result("c0", "read", text)
    for number in range(3):
        agent.says(f"I have read it {number}")
        agent.user("go on")
    agent.says("done")
    desk.look()
    agent.user("what was in the file?")
    agent.calls(("c1", "read_extracted", {"entry": old}))
    read = agent.result("c1", "read_extracted", UNKNOWN, error=True)
    agent.says("I have it")
    assert desk.look()
    given = text_of(desk.entry(read))
    assert given.startswith(text[:1000])
    assert "more characters: read_extracted with keys" in given
    assert OTHERS.of(given) <= OTHERS.most


def test_an_answer_with_its_texts_in_blocks_of_their_own_is_known_in_a_transcript(
    desk: Desk, agent: Agent
) -> None:
    """The transcript has it as `bsd mcp` sends it: its own sentence, and then each text."""
    old = agent.past()
    desk.look()
    agent.user("what was in the file?")
    asks = agent.calls(("c1", "mcp__bsd__restore", {"entry_id": old}))
    answer = call(desk, "restore", rest=False, session="s1", entry_id=old, inline=False)
    ((key, text),) = answer["texts"].items()
    head = {**answer, "texts": {key: f"[{len(text)} characters: below]"}}
    result = agent.result("c1", "mcp__bsd__restore", json.dumps(head))
    entries = desk.entries()
    entries[-1]["message"]["content"].append({"type": "text", "text": text})
    desk.path.write_text("")
    desk.append(*entries)
    agent.says("I have it")
    assert not desk.look(), "it was answered, and the text is nowhere else"
    assert desk.entry(result)["message"]["content"][1]["text"] == text
    performed.restore(desk.caller(), NAME, old)
    desk.ahead += 3600
    assert desk.look()
    assert text not in json.dumps([one for one in desk.entries() if one["id"] == result])
    assert asks in {one["id"] for one in desk.entries()}, "it is only made short"
