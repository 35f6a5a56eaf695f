"""Results of bsd's tools stay in a session for a while, with every program."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout
from bsd.sessions.idle import RetryBudget
from tests.actions.performed import Caller
from tests.transcripts.agents.sources import (
    CLAUDE_CODE,
    CODEX,
    COPILOT,
    GEMINI,
    KINDS,
    OH_MY_PI,
    PI,
    QWEN,
)
from tests.transcripts.agents.sources.claude_code import claude_code_line, claude_code_lines
from tests.transcripts.agents.sources.codex import codex_line, codex_lines, codex_turn
from tests.transcripts.agents.sources.copilot import (
    copilot_answer,
    copilot_call,
    copilot_lines,
    copilot_prompt,
    copilot_result,
)
from tests.transcripts.agents.sources.gemini import gemini_line, gemini_lines, gemini_result
from tests.transcripts.agents.sources.oh_my_pi import title_line
from tests.transcripts.agents.sources.pi import pi_entry, pi_lines
from tests.transcripts.agents.sources.qwen import qwen_line, qwen_lines
from tests.transcripts.agents.sources.tree import EVERYTHING, Home, Kind

ANSWER = json.dumps({"restored": False, "entry_id": "e", "texts": {"output": "long ago, " * 300}})
PROTECTED_SECONDS = 600


def claude_code(tool: str) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": "toolu_own", "name": tool, "input": {"entry": "e"}}
    text = [{"type": "text", "text": ANSWER}]
    result = {"type": "tool_result", "tool_use_id": "toolu_own", "content": text}
    return [
        *claude_code_lines(2),
        claude_code_line(14, "user", "what was there?"),
        claude_code_line(15, "assistant", [call], stop_reason="tool_use"),
        claude_code_line(16, "user", [result], toolUseResult=text),
        claude_code_line(17, "assistant", [{"type": "text", "text": "I see"}]),
        claude_code_line(18, "user", "go on"),
        claude_code_line(19, "assistant", [{"type": "text", "text": "well"}]),
    ]


def codex(tool: str) -> list[dict[str, Any]]:
    call = {"type": "function_call", "name": tool, "arguments": '{"entry":"e"}'}
    result = {"type": "function_call_output", "output": ANSWER}
    return [
        *codex_lines(2),
        codex_line(60, "event_msg", type="user_message", message="what was there?"),
        codex_line(61, "response_item", **call, call_id="call_own"),
        codex_line(62, "response_item", **result, call_id="call_own"),
        *codex_turn(80),
    ]


def pi(tool: str) -> list[dict[str, Any]]:
    call = {"type": "toolCall", "id": "own", "name": tool, "arguments": {"entry": "e"}}
    text = [{"type": "text", "text": ANSWER}]
    well = [{"type": "text", "text": "well"}]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": well},
        {"role": "assistant", "content": [call], "stopReason": "toolUse"},
        {"role": "toolResult", "toolName": tool, "toolCallId": "own", "content": text},
        {"role": "assistant", "content": well, "stopReason": "stop"},
        {"role": "user", "content": well},
        {"role": "assistant", "content": well, "stopReason": "stop"},
    ]
    entries = pi_lines(2)[:-2]
    first = len(entries) - 1
    return entries + [
        pi_entry(first + number, "message", message=one) for number, one in enumerate(messages)
    ]


def qwen(tool: str) -> list[dict[str, Any]]:
    call = {"id": "own", "name": tool}
    asks = {"role": "model", "parts": [{"functionCall": {**call, "args": {"entry": "e"}}}]}
    answer = {"functionResponse": {**call, "response": {"output": ANSWER}}}
    well = {"parts": [{"text": "well"}]}
    return [
        *qwen_lines(2)[:-1],
        qwen_line(14, "user", message={"role": "user", **well}),
        qwen_line(15, "assistant", message=asks),
        qwen_line(16, "tool_result", message={"role": "user", "parts": [answer]}),
        qwen_line(17, "assistant", message={"role": "model", **well}),
        qwen_line(18, "user", message={"role": "user", **well}),
        qwen_line(19, "assistant", message={"role": "model", **well}),
    ]


def gemini(tool: str) -> list[dict[str, Any]]:
    call = {"id": "own", "name": tool}
    done = {**call, "args": {"entry": "e"}, "result": gemini_result(call, ANSWER)}
    return [
        *gemini_lines(2),
        gemini_line(20, "user", "what was there?"),
        gemini_line(21, "gemini", "", toolCalls=[done]),
        gemini_line(22, "user", gemini_result(call, "the same")),
        *(gemini_line(23 + n, kind, "well") for n, kind in enumerate(["gemini", "user"] * 2)),
    ]


def copilot(tool: str) -> list[dict[str, Any]]:
    call = copilot_call(tool, "toolu_own", {"entry": "e"})
    turn = [
        copilot_prompt(16, "what was there?"),
        copilot_answer(17, "", call),
        copilot_result(18, "toolu_own", result={"content": ANSWER}),
        copilot_answer(19, "I see"),
        copilot_prompt(20, "go on"),
        copilot_answer(21, "well"),
    ]
    before = copilot_lines(2)[:-1]
    # Without the use of a prompt cache, which would still be warm.
    return [line for line in before if line["type"] != "session.usage_record"] + turn


LINES = {
    CLAUDE_CODE.kind: claude_code,
    COPILOT.kind: copilot,
    CODEX.kind: codex,
    GEMINI.kind: gemini,
    OH_MY_PI.kind: lambda tool: [title_line(), *pi(tool)],
    PI.kind: pi,
    QWEN.kind: qwen,
}


def caller(layout: Layout, at: float) -> Caller:
    config = ConfigService(layout.config_file)
    config.update(EVERYTHING)
    return Caller(layout=layout, config=config, budget=RetryBudget(0.0, clock=lambda: at))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@pytest.mark.parametrize(
    ("tool", "protected"),
    [
        ("mcp__bsd__restore_remote", True),
        ("mcp__bsd__read_extracted", True),
        ("bsd_restore", True),
        ("mcp__other__read", False),
    ],
)
def test_results_of_ours_stay_for_as_long_as_what_was_restored(
    tmp_path: Path, kind: Kind, tool: str, protected: bool
) -> None:
    lines = LINES[kind.kind](tool)
    home = Home.of(kind, tmp_path, lines)
    (given,) = [line for line in lines if "long ago, " in json.dumps(line)]
    at = datetime.fromisoformat(given["timestamp"]).timestamp()

    def stands() -> bool:
        return json.dumps("long ago, " * 3)[1:-1].encode() in home.path.read_bytes()

    assert caller(home.layout, at + PROTECTED_SECONDS - 1).extract(home.name).values
    assert stands() is protected
    caller(home.layout, at + PROTECTED_SECONDS + 1).extract(home.name)
    assert not stands()
