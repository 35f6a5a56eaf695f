"""What a user is told of an error: never a traceback, always something to try."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bsd.doors.cli.problem import problem_of
from bsd.foundation.errors import Busy, FieldError, Invalid, NotFound


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
