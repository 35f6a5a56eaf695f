"""The view of a session file by pi's SessionManager, and how two such views must agree."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, cast

from tests.compat.install import HERE

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Branch:
    """The path from the beginning of a session to one of its ends, by ids of entries."""

    path: list[str]
    # texts that pi would send to the model; None for texts that it makes itself
    sends: list[str | None]


@dataclass(frozen=True, slots=True)
class Seen:
    """A session as pi sees it."""

    header: Json
    entries: list[Json]
    tree: list[tuple[str, list[str]]]  # every entry with its children
    branches: list[Branch]  # one for every entry without a successor
    leaf: str | None
    context: list[Json]  # messages that pi would send to the model
    lost: int  # lines of the file that pi dropped silently
    rewritten: bool  # pi changed the file by opening it

    def unanswered(self) -> list[str]:
        """Ids of tool calls in the context that no tool result answers before the next message
        of another kind: providers refuse these.
        """
        missing: list[str] = []
        waiting: list[str] = []
        for message in self.context:
            if message["role"] == "toolResult":
                waiting = [call for call in waiting if call != message["toolCallId"]]
            else:
                missing += waiting
                waiting = [block["id"] for block in _calls(message)]
        return missing + waiting

    def unasked(self) -> list[str]:
        """Ids that tool results of the context answer though no tool call before asked."""
        asked: set[str] = set()
        strangers = []
        for message in self.context:
            asked |= {block["id"] for block in _calls(message)}
            if message["role"] == "toolResult" and message["toolCallId"] not in asked:
                strangers.append(message["toolCallId"])
        return strangers

    def along(self, branch: Branch) -> Seen:
        """The same session, with the texts that pi would send if it continued from the end of
        this branch.
        """
        messages: dict[str, Json] = {
            entry["id"]: entry["message"] for entry in self.entries if "message" in entry
        }
        made: Json = {"role": "made by pi"}
        return replace(self, context=[messages[one] if one else made for one in branch.sends])

    def orphans(self) -> set[str]:
        """Parents that are missing; some recorded sessions have such entries."""
        return {entry["parentId"] for entry in self.entries if entry["parentId"]} - {
            entry["id"] for entry in self.entries
        }

    def silent(self) -> int:
        """The number of answers that are empty, or only think: providers refuse these. Recorded
        sessions have them where a user interrupted the answer.
        """
        answers = [_blocks(one) for one in self.context if one["role"] == "assistant"]
        return sum(all(block["type"] == "thinking" for block in one) for one in answers)

    def meetings(self) -> int:
        """How often a role speaks twice in a row."""
        roles = [message["role"] for message in self.context]
        return sum(one == other and one in {"user", "assistant"} for one, other in pairwise(roles))

    def assert_no_worse_than(self, other: Seen, where: str) -> None:
        """Fail if this session has a fault for providers or pi that the other lacked."""
        assert set(self.unanswered()) <= set(other.unanswered()), where
        assert set(self.unasked()) <= set(other.unasked()), where
        assert self.orphans() <= other.orphans(), where
        assert self.meetings() <= other.meetings(), where
        assert self.silent() <= other.silent(), where
        assert_sendable(self)


def read(node: str, paths: Sequence[Path]) -> list[Seen]:
    """Open copies of session files with pi."""
    with tempfile.TemporaryDirectory() as directory:
        copies = [Path(directory) / f"{n}.jsonl" for n in range(len(paths))]
        for path, copy in zip(paths, copies, strict=True):
            shutil.copyfile(path, copy)
        answer = _ask(_reader(node), [str(copy) for copy in copies])
        return [
            Seen(
                header=view["header"],
                entries=view["entries"],
                tree=sorted((parent, children) for parent, children in view["tree"]),
                branches=[Branch(**branch) for branch in view["branches"]],
                leaf=view["leaf"],
                context=view["context"]["messages"],
                lost=view["lines"] - len(view["entries"]) - 1,
                rewritten=copy.read_bytes() != path.read_bytes(),
            )
            for path, copy, view in zip(paths, copies, answer, strict=True)
        ]


@cache
def _reader(node: str) -> subprocess.Popen[bytes]:
    """One process for all: loading pi takes seconds."""
    reader = subprocess.Popen(
        [node, str(HERE / "read_with_pi.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    atexit.register(reader.communicate)
    return reader


def _ask(reader: subprocess.Popen[bytes], files: list[str]) -> list[Json]:
    asked, told = cast(IO[bytes], reader.stdin), cast(IO[bytes], reader.stdout)
    asked.write(json.dumps(files).encode() + b"\n")
    asked.flush()
    answer = told.readline()
    assert answer, f"pi ended while it read {files}"
    return cast(list[Json], json.loads(answer))


def assert_same_session(before: Seen, after: Seen) -> None:
    """Fail unless pi sees the same conversation, apart from extracted values."""
    assert after.lost == before.lost == 0
    assert not after.rewritten
    assert after.header == before.header
    assert [_skeleton(e) for e in after.entries] == [_skeleton(e) for e in before.entries]
    assert after.tree == before.tree
    assert after.leaf == before.leaf
    assert [_shape(m) for m in after.context] == [_shape(m) for m in before.context]
    assert after.unanswered() == before.unanswered()
    assert after.unasked() == before.unasked()


def assert_sendable(seen: Seen) -> None:
    """Fail if the context holds entries that providers are known to refuse in an edited session."""
    for message in seen.context:
        assert "_extracted" not in message
        assert "_restored" not in message
        for block in _blocks(message):
            if block["type"] == "text":
                assert block["text"], "an empty text block is refused"
            if block["type"] == "image":
                assert "[[extracted-" not in block["data"], "a placeholder is no base64"
            if block["type"] == "toolCall":
                assert isinstance(block["arguments"], dict)
            if block["type"] == "thinking" and _is_checked(message, block):
                assert not block.get("thinkingSignature"), "the signature does not fit the text"


def _is_checked(message: Json, block: Json) -> bool:
    """Whether this thinking text has left, and its provider checks signatures against texts."""
    checks = ("anthropic", "bedrock", "google")
    return "[[extracted-" in block["thinking"] and message.get("api", "").startswith(checks)


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _calls(message: Json) -> list[Json]:
    return [block for block in _blocks(message) if block["type"] == "toolCall"]


def _skeleton(entry: Json) -> Json:
    """An entry without the values that may leave it and without bsd's own marks."""
    kept = {k: v for k, v in entry.items() if k not in {"message", "content", "details"}}
    kept.pop("_extracted", None)
    kept.pop("_restored", None)
    message = entry.get("message")
    return {**kept, "message": _shape(message)} if isinstance(message, dict) else kept


def _shape(message: Json) -> Json:
    """A message without its texts: role, ids, block order, and every small field."""
    outer = {k: v for k, v in message.items() if k not in {"content", "details", "output"}}
    return {**outer, "blocks": [_block_shape(block) for block in _blocks(message)]}


def _block_shape(block: Json) -> tuple[str, ...]:
    if block["type"] == "toolCall":
        return ("toolCall", block["id"], block["name"], *sorted(block["arguments"]))
    # An extracted image becomes a text block: its data cannot hold a placeholder.
    return ("text or image",) if block["type"] in {"text", "image"} else (block["type"],)
