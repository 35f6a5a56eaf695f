"""Conversations in which an agent calls our tools, and what must be true of any session."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bsd.agents.dialect import Format, Turn
from bsd.agents.openclaw.dialect import OPENCLAW
from bsd.text.reader import BytesTranscript, parse_entry
from tests.sessions import HEADER, jsonl

Blocks = list[dict[str, Any]]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thought(words: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words}


def call(call_id: str, name: str = "restore_remote", **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}


class Talk:
    """Writes an OpenClaw session, entry by entry: e1, e2, …."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = [HEADER]
        self._parent: str | None = None

    def add(self, message: Mapping[str, Any], kind: str = "message") -> str:
        name = f"e{len(self.entries)}"
        entry = {"type": kind, "id": name, "parentId": self._parent, "message": dict(message)}
        self._parent = name
        self.entries.append(entry)
        return name

    def note(self, **members: Any) -> str:
        """An entry that is no message."""
        name = f"e{len(self.entries)}"
        self.entries.append({"type": "custom", "id": name, "parentId": self._parent, **members})
        self._parent = name
        return name

    def back_to(self, name: str) -> None:
        """Go on from an earlier entry: a branch."""
        self._parent = name

    def user(self, words: str = "please") -> str:
        return self.add({"role": "user", "content": [text(words)]})

    def says(self, *blocks: dict[str, Any], model: str = "claude-opus-4-5") -> str:
        waits = any(block["type"] == "toolCall" for block in blocks)
        return self.add(
            {
                "role": "assistant",
                "content": list(blocks),
                "api": "anthropic-messages",
                "provider": "anthropic",
                "model": model,
                "stopReason": "toolUse" if waits else "stop",
            }
        )

    def answers(self, call_id: str, words: str = "ok", tool: str = "restore_remote") -> str:
        content = [text(words)]
        message = {"role": "toolResult", "toolCallId": call_id, "toolName": tool}
        return self.add({**message, "content": content, "isError": False})

    @property
    def raw(self) -> bytes:
        return jsonl(*self.entries)


def faults(raw: bytes, fmt: Format = OPENCLAW) -> list[str]:
    """Everything that makes a session unfit for its owner or a provider; empty if it is sound."""
    entries = [(n, parse_entry(line.raw)) for n, line in enumerate(BytesTranscript(raw).lines())]
    found = []
    ids: set[str] = set()
    spoke: dict[str | None, str | None] = {None: None}  # who spoke last, at each entry
    asked: set[str] = set()
    answered: set[str] = set()
    for number, entry in entries:
        if entry is None:
            found.append(f"line {number} is no entry")
            continue
        facts = fmt.facts(entry)
        if facts.is_header != (number == 0 and fmt is OPENCLAW):
            found.append(f"line {number}: header")
        if facts.is_header:
            continue
        parent = entry.get("parentId")
        if parent is not None and parent not in ids:
            found.append(f"{facts.id}: its parent {parent} is not before it")
        ids.add(facts.id or "")
        asked |= {one.id for one in facts.calls}
        if facts.result_of is not None:
            answered.add(facts.result_of)
            if facts.result_of not in asked:
                found.append(f"{facts.id}: nobody asked for it")
        if fmt is OPENCLAW:
            found += _spoken(facts.id or "", entry, parent, spoke)
    found += [f"call {one} has no result" for one in sorted(asked - answered)]
    return found


def _spoken(
    name: str, entry: dict[str, Any], parent: str | None, spoke: dict[str | None, str | None]
) -> list[str]:
    before = spoke.get(parent)
    facts = OPENCLAW.facts(entry)
    spoke[name] = before
    if not facts.is_message:
        return []
    found = []
    who = "assistant" if facts.is_assistant else "user" if facts.turn is Turn.STARTS else "other"
    if who == before and who != "other":
        found.append(f"{name}: {who} speaks twice")
    content = entry.get("message", {}).get("content")
    if facts.is_assistant and not content:
        found.append(f"{name}: it says nothing")
    if facts.is_assistant and all(block.get("type") == "thinking" for block in content or ()):
        found.append(f"{name}: it only thinks")
    spoke[name] = who
    return found


def shown(raw: bytes) -> list[dict[str, Any]]:
    """The entries below the header."""
    return [json.loads(line) for line in raw.splitlines()[1:]]
