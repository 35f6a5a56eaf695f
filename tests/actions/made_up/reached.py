"""Goes through all doors with the verb that was made up, and says what they answered."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from bsd.cli.main import run
from bsd.core.layout import Layout
from bsd.mcp.transcript_calls import own_tool_name
from bsd.planning.rules import own_tool
from tests.http.api import over_socket, serving
from tests.mcp.conftest import Agent, Desk, call

_TOOL = "mcp__bsd__star_entry"


def all_doors(root: str) -> dict[str, Any]:
    """What each door did with an entry of its own."""
    desk = Desk(Layout(Path(root)))
    desk.path.parent.mkdir(parents=True)
    agent = Agent(desk)
    first, second, third, fourth = (agent.user(f"number {number}") for number in range(4))
    agent.calls(("c1", _TOOL, {"entry": first}))
    agent.result("c1", _TOOL, "Tool not found", error=True)
    agent.says("done")
    desk.look()
    said = io.StringIO()
    answers = {"tool": call(desk, "star_entry", session="s1", entry=second)}
    desk.rest()
    with redirect_stdout(said):
        code = run(["--root", root, "star", "main/s1", third, "--json"])
    desk.rest()
    with serving(Path(root)) as (_, settings):
        path = f"/api/sessions/main/s1/entries/{fourth}/star"
        status, answers["route"] = over_socket(settings.socket, path, "POST")
        _, document = over_socket(settings.socket, "/api/openapi.json")
    return {
        "codes": [code, status],
        "answers": {**answers, "command": json.loads(said.getvalue())},
        "marked": [one["id"] for one in desk.entries() if one.get("_star")],
        "asked": [first, second, third, fourth],
        "described": "Starred" in document["components"]["schemas"],
        "known": [own_tool(_TOOL), own_tool_name(_TOOL, {})],
    }
