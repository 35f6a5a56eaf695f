"""`bsd demo` ends by itself, prints true figures and leaves no files behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.cli import demo
from bsd.cli.main import run
from tests.cli.conftest import Program, snapshot
from tests.needs import require_linux
from tests.waiting import DEADLINE_SECONDS, wait_for


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "tmp"
    place.mkdir()
    return place


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """The same play with less text, in this process."""
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(demo, "_IDLE", {"main/a": 60_000})
    monkeypatch.setattr(demo, "_TURNS", 1)
    monkeypatch.setattr(demo, "_PROTECTED_SECONDS", 2)


def processes_in(place: Path) -> list[str]:
    """The command lines of all processes that use a directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:  # it has just ended
            continue
        if os.fsencode(place) in words:
            found.append(words.decode())
    return found


@pytest.mark.slow
def test_demo(program: Program, place: Path, tmp_path: Path) -> None:
    before = snapshot(program.root)
    elsewhere = {
        "HOME": str(tmp_path / "nobody"),
        "OPENCLAW_ROOT": str(program.root),
        "BRAINSURGEON_SOCKET": str(tmp_path / "somebodys.sock"),
        "BRAINSURGEON_READONLY": "true",
        "XDG_CONFIG_HOME": str(tmp_path / "nobody"),
    }
    ended = replace(program, fresh=True)("demo", TMPDIR=str(place), **elsewhere)
    assert ended.code == 0, ended
    assert "[[extracted-" in ended.out
    assert ended.out.endswith("Every byte came back.\n")
    assert "✗" not in ended.out
    for number in range(1, 5):
        assert f"turn {number} written" in ended.out
    assert list(place.iterdir()) == []
    assert processes_in(place) == []
    assert snapshot(program.root) == before
    assert not (tmp_path / "nobody").exists()


@pytest.mark.soak
@pytest.mark.usefixtures("short")
def test_a_byte_that_is_lost_is_noticed(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = demo.stop_daemon

    def stop_and_damage(daemon: subprocess.Popen[bytes]) -> int | None:
        code = stop(daemon)
        for path in place.glob("*/openclaw/agents/main/sessions/a.jsonl"):
            # The second line is never extracted.
            path.write_bytes(path.read_bytes().replace(b'"provider":"anthropic"', b'"provider":""'))
        return code

    monkeypatch.setattr(demo, "stop_daemon", stop_and_damage)
    assert run(["demo", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert not document["exact"]
    (failed,) = [check["check"] for check in document["checks"] if not check["ok"]]
    assert failed.startswith("main/a: ")
    assert list(place.iterdir()) == []


@pytest.mark.soak
@pytest.mark.usefixtures("short")
def test_the_directory_may_be_kept(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--keep"]) == 0
    (kept,) = place.iterdir()
    assert f"Left for you: {kept}" in capsys.readouterr().out
    assert processes_in(kept) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_when_it_is_broken_off_nothing_is_left(
    program: Program, place: Path, number: signal.Signals
) -> None:
    require_linux()
    process = replace(program, fresh=True).start("demo", TMPDIR=str(place))
    try:
        wait_for(
            lambda: any("run" in words.split("\0") for words in processes_in(place)), "its daemon"
        )
        process.send_signal(number)
        _, err = process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        process.kill()
        process.communicate()
    expected = 128 + number if number == signal.SIGHUP else -number
    assert process.returncode == expected, err
    assert "Traceback" not in err
    assert processes_in(place) == []
    assert list(place.iterdir()) == []
