"""A user's home directory with sessions of all agents, at their programs' paths."""

from __future__ import annotations

from pathlib import Path

from tests.openclaw_tree import add_session, set_idle
from tests.session_files import sample
from tests.transcripts.agents.sources import CLAUDE_CODE, CODEX, PI
from tests.transcripts.agents.sources.claude_code import claude_code_lines, subagent_lines
from tests.transcripts.agents.sources.tree import Kind, raw

DAY = 86_400.0
ALL = (CLAUDE_CODE, CODEX, PI)


def add_agent(home: Path, kind: Kind, *, days: float = 0.1) -> Path:
    """Give a program a session, last written this many days ago; return its path."""
    path = home / kind.sessions / kind.directory / f"{kind.session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw(kind.lines()))
    set_idle(path, days * DAY)
    return path


def add_claude_session(home: Path, number: int, *, days: float, turns: int = 3) -> Path:
    """Give Claude Code a session with a subagent, written this many days ago."""
    project = home / CLAUDE_CODE.sessions / CLAUDE_CODE.directory
    session = f"{number:08x}-a2ea-4c14-9efa-87158ebd9f20"
    path = project / f"{session}.jsonl"
    part = project / session / "subagents" / f"agent-a{number:x}.jsonl"
    part.parent.mkdir(parents=True)
    for file, lines in ((path, claude_code_lines(turns)), (part, subagent_lines(3))):
        content = raw(lines).replace(CLAUDE_CODE.session.encode(), session.encode())
        file.write_bytes(
            content.replace(b"00000000-0000-4000-8000-", b"%08x-0000-4000-8000-" % number)
        )
        set_idle(file, days * DAY)
    return path


def add_openclaw(home: Path, turns: int = 12) -> Path:
    """Give OpenClaw a session; return its path."""
    return add_session(home / ".openclaw", "main/sample", sample(turns))


def add_all(home: Path) -> list[Path]:
    """Give all four programs a session; return the paths."""
    return [*(add_agent(home, kind) for kind in ALL), add_openclaw(home)]
