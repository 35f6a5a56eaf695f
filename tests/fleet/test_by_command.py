"""Two machines with a directory as bucket, and nothing but commands and a daemon."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import forked
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.daemon

OLD = 1_760_000_000  # epoch seconds


class Host:
    """A machine of its own: home, sessions of Claude Code, bsd.toml."""

    def __init__(self, top: Path, name: str, more: str = "") -> None:
        self.home = top / name
        self.root = self.home / "root"
        self.sessions = self.home / "projects"
        (self.sessions / "-home-x").mkdir(parents=True)
        self.root.mkdir()
        (top / "bucket").mkdir(exist_ok=True, mode=0o700)
        self.config = self.home / "bsd.toml"
        self.config.write_text(
            f'root = "{self.root}"\n[[sources]]\nkind = "claude-code"\npath = "{self.sessions}"\n'
            f'[fleet]\nbucket = "file://{top}/bucket"\nhost = "{name}"\ncopy_after = "1m"\n'
            f"push_seconds = 10\n{more}"
        )
        self.environment = {**os.environ, "HOME": str(self.home)}

    def argv(self, *words: str) -> list[str]:
        return forked.command("--config", str(self.config), *words)

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            self.argv(*words), check=False, capture_output=True, text=True, env=self.environment
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def add_sessions(self, number: int) -> dict[str, bytes]:
        made = {}
        for count in range(number):
            lines = claude_lines(f"{count:08d}-0000-4000-8000-000000000000", count)
            made[f"{count:08d}-0000-4000-8000-000000000000"] = lines
            file = self.sessions / "-home-x" / f"{count:08d}-0000-4000-8000-000000000000.jsonl"
            file.write_bytes(lines)
            os.utime(file, (OLD, OLD))
        return made


def claude_lines(session: str, seed: int) -> bytes:
    lines = []
    parent = None
    for number in range(12):
        is_user = number % 2 == 0
        word = f"word{seed}x{number} " * 300
        content: object = word if is_user else [{"type": "text", "text": word}]
        message = {"role": "user" if is_user else "assistant", "content": content}
        lines.append(
            json.dumps(
                {
                    "parentUuid": parent,
                    "isSidechain": False,
                    "cwd": "/home/x",
                    "sessionId": session,
                    "version": "2.1.0",
                    "type": message["role"],
                    "message": message,
                    "uuid": f"{seed:08d}-{number:04d}-4000-8000-000000000000",
                    "timestamp": f"2025-10-09T08:{number:02d}:00.000Z",
                }
            )
        )
        parent = f"{seed:08d}-{number:04d}-4000-8000-000000000000"
    return ("\n".join(lines) + "\n").encode()


def test_a_lost_machine(tmp_path: Path) -> None:
    lost, other = Host(tmp_path, "lost"), Host(tmp_path, "other")
    before = lost.add_sessions(2)
    lost.run("extract", "--trigger-types", "user,assistant", "--keep-recent", "2")
    files = {file.stem: file.read_bytes() for file in lost.sessions.rglob("*.jsonl")}
    assert any(files[name] != content for name, content in before.items())
    for file in (*lost.sessions.rglob("*.jsonl"), *lost.root.glob("extracted/*")):
        os.utime(file, (OLD, OLD))
    told = json.loads(lost.run("archive", "push", "--json"))
    assert told["problems"] == []
    assert (told["waiting"], told["generation"]) == (0, 1)
    again = json.loads(lost.run("archive", "push", "--json"))
    assert (again["files"], again["generation"]) == (0, 1)
    shutil.rmtree(lost.home)

    assert before.keys() <= {
        each["session"].partition("/")[2]
        for each in json.loads(other.run("archive", "list", "--host", "lost", "--json"))["sessions"]
    }
    for name in before:
        other.run("archive", "bring-back", f"lost:claude-code:-home-x/{name}")
    back = {file.stem: file.read_bytes() for file in other.sessions.rglob("*.jsonl")}
    assert back == before
    other.run("archive", "verify", "--remote", "--host", "*", "--full")


def test_a_value_of_a_thin_pack(tmp_path: Path) -> None:
    host = Host(tmp_path, "small", 'keep_local = "1m"\n')
    before = host.add_sessions(1)
    (name,) = before
    session = f"claude-code:-home-x/{name}"
    host.run("extract", "--trigger-types", "user,assistant", "--keep-recent", "2")
    (store,) = host.root.glob("extracted/*_*")
    for file in (store, *store.iterdir(), *host.sessions.rglob("*.jsonl")):
        os.utime(file, (OLD, OLD))
    host.run("retention")
    packs = list(host.root.glob("archive/*/*.zst"))
    for pack in packs:
        os.utime(pack, (OLD, OLD))
    told = json.loads(host.run("archive", "push", "--json"))
    assert (told["problems"], told["thinned"]) == ([], len(packs))
    assert packs
    again = json.loads(host.run("archive", "push", "--json"))
    assert (again["files"], again["thinned"], again["problems"]) == (0, 0, [])
    assert "placeholders is only in the bucket" in host.run("verify")
    (tmp_path / "bucket").rename(tmp_path / "away")
    host.run("restore-all", session, "--yes", code=1)
    assert "placeholders is only in the bucket" in host.run("verify")
    (tmp_path / "away").rename(tmp_path / "bucket")
    host.run("restore-all", session, "--yes")
    (file,) = host.sessions.rglob("*.jsonl")
    restored = [json.loads(line)["message"] for line in file.read_text().splitlines()]
    assert restored == [json.loads(line)["message"] for line in before[name].splitlines()]


def test_the_daemon_uploads(tmp_path: Path) -> None:
    host = Host(tmp_path, "served")
    host.add_sessions(1)
    status: Callable[[], dict[str, object]] = lambda: json.loads(  # noqa: E731
        host.run("status", "--json")
    )["fleet"]
    process = subprocess.Popen(
        host.argv("run"), env=host.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: any((tmp_path / "bucket").rglob("manifests/*.json")))
        wait_for(lambda: status()["last_success"] is not None)
        told = status()
        assert (told["behind_files"], told["last_error"]) == (0, None)
    finally:
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 0
