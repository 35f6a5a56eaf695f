"""Values at any place in a session of another program come back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.planning.result import Status
from tests.actions import performed
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources import CLAUDE_CODE, CODEX
from tests.transcripts.agents.sources.claude_code import claude_code_line
from tests.transcripts.agents.sources.codex import codex_line, codex_meta
from tests.transcripts.agents.sources.tree import (
    EVERYTHING,
    LONG,
    Home,
    Kind,
    away,
    without_restored,
)

pieces = st.sampled_from(["", "short", LONG, "\u2028 \U0001f600 é " * 40, "[[extracted-x]] " * 50])
members = st.recursive(
    pieces | st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "type", "signature", "b c", "content"]), inner)
    ),
    max_leaves=6,
)


@st.composite
def odd_lines(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A session with values at any place, in unknown forms."""
    lines = [claude_code_line(0, "user", "begin")]
    for number in range(1, draw(st.integers(2, 8))):
        kind = draw(st.sampled_from(["user", "assistant"]))
        block = draw(st.sampled_from(["text", "tool_use", "tool_result", "image", "unknown"]))
        content: Any = [
            {"type": block, "text": draw(pieces), "input": draw(members), "id": f"i{number}"}
            | {"content": draw(members), "source": draw(members), "tool_use_id": f"i{number}"}
        ]
        more = {"toolUseResult": draw(members)} if draw(st.booleans()) else {}
        lines.append(claude_code_line(number, kind, draw(st.just(content) | pieces), **more))
    return [*lines, *claude_code_turn_at(len(lines))]


def claude_code_turn_at(first: int) -> list[dict[str, Any]]:
    answer = [{"type": "text", "text": "done"}]
    return [
        claude_code_line(first, "user", "more"),
        claude_code_line(first + 1, "assistant", answer, stop_reason="end_turn"),
    ]


@st.composite
def odd_rollouts(draw: st.DrawFn) -> list[dict[str, Any]]:
    lines = [codex_meta()]
    for number in range(1, draw(st.integers(2, 8))):
        kind = draw(st.sampled_from(["response_item", "event_msg", "turn_context", "compacted"]))
        what = draw(
            st.sampled_from(
                [
                    *("function_call_output", "custom_tool_call_output", "function_call"),
                    *("exec_command_end", "item_completed", "message", "mcp_tool_call_end"),
                ]
            )
        )
        payload = {key: draw(members) for key in ("output", "stdout", "item", "result", "content")}
        lines.append(codex_line(number, kind, type=what, call_id=f"c{number}", **payload))
    return [*lines, codex_line(90, "event_msg", type="task_complete")]


odd_sessions = st.tuples(st.just(CLAUDE_CODE), odd_lines()) | st.tuples(
    st.just(CODEX), odd_rollouts()
)


@given(odd_sessions, st.sampled_from([0, 1, 40, 500]), st.sampled_from([0, 10]))
@settings(max_examples=8)
def test_whatever_stands_anywhere_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    session: tuple[Kind, list[dict[str, Any]]],
    shortest: int,
    kept: int,
) -> None:
    home = Home.of(session[0], tmp_path_factory.mktemp("odd"), session[1])
    caller = make_caller(home.layout, Clock())
    old = home.path.read_bytes()
    wish = EVERYTHING | {"min_value_length": shortest, "keep_chars": kept}
    result = caller.extract(home.name, overrides=wish)
    assert result.status in (Status.EXTRACTED, Status.UNCHANGED), result
    if not kept and result.values:
        assert away(old, home.path.read_bytes()) == result.values
    performed.restore_all(caller, home.name)
    assert without_restored(home.path.read_bytes()) == old
