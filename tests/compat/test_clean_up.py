"""Claude Code deletes its old sessions soon after it has started: each one comes back."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.compat.claude_code import ClaudeCode
from tests.compat.messages_api import asking
from tests.daemon.running import running

pytestmark = pytest.mark.compat

SESSIONS = 40
DAY = 24 * 3600.0
# Ends when no file matches any more, or in time for the program to be run once more: its clean-up
# begins some seconds after it, but not in each run (on a busy machine its own settings come late).
WAIT_UNTIL_GONE = """
import glob, sys, time
end = time.monotonic() + 20
while glob.glob(sys.argv[1]) and time.monotonic() < end:
    time.sleep(0.1)
"""
MOST_RUNS = 8

State = dict[Path, tuple[bytes, int]]


@pytest.fixture
def project(claude: ClaudeCode, session: str) -> Path:
    """A project with old sessions, each with a subagent and a tool result in files of their own.

    Their program deletes sessions that are older than a day.
    """
    task = {
        "description": "Count",
        "prompt": "Count.",
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    many = {"command": "seq -f %0200.0f 1 900", "description": "Count"}
    claude.run(asking("Count.", ("Bash", many), ("Task", task)), "--resume", session)
    path = claude.path(session)
    mine = [path, *(each for each in path.with_suffix("").rglob("*") if each.is_file())]
    assert {each.parent.name for each in mine} >= {"subagents", "tool-results"}
    for number in range(SESSIONS):
        other = old_session(number)
        for each in mine:
            to = Path(str(each).replace(session, other))
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(each.read_bytes().replace(session.encode(), other.encode()))
            then = time.time() - DAY * (1.5 + number)
            os.utime(to, (then, then))
    settings = claude.beside.source.parent / "settings.json"
    settings.write_text(json.dumps({"cleanupPeriodDays": 1}))
    return path.parent


def old_session(number: int) -> str:
    return f"{number:08x}-a2ea-4c14-9efa-87158ebd9f20"


def old_files(project: Path) -> State:
    """The files of all old sessions, with their bytes and times."""
    found = project.glob("000000*/**/*"), project.glob("000000*.jsonl")
    paths = [path for paths in found for path in paths if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def clean_up(claude: ClaudeCode, project: Path, tmp_path: Path) -> None:
    """Run Claude Code until it has deleted all old sessions."""
    script = tmp_path / "wait_until_gone.py"
    script.write_text(WAIT_UNTIL_GONE)
    words = [sys.executable, str(script), f"{project}/000000*"]
    call = {"command": shlex.join(words), "description": "Wait", "timeout": 60_000}
    for _ in range(MOST_RUNS):
        claude.run(asking("Wait.", ("Bash", call)))
        if not old_files(project):
            return
    raise AssertionError(f"it has not deleted {sorted(old_files(project))}")


def bsd(claude: ClaudeCode, *arguments: str, codes: tuple[int, ...] = (0,)) -> Any:
    """What a command answers that ends with one of these codes."""
    where = ("--root", str(claude.beside.root), "--json")
    done = forked.run(*where, *arguments, env=claude.beside.environment)
    assert done.returncode in codes, done.stderr
    return json.loads(done.stdout)


def bring_all_back(claude: ClaudeCode) -> None:
    gone = bsd(claude, "archive", "list", "--limit", "1000")["sessions"]
    heads = [one["session"] for one in gone if one["parent"] is None]
    assert len(heads) == SESSIONS
    for head in heads:
        assert "unavailable" not in bsd(claude, "archive", "bring-back", head)


def test_after_the_daemon_has_started(claude: ClaudeCode, project: Path, tmp_path: Path) -> None:
    before = old_files(project)
    home = {"XDG_CONFIG_HOME": str(claude.beside.home / ".config")}
    with running(claude.beside.root, tmp_path, **home):
        clean_up(claude, project, tmp_path)
    bring_all_back(claude)
    assert old_files(project) == before


def test_after_archive_keep_without_a_daemon(
    claude: ClaudeCode, project: Path, tmp_path: Path
) -> None:
    before = old_files(project)
    # The session that was written to just now counts as in use.
    kept = bsd(claude, "archive", "keep", codes=(0, 4))
    assert kept["copied"] >= 2 * SESSIONS
    clean_up(claude, project, tmp_path)
    bring_all_back(claude)
    assert old_files(project) == before
