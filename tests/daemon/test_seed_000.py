"""The verification path at the end of seed 000, line by line, against a real daemon on TCP.

`make` and `bsd` do here the steps for which the seed used `npm`; `curl` is curl. The page's own
tests check its badges in a browser; this file checks the data behind them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bsd.sample import session_lines
from tests.daemon.running import Running, ending, launch_fresh
from tests.needs import require_program
from tests.openclaw_tree import add_session, set_idle
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.daemon

TOP = Path(__file__).parents[2]
_HOUR = 3600.0


class Shell:
    """The shell of a user who follows the path."""

    def __init__(self, daemon: Running) -> None:
        self.daemon = daemon
        (told,) = (event["http"] for event in daemon.events() if "http" in event)
        self.base = f"http://{told}"

    def curl(self, path: str, *arguments: str) -> Any:
        """Call curl, which must succeed; the answer's document."""
        done = subprocess.run(
            [require_program("curl"), "-sS", "--fail-with-body", *arguments, self.base + path],
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout


@pytest.fixture
def openclaw() -> Iterator[Path]:
    """A fresh OpenClaw: `/tmp/….openclaw/agents` and no other directory."""
    with tempfile.TemporaryDirectory(prefix="bsd-seed-") as place:
        root = Path(place) / ".openclaw"
        (root / "agents").mkdir(parents=True, mode=0o700)
        yield root


@pytest.fixture
def shell(openclaw: Path, tmp_path: Path) -> Iterator[Shell]:
    """`BRAINSURGEON_AGENTS_DIR=… npm start`: the root follows from the agents."""
    environ = {
        "BRAINSURGEON_AGENTS_DIR": str(openclaw / "agents"),
        "BRAINSURGEON_HTTP": "127.0.0.1:0",
        "BRAINSURGEON_API_KEYS": "",
        # Only the scheduled job may find the session.
        "BRAINSURGEON_DEBOUNCE_SECONDS": "600",
    }
    with ending(launch_fresh(openclaw, tmp_path, **environ), tmp_path) as daemon:
        wait_for(daemon.is_running, "the daemon to be ready")
        yield Shell(daemon)


def _large_session(root: Path) -> Path:
    """Much old thinking, and a last turn of just now."""
    lines = list(session_lines(turns=30, seed=5))
    now = datetime.fromtimestamp(time.time()).astimezone().isoformat()
    fresh = [
        re.sub(rb'^(\{[^{]*?"timestamp":")[^"]*', rb"\g<1>" + now.encode(), line)
        for line in session_lines(turns=4, seed=6)
    ][1:]
    fresh = [line.replace(b'"id":"', b'"id":"new-') for line in fresh]
    return add_session(root, "main/large", b"".join(lines + fresh))


def test_the_verification_path(openclaw: Path, shell: Shell) -> None:
    # npm install && npm run build
    version = subprocess.run(
        [sys.executable, "-m", "bsd", "--version"], check=True, capture_output=True, text=True
    )
    assert re.search(r"\d+\.\d+\.\d+", version.stdout)
    plan = subprocess.run(
        [require_program("make"), "-n", "demo", "test"],
        check=True,
        capture_output=True,
        text=True,
        cwd=TOP,
    )
    assert "bsd demo" in plan.stdout
    assert "pytest" in plan.stdout

    # No API key set = no auth required
    config = shell.curl("/api/config")
    assert (config["retention"], config["auto_cron"]) == ("24h", "*/2 * * * *")
    assert json.loads((openclaw / ".brainsurgeon/config.json").read_text())["retention"] == "24h"

    # Enable smart pruning
    wanted = '{"enabled":true,"retention":"6h","age_threshold_hours":2}'
    config = shell.curl("/api/config", "-X", "POST", "-d", wanted)
    assert (config["enabled"], config["retention"]) == (True, "6h")
    assert shell.curl("/api/config")["age_threshold_hours"] == 2

    # Create large session with thinking blocks
    path = _large_session(openclaw)
    original = path.read_bytes()

    # Wait 2+ min for auto-run
    job = _job(shell, "auto_cron")
    until = datetime.fromisoformat(job["next_run"]).timestamp() - time.time()
    assert (job["enabled"], job["schedule"], until <= 120) == (True, "*/2 * * * *", True)
    assert shell.curl("/api/jobs/auto_cron/run", "-X", "POST")["last_result"]["ok"]
    wait_for(lambda: path.stat().st_size < len(original), "the auto-run")
    wait_for(lambda: shell.curl("/api/config")["last_run_at"], "the end of the run")

    # Verify extracted/ directory created
    store = openclaw / "extracted" / "main_large"
    assert store.stat().st_mode & 0o777 == 0o700
    assert {"index.json"} < {one.name for one in store.iterdir()}
    assert list(store.glob("[0-9][0-9][0-9][0-9]_thinking.json"))

    # Verify old thinking blocks now refs in .jsonl
    _check_thinking(path, original, store)

    # Verify Web UI shows extracted badges
    page = shell.curl("/")
    assert "<script" in page
    entries = shell.curl("/api/sessions/main/large/entries?limit=1000")["entries"]
    away = [entry for entry in entries if entry["extracted"]]
    assert len(away) == len(list(store.glob("0*.json")))
    content = shell.curl(f"/api/sessions/main/large/entries/{away[0]['index']}/extracted")
    assert all(content["content"].values())

    # Delete session; verify extracted dir moved to trash
    set_idle(path)
    pruned = path.read_bytes()
    kept = {one.name: one.read_bytes() for one in store.iterdir()}
    gone = shell.curl("/api/sessions/main/large", "-X", "DELETE")
    assert (gone["moved_to_trash"], path.exists(), store.exists()) == (True, False, False)
    (moved,) = (openclaw / "trash").glob("main_large_extracted_*")
    assert {one.name: one.read_bytes() for one in moved.iterdir()} == kept

    # Restore session; verify extracted dir back
    (item,) = shell.curl("/api/trash")["sessions"]
    assert shell.curl(f"/api/trash/{item['id']}/restore", "-X", "POST")["restored"]
    assert path.read_bytes() == pruned
    assert {one.name: one.read_bytes() for one in store.iterdir()} == kept
    assert list((openclaw / "trash").glob("main_large*")) == []

    # Run retention cleanup manually; verify old extracted files deleted
    files = sorted(store.glob("0*.json"))
    for old in files[1:]:
        os.utime(old, (time.time() - 7 * _HOUR,) * 2)
    done = shell.curl("/api/retention/run", "-X", "POST")
    assert (done["cleaned"], done["errors"], done["keep"]) == (len(files) - 1, 0, "6h")
    assert list(store.glob("0*.json")) == files[:1]
    assert shell.daemon.said(f"[RETENTION] Deleted {len(files) - 1} extracted files (")


def _job(shell: Shell, name: str) -> dict[str, Any]:
    jobs: list[dict[str, Any]] = shell.curl("/api/jobs")["jobs"]
    return next(job for job in jobs if job["name"] == name)


def _check_thinking(path: Path, original: bytes, store: Path) -> None:
    """Each old block above the limit is a ref now, and the newest blocks are unchanged."""
    refs, whole = 0, 0
    for before, after in zip(original.splitlines(), path.read_bytes().splitlines(), strict=True):
        blocks = (json.loads(before).get("message") or {}).get("content") or []
        if not any(isinstance(one, dict) and one.get("type") == "thinking" for one in blocks):
            continue
        marker = json.loads(after).get("_extracted")
        if marker is None:
            assert after == before
            whole += 1
            continue
        assert b"[[extracted-" in after
        assert (store / f"{marker['ref']}.json").read_bytes().rstrip(b"\n") == before
        refs += 1
    assert refs > whole > 0, "the young ones stay"
