"""Other programs' directories as they leave them, and what must hold of them after an edit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsd.formats.owners import layout_of
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.source_settings import SourceSettings
from bsd.foundation.value_path import parse_path
from tests.openclaw_tree import set_at_rest

LONG = "long old text, " * 60


@dataclass(frozen=True)
class Kind:
    """One program: where its sessions lie below its home, and what one of them looks like."""

    kind: str
    sessions: str
    directory: str
    session: str
    lines: Callable[[], list[dict[str, Any]]]
    recorded: str  # which files of the recorded transcripts are its own
    reads: Callable[[bytes], list[dict[str, Any]]]  # a model of its reader


@dataclass(frozen=True)
class Home:
    """A program's home directory with one session in it, and a root of bsd beside it."""

    kind: Kind
    layout: Layout
    name: SessionName
    path: Path

    @property
    def source(self) -> Path:
        return self.layout.sources[0].path

    @classmethod
    def of(cls, kind: Kind, top: Path, content: Path | Iterable[dict[str, Any]]) -> Home:
        source = top / "home" / kind.sessions
        path = source / kind.directory / f"{kind.session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, path)
        else:
            path.write_bytes(raw(content))
        set_at_rest(path)
        root = top / "root"
        root.mkdir(parents=True, exist_ok=True)
        layout = layout_of(root, [SourceSettings(kind=kind.kind, path=source)])
        [(agent, _)] = layout.session_dirs()
        return cls(kind, layout, SessionName(agent, kind.session), path)


def raw(lines: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)


def away(old: bytes, new: bytes) -> int:
    """Count the values that are away; all else must be as it was, the order of members too."""
    count = 0
    old_lines, new_lines = old.split(b"\n"), new.split(b"\n")
    assert len(old_lines) == len(new_lines)
    for before, after in zip(old_lines, new_lines, strict=True):
        if before == after:
            continue
        was, now = json.loads(before), json.loads(after)
        for key in now.pop("_extracted")["keys"]:
            *above, last = parse_path(key)
            one, other = was, now
            for step in above:
                one, other = one[step], other[step]
            _check_stand_in(one[last], other[last])
            other[last] = one[last]
            if last == "thinking" and "thinkingSignature" in one:  # which leaves with it
                other.update({key: other.pop(key, value) for key, value in one.items()})
            count += 1
        assert json.dumps(was) == json.dumps(now)
    return count


def _check_stand_in(was: Any, now: Any) -> None:
    if isinstance(was, dict):  # a block of media: what stands there is a block of text
        assert now["type"].endswith("text")
        now = now["text"]
    assert isinstance(now, str)
    assert now.startswith("[[extracted-")


# --- Claude Code ---


def claude_code_line(number: int, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {
            "model": "claude-opus-4-6",
            "id": f"msg_{number // 7}",
            "usage": {"input_tokens": 3},
        }
        message["stop_reason"] = more.pop("stop_reason", None)
    return {
        "parentUuid": f"00000000-0000-4000-8000-{number - 1:012}" if number else None,
        "isSidechain": False,
        "sessionId": CLAUDE_CODE.session,
        "version": "2.1.330",
        "type": kind,
        "message": message,
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "timestamp": f"2026-02-11T21:{number // 60 % 60:02}:{number % 60:02}.049Z",
        **more,
    }


def claude_code_turn(first: int) -> list[dict[str, Any]]:
    """A prompt, a call, its result with a copy, a picture, and the answer that ends the turn."""
    thinking = {"type": "thinking", "thinking": LONG, "signature": "c2ln" * 200}
    call = {"type": "tool_use", "id": f"toolu_{first}", "name": "Write", "input": {"text": LONG}}
    picture = {"type": "image", "source": {"type": "base64", "data": "QUJD" * 300}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{first}", "content": LONG}
    more = {"type": "tool_use", "id": f"toolu_{first}p", "name": "Read", "input": {"path": "p.png"}}
    shown = {"type": "tool_result", "tool_use_id": f"toolu_{first}p", "content": [picture]}
    line = claude_code_line
    return [
        line(first, "user", "do it"),
        line(first + 1, "assistant", [thinking]),
        line(first + 2, "assistant", [call], stop_reason="tool_use"),
        line(first + 3, "user", [result], toolUseResult={"stdout": LONG, "stderr": ""}),
        line(first + 4, "assistant", [more], stop_reason="tool_use"),
        line(first + 5, "user", [shown], toolUseResult={"file": {"base64": "QUJD" * 300}}),
        line(first + 6, "assistant", [{"type": "text", "text": "done"}], stop_reason="end_turn"),
    ]


def claude_code_lines(turns: int = 3) -> list[dict[str, Any]]:
    notes: list[dict[str, Any]] = [
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {"text": LONG}},
    ]
    return notes + [line for turn in range(turns) for line in claude_code_turn(turn * 7)]


def claude_code_reads(content: bytes) -> list[dict[str, Any]]:
    """Read a session as strictly as its owner and the provider behind it would.

    A model of both, by what is known of them: the program itself is closed.
    """
    entries = [json.loads(line) for line in content.splitlines()]
    chain = [entry for entry in entries if entry.get("uuid")]
    known: set[str | None] = {None}
    asked: set[str] = set()
    messages = []
    for entry in chain:
        assert entry["parentUuid"] in known, "an orphan"
        known.add(entry["uuid"])
        if entry["type"] not in ("user", "assistant"):
            continue
        message = entry["message"]
        assert message["role"] == entry["type"]
        blocks = message["content"]
        if isinstance(blocks, str):
            assert blocks.strip()
            blocks = []
        else:
            assert blocks
        for block in blocks:
            _check_block(block, asked)
        copy = entry.get("toolUseResult")
        assert copy is None or isinstance(copy, (dict, list, str))
        assert not (isinstance(copy, str) and copy.startswith("[[extracted-"))
        messages.append(message)
    return messages


def _check_block(block: dict[str, Any], asked: set[str]) -> None:
    match block["type"]:
        case "text":
            assert block["text"]
        case "thinking":
            assert block["signature"]
            assert "[[extracted-" not in block["thinking"]
        case "tool_use":
            assert isinstance(block["input"], dict)
            asked.add(block["id"])
        case "tool_result":
            assert block["tool_use_id"] in asked, "a result without a call"
            inner = block["content"]
            for part in inner if isinstance(inner, list) else ():
                assert part["type"] in ("text", "image", "tool_reference")
                assert part["type"] != "text" or part["text"]
                assert part["type"] != "image" or "[[" not in part["source"]["data"]
        case other:
            raise AssertionError(other)


# --- Codex ---


def codex_line(number: int, kind: str, **payload: Any) -> dict[str, Any]:
    time = f"2025-09-25T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.083Z"
    return {"timestamp": time, "type": kind, "payload": payload}


def codex_meta(**more: Any) -> dict[str, Any]:
    thread = CODEX.session[-36:]
    return codex_line(0, "session_meta", id=thread, cli_version="0.169.0", cwd="/p", **more)


def codex_turn(first: int) -> list[dict[str, Any]]:
    """A prompt with a picture, two calls with results and what is shown of them, the answer."""
    picture = {"type": "input_image", "image_url": "data:image/png;base64," + "QUJD" * 300}
    text = {"type": "input_text", "text": LONG}
    arguments = json.dumps({"command": ["bash", "-lc", LONG]})
    shell, patch = f"call_{first}", f"call_{first}p"
    item = "response_item"
    made: list[tuple[str, dict[str, Any]]] = [
        ("event_msg", {"type": "task_started", "turn_id": "t"}),
        (item, {"type": "message", "role": "user", "content": [text, picture]}),
        ("event_msg", {"type": "user_message", "message": LONG, "images": ["data:," + LONG]}),
        ("turn_context", {"cwd": "/p", "model": "gpt-5-codex", "user_instructions": LONG}),
        ("event_msg", {"type": "agent_reasoning", "text": LONG}),
        (item, {"type": "reasoning", "summary": [], "encrypted_content": "gAAA" * 200}),
        (
            item,
            {"type": "function_call", "name": "shell", "arguments": arguments, "call_id": shell},
        ),
        (
            "event_msg",
            {"type": "exec_command_end", "call_id": shell, "stdout": LONG, "command": [LONG]},
        ),
        (item, {"type": "function_call_output", "call_id": shell, "output": LONG}),
        (
            item,
            {"type": "custom_tool_call", "name": "apply_patch", "input": LONG, "call_id": patch},
        ),
        (
            item,
            {"type": "custom_tool_call_output", "call_id": patch, "output": [text, picture]},
        ),
        ("event_msg", {"type": "agent_message", "message": "done"}),
        ("event_msg", {"type": "token_count", "info": {"last_token_usage": {"input_tokens": 3}}}),
        (
            item,
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "done"}],
            },
        ),
        ("event_msg", {"type": "task_complete", "turn_id": "t"}),
    ]
    return [codex_line(first + number, kind, **made) for number, (kind, made) in enumerate(made)]


def codex_lines(turns: int = 3) -> list[dict[str, Any]]:
    return [codex_meta(), *(line for turn in range(turns) for line in codex_turn(turn * 20 + 1))]


def codex_reads(content: bytes) -> list[dict[str, Any]]:
    """Read a thread as strictly as its owner and the provider behind it would.

    Codex skips a line that it cannot read, so each one must be readable.
    """
    entries = [json.loads(line) for line in content.splitlines()]
    assert entries[0]["type"] == "session_meta"
    asked: set[str] = set()
    items = []
    for entry in entries:
        assert entry["timestamp"]
        payload = entry["payload"]
        assert isinstance(payload, dict)
        if entry["type"] != "response_item":
            continue
        match payload["type"]:
            case "function_call":
                assert isinstance(json.loads(payload["arguments"]), dict)
                asked.add(payload["call_id"])
            case "custom_tool_call":
                assert isinstance(payload["input"], str)
                asked.add(payload["call_id"])
            case "function_call_output" | "custom_tool_call_output":
                assert payload["call_id"] in asked, "a result without a call"
                _check_blocks(payload["output"])
            case "message":
                _check_blocks(payload["content"])
            case "reasoning":
                assert "[[extracted-" not in json.dumps(payload)
        items.append(payload)
    return items


def _check_blocks(blocks: Any) -> None:
    if isinstance(blocks, str):
        assert blocks
        return
    for block in blocks:
        assert block["type"] in ("input_text", "output_text", "input_image")
        if block["type"] == "input_image":
            assert block["image_url"].startswith("data:")
        else:
            assert block["text"]


# --- pi ---


def pi_turn(first: int) -> list[dict[str, Any]]:
    call, read = f"toolu_{first}", f"toolu_{first}p"
    picture = {"type": "image", "data": "QUJD" * 300, "mimeType": "image/png"}
    thinking = {"type": "thinking", "thinking": LONG, "thinkingSignature": "cGlz" * 50}
    calls = [
        {"type": "toolCall", "id": call, "name": "write", "arguments": {"text": LONG}},
        {"type": "toolCall", "id": read, "name": "read", "arguments": {"path": "p.png"}},
    ]
    result = {"role": "toolResult", "toolName": "write", "isError": False}
    text = {"type": "text", "text": LONG}
    by = {"model": "claude-opus-4-6", "usage": {"input": 3}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "do it"}]},
        {"role": "assistant", "content": [thinking, *calls], "stopReason": "toolUse", **by},
        {**result, "toolCallId": call, "content": [text], "details": {"diff": LONG}},
        {**result, "toolCallId": read, "content": [picture]},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}], "stopReason": "stop"},
    ]
    return [pi_entry(first + number, "message", message=one) for number, one in enumerate(messages)]


def pi_entry(number: int, kind: str, **more: Any) -> dict[str, Any]:
    time = f"2025-12-01T10:{number // 60:02}:{number % 60:02}.000Z"
    parent = f"{number - 1:08x}" if number else None
    return {"type": kind, "id": f"{number:08x}", "parentId": parent, "timestamp": time, **more}


def pi_lines(turns: int = 3) -> list[dict[str, Any]]:
    header = {"type": "session", "version": 3, "id": PI.session[-36:], "cwd": "/p"}
    system = {"role": "system", "content": [{"type": "text", "text": LONG}]}
    edit = {"targetId": "00000003", "replacement": {"content": LONG}}
    end = turns * 5 + 1
    return [
        {**header, "timestamp": "2025-12-01T10:00:00.000Z"},
        pi_entry(0, "message", message=system),
        *(line for turn in range(turns) for line in pi_turn(turn * 5 + 1)),
        pi_entry(end, "context_edit", **edit),
        pi_entry(end + 1, "usage", usage={"note": LONG}),
    ]


def pi_reads(content: bytes) -> list[dict[str, Any]]:
    """Read a session by its tree, as pi does, and check what a provider would refuse.

    pi itself does so under tests/compat.
    """
    entries = [json.loads(line) for line in content.splitlines()]
    assert entries[0]["type"] == "session"
    known: set[str | None] = {None}
    asked: set[str] = set()
    messages = []
    for entry in entries[1:]:
        assert entry["parentId"] in known, "an orphan"
        known.add(entry["id"])
        if entry["type"] != "message":
            continue
        message = entry["message"]
        messages.append(message)
        assert message["role"] != "system" or "[[extracted-" not in json.dumps(message)
        if message["role"] == "toolResult":
            assert message["toolCallId"] in asked, "a result without a call"
        for block in message["content"]:
            match block["type"]:
                case "text":
                    assert block["text"]
                case "image":
                    assert "[[" not in block["data"]
                case "toolCall":
                    assert isinstance(block["arguments"], dict)
                    asked.add(block["id"])
                case "thinking":
                    away = "[[extracted-" in block["thinking"]
                    assert away is not ("thinkingSignature" in block)
    return messages


CLAUDE_CODE = Kind(
    kind="claude-code",
    sessions=".claude/projects",
    directory="-home-me-project",
    session="8463c716-a2ea-4c14-9efa-87158ebd9f20",
    lines=claude_code_lines,
    recorded="claude-code-*.jsonl",
    reads=claude_code_reads,
)

CODEX = Kind(
    kind="codex",
    sessions=".codex/sessions",
    directory="2025/09/24",
    session="rollout-2025-09-24T18-22-20-01997e76-d124-7592-9cac-2ec05abbca08",
    lines=codex_lines,
    recorded="codex-rollout*.jsonl",
    reads=codex_reads,
)

PI = Kind(
    kind="pi",
    sessions=".pi/agent/sessions",
    directory="--home-me-my project--",
    session="2025-12-01T10-00-00-000Z_01997e76-d124-7592-9cac-2ec05abbca08",
    lines=pi_lines,
    recorded="openclaw-v3-medium.jsonl",
    reads=pi_reads,
)

KINDS = [CLAUDE_CODE, CODEX, PI]
