"""Every error says what happened and what to try, with its own exit code."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.cli.problem import problem_of
from bsd.core.errors import Busy, FieldError, Invalid, NotFound
from tests.cli.conftest import Call, Program, open_up, snapshot
from tests.needs import as_ordinary_user, require_linux
from tests.openclaw_tree import add_session, set_status
from tests.waiting import DEADLINE_SECONDS


def _told(error: str) -> str:
    """The message, after a check that it is one line with a hint behind it."""
    first, second = error.splitlines()
    assert first.startswith("Error: ")
    assert second.startswith("Try: ")
    return first.removeprefix("Error: ")


def _homeless(tmp_path: Path) -> dict[str, str]:
    """An environment for a user who may not read the test's own home."""
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "none")}


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
def test_names_are_names(bsd: Call, line: str) -> None:
    before = snapshot(bsd.root)
    ended = bsd(*line.split(" "))
    assert ended.code == 2
    assert "\x1b" not in _told(ended.err)
    assert snapshot(bsd.root) == before


def test_a_link_out_of_the_root(bsd: Call, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("where", ["agents/circle", "agents/main/sessions/circle.jsonl"])
def test_a_link_that_leads_to_itself_stops_nothing(bsd: Call, where: str) -> None:
    (bsd.root / where).symlink_to(Path(where).name)
    assert len(bsd("sessions", "--json").document["sessions"]) == 4
    for line in ("extract", "verify", "search harbour", "retention --dry-run"):
        assert bsd(*line.split()).code == 0, line


def test_what_does_not_exist(bsd: Call) -> None:
    for line in ("show main/zzz", "restore main/zzz e1", "show main/alpha --entry zzz"):
        ended = bsd(*line.split())
        assert ended.code == 1
        assert "zzz" in _told(ended.err)


def test_one_missing_session_does_not_stop_the_others(bsd: Call) -> None:
    ended = bsd("extract", "main/zzz", "main/alpha", "--json")
    assert ended.code == 1
    assert [one["status"] for one in ended.document["sessions"]] == ["failed", "extracted"]


def test_a_running_session_is_busy(program: Program) -> None:
    set_status(program.root, "main/alpha", "running")
    ended = program("extract", "main/alpha", "--dry-run")
    assert ended.code == 0  # reading needs no permission of a program
    process = replace(program, fresh=True).start("extract", "main/alpha")
    try:
        argv = Path(f"/proc/{process.pid}/cmdline")
        require_linux()
        while b"--host\0openclaw" not in argv.read_bytes():
            assert process.poll() is None
            time.sleep(0.01)
        process.terminate()
        _, error = process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -15
    assert "Traceback" not in error


def test_a_full_disk_under_stdout(program: Program) -> None:
    require_linux()
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            program.argv("sessions"), check=False, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 69
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_had_enough(program: Program) -> None:
    for arguments in (("--help",), ("sessions",), ("show", "main/alpha", "--full")):
        reader, writer = os.pipe()
        os.close(reader)
        argv = (
            program.argv(*arguments)
            if arguments != ("--help",)
            else [*replace(program, fresh=True).argv()[:3], "--help"]
        )
        done = subprocess.run(argv, check=False, stdout=writer, stderr=subprocess.PIPE, text=True)
        os.close(writer)
        assert (done.returncode, done.stderr) == (-13, "")


def test_an_ordinary_user_and_a_closed_directory(program: Program, tmp_path: Path) -> None:
    prefix = as_ordinary_user()
    open_up(tmp_path)
    stranger = Program(program.root, tuple(prefix))
    (program.root / "agents/main/sessions").chmod(0o000)
    try:
        ended = stranger("show", "main/alpha", **_homeless(tmp_path))
        assert ended.code == 77
        assert "Permission denied" in _told(ended.err)
        program.root.chmod(0o000)
        ended = stranger("sessions", **_homeless(tmp_path))
        assert ended.code == 77
        _told(ended.err)
    finally:
        program.root.chmod(0o755)
        (program.root / "agents/main/sessions").chmod(0o755)


def test_an_ordinary_user_and_a_store_that_cannot_be_written(
    program: Program, tmp_path: Path
) -> None:
    prefix = as_ordinary_user()
    if not prefix:
        pytest.skip("needs root, to be somebody else as well")
    open_up(tmp_path)
    before = snapshot(program.root)
    ended = Program(program.root, tuple(prefix))("extract", "main/alpha", **_homeless(tmp_path))
    assert ended.code in (1, 77)
    assert "Permission denied" in ended.err or "not permitted" in ended.err
    assert snapshot(program.root) == before


def test_settings_that_are_broken(bsd: Call, tmp_path: Path) -> None:
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
    ended = bsd("restore-all", "main/alpha", "--yes")
    assert ended.code == 0, "what is away can come back without any settings"
    assert config.read_text() == "{"
    assert bsd("doctor").code == 1


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_stream_that_is_closed_is_no_internal_error(bsd: Call, closed: int) -> None:
    zzz = Program(bsd.root, fresh=True).argv("sessions", "--agent", "zzz")
    redirection = f"{closed}{'<' if closed == 0 else '>'}&-"
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *zzz],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith("Error: there is no agent zzz\n") is (closed != 2)


def test_a_directory_in_place_of_a_leftover_stops_no_repair(bsd: Call) -> None:
    assert bsd("extract", "main/alpha", "main/beta").code == 0
    alpha, beta = (bsd.root / "extracted" / f"main_{name}" for name in ("alpha", "beta"))
    (alpha / "0001_tool.tmp").mkdir()
    (beta / "0001_tool.tmp").touch()
    (beta / "index.json").unlink()
    ended = bsd("verify", "--repair")
    assert ended.code == 1
    assert "0001_tool.tmp" in ended.out + ended.err
    assert sorted(path.name for path in beta.glob("*.tmp")) == []
    assert (beta / "index.json").exists()


# --- errors for users: never a traceback, always something to try ---


def test_our_own_errors_are_told_as_they_are() -> None:
    error = Invalid("2 fields", hint="look", errors=(FieldError("keep_recent", "too large"),))
    problem = problem_of(error, None)
    assert problem.exit_code == 2
    assert problem.as_json() == {
        "error": "2 fields",
        "hint": "look",
        "errors": [{"field": "keep_recent", "message": "too large"}],
    }


def test_what_is_not_there_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    problem = problem_of(Busy("in use"), None)
    problem.show()
    assert problem.as_json() == {"error": "in use"}
    assert capsys.readouterr().err == "Error: in use\n"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, 69),
        (errno.EACCES, 77),
        (errno.EROFS, 77),
        (errno.ENOENT, 1),
        (errno.EIO, 69),
    ],
)
def test_errors_of_the_system(number: int, code: int) -> None:
    problem = problem_of(OSError(number, os.strerror(number), "/some/file"), None)
    assert problem.exit_code == code
    assert problem.error == f"/some/file: {os.strerror(number)}"
    assert problem.hint


def test_the_unforeseen_is_kept_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    try:
        dict[str, int]()["odd \udcff"]
    except KeyError as error:
        problem = problem_of(error, None)
    (kept,) = tmp_path.iterdir()
    assert problem.exit_code == 1
    assert problem.error == "internal error: KeyError: 'odd \\udcff'"
    assert str(kept) in (problem.hint or "")
    assert "Traceback" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def test_nowhere_to_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere/at/all")
    assert problem_of(KeyError("x"), None).hint == "please report it"


def test_nothing_in_a_message_commands_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    problem_of(NotFound("no \x1b[2J\u202e here", hint="\x07"), None).show()
    assert capsys.readouterr().err == "Error: no \\x1b[2J\\u202e here\nTry: \\x07\n"
