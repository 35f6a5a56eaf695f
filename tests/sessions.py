"""Sessions of OpenClaw, made up line by line, and a surgeon whose waiting takes no time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.pruning_config import ConfigService
from bsd.sample import session_lines
from bsd.session.rest import Patience
from bsd.session.surgeon import Surgeon
from tests.openclaw_tree import add_session

NAME = SessionName("main", "s1")
LONG = "x" * 600


class Clock:
    """The system's clock, moved forward by every sleep instead of sleeping."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.slept: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None  # what happens during each sleep

    def now(self) -> float:
        return time.time() + self.ahead

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.ahead += seconds
        self.meanwhile()


def make_surgeon(layout: Layout, clock: Clock, wait: float = 30.0) -> Surgeon:
    patience = Patience(wait=wait, clock=clock.now, sleep=clock.sleep)
    return Surgeon(layout, ConfigService(layout.config_file), patience=patience)


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
    """A user's question, `results` long tool results, and enough answers to make them old."""
    entries = [HEADER, entry(0, "user", "look")]
    entries += [entry(n, "toolResult", f"{n} {LONG}") for n in range(1, results + 1)]
    entries += [entry(results + n, "assistant", "seen") for n in range(1, 6)]
    return entries


def write(layout: Layout, entries: list[dict[str, Any]], name: SessionName = NAME) -> Path:
    """Write a session that nobody has touched for an hour."""
    return add_session(layout.root, str(name), jsonl(*entries))


def jsonl(*entries: Mapping[str, Any] | bytes) -> bytes:
    """Entries as a file has them; bytes stay as they are."""
    return b"".join(
        entry if isinstance(entry, bytes) else json.dumps(entry).encode() + b"\n"
        for entry in entries
    )


def sample(turns: int, seed: int = 1) -> bytes:
    """A generated session."""
    return b"".join(session_lines(turns=turns, seed=seed))
