"""The rows of the disk: bytes that left two homes, and bytes that bsd stores for them a day later.

All settings have their defaults. The steps: `bsd extract`, a day, `bsd retention`, a copy of every
session, and a daemon that scans all sessions and indexes them for the search.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench import claude
from tests.bench.measure import Failed, bsd, environment
from tests.bench.row import Row, Rows
from tests.openclaw_tree import SHARED_DATA, set_idle
from tests.waiting import wait_for

_SESSIONS = 140
_SMALLEST, _LARGEST = 20_000, 6_000_000  # bytes; half of them have less than 350 KB
_DAY = 25 * 3600.0
_STILL_SECONDS = 5.0  # then both databases are written
_CODEX = "rollout-2025-09-24T18-22-20-01997e76-d124-7592-9cac-2ec05abbca0{}"


def _recorded(home: Path) -> None:
    """Copy the available recorded sessions to their programs' places."""
    codex = 0
    for path in sorted(SHARED_DATA.glob("*.jsonl")):
        if path.name.startswith("openclaw"):
            to = home / f"root/agents/main/sessions/{path.name}"
        elif path.name.startswith("claude-code"):
            to = (
                home
                / f"projects/-home-ada-harbour/{uuid.uuid5(uuid.NAMESPACE_URL, path.name)}.jsonl"
            )
        elif path.name.startswith("codex"):
            to = home / f"sessions/2025/09/24/{_CODEX.format(codex)}.jsonl"
            codex += 1
        else:
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)


def _made_up(home: Path) -> None:
    """Write `_SESSIONS` sessions of Claude Code, most of them small."""
    chance = random.Random(1)
    for number in range(_SESSIONS):
        size = min(_LARGEST, max(_SMALLEST, int(chance.lognormvariate(12.77, 1.2))))
        name = uuid.uuid5(uuid.NAMESPACE_URL, str(number))
        path = home / f"projects/-home-ada-project-{number % 7}/{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        claude.write_transcript(path, size, seed=number)


def _settings(home: Path) -> Path:
    (home / "root/agents").mkdir(parents=True, exist_ok=True)
    sources = [("claude-code", home / "projects"), ("codex", home / "sessions")]
    file = home / "bsd.toml"
    lines = (f'[[sources]]\nkind = "{kind}"\npath = "{path}"\n' for kind, path in sources)
    file.write_text("".join(lines))
    return file


def _a_day_later(home: Path) -> dict[str, Any]:
    """Do all steps; return the disk section of `bsd status`."""
    file = _settings(home)
    for path in home.rglob("*.jsonl"):
        set_idle(path, 3600.0)

    def call(*arguments: str, codes: tuple[int, ...] = (0,)) -> Any:
        argv = bsd("--root", str(home / "root"), "--config", str(file), "--json", *arguments)
        done = subprocess.run(argv, capture_output=True, check=False, env=environment())
        if done.returncode not in codes:
            raise Failed(f"{arguments}: {done.returncode}\n{done.stderr.decode()[-2000:]}")
        return json.loads(done.stdout)

    call("extract", codes=(0, 1))
    for path in _all(home / "root"):
        found = path.stat()
        os.utime(path, (found.st_atime - _DAY, found.st_mtime - _DAY))
    call("retention")
    call("archive", "keep", codes=(0, 1, 4))
    daemon = subprocess.Popen(
        bsd("--root", str(home / "root"), "--config", str(file), "run"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    own = home / "root/.brainsurgeon"
    try:
        wait_for(lambda: _is_idle(call("status", codes=(0, 3)), own))
    finally:
        daemon.terminate()
        daemon.wait()
    disk: dict[str, Any] = call("status", codes=(3,))["disk"]
    return disk


def _is_idle(status: dict[str, Any], own: Path) -> bool:
    """Return whether the daemon has scanned and indexed every session."""
    databases = [own / "search.db", own / "state.db"]
    if "queue" not in status or not all(map(Path.exists, databases)):
        return False
    busy = sum(status["queue"][one] for one in ("debouncing", "waiting", "ready", "working"))
    changed = max(file.stat().st_mtime for file in databases)
    return not busy and status["search"]["complete"] and time.time() - changed > _STILL_SECONDS


def _all(place: Path) -> Iterator[Path]:
    yield from (path for path in (place / "extracted").rglob("*") if path.is_file())


def _row(what: str, disk: dict[str, Any]) -> Row:
    kept = disk["kept"]
    share = kept / disk["saved"]
    parts = ("store", "archive", "index", "history", "databases", "others", "log")
    print("  ", {name: f"{disk[name] // 1024} KB" for name in (*parts, "copies")})
    return Row(
        f"kept a day later of what left {what}",
        f"{kept // 1024} KB",
        f"{disk['saved'] // 1024} KB left, copies {disk['copies'] // 1024} KB",
        share,
        "≤ 0.5",
        share <= 0.5,
    )


def disk(scratch: Path, _cache: Path) -> Rows:
    """Measure both homes."""
    for what, fill in (("recorded sessions", _recorded), (f"{_SESSIONS} made-up ones", _made_up)):
        home = scratch / fill.__name__
        fill(home)
        if any(home.rglob("*.jsonl")):
            yield _row(what, _a_day_later(home))
