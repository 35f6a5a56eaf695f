"""A real daemon: it notices, waits, extracts, follows settings, and stops."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.verify import verify
from tests.daemon.fast_forward import Clock, machine
from tests.daemon.running import children_of, configure, is_alive, launched, running
from tests.needs import require_linux, require_node
from tests.openclaw_tree import add_session, set_idle, set_status
from tests.session_files import sample
from tests.waiting import wait_for

pytestmark = pytest.mark.daemon

PLACEHOLDER = b"[[extracted-"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    require_linux()
    root = tmp_path / "root"
    add_session(root, "main/alpha", sample(6, 1))
    set_status(root, "main/alpha", "done")
    configure(root)
    return root


def file_of(root: Path, name: str) -> Path:
    agent, _, session = name.partition("/")
    return root / "agents" / agent / "sessions" / f"{session}.jsonl"


def placeholders(path: Path) -> int:
    try:
        return path.read_bytes().count(PLACEHOLDER)
    except FileNotFoundError:
        return 0


def test_turns_that_node_appends_are_extracted_when_they_are_old(
    root: Path, tmp_path: Path
) -> None:
    node = require_node()
    lines = sample(12, 2).splitlines(keepends=True)
    path = add_session(root, "main/node", b"".join(lines[:20]))
    with running(root, tmp_path) as daemon:
        wait_for(lambda: placeholders(path), "the backlog to be extracted")
        before = placeholders(path)
        (tmp_path / "more").write_bytes(b"".join(lines[20:]))
        program = (
            "const fs = require('fs'); const [more, path] = process.argv.slice(1);"
            "for (const line of fs.readFileSync(more, 'utf8').split(/(?<=\\n)/))"
            "  if (line) fs.appendFileSync(path, line)"
        )
        subprocess.run([node, "-e", program, str(tmp_path / "more"), str(path)], check=True)
        wait_for(lambda: placeholders(path) > before, "what was appended to be extracted")
        wait_for(lambda: not daemon.status()["queue"]["working"], "the work to end")
        assert path.read_bytes().count(b"\n") == len(lines)
        totals = daemon.status()["totals"]
        assert totals["bytes_saved"] > 0 < totals["tokens_saved"]
        assert totals["commits"] >= 2
        assert daemon.is_sound()
    restored = daemon.bsd("restore-all", "--yes", "main/node")
    assert restored.returncode == 0, restored.stderr
    assert placeholders(path) == 0


@pytest.mark.slow
def test_after_many_events_the_session_is_looked_at_once_it_is_quiet(
    root: Path, tmp_path: Path
) -> None:
    """test_queue and test_work check that no back-off grows with each of them."""
    configure(root, scan_interval_seconds=3600)
    path = file_of(root, "main/alpha")
    with running(root, tmp_path, BRAINSURGEON_QUIET_SECONDS="3") as daemon:
        wait_for(lambda: placeholders(path), "the backlog to be extracted")
        before = placeholders(path)
        lines = sample(12, 2).splitlines(keepends=True)
        for line in lines[1:31]:
            with path.open("ab") as stream:
                stream.write(line)
            time.sleep(0.3)  # a turn that takes its time
        wait_for(lambda: placeholders(path) > before, "its values to leave")
        assert daemon.status()["totals"]["busy"] > 5
        assert daemon.is_sound()


@pytest.mark.soak
@pytest.mark.slow
def test_a_restored_value_leaves_again_although_the_file_did_not_change(
    root: Path, tmp_path: Path
) -> None:
    configure(root, keep_after_restore_seconds=15, scan_interval_seconds=3600)
    path = file_of(root, "main/alpha")
    with running(root, tmp_path) as daemon:
        before = wait_for(lambda: placeholders(path), "the backlog to be extracted")
        entry = json.loads(
            next(line for line in path.read_bytes().splitlines() if PLACEHOLDER in line)
        )["id"]
        assert daemon.bsd("restore", "main/alpha", entry).returncode == 0
        restored = path.stat()
        assert placeholders(path) < before
        wait_for(
            lambda: daemon.said("keep (recently_restored)"), "the daemon to see what was restored"
        )
        assert path.stat().st_mtime_ns == restored.st_mtime_ns
        wait_for(lambda: placeholders(path) == before, "it to leave again")


def test_new_agents_and_directories_made_anew_are_noticed(root: Path, tmp_path: Path) -> None:
    # The scan comes once an hour here: only the watches can have found it.
    configure(root, scan_interval_seconds=3600)
    with running(root, tmp_path) as daemon:
        new = add_session(root, "newcomer/first", sample(6, 3))
        wait_for(lambda: placeholders(new), "a new agent's session to be extracted")
        # Its lock would vanish while `rmtree` works.
        wait_for(lambda: not daemon.status()["queue"]["working"], "the work to end")
        shutil.rmtree(new.parent)
        wait_for(lambda: daemon.status()["watcher"]["directories"] == 5, "the end to be noticed")
        again = add_session(root, "newcomer/second", sample(6, 4))
        wait_for(lambda: placeholders(again), "a session in the new directory to be extracted")
        watcher = daemon.status()["watcher"]
        assert watcher["watched"] == watcher["directories"] == 6
        assert watcher["problems"] == []


def test_there_is_one_daemon_for_a_root_and_none_is_in_the_way_after_a_kill(
    root: Path, tmp_path: Path
) -> None:
    with running(root, tmp_path) as daemon:
        second = daemon.bsd("run")
        assert second.returncode == 75
        assert f"process {daemon.process.pid}" in second.stderr
        assert "Try:" in second.stderr
        assert daemon.is_running()
        helpers = wait_for(lambda: children_of(daemon.process.pid), "work to begin")
        assert daemon.stop(signal.SIGKILL) == -signal.SIGKILL
        wait_for(lambda: not any(map(is_alive, helpers)), "its children to leave")
    with running(root, tmp_path) as daemon:
        # Content that a commit stored before it was killed is indexed after the start.
        wait_for(lambda: verify(Layout(root)).clean, "what was killed to be put in order")


def test_asked_to_stop_in_the_middle_it_ends_with_everything_in_order(
    root: Path, tmp_path: Path
) -> None:
    files: list[Path] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        for _ in range(6):
            content = sample(12, 10 + len(files))
            files.append(add_session(root, f"main/s{len(files)}", content))
        log = root / "logs" / "brainsurgeon.log"
        log.unlink(missing_ok=True)
        with launched(root, tmp_path) as daemon:
            wait_for(lambda: daemon.said("extract:"), "the work to begin")
            assert daemon.stop(number) == 0
        assert not list(root.glob("agents/*/sessions/*.lock"))
        assert daemon.said("bsd has stopped")
    with running(root, tmp_path) as daemon:
        wait_for(lambda: all(map(placeholders, files)), "all of them to be extracted")
        assert daemon.is_sound()


def test_a_child_that_was_killed_is_replaced(root: Path, tmp_path: Path) -> None:
    with running(root, tmp_path) as daemon:
        path = file_of(root, "main/alpha")
        before = wait_for(lambda: placeholders(path), "the backlog to be extracted")
        wait_for(lambda: not daemon.status()["queue"]["working"], "the work to end")
        idle = children_of(daemon.process.pid)
        assert {each["pid"] for each in daemon.status()["children"]} == set(idle)
        for child in idle:
            os.kill(child, signal.SIGKILL)
        with path.open("ab") as session:
            session.writelines(sample(12, 5).splitlines(keepends=True)[1:])
        wait_for(lambda: placeholders(path) > before, "the next extraction")
        wait_for(lambda: daemon.status()["totals"]["children_died"], "it to be counted")
        assert daemon.status()["totals"]["failed"] == 0, "nothing was in its hands"
        assert daemon.is_sound()


def test_settings_take_effect_at_once_whoever_changes_them(root: Path, tmp_path: Path) -> None:
    configure(root, scan_interval_seconds=3600, enabled=False)
    path = file_of(root, "main/alpha")
    set_here = ConfigService(Layout(root).config_file, create=False).update  # another process

    def job(name: str) -> dict[str, Any]:
        found: dict[str, Any] = {each["name"]: each for each in daemon.ask("jobs")["jobs"]}[name]
        return found

    with running(root, tmp_path) as daemon:
        wait_for(lambda: daemon.ask("jobs")["jobs"], "the jobs")
        assert not daemon.status()["enabled"]
        assert not job("auto_cron")["enabled"]
        assert daemon.bsd("config", "set", "auto_cron", "5 4 * * *").returncode == 0
        wait_for(lambda: job("auto_cron")["schedule"] == "5 4 * * *", "the new schedule")
        assert placeholders(path) == 0
        set_here({"enabled": True})
        wait_for(lambda: placeholders(path), "what had been waiting")
        # The new setting decides anew which values are long enough, in old sessions too.
        before = placeholders(path)
        types = ["thinking", "tool_result", "assistant", "user", "tool_call"]
        set_here({"trigger_types": types})
        set_here({"min_value_length": 50})
        wait_for(lambda: placeholders(path) > before, "what is to be extracted now")


def test_a_config_broken_by_hand_is_told_and_the_last_good_one_stays(
    root: Path, tmp_path: Path
) -> None:
    with running(root, tmp_path) as daemon:
        file = root / ".brainsurgeon" / "config.json"
        good = file.read_bytes()
        file.write_bytes(b'{"enabled": tru')
        told = wait_for(lambda: daemon.status()["config"]["problem"], "the problem to be told")
        assert "config.json" in told
        wait_for(lambda: daemon.ask("health")["status"] == "degraded", "health to tell it")
        path = add_session(root, "main/later", sample(6, 6))
        wait_for(lambda: placeholders(path), "the work to go on")
        file.write_bytes(good)
        wait_for(lambda: daemon.status()["config"]["problem"] is None, "the problem to go")


def test_what_was_kept_long_enough_goes_at_the_start(root: Path, tmp_path: Path) -> None:
    layout = Layout(root)
    gone = layout.store_dir(SessionName("main", "gone"))
    gone.mkdir(parents=True)
    (gone / "0003_thinking.json").write_bytes(b"x" * 2048)
    set_idle(gone / "0003_thinking.json", 25 * 3600)
    with running(root, tmp_path) as daemon:
        wait_for(lambda: not gone.exists(), "the old store to go")
        wait_for(lambda: daemon.said("[RETENTION] Deleted 1 extracted file (2.0 KB)"), "the log")
        assert daemon.said("uncompressed for 24h")
        assert daemon.said("bsd config set archive false")
        assert list(layout.archive.rglob("*.zst"))
        # The next run is on New Year's Day: values extracted now will be older than a day.
        kept = wait_for(
            lambda: (found := daemon.status()["retention"])["files"] and found, "a forecast"
        )
        assert kept["keep"] == "24h"
        assert kept["bytes"] > 0
        assert kept["next_run"].endswith("-01-01T00:00:00.000Z")
        config = json.loads((root / ".brainsurgeon" / "config.json").read_bytes())
        assert config["last_retention_run_at"]


def test_hangup_reopens_the_log_and_reads_settings_again(root: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    with running(root, tmp_path, BRAINSURGEON_PRICES_FILE=str(prices)) as daemon:
        assert daemon.said("The list of prices cannot be used")
        row = {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6, "litellm_provider": "a"}
        prices.write_text(json.dumps({"good": row, "bad": row | {"litellm_provider": 1}}))
        log = root / "logs" / "brainsurgeon.log"
        log.rename(log.with_suffix(".1"))
        daemon.process.send_signal(signal.SIGHUP)
        wait_for(lambda: daemon.said("Settings were read again"), "a new log")
        assert daemon.said("Some prices of the list cannot be used")
        daemon.process.send_signal(signal.SIGUSR1)
        wait_for(lambda: daemon.said("Status and stacks"), "the dump")
        (dump,) = [e for e in daemon.events() if e["event"] == "Status and stacks"]
        assert dump["status"]["state"] == "running"
        assert "in take" in dump["stacks"], "a worker waits for work"


def test_the_service_manager_hears_when_it_is_ready_alive_and_stopping(
    root: Path, tmp_path: Path
) -> None:
    address = f"@bsd-test-{os.getpid()}-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + address[1:])
        manager.settimeout(0.1)
        environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "400000"}
        with launched(root, tmp_path, **environment) as daemon:
            heard: list[str] = []

            def listen() -> list[str]:
                daemon.must_run()
                with suppress(TimeoutError):
                    heard.extend(manager.recv(4096).decode().split("\n"))
                return heard

            wait_for(lambda: "READY=1" in listen(), "the first message")
            status = heard[heard.index("READY=1") + 1]
            assert status.startswith("STATUS=1 sessions, 4 of 4 directories watched")
            assert daemon.ask("health")["status"] == "ok"  # ready means that the socket answers
            wait_for(lambda: listen().count("WATCHDOG=1") > 1, "signs of life")
            assert daemon.stop() == 0
            with suppress(TimeoutError):
                while True:
                    heard += manager.recv(4096).decode().split("\n")
            assert "STOPPING=1" in heard


@pytest.mark.parametrize("name", [b"root", b"r\xff\xfet"])
def test_a_status_follows_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    root = tmp_path / os.fsdecode(name)
    try:
        root.mkdir()
    except OSError:  # macOS
        pytest.skip("names of files are UTF-8 here")
    for number in range(3):
        path = add_session(root, f"main/s{number}", sample(2, number))
        set_idle(path)
    configure(root)
    with machine(root, Clock(time.time()), monkeypatch) as running:
        before = running.daemon.report.status()
        assert len(before["sessions"]) == 3
        assert before["root"] == str(root)
        running.daemon.state.ledger.count("crashes")
        (root / "agents" / "main" / "sessions" / "s1.jsonl").unlink()
        running.daemon.scheduler.run("scan")
        after = running.daemon.report.status()
        assert after["totals"]["crashes"] == 1
        assert [each["session"] for each in after["sessions"]] == [
            each["session"] for each in before["sessions"] if each["session"] != "main/s1"
        ]
