"""On a terminal: a progress bar on stderr, styles on stdout, and neither of them elsewhere."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest

from tests.doors.cli.conftest import Program
from tests.waiting import DEADLINE_SECONDS


def _on_a_terminal(argv: list[str], **env: str) -> tuple[str, str]:
    """What a program prints to a pipe as stdout, and to a terminal as stderr."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm"} | env,
        text=True,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux's way to say that nobody has the other end any more
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    out, _ = process.communicate(timeout=DEADLINE_SECONDS)
    return out, shown.decode()


def test_progress_is_shown_to_people_beside_the_document(program: Program) -> None:
    out, shown = _on_a_terminal(program.argv("extract", "--json"))
    assert json.loads(out)["totals"]["extracted"] == 3
    assert "━" in shown
    assert "/s" in shown


@pytest.mark.parametrize(("env", "styled"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_errors_are_styled_unless_unwanted(
    program: Program, env: dict[str, str], styled: bool
) -> None:
    _, shown = _on_a_terminal(program.argv("nonsense"), **env)
    assert ("\x1b[1;31mError:\x1b[0m" in shown) is styled
    assert "Try: " in shown.replace("\x1b[1m", "").replace("\x1b[0m", "")


def test_nothing_is_shown_without_a_terminal(program: Program) -> None:
    ended = program("extract", "main/alpha")
    assert ended.err == ""
    assert "\x1b" not in ended.out
