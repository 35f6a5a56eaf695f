"""Claude Code, the released program, in a home of a test."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compat.beside import Beside
from tests.compat.install import NotInstalled, program
from tests.compat.messages_api import Model, asking
from tests.compat.terminal import Terminal, in_terminal

Json = dict[str, Any]

SESSIONS = ".claude/projects"
_KEY = "sk-ant-of-nobody"
NO_NETWORK = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}


@dataclass(frozen=True)
class ClaudeCode:
    """A version of the program, in a home."""

    beside: Beside
    program: tuple[str, ...]

    def run(self, prompt: str, *options: str, cwd: Path | None = None) -> str:
        """Let the program answer a prompt without a terminal; return the session's id."""
        command = [*self.program, "-p", prompt, *options, "--output-format", "json", "--verbose"]
        done = self.beside.run(*command, "--dangerously-skip-permissions", cwd=cwd)
        last = json.loads(done.stdout)[-1]
        assert (last["type"], last["is_error"]) == ("result", False), last
        session: str = last["session_id"]
        return session

    @contextmanager
    def opened(self, *options: str) -> Iterator[Terminal]:
        """Run the program in a terminal; yield the terminal once it is ready and idle."""
        self._know_this_person()
        command = [*self.beside.user, *self.program, *options]
        with in_terminal(command, self.beside.work, self.beside.environment) as terminal:
            terminal.wait_for(self.is_idle, "Claude Code to be ready")
            yield terminal

    def is_idle(self) -> bool:
        """Return whether a process of the program reports that it is idle."""
        running = (self.beside.source.parent / "sessions").glob("[0-9]*.json")
        return any(b'"status":"idle"' in path.read_bytes() for path in running)

    def path(self, session: str) -> Path:
        """Return the path of a session."""
        [found] = self.beside.source.glob(f"*/{session}.jsonl")
        return found

    def _know_this_person(self) -> None:
        """Mark all questions of the program's first start as answered."""
        path = self.beside.source.parent / ".claude.json"
        known = json.loads(path.read_bytes()) if path.exists() else {}
        known["hasCompletedOnboarding"] = True
        known["theme"] = "dark"
        known["customApiKeyResponses"] = {"approved": [_KEY], "rejected": []}
        project = known.setdefault("projects", {}).setdefault(str(self.beside.work), {})
        project |= {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        path.write_text(json.dumps(known))


def newest() -> tuple[str, ...]:
    """Return the command of the newest version; raises NotInstalled."""
    found = sorted(program("@anthropic-ai").glob("claude-code-*/claude"))
    if not found:
        raise NotInstalled("npm has brought no Claude Code for this machine")
    return (str(found[0]),)


def old(node: str) -> tuple[str, ...]:
    """Return version 1.0.50's command, which rewrites resumed sessions; raises NotInstalled."""
    return (node, str(program("claude-code-1.0", "cli.js")))


def home(top: Path, work: Path, model: Model, user: list[str] | None = None) -> Beside:
    """Return an empty home for the program, with a root of bsd."""
    env = NO_NETWORK | {
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": _KEY,
        "CLAUDE_CONFIG_DIR": str(top / "home" / ".claude"),
        "IS_SANDBOX": "1",  # without it, root may not skip the program's questions
    }
    return Beside(top, "claude-code", SESSIONS, work, env, user or [])


def three_turns(claude: ClaudeCode) -> str:
    """Make a session of three turns; values of all but the last may leave. Return its id."""
    book = claude.beside.work / "book.txt"
    book.write_text("".join(f"{n} a line of a file that somebody reads\n" for n in range(300)))
    first = asking(
        "Read the book, and count.",
        ("Read", {"file_path": str(book)}),
        ("Bash", {"command": "seq 1 600", "description": "Count"}),
    )
    session = claude.run(first)
    long = "Once more; " + "and mind what I have said about it. " * 30
    again = ("Bash", {"command": "seq 1000 1400", "description": "Count on"})
    claude.run(asking(long, again), "--resume", session)
    claude.run("Thank you.", "--resume", session)
    return session


def lines_by_id(content: bytes) -> dict[str, bytes]:
    """Return the lines that have an id, by id."""
    found = {}
    for line in content.splitlines():
        if identity := json.loads(line).get("uuid"):
            found[identity] = line
    return found


_SESSION = re.compile(rb'"sessionId":"[^"]*"')
_PROMPT = re.compile(rb'"promptId":"[^"]*"')
# Forks and branches add these at the end of the copied line.
_ORIGIN = re.compile(
    rb',"requestSessionId":"[^"]*"|,"forkedFrom":\{"sessionId":"[^"]*","messageUuid":"[^"]*"\}'
)


def but_for_names(line: bytes) -> bytes:
    """A line without the members that differ in a copy: names of sessions and prompts."""
    return _ORIGIN.sub(b"", _PROMPT.sub(b'"promptId":""', _SESSION.sub(b'"sessionId":""', line)))
