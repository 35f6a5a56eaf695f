"""bsd's additions to OpenClaw's own files: MCP server and skill."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bsd.core.locations import find_root, usual_roots
from bsd.transcripts.agents.setup_files import (
    SKILL_NAME,
    Addition,
    AgentSetup,
    JsonMember,
    SetupCommands,
    SetupPart,
    WholeFile,
)

_MAIN = "main"  # the agent that every OpenClaw has
# The first release that is known to accept `mcp`; older ones do not start with unknown keys.
_KNOWS_MCP = (2026, 4)
_VERSION = re.compile(r"([0-9]{4})\.([0-9]{1,2})\.")


def root_directory(environ: Mapping[str, str]) -> Path:
    """Return OpenClaw's directory, which is bsd's root if it exists."""
    openclaw, _ = usual_roots(environ)
    named = any(environ.get(name) for name in ("OPENCLAW_ROOT", "BRAINSURGEON_AGENTS_DIR"))
    return find_root(None, environ) if named else openclaw


def additions(commands: SetupCommands, environ: Mapping[str, str]) -> list[Addition]:
    """Return bsd's additions to the files of a user of OpenClaw."""
    directory = root_directory(environ)
    program, *arguments = commands.mcp
    server = {"command": program, "args": [*arguments, "--agent", _agent(directory / "agents")]}
    file, skill = directory / "openclaw.json", directory / "skills" / SKILL_NAME
    return [
        JsonMember(SetupPart.MCP, file, ("mcp", "servers", "bsd"), server, why_not=_why_not),
        *(
            WholeFile(SetupPart.SKILL, skill / name, f"openclaw/{name}")
            for name in ("SKILL.md", "replace-guide.md")
        ),
    ]


def _agent(agents: Path) -> str:
    """Return the agent that the tools serve: the only agent, or the main agent of several."""
    try:
        found = [each.name for each in agents.iterdir() if (each / "sessions").is_dir()]
    except OSError:
        return _MAIN
    return found[0] if len(found) == 1 else _MAIN


def _why_not(config: Mapping[str, Any]) -> str | None:
    """Return why this OpenClaw may not accept the key, by the version that wrote the file."""
    if "mcp" in config:
        return None
    meta = config.get("meta")
    version = meta.get("lastTouchedVersion") if isinstance(meta, dict) else None
    found = _VERSION.match(version) if isinstance(version, str) else None
    if found and (int(found[1]), int(found[2])) >= _KNOWS_MCP:
        return None
    return (
        "it does not state that its OpenClaw is 2026.4 or newer, and older versions do not start"
        " with a key that it does not know"
    )


SETUP = AgentSetup("OpenClaw", root_directory, additions, is_root=True)
