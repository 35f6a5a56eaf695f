"""A gateway that continues a session, with a provider that caches prompts as real ones do.

Each request sends all content that the session's file holds then. The part that equals the
beginning of the previous request is read from the cache while that is warm, and the rest is
written. The answer records these tokens as its usage.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bsd.core.formatting import iso_utc
from tests.session_files import HEADER, jsonl

RESULT = "r" * 4000  # characters of a long result; four of them are a token
_SYSTEM = 10_000  # tokens of the system prompt and the tools


@dataclass(frozen=True)
class Provider:
    """A model and the cache of its provider; prices are relative to an input token."""

    name: str = "anthropic"
    model: str = "claude-opus-4-6"
    life: float = 300.0  # seconds; 0: no cache
    read: float = 0.1
    write: float = 1.25


@dataclass
class ScriptedGateway:
    """Writes one session. `spent` is the cost of its requests' input, in input tokens."""

    path: Path
    provider: Provider = Provider()
    spent: float = 0.0
    requests: list[tuple[float, int, int]] = field(default_factory=list)  # time, read, written
    _number: int = 0
    _sent: Sequence[str] = ()
    _used: float = -1e9

    def turn(self, now: float, calls: int = 1, result: str = RESULT) -> None:
        """Write a turn that ends at `now`: a prompt, calls with their results, and an answer."""
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(jsonl(HEADER))
        begin = now - calls - 1
        self._append(begin, {"role": "user", "content": "go on"})
        for number in range(1, calls + 1):
            call = {"type": "toolCall", "id": f"c{self._number}", "name": "read", "arguments": {}}
            self._answer(begin + number, [call], "toolUse")
            about = {"role": "toolResult", "toolCallId": call["id"], "toolName": "read"}
            content = [{"type": "text", "text": result}]
            self._append(begin + number, {**about, "content": content, "isError": False})
        self._answer(now, [{"type": "text", "text": "done"}], "stop")
        os.utime(self.path, (now, now))

    @property
    def inline(self) -> int:
        """The number of long results that stand in the session."""
        return self.path.read_text().count(RESULT)

    def _answer(self, now: float, content: list[Any], stop: str) -> None:
        provider, prompt = self.provider, self._contents()
        is_warm = now - self._used <= provider.life
        same = itertools.takewhile(lambda both: both[0] == both[1], zip(self._sent, prompt))  # noqa: B905 - the shorter ends it
        kept = [one for one, _ in same] if is_warm else []
        size = _SYSTEM + _tokens(prompt)
        read = _SYSTEM + _tokens(kept) if is_warm else 0
        written = size - read
        self.requests.append((now, read, written))
        self.spent += provider.read * read + provider.write * written
        usage = {"input": 0, "output": 20, "cacheRead": read, "cacheWrite": written}
        if provider.life == 300:
            usage["cacheWrite1h"] = 0  # the other lifetime that Anthropic offers
        if not provider.life:
            usage = {"input": size, "output": 20, "cacheRead": 0, "cacheWrite": 0}
        self._sent, self._used = prompt, now
        about = {"api": "anthropic-messages", "stopReason": stop, "usage": usage}
        about |= {"provider": provider.name, "model": provider.model}
        self._append(now, {"role": "assistant", "content": content, **about})

    def _append(self, now: float, message: dict[str, Any]) -> None:
        parent = f"e{self._number - 1}" if self._number else None
        line = {"type": "message", "id": f"e{self._number}", "parentId": parent}
        self._number += 1
        with self.path.open("ab") as file:
            file.write(jsonl(line | {"timestamp": iso_utc(now), "message": message}))

    def _contents(self) -> list[str]:
        messages = (json.loads(line).get("message") for line in self.path.read_text().splitlines())
        return [json.dumps(message["content"]) for message in messages if message]


def _tokens(contents: Sequence[str]) -> int:
    return sum(map(len, contents)) // 4
