"""The program over a small root: in a process of its own, or in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bsd.cli.main import run
from bsd.core.logs import close_logs
from tests import forked
from tests.cli.fake_actions import Cli, listening
from tests.cli.machine import Machine
from tests.commands import Ended
from tests.openclaw_tree import add_session, set_idle, set_status
from tests.session_files import sample
from tests.waiting import DEADLINE_SECONDS


@dataclass(frozen=True)
class Program:
    """`bsd --root ROOT …`.

    Forked by a server that has loaded bsd (`tests/forked.py`), unless `fresh`: then started as a
    user starts it.
    """

    root: Path
    prefix: tuple[str, ...] = ()
    fresh: bool = False

    def argv(self, *arguments: str, **env: str) -> list[str]:
        words = ["--root", str(self.root), *arguments]
        if self.prefix or self.fresh or any(name.startswith(forked.AT_START) for name in env):
            return [*self.prefix, sys.executable, "-m", "bsd", *words]
        return forked.command(*words)

    def __call__(self, *arguments: str, **env: str) -> Ended:
        done = subprocess.run(
            self.argv(*arguments, **env),
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=DEADLINE_SECONDS,
            env=os.environ | env,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ended(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv(*arguments, **env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | env,
        )


@dataclass(frozen=True)
class Call:
    """`bsd --root ROOT …` without a new process."""

    root: Path
    capture: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch

    def __call__(self, *arguments: str, **env: str) -> Ended:
        with self.patch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            code = run(["--root", str(self.root), *arguments])
        out, err = self.capture.readouterr()
        assert "internal error" not in err, err
        return Ended(code, out, err)


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything under a root: kind and mode, mtime, content."""
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, content)
    return found


def open_up(directory: Path) -> None:
    """Open a directory of pytest's, which is closed to other users, to every user."""
    for above in (directory, *directory.parents):
        if above.stat().st_uid == os.geteuid() and len(above.parts) > 2:
            above.chmod(0o755)


def rest(root: Path) -> None:
    """Let time pass for all sessions: bsd plans no change of a file that was just written."""
    for path in root.glob("agents/*/sessions/*.jsonl"):
        set_idle(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two agents, three sessions of some 100 KB, and a session that bsd must not edit."""
    root = tmp_path / "root"
    for number, name in enumerate(("main/alpha", "main/beta", "other_agent/gamma")):
        add_session(root, name, sample(turns=8, seed=number))
        set_status(root, name, "done")
    add_session(root, "main/foreign", b'{"hello":"world"}\n')
    return root


@pytest.fixture
def program(root: Path) -> Program:
    """bsd as a process of its own: for signals, pipes and other users."""
    return Program(root)


@pytest.fixture
def bsd(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Call]:
    """bsd in this process, which is much quicker: everything except the start is the same."""
    yield Call(root, capsys, monkeypatch)
    close_logs()


@pytest.fixture
def machine(
    clean_environment: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Machine]:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    yield Machine(clean_environment, capsys)
    close_logs()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """bsd in this process, with actions that only record their arguments."""
    return listening(tmp_path, monkeypatch, capsys)


def out_of(document: Any, session: str) -> Any:
    """A session's part of a document that lists sessions."""
    (found,) = [one for one in document["sessions"] if one["session"] == session]
    return found


def lines_of(path: Path) -> Sequence[bytes]:
    return path.read_bytes().split(b"\n")
