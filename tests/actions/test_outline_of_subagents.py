"""Sub-agents in the outline of a session: below the call that started them, with their sizes."""

from __future__ import annotations

import json
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
from tests.transcripts.agents.sources.codex import CODEX, codex_line, codex_meta, codex_turn
from tests.transcripts.agents.sources.tree import Home, raw

KEY = "agent:main:subagent:n"


def context_of(layout: Layout) -> ActionContext:
    return ActionContext(layout=layout, config=ConfigService(layout.config_file, create=False))


def tree(found: tuple[Subagent, ...]) -> list[Any]:
    return [(one.session.rpartition("/")[2], one.call_index, tree(one.subagents)) for one in found]


def starting(number: int, agent: str) -> list[dict[str, Any]]:
    """Return a call of a sub-agent, and the result that names it."""
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
    deeper = [one | {"isSidechain": True, "agentId": "a3"} for one in starting(30, "a5")]
    for agent, more in (("a1", []), ("a2", inner), ("a3", deeper), ("a4", []), ("a5", [])):
        path = below / f"agent-{agent}.jsonl"
        path.write_bytes(raw([*subagent_lines(1, agent), *more]))
    context = context_of(home.layout)
    outline = outline_session(context, home.name)

    # No call names a4: it began before the first call was made.
    assert tree(outline.subagents) == [
        ("agent-a1", 15, []),
        ("agent-a2", 17, [("agent-a3", 4, [("agent-a5", 4, [])])]),
        ("agent-a4", None, []),
    ]
    sizes = {path.stem: path.stat().st_size for path in below.iterdir()}
    second = outline.subagents[1]
    assert second.total_size == sum(sizes[f"agent-{agent}"] for agent in ("a2", "a3", "a5"))
    assert outline.total.sessions == 6
    assert outline.total.size == outline.size + sum(sizes.values())
    [agent] = {SessionName.parse(one.session).agent for one in outline.subagents}
    inside = outline_session(context, SessionName(agent, "agent-a2"))
    assert tree(inside.subagents) == [("agent-a3", 4, [("agent-a5", 4, [])])]
    assert inside.total.sessions == 3
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
    assert tree(outline.subagents) == [("child", 2, [])]
    assert outline.total.sessions == 2


def test_sub_agents_of_sub_agents_of_a_root(tmp_path: Path) -> None:
    """The result of a call names one subagent; the times tell the calls of the others."""
    header, *lines = turns()
    spawn = lines[2] | {"message": lines[2]["message"] | {"details": {"childSessionKey": KEY}}}
    late = {"timestamp": "2026-01-05T09:00:35.000Z"}
    sessions = {
        "head": [header, *lines],
        "child": [header, lines[0], lines[1], spawn, *lines[3:]],
        "named": [header, lines[0] | late],
        "timed": [header, lines[0] | late],
    }
    for name, content in sessions.items():
        add_session(tmp_path, f"main/{name}", raw(content))
    listed = {
        "agent:main:main": {"sessionId": "head"},
        "agent:main:subagent:c": {"sessionId": "child", "parentSessionId": "head"},
        KEY: {"sessionId": "named", "parentSessionId": "child"},
        "agent:main:subagent:t": {"sessionId": "timed", "spawnedBy": "agent:main:subagent:c"},
    }
    path = tmp_path / "agents" / "main" / "sessions" / "sessions.json"
    path.write_text(json.dumps(listed))
    outline = outline_session(context_of(layout_of(tmp_path, [])), SessionName("main", "head"))
    # The child began before the head made a call; `timed` after the second call of the child.
    assert tree(outline.subagents) == [("child", None, [("named", 2, []), ("timed", 4, [])])]
    [child] = outline.subagents
    assert child.total_size == outline.total.size - outline.size


def test_threads_that_codex_has_started_stand_below_their_calls(tmp_path: Path) -> None:
    threads = [f"01997e76-d124-7592-9cac-2ec05abbca{number:02}" for number in range(3)]

    def lines(number: int) -> list[dict[str, Any]]:
        call = {"type": "function_call", "name": "spawn_agent", "arguments": "{}", "call_id": "c"}
        if number == 0:  # by the event
            told = {"type": "collab_agent_spawn_end", "call_id": "c", "new_thread_id": threads[1]}
            end = codex_line(3, "event_msg", **told)
        else:  # by the result
            output = json.dumps({"agent_id": threads[2]})
            told = {"type": "function_call_output", "call_id": "c", "output": output}
            end = codex_line(3, "response_item", **told)
        started = [codex_line(2, "response_item", **call), end] if number < 2 else []
        return [codex_meta(), *codex_turn(5), *started]

    home = Home.of(CODEX, tmp_path, lines(0))
    for number in (1, 2):  # the last of them on another day
        path = home.source / f"2025/09/2{3 + number}/{home.path.stem[:-36]}{threads[number]}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(raw(lines(number)))
    outline = outline_session(context_of(home.layout), home.name)
    names = [f"{home.path.stem[:-36]}{thread}" for thread in threads]
    assert tree(outline.subagents) == [(names[1], 16, [(names[2], 16, [])])]
    assert outline.total.sessions == 3
