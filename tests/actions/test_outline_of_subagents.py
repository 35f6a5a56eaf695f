"""Sub-agents in the outline of a session: below the call that started them, with their sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bsd.actions.context import ActionContext
from bsd.actions.session_outline import Subagent, outline_session
from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.transcripts.agents.programs import layout_of
from tests.openclaw_tree import add_session
from tests.planning.test_session_outline import turns
from tests.transcripts.agents.sources.claude_code import (
    CLAUDE_CODE,
    claude_code_line,
    claude_code_lines,
    subagent_lines,
)
from tests.transcripts.agents.sources.tree import Home, raw


def context_of(layout: Layout) -> ActionContext:
    return ActionContext(layout=layout, config=ConfigService(layout.config_file, create=False))


def starting(number: int, agent: str) -> list[dict[str, Any]]:
    """A call of a sub-agent, and the result that names it."""
    call = {"type": "tool_use", "id": f"toolu_t{number}", "name": "Task", "input": {"prompt": "go"}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_t{number}", "content": "It is done."}
    return [
        claude_code_line(number, "assistant", [call], stop_reason="tool_use"),
        claude_code_line(number + 1, "user", [result], toolUseResult={"agentId": agent}),
    ]


def test_sub_agents_stand_below_the_call_that_started_them(tmp_path: Path) -> None:
    lines = [*claude_code_lines(2), *starting(14, "a1"), *starting(16, "a2")]
    home = Home.of(CLAUDE_CODE, tmp_path, lines)
    below = home.path.with_suffix("") / "subagents"
    below.mkdir(parents=True)
    inner = [one | {"isSidechain": True, "agentId": "a2"} for one in starting(20, "a3")]
    for agent, more in (("a1", []), ("a2", inner), ("a3", []), ("a4", [])):
        path = below / f"agent-{agent}.jsonl"
        path.write_bytes(raw([*subagent_lines(1, agent), *more]))
    context = context_of(home.layout)
    outline = outline_session(context, home.name)

    def tree(found: tuple[Subagent, ...]) -> list[Any]:
        return [
            (one.session.rpartition("/")[2], one.call_index, tree(one.subagents)) for one in found
        ]

    # Nothing names the call of a4: it began before any call was made.
    assert tree(outline.subagents) == [
        ("agent-a1", 15, []),
        ("agent-a2", 17, [("agent-a3", 4, [])]),
        ("agent-a4", None, []),
    ]
    sizes = {path.stem: path.stat().st_size for path in below.iterdir()}
    second = outline.subagents[1]
    assert second.total_size == sizes["agent-a2"] + sizes["agent-a3"]
    assert outline.total.sessions == 5
    assert outline.total.size == outline.size + sum(sizes.values())
    [agent] = {SessionName.parse(one.session).agent for one in outline.subagents}
    inside = outline_session(context, SessionName(agent, "agent-a2"))
    assert tree(inside.subagents) == [("agent-a3", 4, [])]
    path = below / "agent-a1.jsonl"
    with path.open("ab") as file:
        file.write(raw(subagent_lines(1, "a1")[1:2]))
    again = outline_session(context, home.name)
    assert again.total.size > outline.total.size


def test_the_sub_agents_of_a_root_are_found_by_its_list_and_by_time(tmp_path: Path) -> None:
    lines = turns()
    add_session(tmp_path, "main/head", raw(lines))
    child = [lines[0], lines[1] | {"timestamp": "2026-01-05T09:00:15.000Z"}]
    add_session(tmp_path, "main/child", raw(child))
    listed = (
        '{"agent:main:main":{"sessionId":"head"},'
        '"agent:main:subagent:x":{"sessionId":"child","parentSessionId":"head"}}'
    )
    (tmp_path / "agents" / "main" / "sessions" / "sessions.json").write_text(listed)
    context = context_of(layout_of(tmp_path, []))
    outline = outline_session(context, SessionName("main", "head"))
    [found] = outline.subagents
    assert (found.session, found.call_index) == ("main/child", 2)
    assert outline.total.sessions == 2
