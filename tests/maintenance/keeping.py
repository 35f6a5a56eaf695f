"""Sessions that tests delete, and the days that pass before."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsd.core.layout import Layout, SessionName
from bsd.maintenance.bring_back import BroughtBack
from bsd.maintenance.bring_back import bring_back as bring_back_snapshot
from bsd.maintenance.deleted_sessions import find_deleted
from bsd.maintenance.snapshots import SnapshotTotals, take_snapshots
from bsd.sessions.idle import RetryBudget
from tests.openclaw_tree import set_idle
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_lines, subagent_lines
from tests.transcripts.agents.sources.tree import Home, raw

DAY = 24 * 3600.0


def keep(layout: Layout, clock: Clock, **more: Any) -> SnapshotTotals:
    """Run the job once."""
    budget = RetryBudget(wait=0.0, clock=clock.now, sleep=clock.sleep)
    return take_snapshots(layout, more.pop("keep", "180d"), budget, **more)


def bring_back(layout: Layout, text: str, clock: Clock, **more: Any) -> BroughtBack:
    budget = RetryBudget(wait=0.0, clock=clock.now, sleep=clock.sleep)
    return bring_back_snapshot(layout, find_deleted(layout, text), budget=budget, **more)


def extract(layout: Layout, name: SessionName, clock: Clock, **more: object) -> None:
    """Extract everything that may leave; the file keeps its age. `more`: settings."""
    path = layout.session_file(name)
    then = path.stat().st_mtime_ns
    make_caller(layout, clock).extract(name, overrides={"keep_recent": 0, **more})
    clock.ahead += 120  # a minute has passed since the file was displaced
    make_caller(layout, clock).recover()
    os.utime(path, ns=(then, then))


@dataclass(frozen=True)
class ClaudeHome:
    """Claude Code's directory with many sessions, and the original content of each file."""

    layout: Layout
    source: Path
    names: list[SessionName]
    files: dict[Path, tuple[bytes, int, int]]

    @classmethod
    def of(cls, top: Path, sessions: int, *, small: bool = False) -> ClaudeHome:
        """Each session is two days old or more, with two subagents, a workflow and long results.

        With `small`, it has a single subagent and long results only.
        """
        first = Home.of(CLAUDE_CODE, top, claude_code_lines())
        source, project = first.source, first.path.parent
        first.path.unlink()
        names = []
        for number in range(sessions):
            session = f"{number:08x}-a2ea-4c14-9efa-87158ebd9f20"
            names.append(SessionName(first.name.agent, session))
            own = {
                f"{session}.jsonl": _as_of(claude_code_lines(3), session, number),
                f"{session}/subagents/agent-a{number:x}1.jsonl": _as_of(
                    subagent_lines(3, f"a{number:x}1"), session, number
                ),
                f"{session}/subagents/agent-a{number:x}1.meta.json": b'{"agentType":"Explore"}',
                f"{session}/subagents/agent-a{number:x}2.jsonl": _as_of(
                    subagent_lines(1, f"a{number:x}2"), session, number
                ),
                f"{session}/subagents/workflows/wf_1/agent-b{number:x}.jsonl": _as_of(
                    subagent_lines(2, f"b{number:x}"), session, number
                ),
                f"{session}/subagents/workflows/wf_1/journal.jsonl": b'{"type":"started"}\n',
                f"{session}/tool-results/toolu_1.txt": b"result %d\n" % number * 900,
            }
            if small:
                own = {name: own[name] for name in list(own)[:2] + list(own)[-1:]}
            for name, content in own.items():
                path = project / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                path.chmod(0o600 if number % 2 else 0o644)
                set_idle(path, DAY * (2 + number))
        files = {
            path: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
            for path in project.rglob("*")
            if path.is_file()
        }
        return cls(first.layout, source, names, files)

    def subagents(self, name: SessionName) -> list[SessionName]:
        number = f"{int(name.session[:8], 16):x}"
        agent = f"{name.agent}:{name.session}"
        return [
            SessionName(agent, f"agent-a{number}1"),
            SessionName(agent, f"agent-a{number}2"),
            SessionName(f"{agent}:wf_1", f"agent-b{number}"),
        ]

    def delete_older_than(self, days: float) -> int:
        """Delete as Claude Code does when it starts: by the age of each file, then empty
        directories.
        """
        deleted = 0
        for path in [each for each in self.source.rglob("*") if each.is_file()]:
            if time.time() - path.stat().st_mtime > days * DAY:
                path.unlink()
                deleted += 1
        for path in sorted(self.source.rglob("*"), reverse=True):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        return deleted

    def now(self) -> dict[Path, tuple[bytes, int, int]]:
        return {
            path: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
            for path in self.source.rglob("*")
            if path.is_file()
        }


def _as_of(lines: list[dict[str, Any]], session: str, number: int) -> bytes:
    """The lines of a session; no other session has the same."""
    content = raw(lines).replace(CLAUDE_CODE.session.encode(), session.encode())
    content = re.sub(rb"00000000-0000-4000-8000-", b"%08x-0000-4000-8000-" % number, content)
    return content.replace(b"do it", b"do it, number w%dord" % number)
