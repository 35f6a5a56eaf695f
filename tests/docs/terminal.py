"""A terminal in which the commands of a page run, one after the other, in a home of their own."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from bsd.cli.main import run
from bsd.core.logs import close_logs
from tests import forked
from tests.daemon.running import Running, running
from tests.docs.home import make_home
from tests.docs.pages import Command
from tests.unix import UnixConnection
from tests.waiting import DEADLINE_SECONDS

_SHELL = re.compile(r"[|&;<>$*`]")
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`]*\"")
_NEEDS_DAEMON = re.compile(r"curl .*--unix-socket|bsd (status|jobs)\b")
# Programs that a command of bsd may call and that must not change the machine of the test.
_FAILS = ("systemctl", "loginctl", "launchctl", "docker", "sudo", "pip")
_VARIABLES = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_STATE_HOME": ".local/state",
    "XDG_DATA_HOME": ".local/share",
    "XDG_CACHE_HOME": ".cache",
}


class Terminal:
    """Runs commands; a daemon runs beside them if `daemon` is not None."""

    def __init__(self, home: Path, daemon: Running | None) -> None:
        self.home = home
        self._daemon = daemon

    def __call__(self, line: str) -> tuple[int, str]:
        """Run a line.

        Returns:
            The exit code (of `curl` the status, if it is 400 or above), and the text that the
            command prints, in which the home is called `/home/me`.
        """
        if line.startswith("curl "):
            code, text = self._curl(line)
        elif line.startswith("bsd ") and not _SHELL.search(_QUOTED.sub("", line)):
            code, text = self._bsd(line)
        else:
            code, text = self._shell(line)
        return code, text.replace(str(self.home), "/home/me")

    def _bsd(self, line: str) -> tuple[int, str]:
        """Run a command of bsd in this process."""
        words = [os.path.expanduser(word) for word in shlex.split(line, comments=True)[1:]]
        out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
        with (
            redirect_stdout(out),
            redirect_stderr(out),
            mock.patch.object(sys, "stdin", io.StringIO()),
        ):
            try:
                code = run(words)
            finally:
                close_logs()
        return code, out.buffer.getvalue().decode()

    def _shell(self, line: str) -> tuple[int, str]:
        """Run a line in a shell that finds bsd."""
        program = self.home.parent / "bin" / "bsd"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(forked.command())} "$@"\n')
        program.chmod(0o755)
        done = subprocess.run(
            ["sh", "-c", line],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.home,
            timeout=DEADLINE_SECONDS,
        )
        return done.returncode, done.stdout

    def _curl(self, line: str) -> tuple[int, str]:
        """Send the request of a call of curl to the daemon's socket."""
        assert self._daemon is not None
        words = iter(shlex.split(line.partition(" | ")[0], comments=True)[1:])
        method, body, headers, path = "", None, {}, ""
        for word in words:
            match word:
                case "-X" | "--request":
                    method = next(words)
                case "-d" | "--data" | "--json":
                    body = next(words)
                    headers["Content-Type"] = "application/json"
                case "-H" | "--header":
                    name, _, value = next(words).partition(":")
                    headers[name] = value.strip()
                case "--unix-socket":
                    next(words)
                case _ if not word.startswith("-"):
                    path = "/" + word.removeprefix("http://").partition("/")[2]
        connection = UnixConnection(self._daemon.socket)
        connection.request(method or ("POST" if body else "GET"), path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return (answer.status if answer.status >= 400 else 0), text


@contextmanager
def terminal(place: Path, commands: list[Command]) -> Iterator[Terminal]:
    """Make the home, and start a daemon if a command needs it.

    Args:
        place: an empty directory with a short path, in which sockets can lie.
    """
    home, programs = place / "home", place / "bin"
    home.mkdir()
    programs.mkdir()
    for name in _FAILS:
        (programs / name).write_text("#!/bin/sh\nexit 1\n")
        (programs / name).chmod(0o755)
    environ = {name: str(home / path) for name, path in _VARIABLES.items()}
    environ |= {"HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "100"}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, environ))
        root = make_home(home)
        daemon = None
        if any(_NEEDS_DAEMON.search(command.text) for command in commands):
            daemon = stack.enter_context(_daemon(root, place))
        yield Terminal(home, daemon)


@contextmanager
def _daemon(root: Path, place: Path) -> Iterator[Running]:
    """Start a daemon that does not extract by itself, so that commands find unchanged sessions.

    Commands find it by the variable of its socket, `curl` by itself.
    """
    config = root / ".brainsurgeon" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"enabled": False}))
    with (
        running(root, place) as daemon,
        mock.patch.dict(os.environ, {"BRAINSURGEON_SOCKET": str(daemon.socket)}),
    ):
        yield daemon


def differences(command: Command, code: int, printed: str) -> list[str]:
    """Compare a command's end and output with the page; returns the differences.

    A shown line must be among the printed ones, in the same order. `…` stands for any text, digits
    for any digits, and any number of spaces for any other.
    """
    failed = any(line.startswith("Error:") or '"error"' in line for line in command.shown)
    told = [] if (code != 0) == failed else [f"it ends with {code}"]
    rest = iter([_plain(line) for line in printed.splitlines()])
    for line in command.shown:
        if not line.strip(" …"):
            continue
        pattern = re.compile(".*".join(map(re.escape, _plain(line).split("…"))))
        if not any(pattern.fullmatch(other) for other in rest):
            told.append(f"it does not print: {line}")
            break
    return told


def _plain(line: str) -> str:
    return " ".join(re.sub(r"\d[\d.,:]*", "0", line).split())
