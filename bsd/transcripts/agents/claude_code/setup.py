"""bsd's additions to Claude Code's own files: MCP server, skill, hooks, permission."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bsd.core.locations import expand, home
from bsd.transcripts.agents.setup_files import (
    Addition,
    JsonElement,
    JsonMember,
    SetupCommands,
    SetupPart,
    tools_skill,
)

# After Stop and SessionEnd a session is idle; SessionStart tells the model of values to restore.
_HOOKS = {"Stop": None, "SessionEnd": None, "SessionStart": "resume|compact"}
_HOOK_SECONDS = 2  # the script returns within 50 ms
_PERMISSION = "mcp__bsd"


def additions(commands: SetupCommands, environ: Mapping[str, str]) -> list[Addition]:
    """Return bsd's additions to the files of a user of Claude Code."""
    directory = expand(environ.get("CLAUDE_CONFIG_DIR") or "~/.claude", environ)
    settings = directory / "settings.json"
    own = _global_file(directory, environ)
    program, *arguments = commands.mcp
    server = {"type": "stdio", "command": program, "args": arguments, "env": {}}
    lock = own.with_name(f"{own.name}.lock")
    hooks = [_hook(settings, event, commands) for event in _HOOKS] if commands.hook else []
    return [
        JsonMember(SetupPart.MCP, own, ("mcpServers", "bsd"), server, lock=lock),
        tools_skill(directory / "skills"),
        *hooks,
        JsonElement(
            SetupPart.PERMISSION, settings, ("permissions", "allow"), _PERMISSION, _PERMISSION
        ),
    ]


def _global_file(directory: Path, environ: Mapping[str, str]) -> Path:
    """Return the file in which Claude Code keeps its global state; it lies beside its directory."""
    older = directory / ".config.json"
    if os.path.lexists(older):
        return older
    return (directory if environ.get("CLAUDE_CONFIG_DIR") else home(environ)) / ".claude.json"


def _hook(settings: Path, event: str, commands: SetupCommands) -> JsonElement:
    command = {"type": "command", "command": commands.hook, "timeout": _HOOK_SECONDS}
    matcher = _HOOKS[event]
    value = ({"matcher": matcher} if matcher else {}) | {"hooks": [command]}
    return JsonElement(
        SetupPart.HOOKS, settings, ("hooks", event), value, mark=commands.hook_script
    )
