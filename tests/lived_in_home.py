"""A home in which two agents have worked for weeks, for the tests of users' tasks.

OpenClaw has the largest session. Claude Code has two projects, a session that it will delete by
its age, and a session whose file has vanished.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bsd.core.layout import SessionName
from bsd.core.settings import SourceSettings
from bsd.sample import session_lines
from bsd.transcripts.agents.programs import layout_of
from tests.daemon.running import configure
from tests.http.web.sample import recent, text
from tests.maintenance.keeping import extract, keep
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import Clock

SHOP = "claude-code:-home-me-shop"
SECRET = "claude-code:-home-me-secret"
LOGIN = f"{SHOP}/1a6e0001-0000-4000-8000-000000000001"
OLD = f"{SHOP}/1a6e0003-0000-4000-8000-000000000003"
LARGEST = "main/harbour"
VANISHED = f"{SHOP}/1a6e0004-0000-4000-8000-000000000004"
SEEN = "def authenticate(quokka):"  # part of a long file that a model has read
_FILE = f"{SEEN}\n" + "    assert quokka.has_paid()\n" * 60


def make_home(home: Path) -> Path:
    """Fill a home; return bsd's root in it. bsd has extracted values from `LOGIN` alone."""
    root = home / ".openclaw"
    add_session(root, LARGEST, recent(session_lines(turns=8, seed=1)))
    listed = {"agent:main:harbour": {"sessionId": "harbour", "displayName": "The harbour master"}}
    (root / "agents/main/sessions/sessions.json").write_text(json.dumps(listed))
    _add_claude(home, LOGIN, "mend the login of the quokka", ago=timedelta(hours=2))
    _add_claude(home, f"{SECRET}/1a6e0002-0000-4000-8000-000000000002", "keep it", file="")
    _add_claude(home, OLD, "old", ago=timedelta(40))
    vanished = _add_claude(home, VANISHED, "Which ferry leaves?", file="")
    settings = home / ".config" / "bsd" / "bsd.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[[sources]]\nkind = "claude-code"\npath = "~/.claude/projects"\n')
    configure(root)
    clock = Clock()
    source = SourceSettings(kind="claude-code", path=home / ".claude/projects")
    layout = layout_of(root, [source])
    extract(layout, SessionName.parse(LOGIN), clock)
    keep(layout, clock)
    vanished.unlink()
    return root


def path_of(home: Path, name: str) -> Path:
    """The file of a session of Claude Code."""
    agent, _, session = name.partition("/")
    return home / ".claude/projects" / agent.partition(":")[2] / f"{session}.jsonl"


def _add_claude(
    home: Path, name: str, asked: str, *, file: str = _FILE, ago: timedelta = timedelta(2)
) -> Path:
    path = path_of(home, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_claude_lines(name, asked, file, datetime.now(UTC) - ago))
    set_idle(path, ago.total_seconds())
    return path


def _claude_lines(name: str, asked: str, file: str, end: datetime) -> bytes:
    """A prompt, a file read, and later turns, so that the read content may leave."""
    agent, _, session = name.partition("/")
    project = agent.partition(":")[2].replace("-", "/")
    path = {"file_path": f"{project}/src/auth.py"}
    read = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": path}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": file}
    turns: list[tuple[str, Any, str | None]] = [
        ("user", asked, None),
        ("assistant", [read], "tool_use"),
        ("user", [result], None),
        ("assistant", [text("It checks who has paid.")], "end_turn"),
    ]
    for number in range(4):
        turns += [
            ("user", f"and then, {number}?", None),
            ("assistant", [text(f"It is done, {number}.")], "end_turn"),
        ]
    lines = []
    for at, (role, content, stop) in enumerate(turns):
        said: dict[str, Any] = {"role": role, "content": content}
        if role == "assistant":
            said |= {"model": "claude-opus-4-6", "id": f"msg_{at}", "stop_reason": stop}
        line = {
            "parentUuid": f"{session[:8]}-0000-4000-8000-{at - 1:012}" if at else None,
            "isSidechain": False,
            "sessionId": session,
            "cwd": project,
            "version": "2.1.330",
            "type": role,
            "message": said,
            "uuid": f"{session[:8]}-0000-4000-8000-{at:012}",
            "timestamp": (end - timedelta(seconds=20 * (len(turns) - at))).isoformat(),
        }
        lines.append(json.dumps(line).encode() + b"\n")
    return b"".join(lines)
