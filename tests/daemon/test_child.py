"""A single child process, without the `Children` that owns it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from bsd.core.layout import Layout
from bsd.daemon.child import ChildSetup, TaskRequest
from tests.daemon import odd_tasks
from tests.waiting import DEADLINE_SECONDS

_TOP = Path(__file__).parents[2]
_SILENCE_SECONDS = 2.0  # on a busy machine the short task must take less


@pytest.mark.parametrize("hangs", [True, False])
def test_one_that_hangs_ends_without_a_daemon_and_one_that_waits_does_not(
    layout: Layout, hangs: bool
) -> None:
    ours, theirs = socket.socketpair()
    program = f"from bsd.daemon.child import main; main({theirs.fileno()})"
    child = subprocess.Popen([sys.executable, "-c", program], cwd=_TOP, pass_fds=[theirs.fileno()])
    theirs.close()
    with Connection(ours.detach()) as line:
        line.send(ChildSetup(layout, 2.0, None, longest_silence=_SILENCE_SECONDS))
        assert line.recv() is None
        task = odd_tasks.hang if hangs else odd_tasks.give
        log = ("info", "json", False)
        line.send(TaskRequest(task, (DEADLINE_SECONDS,), 1 << 40, None, log, {}))
        if hangs:
            assert child.wait(DEADLINE_SECONDS) == -signal.SIGALRM
            return
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(1.5 * _SILENCE_SECONDS)
    assert child.wait(DEADLINE_SECONDS) == 0
