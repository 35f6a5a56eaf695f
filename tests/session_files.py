"""Sessions of OpenClaw, written line by line, and a caller whose waiting takes no time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.sample import session_lines
from bsd.sessions.idle import RetryBudget
from tests.actions.performed import Caller
from tests.openclaw_tree import add_session

NAME = SessionName("main", "s1")
LONG = "x" * 600


class Clock:
    """The system's clock, moved forward by every sleep instead of sleeping."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.slept: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None  # called during each sleep

    def now(self) -> float:
        return time.time() + self.ahead

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.ahead += seconds
        self.meanwhile()


def make_caller(layout: Layout, clock: Clock, wait: float = 30.0) -> Caller:
    budget = RetryBudget(wait=wait, clock=clock.now, sleep=clock.sleep)
    return Caller(layout=layout, config=ConfigService(layout.config_file), budget=budget)


def entry(number: int, role: str, text: str, **more: Any) -> dict[str, Any]:
    """A message entry as OpenClaw writes it."""
    message: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": text}]}
    if role == "assistant":
        message |= {"api": "anthropic-messages", "model": "claude-opus-4-5", "stopReason": "stop"}
    if role == "toolResult":
        message |= {"toolCallId": f"call{number}", "toolName": "read", "isError": False}
    return {
        "type": "message",
        "id": f"e{number}",
        "parentId": f"e{number - 1}",
        "timestamp": "2026-02-01T00:00:00Z",
        "message": message,
        **more,
    }


HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-02-01T00:00:00Z"}


def conversation(results: int = 3) -> list[dict[str, Any]]:
    """Return a user's question, `results` long tool results, and answers that make them old."""
    entries = [HEADER, entry(0, "user", "look")]
    entries += [entry(n, "toolResult", f"{n} {LONG}") for n in range(1, results + 1)]
    entries += [entry(results + n, "assistant", "seen") for n in range(1, 6)]
    return entries


def write(layout: Layout, entries: list[dict[str, Any]], name: SessionName = NAME) -> Path:
    """Write a session whose last use was an hour ago."""
    return add_session(layout.root, str(name), jsonl(*entries))


def jsonl(*entries: Mapping[str, Any] | bytes) -> bytes:
    """Return entries as a file's lines; bytes stay as they are."""
    return b"".join(
        entry if isinstance(entry, bytes) else json.dumps(entry).encode() + b"\n"
        for entry in entries
    )


def sample(turns: int, seed: int = 1) -> bytes:
    """A generated session."""
    return b"".join(session_lines(turns=turns, seed=seed))


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
        """Continue from an earlier entry: a branch."""
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

    def answers(
        self, call_id: str, words: str = "ok", tool: str = "restore_remote", *, error: bool = False
    ) -> str:
        content = [text(words)]
        message = {"role": "toolResult", "toolCallId": call_id, "toolName": tool}
        return self.add({**message, "content": content, "isError": error})

    @property
    def raw(self) -> bytes:
        return jsonl(*self.entries)
