"""What is written for OpenClaw's agents is true: names, rules, and examples that work."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import bsd
from bsd.cli.agent_tools import mcp_command
from bsd.cli.commands import COMMANDS
from bsd.mcp.arguments import read_arguments
from bsd.mcp.memory_tools import MemoryTools
from bsd.mcp.server import INSTRUCTIONS
from bsd.mcp.tools import TOOLS
from bsd.mcp.transcript_commands import find_shell_command
from bsd.planning.replace import plan_replace
from bsd.planning.targets import Refused, Replacement
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.reader import BytesTranscript
from tests.session_files import HEADER, jsonl

HOME = Path(__file__).parents[2] / "contrib" / "openclaw"
SKILL = HOME / "skills" / "brainsurgeon"
TOOLS_SKILL = Path(bsd.__file__).parent / "setup" / "skills" / "tools" / "SKILL.md"


def fenced(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)


def test_the_skill_has_valid_frontmatter() -> None:
    head, body = (SKILL / "SKILL.md").read_text().removeprefix("---\n").split("\n---\n", 1)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert set(fields) == {"name", "description", "metadata"}
    assert fields["name"] == SKILL.name
    assert re.fullmatch(r"[a-z0-9-]{1,64}", fields["name"])
    assert 50 < len(fields["description"]) <= 1024
    assert ": " not in fields["description"], "YAML would read a map"
    assert json.loads(fields["metadata"]) == {"openclaw": {"requires": {"bins": ["bsd"]}}}
    assert body.lstrip().startswith("# ")


def test_the_skill_for_tools_names_tools_that_there_are() -> None:
    head, body = TOOLS_SKILL.read_text().removeprefix("---\n").split("\n---\n", 1)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert set(fields) == {"name", "description"}
    assert 50 < len(fields["description"]) <= 1024
    called = re.findall(r"^\| .* \| `(\w+)`", body, re.MULTILINE)
    assert len(called) == 5
    assert set(called) <= set(TOOLS)
    shell = re.findall(r"`bsd (\w+)", body)
    assert set(shell) <= set(COMMANDS)
    assert "restore_remote" in shell


@pytest.mark.parametrize("page", [SKILL / "SKILL.md", HOME / "README.md"])
def test_every_command_exists(page: Path) -> None:
    lines = [line for block in fenced(page, "bash") for line in block.splitlines() if line]
    ours = [line.partition("#")[0] for line in lines if line.startswith("bsd ")]
    assert ours or page.name == "README.md"
    for line in ours:
        words = line.split()
        assert words[1] in COMMANDS, line
        if words[1] in {"restore_remote", "purge_control"}:
            command = find_shell_command(line)
            assert command is not None
            read_arguments(TOOLS[command.tool], command.arguments)


def test_the_table_of_calls_is_of_tools_that_there_are() -> None:
    rows = re.findall(r"^\| (.*?) \|", (HOME / "README.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(named) >= 5
    assert named <= set(TOOLS)


def test_help_names_every_tool() -> None:
    told = " ".join((mcp_command.help or "").split())
    assert [name for name in TOOLS if not re.search(rf"\b{name}\b", told)] == []
    public = [name for name in vars(MemoryTools) if not name.startswith("_")]
    assert all(name.startswith("memory_") for name in public)


def test_the_instructions_are_those_of_the_server() -> None:
    page = (HOME / "agent-instructions.md").read_text().splitlines()
    told = INSTRUCTIONS.splitlines()
    assert [line for line in told if line.startswith("- ") and line not in page] == []
    assert len(told[2:]) == 5


# --- the guide to replace ---

GUIDE = SKILL / "replace-guide.md"
# What stands between the markers, where that matters.
BETWEEN = {"a quick brown fox": {"jumps over": " ", "jumps over the lazy dog": " "}}


def targets() -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for block in fenced(GUIDE, "json"):
        document: dict[str, Any] = json.loads(block)
        found += document.get("targets", [document])
    return found


def replaced(target: dict[str, str]) -> None:
    between = BETWEEN.get(target["start"], {}).get(target["end"], "\nmuch that is dealt with\n")
    text = f"before {target['start']}{between}{target['end']} after"
    content = [{"type": "text", "text": text}]
    result = {"role": "toolResult", "toolCallId": "c", "toolName": "read", "content": content}
    entry = {"type": "message", "id": "r", "message": result}
    last = {"role": "assistant", "stopReason": "stop", "content": [{"type": "text", "text": "ok"}]}
    session = jsonl(HEADER, entry, {"type": "message", "id": "a", "message": last})
    plan, _ = plan_replace(BytesTranscript(session), OPENCLAW, [Replacement(**target)])
    (edit,) = plan.edits
    shown = json.loads(edit.new)["message"]["content"][0]["text"]
    assert shown == f"before {target['replacement']} after"


def test_its_examples_work() -> None:
    examples = targets()
    assert len(examples) >= 8
    too_short = [one for one in examples if one["end"] == "jumps over"]
    for target in examples:
        if target not in too_short:
            replaced(target)
    assert len(too_short) == 1
    with pytest.raises(Refused, match="28"):
        replaced(too_short[0])


# --- Claude Code ---


def test_claude_codes_agents_are_told_of_mcp_and_of_the_rule_that_allows_it() -> None:
    page = HOME.parent / "claude-code" / "README.md"
    (settings,) = map(json.loads, fenced(page, "json"))
    assert settings == {"permissions": {"allow": ["mcp__bsd", "mcp__plugin_bsd_bsd"]}}
    commands = [line for block in fenced(page, "bash") for line in block.splitlines()]
    assert commands == ["claude mcp add --scope user bsd -- bsd mcp"]
    guide = (HOME.parent / "docs" / "start" / "claude-code.md").read_text()
    assert commands[0] in guide
    assert '"allow": ["mcp__bsd"]' in guide
    for name in re.findall(r"`mcp__bsd__(\w+)`", page.read_text()):
        assert name in TOOLS
