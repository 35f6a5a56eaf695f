"""A made-up history of prompts, as Claude Code keeps it beside its sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HOUR_MS = 3_600_000
LATE_2026 = 1_790_000_000_000


def prompt(
    text: str, session: str | None, project: str = "/home/me/project", hours: float = 0, **more: Any
) -> dict[str, Any]:
    """A prompt's line, as the program writes it."""
    line = {
        "display": text,
        "pastedContents": {},
        "timestamp": int(LATE_2026 + hours * HOUR_MS),
        "project": project,
    }
    return line | ({} if session is None else {"sessionId": session}) | more


def write_history(projects: Path, *lines: dict[str, Any] | bytes) -> Path:
    """Write the history beside a directory of projects."""
    path = projects.parent / "history.jsonl"
    written = [
        line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False).encode() + b"\n"
        for line in lines
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(written))
    return path


def id_of(number: int) -> str:
    """The id of an absent session."""
    return f"{number:08x}-1111-4222-8333-444444444444"
