"""Ctrl-C at any moment of a long extraction: no file is torn, and bsd reports its changes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import cast

import pytest

from bsd.cli import daemon_process
from bsd.cli.stopping import Stopped, StopRequest, stop_request
from bsd.daemon.service import Daemon
from bsd.daemon.signals import Signals
from tests.cli.conftest import Call, Program, rest
from tests.needs import require_linux
from tests.openclaw_tree import add_session
from tests.session_files import sample
from tests.waiting import DEADLINE_SECONDS

_SESSIONS = 12
_ROUNDS = 5


@pytest.fixture
def many(tmp_path: Path) -> tuple[Program, dict[Path, bytes]]:
    """Enough sessions for a signal to arrive during the work."""
    root = tmp_path / "many"
    contents = {}
    for number in range(_SESSIONS):
        content = sample(turns=12, seed=number)
        contents[add_session(root, f"main/s{number:02}", content)] = content
    return Program(root, fresh=True), contents


def _written_files(program: Program) -> int:
    return sum(1 for _ in (program.root / "extracted").rglob("*.json"))


def test_signals_at_any_moment(many: tuple[Program, dict[Path, bytes]], bsd: Call) -> None:
    require_linux()
    program, contents = many
    bsd = replace(bsd, root=program.root)
    chance = Random(4)
    stopped = 0
    for number in range(_ROUNDS):
        wanted = _written_files(program) + chance.randrange(12)
        process = program.start("extract")
        deadline = time.monotonic() + DEADLINE_SECONDS
        while process.poll() is None and _written_files(program) < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        kind = chance.choice([signal.SIGINT, signal.SIGTERM])
        process.send_signal(kind)
        if number % 3 == 2:
            process.send_signal(signal.SIGINT)  # an impatient user
        _, error = process.communicate(timeout=DEADLINE_SECONDS)
        assert "Traceback" not in error, error
        assert process.returncode in (0, -signal.SIGINT, -signal.SIGTERM), error
        stopped += process.returncode != 0
        if "Stopped: " in error:
            assert re.search(r"Stopped: \d+ sessions? done, .* saved, \d+ not begun", error)
        assert bsd("verify", "--repair").code == 0
        found = bsd("verify")
        assert found.code == 0, found
        rest(program.root)
    assert stopped >= 2
    rest(program.root)
    assert bsd("extract").code == 0
    rest(program.root)
    assert bsd("restore-all", "--yes").code == 0
    assert bsd("verify").code == 0
    for path, content in contents.items():
        assert re.sub(rb',"_restored":"[^"]*"', b"", path.read_bytes()) == content


_STARTING = """
import os, signal, sys
from bsd.cli.call import Call
from bsd.core.errors import ConfigError

def signalled(_):
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGUSR1)
    raise ConfigError("still there")

Call.load_settings = signalled
from bsd.cli.main import run
sys.exit(run(["run"]))
"""


def test_a_reload_while_the_daemon_starts_does_not_end_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STARTING], check=False, capture_output=True, text=True
    )
    assert (done.returncode, "still there" in done.stderr) == (78, True), done.stderr


# --- a stop takes effect where no work is half done; a second signal at once ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_request_first(number: signal.Signals) -> None:
    with stop_request() as request:
        signal.raise_signal(number)
        assert request.number == number
        with pytest.raises(Stopped) as stopped:
            request.check()
    assert stopped.value.exit_code == 128 + number


def test_the_second_signal_does_not_wait() -> None:
    with stop_request() as request:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGINT)
        assert request.insisted


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stop_request():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_waiting_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def signalled(_seconds: float) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("time.sleep", signalled)
    with stop_request() as request:
        with pytest.raises(Stopped):
            request.sleep(3600)
        assert not request.insisted


def test_no_wait_begins_after_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("waited"))
    request = StopRequest()
    request.number = signal.SIGINT
    with pytest.raises(Stopped):
        request.sleep(1)


def test_nothing_that_catches_errors_takes_it() -> None:
    assert not issubclass(Stopped, Exception)


# --- on a terminal: a progress bar on stderr, styles on stdout, and neither of them elsewhere ---


def _on_a_terminal(argv: list[str], **env: str) -> tuple[str, str]:
    """The output of a program, with a pipe as stdout and a terminal as stderr."""
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
        except OSError:  # Linux's way to say that no process has the other end any more
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


class _Daemon:
    stopped = False

    def stop(self, *, again: bool) -> bool:
        self.stopped = not again
        return True


def test_a_daemon_is_stopped_although_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise its existing connections would keep the process for ever, without an answer."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    daemon = _Daemon()
    with Signals() as signals:
        assert daemon_process._stop(signals, cast("Daemon", daemon), None)
    assert daemon.stopped
