"""bsd as a process of its own that need not start: forked by a server that has loaded all of it.

Most of what a short command costs is Python's start and the loading of modules. Where a test is
about what a command says and does, and not about how it starts, it may have it for a tenth.
`python -m tests.forked SOCKET --host openclaw` is the server; the last two words are those by
which a gateway knows bsd (`bsd.__main__`), so that its children need not execute themselves
again.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import resource
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.waiting import DEADLINE_SECONDS

# As `bsd.__main__` has it, which must not be loaded here: it is run in the children.
HOST_TOKEN = ("--host", "openclaw")
_TOP = Path(__file__).parents[1]
_LOADED = (
    *("cli", "core", "actions", "maintenance", "planning", "sessions", "store", "transcripts"),
    *("daemon", "mcp", "memory", "workspaces"),
)
# What Python and the linker read of their environment as they start: other values, other server.
_AT_START = ("PYTHON", "LC_", "LANG", "LD_")
_FAILS = "FAILING_"  # what shall fail (failing_disk.c) does so in commands, not in their server


class _Server:
    """The process that forks, and whoever asks it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", str(theirs.fileno()), *HOST_TOKEN],
                cwd=_TOP,
                pass_fds=[theirs.fileno()],
                env=environ,
            )
        self.answers = self.socket.makefile("r", encoding="utf-8")
        self.turn = threading.Lock()
        atexit.register(self._close)

    def _close(self) -> None:
        self.answers.close()
        self.socket.close()
        self._process.wait()


_servers: dict[tuple[object, ...], _Server] = {}  # by who asks, and the environment at the start


def run(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    memory: int | None = None,
    timeout: float = DEADLINE_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run` does for `python -m bsd ARGUMENTS`; `memory` limits address space."""
    wanted = dict(os.environ if env is None else env)
    started = sorted(each for each in wanted.items() if each[0].startswith(_AT_START))
    server = _servers.get(kind := (os.getpid(), *started))
    if server is None:
        environ = {name: wanted[name] for name in wanted if not name.startswith(_FAILS)}
        server = _servers[kind] = _Server(environ)
    order = {
        "arguments": arguments,
        "environ": wanted,
        "cwd": str(cwd or Path.cwd()),
        "memory": memory,
    }
    with (
        server.turn,
        open(os.devnull, "rb") as nothing,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        text = json.dumps(order).encode()
        fds = [nothing.fileno(), out.fileno(), err.fileno()]
        socket.send_fds(server.socket, [len(text).to_bytes(4, "big")], fds)
        server.socket.sendall(text)
        pid = int(server.answers.readline())
        killer = threading.Timer(timeout, os.kill, (pid, signal.SIGKILL))
        began = time.monotonic()
        killer.start()
        try:
            code = int(server.answers.readline())
        finally:
            killer.cancel()
            killer.join()
        if time.monotonic() - began >= timeout:
            raise subprocess.TimeoutExpired(arguments, timeout)
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(arguments, code, *said)


def serve(asked: socket.socket) -> None:
    """Fork for every order; in the children, return nothing and run bsd instead."""
    while head := socket.recv_fds(asked, 4, 3):
        size, fds, _, _ = head
        if not size:
            return
        text = asked.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
        pid = os.fork()
        if pid == 0:
            asked.close()
            _become(fds, **json.loads(text))
        for fd in fds:
            os.close(fd)
        asked.sendall(b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        asked.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _become(
    fds: list[int], *, arguments: list[str], environ: dict[str, str], cwd: str, memory: int | None
) -> None:
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    os.chdir(cwd)
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    sys.argv = ["bsd", *arguments]
    runpy.run_module("bsd", run_name="__main__", alter_sys=True)
    sys.exit(0)


def _load_all() -> None:
    for name in _LOADED:
        package: Any = importlib.import_module(f"bsd.{name}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with suppress(ImportError):  # an extra that is not installed
                importlib.import_module(found.name)


if __name__ == "__main__":
    _load_all()
    assert threading.active_count() == 1, "a thread would not be forked"
    gc.freeze()
    end = socket.socket(fileno=int(sys.argv[1]))
    end.set_inheritable(False)
    serve(end)
