"""Every error says what happened and what to try, with the exit code that belongs to it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.files.cli.conftest import Program, snapshot
from tests.needs import as_ordinary_user, require_linux
from tests.openclaw_tree import add_session, set_status


def _told(error: str) -> str:
    """The message, after a check that it is one line with a hint behind it."""
    first, second = error.splitlines()
    assert first.startswith("Error: ")
    assert second.startswith("Try: ")
    return first.removeprefix("Error: ")


def test_a_missing_root(tmp_path: Path) -> None:
    ended = Program(tmp_path / "nowhere")("sessions")
    assert ended.code == 78
    assert _told(ended.err) == f"there is no directory {tmp_path / 'nowhere'}"
    assert "--root" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        ended = Program(root)("extract")
        assert ended.code == 78
        assert _told(ended.err).endswith(str(root)) or "is not a directory" in ended.err


def test_a_directory_that_is_not_openclaws(tmp_path: Path) -> None:
    ended = Program(tmp_path)("extract")
    assert ended.code == 78
    assert str(tmp_path) in _told(ended.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        "show main/../../etc",
        "show main/..",
        "context ../main",
        "extract main/alpha main/..",
        "restore .. e1",
        "restore_remote --session ../alpha --entry e1",
        "restore-all --yes main/a\x1b[2J",
    ],
)
def test_names_are_names(bsd: Program, line: str) -> None:
    before = snapshot(bsd.root)
    ended = bsd(*line.split(" "))
    assert ended.code == 2
    assert "\x1b" not in _told(ended.err)
    assert snapshot(bsd.root) == before


def test_a_link_out_of_the_root(bsd: Program, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    add_session(outside, "evil/s", (bsd.root / "agents/main/sessions/alpha.jsonl").read_bytes())
    (bsd.root / "agents" / "evil").symlink_to(outside / "agents" / "evil")
    (bsd.root / "agents/main/sessions/link.jsonl").symlink_to(
        outside / "agents/evil/sessions/s.jsonl"
    )
    before = snapshot(outside)
    for name in ("evil/s", "main/link"):
        for line in ("show", "context", "extract", "extract --dry-run"):
            ended = bsd(*line.split(), name)
            assert ended.code == 77, (name, line, ended)
            _told(ended.err)
    assert bsd("extract").code == 0
    assert "leads out" in bsd("sessions").err
    assert snapshot(outside) == before


def test_what_does_not_exist(bsd: Program) -> None:
    for line in ("show main/zzz", "restore main/zzz e1", "show main/alpha --entry zzz"):
        ended = bsd(*line.split())
        assert ended.code == 1
        assert "zzz" in _told(ended.err)


def test_one_missing_session_does_not_stop_the_others(bsd: Program) -> None:
    ended = bsd("extract", "main/zzz", "main/alpha", "--json")
    assert ended.code == 1
    assert [one["status"] for one in ended.document["sessions"]] == ["failed", "extracted"]


def test_a_running_session_is_busy(bsd: Program) -> None:
    set_status(bsd.root, "main/alpha", "running")
    ended = bsd("extract", "main/alpha", "--dry-run")
    assert ended.code in (0, 4)  # looking needs nobody's leave
    process = bsd.start("extract", "main/alpha")
    try:
        argv = Path(f"/proc/{process.pid}/cmdline")
        require_linux()
        while b"--host\0openclaw" not in argv.read_bytes():
            assert process.poll() is None
        process.terminate()
        _, error = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -15
    assert "Traceback" not in error


def test_a_full_disk_under_stdout(bsd: Program) -> None:
    require_linux()
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            bsd.argv("sessions"), check=False, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 69
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_had_enough(bsd: Program) -> None:
    for arguments in (("--help",), ("sessions",), ("show", "main/alpha", "--full")):
        reader, writer = os.pipe()
        os.close(reader)
        argv = bsd.argv(*arguments) if arguments != ("--help",) else [*bsd.argv()[:3], "--help"]
        done = subprocess.run(argv, check=False, stdout=writer, stderr=subprocess.PIPE, text=True)
        os.close(writer)
        assert (done.returncode, done.stderr) == (-13, "")


def test_an_ordinary_user_and_a_closed_directory(bsd: Program, tmp_path: Path) -> None:
    prefix = as_ordinary_user()
    for directory in [tmp_path, *tmp_path.parents]:
        if directory.stat().st_uid == os.geteuid() and len(directory.parts) > 2:
            directory.chmod(0o755)
    stranger = Program(bsd.root, tuple(prefix))
    (bsd.root / "agents/main/sessions").chmod(0o000)
    try:
        ended = stranger("show", "main/alpha")
        assert ended.code == 77
        assert "Permission denied" in _told(ended.err)
        bsd.root.chmod(0o000)
        ended = stranger("sessions")
        assert ended.code == 77
        _told(ended.err)
    finally:
        bsd.root.chmod(0o755)
        (bsd.root / "agents/main/sessions").chmod(0o755)


def test_an_ordinary_user_and_a_store_that_cannot_be_written(bsd: Program, tmp_path: Path) -> None:
    prefix = as_ordinary_user()
    for directory in [tmp_path, *tmp_path.parents]:
        if directory.stat().st_uid == os.geteuid() and len(directory.parts) > 2:
            directory.chmod(0o755)
    before = snapshot(bsd.root)
    ended = Program(bsd.root, tuple(prefix))("extract", "main/alpha")
    assert ended.code in (1, 77)
    assert "Permission denied" in ended.err or "not permitted" in ended.err
    assert snapshot(bsd.root) == before


def test_settings_that_are_broken(bsd: Program, tmp_path: Path) -> None:
    file = tmp_path / "bsd.toml"
    file.write_text("rot = 1\n")
    ended = bsd("--config", str(file), "sessions")
    assert ended.code == 78
    assert "rot" in ended.err
    config = bsd.root / ".brainsurgeon" / "config.json"
    config.parent.mkdir(mode=0o700)
    config.write_text("{")
    for line in ("config show", "extract", "extract --dry-run"):
        ended = bsd(*line.split())
        assert ended.code == 78
        assert str(config) in ended.err
    assert config.read_text() == "{"
    assert bsd("doctor").code == 1
