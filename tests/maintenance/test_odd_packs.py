"""Packs that bsd did not write, with correct hashes: named, and without effect on others."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bsd.core.files import make_private_dir
from bsd.core.layout import Layout, SessionName
from bsd.store.pack import Pack
from tests import forked
from tests.daemon.running import configure, ending, launch_fresh
from tests.openclaw_tree import add_session
from tests.session_files import conversation, jsonl
from tests.store.odd_packs import GIB, RECORDS, bomb, with_records, written
from tests.waiting import wait_for

NAMES = {what: SessionName("main", f"s{number}") for number, what in enumerate(RECORDS)}
LINE = b'{"type":"message","id":"e0","message":{"role":"user","content":"a quince"}}\n'
MEMORY = GIB  # bytes of address space


@pytest.fixture
def odd(layout: Layout) -> dict[str, Path]:
    """Sessions in whose archives odd packs lie."""
    found = {}
    for what, name in NAMES.items():
        add_session(layout.root, str(name), jsonl(*conversation()))
        make_private_dir(layout.archive_dir(name))
        found[what] = with_records(written(layout.archive_dir(name), [LINE]), RECORDS[what])
        assert found[what].stat().st_size < 1 << 20
    configure(layout.root, retention="24h")
    return found


def bsd(layout: Layout, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in little memory; it must end by itself, and without an internal error."""
    done = forked.run("--root", str(layout.root), *arguments, memory=MEMORY)
    said = done.stdout + done.stderr
    assert "Traceback" not in said, (arguments, said)
    assert "internal error" not in said.lower(), (arguments, said)
    assert "memory" not in said.lower(), (arguments, said)
    return done


# Odd fields that are not needed to restore a line are no damage.
HARMLESS = {what for what in RECORDS if "that is none" in what or "that are none" in what}
HARMLESS |= {"nothing in it"}


@pytest.mark.slow
def test_they_are_named_and_everything_else_goes_on(layout: Layout, odd: dict[str, Path]) -> None:
    for command in (
        *("sessions", "status", "search quince", "archive list", "extract", "retention"),
        *("summary main/s0", "context main/s0", "doctor", "restore-all --yes"),
    ):
        assert bsd(layout, *command.split()).returncode in {0, 1, 3}, command
    found = bsd(layout, "verify", "--json")
    assert found.returncode == 1
    named = {one["where"] for one in json.loads(found.stdout)["findings"]}
    assert {what for what, path in odd.items() if str(path) in named} == set(odd) - HARMLESS


def test_repairing_makes_their_records_anew(layout: Layout, odd: dict[str, Path]) -> None:
    assert bsd(layout, "verify", "--repair").returncode in {0, 1}
    assert bsd(layout, "verify").returncode == 0
    for name in NAMES.values():
        [path] = layout.archive_dir(name).glob("*.zst")
        with Pack(path) as pack:
            assert [one.line for one in pack] == [LINE]
    assert odd


@pytest.mark.soak
@pytest.mark.daemon
@pytest.mark.slow
def test_the_daemon_answers_and_stays_small(
    layout: Layout, odd: dict[str, Path], tmp_path: Path
) -> None:
    with ending(launch_fresh(layout.root, tmp_path), tmp_path) as daemon:
        wait_for(daemon.is_running, "the daemon to be ready")
        for route in ("sessions", "sessions/main/s0", "search?q=quince", "status", "archive"):
            answer = daemon.ask(route)
            assert "internal error" not in json.dumps(answer), (route, answer)
        assert len(daemon.ask("sessions")["sessions"]) == len(odd)
        wait_for(lambda: daemon.ask("search?q=seen")["search"]["complete"], "all to be indexed")
        assert _peak(daemon.process.pid) < 400 << 20
        assert not any(event["level"] in {"error", "critical"} for event in daemon.events())


def _peak(pid: int) -> int:
    """The peak memory of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(pid)


@pytest.mark.parametrize("times", [{"newest": (1 << 64) - 1}, {"oldest": (1 << 64) - 1}])
def test_times_that_no_calendar_has_are_damage(layout: Layout, times: dict[str, int]) -> None:
    name = SessionName("main", "s")
    add_session(layout.root, str(name), jsonl(*conversation()))
    make_private_dir(layout.archive_dir(name))
    path = written(layout.archive_dir(name), [LINE])
    with Pack(path) as pack:
        frame = path.read_bytes()[pack._index : pack._index + pack._records]
    with_records(path, frame, **times)
    for command in ("sessions", "status", "archive list", "retention"):
        assert bsd(layout, *command.split()).returncode in {0, 1, 3}, command
    done = bsd(layout, "verify", "--repair")
    assert path.name in done.stdout.replace("\n", "")
    assert bsd(layout, "verify").returncode == 0


def test_a_damaged_pack_that_inflates_to_very_much_is_left_alone(layout: Layout) -> None:
    name = SessionName("main", "s")
    add_session(layout.root, str(name), jsonl(*conversation()))
    make_private_dir(layout.archive_dir(name))
    path = written(layout.archive_dir(name), [LINE])
    path.write_bytes(path.read_bytes()[:16] + bomb(4 * GIB) * 2)
    before = path.read_bytes()
    for command in ("sessions", "verify", "verify --repair", "search quince"):
        done = bsd(layout, *command.split())
        assert done.returncode in {0, 1}, (command, done)
    assert path.name in bsd(layout, "verify").stdout.replace("\n", "")
    assert path.read_bytes() == before
