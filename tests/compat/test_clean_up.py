"""Claude Code deletes its old sessions soon after its start: bsd brings each of them back."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bsd.transcripts.agents.claude_code.history import project_name
from tests import forked
from tests.compat.claude_code import ClaudeCode
from tests.compat.messages_api import asking
from tests.daemon.running import running
from tests.waiting import wait_for

pytestmark = pytest.mark.compat

SESSIONS = 8  # in two projects
DAY = 24 * 3600.0
# Ends when no file matches any more, or early enough to run the program once more: its clean-up
# begins some seconds after the start, but not in each run (on a busy machine settings load late).
WAIT_UNTIL_GONE = """
import glob, sys, time
end = time.monotonic() + 20
while glob.glob(sys.argv[1]) and time.monotonic() < end:
    time.sleep(0.1)
"""
MOST_RUNS = 8

State = dict[Path, tuple[bytes, int]]


@dataclass(frozen=True)
class Projects:
    """Claude Code's directory with two projects, whose sessions are old."""

    claude: ClaudeCode
    where: tuple[Path, Path]  # the working directories

    @property
    def top(self) -> Path:
        return self.claude.beside.source

    def directory(self, number: int) -> Path:
        """The directory of a project's sessions."""
        return self.top / project_name(str(self.where[number]))

    def files(self, what: str = "000000*") -> State:
        """The files of all old sessions, with their bytes and times."""
        found = self.top.glob(f"*/{what}/**/*"), self.top.glob(f"*/{what}.jsonl")
        paths = [path for paths in found for path in paths if path.is_file()]
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}

    def delete_after(self, days: int) -> None:
        """Set the number of days after which the program deletes sessions."""
        settings = self.top.parent / "settings.json"
        settings.write_text(json.dumps({"cleanupPeriodDays": days}))


@pytest.fixture
def projects(claude: ClaudeCode, session: str, tmp_path: Path) -> Projects:
    """Old sessions, each with subagents and a tool result in separate files; and memory.

    Their program deletes sessions that are older than a day.
    """
    shop = tmp_path / "a shop"
    shop.mkdir()
    found = Projects(claude, (claude.beside.work, shop))
    task = {
        "description": "Count",
        "prompt": asking("Count.", ("Bash", {"command": "seq 1 600", "description": "Count"})),
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    many = {"command": "seq -f %0200.0f 1 900", "description": "Count"}
    calls = asking("Count.", ("Bash", many), ("Task", task), ("Task", task))
    claude.run(calls, "--resume", session)
    sessions = (session, claude.run(calls, cwd=shop))
    for number in range(SESSIONS):
        place, original, other = number % 2, sessions[number % 2], old_session(number)
        path = found.directory(place) / f"{original}.jsonl"
        mine = [path, *(each for each in path.with_suffix("").rglob("*") if each.is_file())]
        assert [each.parent.name for each in mine].count("subagents") == 4
        assert any(each.parent.name == "tool-results" for each in mine)
        for each in mine:
            to = Path(str(each).replace(original, other))
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(each.read_bytes().replace(original.encode(), other.encode()))
            then = time.time() - DAY * (1.5 + number)
            os.utime(to, (then, then))
    for place in range(2):
        notes = found.directory(place) / "memory" / "topics" / "prices.md"
        notes.parent.mkdir(parents=True)
        notes.write_text(f"Prices of {place}.")
        notes.parent.with_name("MEMORY.md").write_text("- [Prices](topics/prices.md)")
    found.delete_after(1)
    return found


def old_session(number: int) -> str:
    return f"{number:08x}-a2ea-4c14-9efa-87158ebd9f20"


def clean_up(projects: Projects, tmp_path: Path) -> None:
    """Run Claude Code until it has deleted all old sessions."""
    script = tmp_path / "wait_until_gone.py"
    script.write_text(WAIT_UNTIL_GONE)
    words = [sys.executable, str(script), f"{projects.top}/*/000000*"]
    call = {"command": shlex.join(words), "description": "Wait", "timeout": 60_000}
    for _ in range(MOST_RUNS):
        projects.claude.run(asking("Wait.", ("Bash", call)))
        if not projects.files():
            return
    raise AssertionError(f"it has not deleted {sorted(projects.files())}")


def purge(projects: Projects, number: int) -> None:
    """Delete a whole project, as a person does with the program's command."""
    claude, where = projects.claude, projects.where[number]
    claude.beside.run(*claude.program, "purge", str(where), "--yes")
    assert not projects.directory(number).exists()


def bsd(claude: ClaudeCode, *arguments: str, codes: tuple[int, ...] = (0,)) -> Any:
    """Return the answer of a command, which must end with one of these codes."""
    where = ("--root", str(claude.beside.root), "--json")
    done = forked.run(*where, *arguments, env=claude.beside.environment)
    assert done.returncode in codes, done.stderr
    return json.loads(done.stdout)


def bring_all_back(claude: ClaudeCode) -> None:
    gone = bsd(claude, "archive", "list", "--limit", "1000")["sessions"]
    heads = [one["session"] for one in gone if one["parent"] is None]
    for head in heads:
        done = bsd(claude, "archive", "bring-back", head)
        assert not {"unavailable", "left_out"} & done.keys()


def keep(claude: ClaudeCode) -> None:
    """Copy all sessions. A session that was written to just now counts as in use."""
    assert bsd(claude, "archive", "keep", codes=(0, 4))["copied"] >= 3 * SESSIONS


@pytest.mark.soak  # tests/maintenance/test_gone.py keeps the promise
def test_after_the_daemon_has_started(projects: Projects, tmp_path: Path) -> None:
    claude, before = projects.claude, projects.files()
    home = {"XDG_CONFIG_HOME": str(claude.beside.home / ".config")}
    archive = claude.beside.root / "archive"
    with running(claude.beside.root, tmp_path, **home):
        # On a busy machine these commands may take longer than the clean-up waits.
        wait_for(lambda: len(list(archive.glob("*/*/copy.json"))) >= 3 * SESSIONS, "all copies")
        clean_up(projects, tmp_path)
    bring_all_back(claude)
    assert projects.files() == before


@pytest.mark.soak
def test_after_archive_keep_without_a_daemon(projects: Projects, tmp_path: Path) -> None:
    """Their values were extracted; each session comes back whole, and can be continued."""
    claude, before, notes = projects.claude, projects.files(), projects.files("memory")
    assert bsd(claude, "extract")["totals"]["values"] > 4 * SESSIONS
    for path, (_, mtime_ns) in before.items():
        os.utime(path, ns=(mtime_ns, mtime_ns))
    assert projects.files() != before
    keep(claude)
    clean_up(projects, tmp_path)
    assert projects.files("memory") == notes, "its clean-up leaves memory alone"
    bring_all_back(claude)
    assert projects.files() == before
    projects.delete_after(365)
    for number in (0, 1):
        cwd = projects.where[number]
        session = old_session(number)
        assert claude.run("And now?", "--resume", session, cwd=cwd) == session
        path = projects.directory(number) / f"{session}.jsonl"
        assert path.read_bytes().startswith(before[path][0])


def test_a_project_that_was_purged_comes_back_with_its_memory(projects: Projects) -> None:
    claude, before, notes = projects.claude, projects.files(), projects.files("memory")
    assert len(notes) == 4
    keep(claude)
    purge(projects, 1)
    assert projects.files("memory") != notes
    bring_all_back(claude)
    assert projects.files() == before
    assert projects.files("memory") == notes


@pytest.mark.soak  # tests/maintenance/test_forget_project.py keeps the promise
def test_a_project_that_was_purged_is_forgotten_by_its_directory(projects: Projects) -> None:
    claude = projects.claude
    keep(claude)
    purge(projects, 1)
    where = str(projects.where[1])
    done = bsd(claude, "archive", "forget", "--project", where, "--yes")
    assert len(done["sessions"]) >= 3 * SESSIONS // 2
    assert (done["failed"], done["in_place"], done["memory_files"]) == (0, 0, 2)
    assert bsd(claude, "archive", "list")["sessions"] == []
    kept = {path.name for path in (claude.beside.root / "archive").iterdir()}
    assert not [name for name in kept if projects.directory(1).name in name]
    assert [name for name in kept if projects.directory(0).name in name]
