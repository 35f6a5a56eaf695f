"""`bsd init` as a process of its own, as an ordinary user and as root, and one daemon after it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.conftest import open_up
from tests.cli.test_left_in_flight import let_pass
from tests.commands import Ended
from tests.daemon.running import running
from tests.needs import NOBODY, python_for_all
from tests.setup.agent_homes import add_all, add_claude_session
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.tree import without_restored
from tests.waiting import DEADLINE_SECONDS

_AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
_needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
_MEGABYTE = 1 << 20


def call(*words: str, prefix: tuple[str, ...] = ()) -> Ended:
    """Call bsd in a process of its own, without a terminal."""
    python, path = python_for_all()
    done = subprocess.run(
        [*prefix, python, "-m", "bsd", *words],
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=DEADLINE_SECONDS,
        cwd="/",
        env=os.environ | {"PYTHONPATH": path},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ended(done.returncode, done.stdout, done.stderr)


# Root tries it as an ordinary user, the harder case.
_OWN = pytest.param((), marks=pytest.mark.soak if os.geteuid() == 0 else ())


@pytest.mark.parametrize("prefix", [_OWN, pytest.param(_AS_NOBODY, marks=_needs_root)])
def test_first_megabyte_and_first_rescued_session_within_a_minute(
    clean_environment: Path, prefix: tuple[str, ...]
) -> None:
    home = clean_environment
    for number in range(12):
        add_claude_session(home, number, days=2 + 2 * number, turns=60)
    if prefix:
        open_up(home)
        for each in (home, *home.rglob("*")):
            os.chown(each, NOBODY, NOBODY)
    before = {path: path.read_bytes() for path in home.rglob("*.jsonl")}
    began = time.monotonic()
    ended = call("init", "--yes", "--no-service", "--json", prefix=prefix)
    took = time.monotonic() - began
    assert ended.code == 0, ended.err
    assert took < 60
    assert ended.document["extraction"]["bytes_saved"] > _MEGABYTE
    [agent] = ended.document["agents"]
    assert agent["copied"] == agent["deleted_soon"] > 0
    uids = {path.lstat().st_uid for path in home.rglob("*")}
    assert uids == {NOBODY if prefix else os.geteuid()}
    gone = max(before, key=lambda path: -path.stat().st_mtime)
    gone.unlink()
    [one] = [
        each["session"]
        for each in call("archive", "list", "--json", prefix=prefix).document["sessions"]
        if each["session"].endswith(f"/{gone.stem}")
    ]
    back = call("archive", "bring-back", one, prefix=prefix)
    assert back.code == 0, back.err
    assert without_restored(gone.read_bytes()) == before[gone]


@pytest.mark.daemon
def test_one_daemon_looks_after_all_four(clean_environment: Path, tmp_path: Path) -> None:
    add_all(clean_environment)
    add_claude_session(clean_environment, 1, days=28)
    assert call("init", "--yes", "--no-service").code == 0
    with running(clean_environment / ".openclaw", tmp_path) as daemon:
        listed = daemon.ask("sessions")["sessions"]
        kinds = {one["session"].partition(":")[0].partition("/")[0] for one in listed}
        assert kinds == {"main", "claude-code", "codex", "pi"}
        status = daemon.status()
        assert {source["kind"] for source in status["sources"]} == {"claude-code", "codex", "pi"}
        assert status["unserved"] == []
        assert status["retention"]["copies"]["sessions"] >= 1
    let_pass(clean_environment / ".openclaw", 60)  # replaced versions of sessions have their minute
    for kind in ("claude-code", "codex", "pi", "openclaw"):
        ended = call("agents", "off", kind, "--yes")
        assert ended.code == 0, ended.err
    assert (clean_environment / CLAUDE_CODE.sessions).is_dir()
