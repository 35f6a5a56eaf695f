"""The plugin of Claude Code in contrib/claude-code: complete, and up to date with bsd."""

from __future__ import annotations

import json
import re
from typing import Any

import bsd
from bsd.mcp.tools import TOOLS
from bsd.setup import claude_hook
from bsd.transcripts.agents.programs import kind_of
from tests.packaging.units import TOP

_PLUGIN = TOP / "contrib" / "claude-code"


def read(name: str) -> Any:
    return json.loads((_PLUGIN / name).read_bytes())


def test_it_is_the_plugin_of_this_version() -> None:
    plugin = read(".claude-plugin/plugin.json")
    assert plugin["version"] == bsd.__version__
    [listed] = read(".claude-plugin/marketplace.json")["plugins"]
    assert (listed["name"], listed["source"]) == (plugin["name"], "./")
    assert listed["description"] == plugin["description"]


def test_its_hooks_are_those_that_bsd_knows_and_run_the_script() -> None:
    hooks = read("hooks/hooks.json")["hooks"]
    read_hook = kind_of("claude-code").read_hook
    for event, groups in hooks.items():
        [group] = groups
        for source in group.get("matcher", "other").split("|"):
            said = {"hook_event_name": event, "transcript_path": "/a", "source": source}
            assert read_hook(said), (event, source)
        [hook] = group["hooks"]
        assert hook["type"] == "command"
        found = re.fullmatch(r'python3 -I -S "\$\{CLAUDE_PLUGIN_ROOT\}/(.*)"', hook["command"])
        assert found
        script = (_PLUGIN / found[1]).read_bytes()
        assert script == (TOP / "bsd" / "setup" / "claude_hook.py").read_bytes()
    assert claude_hook.main.__doc__


def test_its_server_is_bsd_mcp_and_its_skill_names_tools_that_there_are() -> None:
    assert read(".mcp.json")["mcpServers"] == {"bsd": {"command": "bsd", "args": ["mcp"]}}
    skill = (_PLUGIN / "skills" / "brainsurgeon" / "SKILL.md").read_text(encoding="utf-8")
    for tool in ("restore", "search_extracted", "context"):
        assert tool in TOOLS
        assert f"`{tool}`" in skill
