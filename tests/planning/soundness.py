"""Conditions that hold for any session, after any operation."""

from __future__ import annotations

import json
from typing import Any

from bsd.transcripts.agents.format import TranscriptFormat, Turn
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.reader import BytesTranscript, parse_entry


def faults(raw: bytes, fmt: TranscriptFormat = OPENCLAW) -> list[str]:
    """Every fault that makes a session unfit for its program or a provider; empty if it is
    sound.
    """
    entries = [(n, parse_entry(line.raw)) for n, line in enumerate(BytesTranscript(raw).lines())]
    found = []
    ids: set[str] = set()
    spoke: dict[str | None, str | None] = {None: None}  # the last speaker, at each entry
    asked: set[str] = set()
    answered: set[str] = set()
    for number, entry in entries:
        if entry is None:
            found.append(f"line {number} is no entry")
            continue
        info = fmt.info(entry)
        if info.is_header != (number == 0 and fmt is OPENCLAW):
            found.append(f"line {number}: header")
        if info.is_header:
            continue
        parent = entry.get("parentId")
        if parent is not None and parent not in ids:
            found.append(f"{info.id}: its parent {parent} is not before it")
        ids.add(info.id or "")
        asked |= {one.id for one in info.calls}
        if info.result_of is not None:
            answered.add(info.result_of)
            if info.result_of not in asked:
                found.append(f"{info.id}: nobody asked for it")
        if fmt is OPENCLAW:
            found += _spoken(info.id or "", entry, parent, spoke)
    found += [f"call {one} has no result" for one in sorted(asked - answered)]
    return found


def _spoken(
    name: str, entry: dict[str, Any], parent: str | None, spoke: dict[str | None, str | None]
) -> list[str]:
    before = spoke.get(parent)
    info = OPENCLAW.info(entry)
    spoke[name] = before
    if not info.is_message:
        return []
    found = []
    who = "assistant" if info.is_assistant else "user" if info.turn is Turn.STARTS else "other"
    if who == before and who != "other":
        found.append(f"{name}: {who} speaks twice")
    content = entry.get("message", {}).get("content")
    if info.is_assistant and not content:
        found.append(f"{name}: it says nothing")
    if info.is_assistant and all(block.get("type") == "thinking" for block in content or ()):
        found.append(f"{name}: it only thinks")
    spoke[name] = who
    return found


def shown(raw: bytes) -> list[dict[str, Any]]:
    """The entries below the header."""
    return [json.loads(line) for line in raw.splitlines()[1:]]
