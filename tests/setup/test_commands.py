"""The commands that bsd writes into other programs' files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bsd.core.locations import find_socket
from bsd.setup import commands
from bsd.setup.commands import own_command, setup_commands


def test_the_socket_is_named_if_the_script_would_not_find_it(clean_environment: Path) -> None:
    usual = find_socket(clean_environment / ".local" / "share" / "bsd", {})
    assert "--socket" not in str(setup_commands((), usual).hook)
    other = clean_environment / "other" / "bsd.sock"
    assert f"--socket {other}" in str(setup_commands((), other).hook)
    for root in (".openclaw", ".local/share/bsd"):  # otherwise it would find OpenClaw's first
        (clean_environment / root / ".brainsurgeon").mkdir(parents=True)
    assert "--socket" in str(setup_commands((), usual).hook)


def test_a_hook_of_a_bsd_that_is_gone_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude Code treats an exit code of 2, as Python's for a missing script, as a refusal."""
    monkeypatch.setattr(commands, "hook_script", lambda: tmp_path / "it's gone.py")
    for python in (None, str(tmp_path / "no python")):
        if python is not None:
            monkeypatch.setattr("sys.executable", python)
        hook = str(setup_commands((), tmp_path / "bsd.sock").hook)
        done = subprocess.run(["sh", "-c", hook], capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_server_is_called_by_a_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["bsd", "agents"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_command()[1:] == ["-m", "bsd"]
    (tmp_path / "bsd").write_text("#!/bin/sh\n")
    (tmp_path / "bsd").chmod(0o755)
    assert own_command() == [str(tmp_path / "bsd")]
    server = setup_commands(("--root", "/r"), tmp_path / "s").mcp
    assert server == (str(tmp_path / "bsd"), "--root", "/r", "mcp")
