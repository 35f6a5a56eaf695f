"""Recordings of the skeletons of real sessions, which hold numbers and no text.

A skeleton becomes a transcript of OpenClaw with made-up text of the same lengths, so that the
product's own reader and rules apply. No two values share a text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bsd.planning.recorded import Recording
from bsd.planning.recording_reader import read_recording
from bsd.planning.rules import Policy
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.reader import BytesTranscript
from tests.planning.in_memory import DATA, Shelf
from tests.session_files import HEADER, jsonl

_BEGAN = datetime(2026, 2, 1, tzinfo=UTC)


def skeletons() -> list[Path]:
    """Return the files of all skeletons; skip the test where none is available."""
    found = sorted((DATA / "replay").glob("*.jsonl"))
    if not found:
        pytest.skip("no skeletons here")
    return found


def recording_of_skeleton(path: Path, policies: Sequence[Policy]) -> Recording:
    """Return the recording of a skeleton."""
    source = BytesTranscript(transcript_of_skeleton(path))
    return read_recording(source, OPENCLAW, policies, Shelf())


def transcript_of_skeleton(path: Path) -> bytes:
    """Return a transcript of OpenClaw with the entries of a skeleton."""
    lines = path.read_text().splitlines()
    return jsonl(HEADER, *_entries(map(json.loads, lines)))


def _entries(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    parent, waiting = None, list[str]()
    for number, row in enumerate(rows):
        name = f"e{number}"
        message: dict[str, Any] = {"role": row["role"]}
        blocks = [_block(f"{name}.{at}", *value) for at, value in enumerate(row["values"])]
        message["content"] = blocks
        calls = [block["id"] for block in blocks if block["type"] == "toolCall"]
        if row["role"] == "assistant":
            message |= {key: row[key] for key in ("usage", "provider", "model") if key in row}
            message["stopReason"] = "toolUse" if calls else "stop"
            waiting += calls
        elif row["role"] == "toolResult":
            message["toolCallId"] = waiting.pop(0) if waiting else f"{name}.lost"
        at = _BEGAN + timedelta(seconds=row["t"])
        yield {
            "type": "message",
            "id": name,
            "parentId": parent,
            "timestamp": at.isoformat(),
            "message": message,
        }
        parent = name


def _block(name: str, kind: str, length: int, signature: int = 0) -> dict[str, Any]:
    text = _text(name, length)
    if kind == "thinking":
        proof = {"thinkingSignature": _text(f"{name}s", signature)} if signature else {}
        return {"type": "thinking", "thinking": text, **proof}
    if kind == "toolCall":
        arguments = {"c": text[: max(0, length - len('{"c":""}'))]}
        return {"type": "toolCall", "id": name, "name": "tool", "arguments": arguments}
    return {"type": "image", "data": text} if kind == "image" else {"type": "text", "text": text}


def _text(name: str, length: int) -> str:
    return (f"{name} " * (length // (len(name) + 1) + 1))[:length]
