"""A session as oh-my-pi writes it: pi's lines after a line with the title."""

from __future__ import annotations

import json
from typing import Any

from tests.transcripts.agents.sources.pi import pi_lines, pi_reads
from tests.transcripts.agents.sources.tree import Kind

_TITLE_BYTES = 256  # with the end of the line


def title_line(title: str = "", **more: Any) -> dict[str, Any]:
    line = {"type": "title", "v": 1, "title": title, **more, "updatedAt": "2025-12-01T10:00:00Z"}
    bare = len(json.dumps({**line, "pad": ""}, ensure_ascii=False).encode()) + 1
    return {**line, "pad": " " * (_TITLE_BYTES - bare)}


def oh_my_pi_lines() -> list[dict[str, Any]]:
    return [title_line(), *pi_lines()]


def oh_my_pi_reads(content: bytes) -> list[dict[str, Any]]:
    """Read a session as pi does, after a first line of a fixed width."""
    first, _, rest = content.partition(b"\n")
    assert len(first) + 1 == _TITLE_BYTES
    assert json.loads(first).keys() <= {"type", "v", "title", "source", "updatedAt", "pad"}
    return pi_reads(rest)


OH_MY_PI = Kind(
    kind="oh-my-pi",
    sessions=".omp/agent/sessions",
    directory="-my project",
    session="2025-12-01T10-00-00-000Z_01997e76-d124-7592-9cac-2ec05abbca08",
    lines=oh_my_pi_lines,
    recorded="oh-my-pi-*.jsonl",
    reads=oh_my_pi_reads,
)
