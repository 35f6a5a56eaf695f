"""The calls of Claude Code's hooks, and the form of an answer for its model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bsd.transcripts.agents.program import HookCall

# After these, it writes only notes (`turn_duration`, `cost-state`) until a user or task goes on.
_IDLE = ("Stop", "SessionEnd")
# Reasons of a start after which the model knows placeholders, or soon will.
_GOES_ON = ("resume", "compact")
_START = "SessionStart"


def read_hook(said: Mapping[str, Any]) -> HookCall | None:
    """Return the call of a hook from its JSON; None if bsd has no use for it."""
    event, transcript = said.get("hook_event_name"), said.get("transcript_path")
    if not isinstance(transcript, str) or not transcript.startswith("/") or "\0" in transcript:
        return None
    if event in _IDLE:
        return HookCall(Path(transcript), is_idle=True)
    if event == _START and said.get("source") in _GOES_ON:
        return HookCall(Path(transcript), tell_model=_tell_model)
    return None


def _tell_model(text: str) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": _START, "additionalContext": text}}
