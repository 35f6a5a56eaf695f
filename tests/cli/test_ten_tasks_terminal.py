"""The ten usual tasks, each by one command, in terminals of two widths."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import forked
from tests.cli.test_left_in_flight import let_pass
from tests.lived_in_home import LARGEST, LOGIN, OLD, SEEN, VANISHED, make_home, path_of
from tests.needs import require_program
from tests.openclaw_tree import set_idle
from tests.tasks import task
from tests.waiting import wait_for

_TOP = Path(__file__).parents[2]
_LINES = 120  # of the terminal: as many as a command here prints


@dataclass
class Terminal:
    """A shell in a window of tmux."""

    tmux: tuple[str, ...]
    width: int
    commands: int = 0
    wide: list[str] = field(default_factory=list)

    def command(self, line: str, answer: str = "") -> str:
        """Type a command, answer its questions, and return all of its output, lines joined."""
        self.commands += 1
        end = f"ended-{self.commands}-"
        self._type(f"clear; {line}; echo {end}$?")
        if answer:
            wait_for(lambda: re.search(r"\? \[y/N\]:?\s*$", self.screen()), "a question")
            self._type(answer)
        wait_for(lambda: re.search(rf"^{end}\d", self.screen(), re.MULTILINE), line)
        said, code = re.split(rf"^{end}", self.screen(), flags=re.MULTILINE)
        assert code.split()[0] == "0", said
        assert "Traceback" not in said, said
        for one in said.splitlines():
            if len(one) > self.width:
                self.wide.append(one)
        return said

    def screen(self) -> str:
        """The text on the screen; lines that the terminal has broken are whole."""
        return self._tmux("capture-pane", "-p", "-J", "-t", "bsd")

    def _type(self, line: str) -> None:
        self._tmux("send-keys", "-t", "bsd", "-l", f"{line}\n")

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run([*self.tmux, *arguments], check=True, capture_output=True, text=True)
        return done.stdout


@contextmanager
def terminal(place: Path, width: int) -> Iterator[Terminal]:
    """A terminal in which `bsd` is a command."""
    program = place / "bin" / "bsd"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(forked.command())} "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    tmux = (require_program("tmux"), "-u", "-f", "/dev/null", "-S", str(place / "tmux"))
    # Only the terminal gives its size.
    sized = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}
    size = ("-x", str(width), "-y", str(_LINES))
    subprocess.run(
        [*tmux, "new-session", "-d", "-s", "bsd", *size, "-c", str(_TOP), "sh"],
        check=True,
        env=sized | {"PATH": path, "PS1": "$ ", "ENV": "", "PYTHONPATH": str(_TOP)},
    )
    try:
        yield Terminal(tmux, width)
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)


@pytest.mark.parametrize("width", [60, 160])
def test_each_task_is_one_command(clean_environment: Path, short_path: Path, width: int) -> None:
    home = clean_environment
    root = make_home(home)
    with terminal(short_path, width) as shell:
        what_there_is(shell)
        what_is_found(shell)
        what_changes(shell, home, root)
    # A text too long for a line is copied, or is a single long name: sentences break between words.
    long = re.compile(rf"[0-9a-f]{{8}}-|{re.escape(str(home))}|`[^`]+`")
    assert [line for line in shell.wide if not long.search(line)] == []


def what_there_is(shell: Terminal) -> None:
    """Three questions that the same command answers."""
    said = shell.command("bsd")
    with task("the largest session and why", most=1) as step:
        step("bsd")
        _, largest = said.split("The largest sessions, and their contents")
        assert re.search(rf"KB  {LARGEST}\n +The harbour master\n +thinking \d+ %", largest)
    with task("what would I gain", most=1) as step:
        step("bsd")
        assert re.search(r"now \d.* KB \(\d+ %\) would be extracted", " ".join(said.split()))
    with task("what was saved", most=1) as step:
        step("bsd")
        assert re.search(r"saved .*KB left the sessions, bsd keeps \d", " ".join(said.split()))


def what_is_found(shell: Terminal) -> None:
    with task("what the model saw of a file", most=1) as step:
        step("bsd show")
        said = shell.command(f"bsd show {LOGIN[:-20]} --file auth.py")
        assert SEEN in said
    with task("where Y was discussed, and go on there", most=1) as step:
        step("bsd search")
        said = shell.command("bsd search quokka")
        _, session = LOGIN.split("/")
        assert f"cd /home/me/shop && claude --resume {session}" in said
    with task("what is deleted tonight", most=1) as step:
        step("bsd retention")
        said = shell.command("bsd retention --dry-run --at tonight")
        assert OLD in said.replace("\n", "")


def what_changes(shell: Terminal, home: Path, root: Path) -> None:
    with task("a vanished session", most=1) as step:
        step("bsd archive bring-back")
        said = shell.command(f"bsd archive bring-back {VANISHED[:-20]}")
        assert f"Continue it: cd /home/me/shop && claude --resume {VANISHED.split('/')[1]}" in said
    with task("bsd stops for one project", most=1) as step:
        step("bsd exclude")
        assert "1 agent, 1 session" in shell.command("bsd exclude /home/me/secret")
    for path in home.rglob("*.jsonl"):
        set_idle(path)
    with task("undo what bsd did since yesterday", most=1) as step:
        step("bsd undo")
        shell.command("bsd undo --since yesterday", "y")
        assert SEEN in path_of(home, LOGIN).read_text()
    let_pass(root, 61)  # otherwise `bsd leave` waits a minute
    with task("leave for good", most=1) as step:
        step("bsd leave")
        assert "bsd has left" in shell.command("bsd leave", "y")
