"""Settings that another process reads, and what the daemon's own does not load for them."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bsd.core.errors import ConfigError
from bsd.core.settings_apart import _PROGRAM, SettingsReading
from bsd.core.settings_reader import load_settings
from tests.waiting import DEADLINE_SECONDS


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("BRAINSURGEON_")]:
        monkeypatch.delenv(name)
    return tmp_path / "bsd.toml"


def test_they_are_those_that_are_read_here(file: Path, tmp_path: Path) -> None:
    file.write_text(
        'api_keys = ["k"]\nhttp = "[::1]:80"\nworkers = 3\n'
        '[memory]\nttl = {brief = "1h"}\nrefresh = ["brief"]\n'
        f'[[sources]]\nkind = "codex"\npath = "{tmp_path / "x"}"\n'
    )
    root = tmp_path / "root"
    reading = SettingsReading(file, root)
    assert reading._process.wait(DEADLINE_SECONDS) == 0, (
        "it does not wait until somebody wants them"
    )
    found = reading.settings()
    assert found == load_settings(file, root)
    assert (found.workers, found.memory.ttl) == (3, {"brief": 3600})


def test_what_is_wrong_is_said_as_if_they_were_read_here(file: Path) -> None:
    file.write_text("workers = 3.5\nquiet_second = 3\n")
    with pytest.raises(ConfigError) as here:
        load_settings(file)
    with pytest.raises(ConfigError) as apart:
        SettingsReading(file, None).settings()
    assert "quiet_seconds" in apart.value.message
    found, expected = apart.value, here.value
    assert (found.message, found.hint, found.errors) == (
        expected.message,
        expected.hint,
        expected.errors,
    )


def test_where_the_process_is_killed_they_are_read_here(file: Path) -> None:
    file.write_text("workers = 5\n")
    reading = SettingsReading(file, None)
    os.kill(reading._process.pid, signal.SIGKILL)
    reading._process.wait()
    assert reading.settings().workers == 5


def test_a_daemon_does_not_keep_what_checks_them() -> None:
    program = (
        "import sys, bsd.cli.daemon, bsd.cli.daemon_process, bsd.http.app;"
        " print([name for name in sys.modules if name.startswith('pydantic')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


def test_one_whose_parent_is_gone_ends_without_a_word(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, *sys.path],
        check=False,
        input=b"",
        capture_output=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_one_whose_parent_goes_before_the_answer_ends_without_a_word(file: Path) -> None:
    nobody, somebody = os.pipe()
    os.close(nobody)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, *sys.path],
        check=False,
        input=pickle.dumps((file, None)),
        stdout=somebody,
        stderr=subprocess.PIPE,
    )
    os.close(somebody)
    assert (done.returncode, done.stderr) == (0, b"")
