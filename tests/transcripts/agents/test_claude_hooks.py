"""Events of Claude Code's hooks, and events that bsd ignores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bsd.transcripts.agents.program import HookCall
from bsd.transcripts.agents.programs import KINDS, kind_of

PATH = "/home/ada/.claude/projects/-work/5c0f.jsonl"


def read(**said: Any) -> HookCall | None:
    return kind_of("claude-code").read_hook({"transcript_path": PATH, **said})


@pytest.mark.parametrize("event", ["Stop", "SessionEnd"])
def test_a_turn_or_a_session_is_over(event: str) -> None:
    call = read(hook_event_name=event, reason="other")
    assert call == HookCall(Path(PATH), is_idle=True)


@pytest.mark.parametrize("source", ["resume", "compact"])
def test_a_session_goes_on_and_its_model_may_be_told(source: str) -> None:
    call = read(hook_event_name="SessionStart", source=source)
    assert call is not None
    assert not call.is_idle
    assert call.tell_model is not None
    assert call.tell_model("a sentence") == {
        "hookSpecificOutput": {
            "hookEventName": "SessionStart",
            "additionalContext": "a sentence",
        }
    }


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"hook_event_name": "PreToolUse"},
        {"hook_event_name": "SessionStart", "source": "startup"},
        {"hook_event_name": "SessionStart"},
        {"hook_event_name": ["Stop"]},
        {"hook_event_name": "Stop", "transcript_path": None},
        {"hook_event_name": "Stop", "transcript_path": "relative.jsonl"},
        {"hook_event_name": "Stop", "transcript_path": "/a\0b.jsonl"},
        {"hook_event_name": "SessionStart", "source": ["resume"]},
    ],
)
def test_all_else_is_nothing(said: dict[str, Any]) -> None:
    assert read(**said) is None


def test_programs_without_hooks_have_nothing_to_say() -> None:
    for kind in set(KINDS) - {"claude-code"}:
        assert kind_of(kind).read_hook({"hook_event_name": "Stop", "transcript_path": PATH}) is None
