"""Changes that agents' programs make to their sessions' lines when they copy or rewrite them.

They follow the behaviour of the released programs (tests/compat runs those), for all formats.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE
from bsd.transcripts.agents.codex import CODEX
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from bsd.transcripts.agents.pi import PI
from tests.transcripts.agents import sources
from tests.transcripts.agents.sources.tree import LONG

Json = dict[str, Any]
Lines = list[Json]

_OURS = ("_extracted", "_restored")


@dataclass(frozen=True)
class Program:
    """A format, and the behaviour of the program that writes it."""

    name: str
    fmt: TranscriptFormat
    directory: str  # of its sessions, below the top
    lines: Callable[[], Lines]
    file_name: Callable[[UUID], str]
    fork: Callable[[Lines, UUID], Lines]
    rewrite: Callable[[Lines, UUID], Lines]  # by a program that drops members it does not know
    source: str | None = None  # the source that it names, below the top
    archive: str | None = None  # where it moves sessions, below the top


def _thread_name(name: UUID) -> str:
    return f"rollout-2025-09-24T18-22-20-{name}.jsonl"


def _session_name(name: UUID) -> str:
    return f"{name}.jsonl"


def _timed_name(name: UUID) -> str:
    return f"2025-12-01T10-00-00-000Z_{name}.jsonl"


def _new_header(lines: Lines, name: UUID) -> Lines:
    """pi and OpenClaw: all lines unchanged, below a header of its own."""
    header = {**lines[0], "id": str(name), "parentSession": "/the/original.jsonl"}
    return [header, *lines[1:]]


def _new_session(lines: Lines, name: UUID) -> Lines:
    """Claude Code: the session's name in each line, and the origin of the answers."""
    forked = []
    for line in lines:
        if "uuid" in line:
            more = {"requestSessionId": line["sessionId"]} if line["type"] == "assistant" else {}
            forked.append({**line, "sessionId": str(name), **more})
    return forked


def _new_thread(lines: Lines, name: UUID) -> Lines:
    """Codex: a header that names the thread it comes from."""
    meta = lines[0]["payload"]
    payload = {**meta, "id": str(name), "forked_from_id": meta["id"]}
    return [{**lines[0], "payload": payload}, *lines[1:]]


def _same(lines: Lines, name: UUID) -> Lines:
    return list(lines)


def _without_ours(lines: Lines, name: UUID) -> Lines:
    return [{key: value for key, value in line.items() if key not in _OURS} for line in lines]


def _anew(lines: Lines, name: UUID) -> Lines:
    """Claude Code 1.0.50: new ids, texts as blocks, and only the known members of each line."""
    made: Lines = []
    for line in lines:
        if line["type"] not in ("user", "assistant"):
            continue
        content = line["message"]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        made.append(
            {
                "parentUuid": made[-1]["uuid"] if made else None,
                "isSidechain": False,
                "sessionId": str(name),
                "version": "1.0.50",
                "type": line["type"],
                "message": {**line["message"], "content": blocks},
                "uuid": str(uuid5(name, line["uuid"])),
                "timestamp": line["timestamp"],
            }
        )
    return made


def _flat_lines() -> Lines:
    kinds = ("user", "thinking", "assistant", "tool_result")
    return [
        {
            "__id": f"e{number:03}",
            "type": kinds[number % 4],
            "__ts": f"2026-01-01T00:00:{number:02}Z",  # identifies a copy without a marker
            "content": LONG,
        }
        for number in range(16)
    ]


def _told_apart(lines: Lines) -> Lines:
    """The same lines, without two equal long texts."""
    number = 0

    def own(value: Any) -> Any:
        nonlocal number
        if isinstance(value, str) and LONG in value:
            number += 1
            return value.replace(LONG, f"{number}: {LONG}")
        if isinstance(value, dict):
            return {key: own(one) for key, one in value.items()}
        return [own(one) for one in value] if isinstance(value, list) else value

    return [own(line) for line in lines]


def _of(kind: Any, **what: Any) -> Program:
    lines = _told_apart(kind.lines())
    source = f"home/{kind.sessions}"
    directory = f"{source}/{kind.directory}"
    return Program(kind.kind, directory=directory, source=source, lines=lambda: lines, **what)


_FLAT_LINES = _told_apart(_flat_lines())
_OPENCLAW_LINES = _told_apart(sources.PI.lines())

PROGRAMS = (
    Program(
        "openclaw",
        OPENCLAW,
        "root/agents/main/sessions",
        lambda: _OPENCLAW_LINES,
        _session_name,
        _new_header,
        _without_ours,
    ),
    Program(
        "flat",
        FLAT,
        "root/agents/old/sessions",
        lambda: _FLAT_LINES,
        _session_name,
        _same,
        _without_ours,
    ),
    _of(
        sources.PI,
        fmt=PI,
        file_name=_timed_name,
        fork=_new_header,
        rewrite=_without_ours,
    ),
    _of(
        sources.CLAUDE_CODE,
        fmt=CLAUDE_CODE,
        file_name=_session_name,
        fork=_new_session,
        rewrite=_anew,
    ),
    _of(
        sources.CODEX,
        fmt=CODEX,
        file_name=_thread_name,
        fork=_new_thread,
        rewrite=_without_ours,
        archive="home/.codex/archived_sessions",
    ),
)


def written(lines: Lines) -> bytes:
    """A file of these lines."""
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)


def lines_of(content: bytes) -> Lines:
    """The lines of a file."""
    return [json.loads(line) for line in content.splitlines()]
