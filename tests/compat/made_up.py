"""Short sessions with all kinds of pi's entries: branches, compactions, notes, unended turns."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

Json = dict[str, Any]

_TOOLS = ("restore_remote", "restore", "purge_control", "mcp__bsd__restore_remote", "exec", "read")
_MODELS = ("claude-opus-4-5", "claude-opus-4-5", "gpt-5")
_APIS = {"claude-opus-4-5": "anthropic-messages", "gpt-5": "openai-responses"}
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"


class Author:
    """Continues a session turn by turn; the same random seed gives the same session."""

    def __init__(self, chance: Random, entries: Iterable[Json] = ()) -> None:
        self._chance = chance
        self.entries = list(entries)
        self.new: list[Json] = []
        self._leaf: str | None = None
        for entry in self.entries:
            self._leaf = entry.get("id") if entry["type"] != "session" else None
        self._now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=len(self.entries))

    @property
    def lines(self) -> bytes:
        """The lines written so far."""
        return b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in self.new)

    def begin(self) -> None:
        """The header, and the lines that pi writes before the first prompt."""
        header = {
            "type": "session",
            "version": 3,
            "id": "s1",
            "timestamp": self._time(),
            "cwd": "/",
        }
        self.entries.append(header)
        self.new.append(header)
        self._add("model_change", provider="anthropic", modelId="claude-opus-4-5")

    def turn(self) -> None:
        """Write a request and the work on it, some notes, and perhaps a step back."""
        self._say("user", self._words("please", self._pick(1, 9)))
        asked = self._leaf
        self._work()
        luck = self._chance.random()
        if luck < 0.15:
            self._leaf = asked  # the answer is written again
            self._work()
        elif luck < 0.3:
            self._go_back()
        elif luck < 0.45:
            self._compact()
        elif luck < 0.6:
            self._note()

    def _work(self) -> None:
        for _ in range(self._pick(0, 1, 1, 2, 3)):
            calls = [self._call() for _ in range(self._pick(1, 1, 2))]
            self._speak([*self._aside(), *calls], "toolUse")
            if self._chance.random() < 0.2:
                self._note()
            for call in self._chance.sample(calls, len(calls)):
                self._answer(call)
                if self._chance.random() < 0.1:
                    self._note()
        if self._chance.random() < 0.65:  # otherwise pi crashed
            self._speak([*self._aside(), self._text("so", self._pick(2, 30))], "stop")

    def _speak(self, blocks: list[Json], stop: str) -> None:
        model = self._pick(*_MODELS)
        usage = {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2}
        about = {"api": _APIS[model], "provider": "x", "model": model, "usage": usage}
        self._say("assistant", blocks, **about, stopReason=stop)

    def _aside(self) -> list[Json]:
        """The text before the calls, or the answer."""
        blocks = []
        if self._chance.random() < 0.5:
            thinking = self._words("hm", self._pick(3, 20))
            blocks.append({"type": "thinking", "thinking": thinking, "thinkingSignature": "c2ln"})
        if self._chance.random() < 0.3:
            blocks.append(self._text("I look", self._pick(1, 20)))
        return blocks

    def _call(self) -> Json:
        name = self._pick(*_TOOLS)
        arguments: Json = {"action": "restore", "entry": "e1", "keys": "a"}
        if name in {"exec", "read"}:
            arguments = {"command": self._words("run", self._pick(1, 20)), "lines": 3}
        identity = f"call_{self._chance.getrandbits(48):012x}"
        return {"type": "toolCall", "id": identity, "name": name, "arguments": arguments}

    def _answer(self, call: Json) -> None:
        about = {"toolCallId": call["id"], "toolName": call["name"]}
        content = [self._text("found", self._pick(1, 2, 40))]
        if self._chance.random() < 0.1:
            content.append({"type": "image", "data": _PIXEL * 20, "mimeType": "image/png"})
        if self._chance.random() < 0.2:
            about["details"] = {"diff": self._words("-+", 30)}
        self._say("toolResult", content, **about, isError=self._chance.random() < 0.1)

    def _note(self) -> None:
        kind = self._pick("custom", "label", "session_info", "custom_message", "bash", "model")
        if kind == "custom":
            self._add("custom", customType="state", data={"seen": self._words("x", 20)})
        elif kind == "label":
            self._add("label", targetId=self._earlier(), label="here")
        elif kind == "session_info":
            self._add("session_info", name="a name")
        elif kind == "custom_message":
            content = self._words("a hint", self._pick(2, 20))
            self._add("custom_message", customType="hint", content=content, display=True)
        elif kind == "bash":
            output = self._words("made", self._pick(1, 30))
            self._say("bashExecution", None, command="make", output=output, exitCode=0)
        else:
            self._add("model_change", provider="openai", modelId="gpt-5")

    def _compact(self) -> None:
        summary = self._words("long ago", 20)
        self._add("compaction", summary=summary, firstKeptEntryId=self._earlier(), tokensBefore=9)

    def _go_back(self) -> None:
        self._leaf = self._earlier(("assistant",))
        if self._chance.random() < 0.5:
            summary = self._words("went astray", 9)
            self._add("branch_summary", fromId=self._leaf or "root", summary=summary)

    def _earlier(self, roles: tuple[str, ...] = ("user", "assistant", "toolResult")) -> str | None:
        """Return a random matching entry on the path to the end, or the end if none matches."""
        by_id = {entry["id"]: entry for entry in self.entries if entry["type"] != "session"}
        fitting, here = [], self._leaf
        while here is not None and here in by_id:
            message = by_id[here].get("message", {})
            if message.get("role") in roles and message.get("stopReason") != "toolUse":
                fitting.append(here)
            here = by_id[here]["parentId"]
        return self._chance.choice(fitting) if fitting else self._leaf

    def _say(self, role: str, content: Any, **more: Any) -> None:
        message = {"role": role, "content": content, **more, "timestamp": len(self.entries)}
        if content is None:
            del message["content"]
        self._add("message", message=message)

    def _add(self, kind: str, **members: Any) -> None:
        identity = f"{self._chance.getrandbits(32):08x}"
        about = {"type": kind, "id": identity, "parentId": self._leaf, "timestamp": self._time()}
        self.entries.append({**about, **members})
        self.new.append(self.entries[-1])
        self._leaf = identity

    def _text(self, beginning: str, length: int) -> Json:
        return {"type": "text", "text": self._words(beginning, length)}

    def _words(self, beginning: str, length: int) -> str:
        return "".join(f"{beginning} {self._chance.getrandbits(32)} " for _ in range(length))

    def _pick(self, *ones: Any) -> Any:
        return self._chance.choice(ones)

    def _time(self) -> str:
        self._now += timedelta(seconds=1)
        return self._now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def made_up(seed: int) -> bytes:
    """Return a session of a few turns."""
    chance = Random(seed)
    author = Author(chance)
    author.begin()
    for _ in range(chance.randrange(2, 6)):
        author.turn()
    return author.lines
