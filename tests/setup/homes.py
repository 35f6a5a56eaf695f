"""A home in which all four agents have sessions, and configurations in different forms."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from bsd.core.layout import Layout
from bsd.core.settings import load_settings
from bsd.setup.additions import SetupContext
from bsd.setup.commands import setup_commands
from bsd.transcripts.agents.programs import layout_of
from tests.openclaw_tree import set_idle
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import raw

AGENTS = ("claude-code", "codex", "pi", "openclaw")

# Each has a different form: tabs, a single line, comments, CRLF, no final newline.
CONFIGURATIONS = {
    ".claude.json": b'{\n\t"numStartups": 4,\n\t"projects": {"/home/me": {"mcpServers": {}}}\n}\n',
    ".claude/settings.json": b'{"model": "opus", "permissions": {"allow": ["Bash(ls)"]}}',
    ".codex/config.toml": b'# mine\r\nmodel = "gpt-6"   # the good one\r\n\r\n[features]\r\nx=true',
    ".openclaw/openclaw.json": (
        b'{\n  "meta": {\n    "lastTouchedVersion": "2026.7.1"\n  },\n'
        b'  "mcp": {"servers": { }}\n}\n'
    ),
}

_THREAD = "rollout-2026-11-25T10-00-00-5c0f1a2b-0000-4000-8000-000000000002.jsonl"
CLAUDE_SESSION = ".claude/projects/-home-me/5c0f1a2b-0000-4000-8000-000000000001.jsonl"
_SESSIONS = (
    CLAUDE_SESSION,
    f".codex/sessions/2026/11/25/{_THREAD}",
    ".pi/agent/sessions/--home-me--/2026-11-25_5c0f.jsonl",
    ".openclaw/agents/main/sessions/4f2a.jsonl",
)


def fill_home(home: Path, *, configured: bool = True) -> Path:
    """Give each agent a session and a configuration; pi gets none, since it need not have any."""
    for name in _SESSIONS:
        path = home / name
        path.parent.mkdir(parents=True)
        path.write_bytes(raw(claude_code_lines()))
        set_idle(path)
    for name, content in CONFIGURATIONS.items() if configured else ():
        (home / name).write_bytes(content)
    if configured:
        (home / ".claude.json").chmod(0o600)
    return home


def foreign(home: Path) -> dict[str, tuple[int, bytes | None]]:
    """Return mode and content of the home's files except bsd's; of directories the mode."""
    found = {}
    for path in sorted(home.rglob("*")):
        name = str(path.relative_to(home))
        if ".brainsurgeon" in name or name.startswith((".local", ".openclaw/logs")):
            continue
        mode = path.lstat().st_mode
        found[name] = (mode, path.read_bytes() if stat.S_ISREG(mode) else None)
    return found


def context_of(home: Path) -> SetupContext:
    """Return the input of `bsd agents` for this home, as it is now."""
    settings = load_settings()
    layout: Layout = layout_of(settings.root, settings.sources)
    commands = setup_commands((), settings.socket)
    return SetupContext(layout, home / ".config" / "bsd" / "bsd.toml", os.environ, commands)
