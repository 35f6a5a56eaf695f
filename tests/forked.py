"""bsd as a separate process without a start of its own: forked by a server that has loaded it.

Most of the cost of a short command is Python's start and the loading of modules. A test of a
command's output and effects, as opposed to its start, can have it for a tenth of the cost.
`run` waits for a command, `start` starts a long-running command (a daemon), and `command` returns
a command line for other programs that start bsd (`forked_command.py`).

`python -m tests.forked SOCKET PATH --host openclaw` is the server. A gateway recognises bsd by the
last two words (`bsd.__main__`), so that the server's children need not execute themselves again.
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
import select
import shutil
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
from typing import IO, Any, NoReturn

from tests.waiting import DEADLINE_SECONDS

# A copy of the value in `bsd.__main__`, which runs in the children and must not be loaded here.
HOST_TOKEN = ("--host", "openclaw")
_TOP = Path(__file__).parents[1]
_LOADED = (
    *("cli", "core", "actions", "maintenance", "planning", "sessions", "store", "transcripts"),
    *("daemon", "mcp", "memory", "workspaces", "http", "setup", "bucket", "fleet"),
)
# Python and the linker read these variables as they start: other values need another server.
AT_START = ("PYTHON", "LC_", "LANG", "LD_")
_FAILS = "FAILING_"  # injected failures (failing_disk.c) belong to commands, not to their server


class _Server:
    """The server process that forks, and the client that sends orders to it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        # Not in the directory of pytest, whose path may be too long for a socket.
        self.path = Path(tempfile.mkdtemp(prefix="bsd-forked-")) / "socket"
        self.socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.forked"),
                    *(str(theirs.fileno()), str(self.path), *HOST_TOKEN),
                ],
                cwd=_TOP,
                pass_fds=[theirs.fileno()],
                env=environ,
            )
        self.answers = self.socket.makefile("r", encoding="utf-8")
        self.turn = threading.Lock()
        atexit.register(self._close)
        assert self.answers.readline(), "the server has not started"

    def _close(self) -> None:
        self.answers.close()
        self.socket.close()
        self._process.wait()
        shutil.rmtree(self.path.parent)


_servers: dict[tuple[object, ...], _Server] = {}  # by process and environment at the start


def _server(environ: Mapping[str, str]) -> _Server:
    """The server of this process for commands with such an environment."""
    started = sorted(each for each in environ.items() if each[0].startswith(AT_START))
    server = _servers.get(kind := (os.getpid(), *started))
    if server is None:
        kept = {name: environ[name] for name in environ if not name.startswith(_FAILS)}
        server = _servers[kind] = _Server(kept)
    return server


class Process:
    """A running bsd; like `subprocess.Popen`, which needs a child of this process."""

    def __init__(self, connection: socket.socket) -> None:
        self.returncode: int | None = None
        self._connection = connection
        self._answers = connection.makefile("r", encoding="utf-8")
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        return self._end(0)

    def wait(self, timeout: float = DEADLINE_SECONDS) -> int:
        """Wait until it ends, and return its exit code."""
        code = self._end(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["bsd"], timeout)
        return code

    def _end(self, timeout: float) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(*arguments: str, out: IO[Any], env: Mapping[str, str] | None = None) -> Process:
    """Start bsd, with its output and errors written to `out`."""
    environ = dict(os.environ if env is None else env)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(_server(environ).path))
    order = {"arguments": arguments, "environ": environ, "cwd": str(Path.cwd()), "memory": None}
    with open(os.devnull, "rb") as nothing:
        send(connection, order, [nothing.fileno(), out.fileno(), out.fileno()])
    return Process(connection)


def command(*arguments: str) -> list[str]:
    """Return a command line with the effect of `python -m bsd ARGUMENTS`."""
    program = Path(__file__).with_name("forked_command.py")
    return [sys.executable, "-I", "-S", str(program), str(_server(os.environ).path), *arguments]


def send(connection: socket.socket, order: Mapping[str, object], fds: list[int]) -> None:
    """Send an order, with the command's standard streams."""
    text = json.dumps(order).encode()
    socket.send_fds(connection, [len(text).to_bytes(4, "big")], fds)
    connection.sendall(text)


def run(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    memory: int | None = None,
    timeout: float = DEADLINE_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Like `subprocess.run` with `python -m bsd ARGUMENTS`; `memory` limits address space."""
    wanted = dict(os.environ if env is None else env)
    server = _server(wanted)
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
        send(server.socket, order, [nothing.fileno(), out.fileno(), err.fileno()])
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


def serve(asked: socket.socket, listening: socket.socket) -> None:
    """Fork for every order; in the children, return and run bsd instead.

    Args:
        asked: brings orders of `run`, in sequence; at its end the server ends.
        listening: each of its connections brings one order, and is told when the command ends.
    """
    while True:
        ready, _, _ = select.select([asked, listening], [], [])
        if listening in ready:
            connection, _ = listening.accept()
            with connection:
                if os.fork() == 0:
                    listening.close()
                    asked.close()
                    _attend(connection)
            continue
        order = _read(asked)
        if order is None:
            return
        with suppress(ChildProcessError):  # processes of `_attend` whose command has ended
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        pid = os.fork()
        if pid == 0:
            asked.close()
            listening.close()
            _become(*order)
        for fd in order[0]:
            os.close(fd)
        asked.sendall(b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        asked.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _read(asked: socket.socket) -> tuple[list[int], dict[str, Any]] | None:
    """Return the standard streams of the next command, and the order; None at the end."""
    size, fds, _, _ = socket.recv_fds(asked, 4, 3)
    if not size:
        return None
    text = asked.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    return fds, json.loads(text)


def _attend(connection: socket.socket) -> NoReturn:
    """Run the command of a connection, and send its pid and its exit code there."""
    order = _read(connection)
    if order is None:
        os._exit(0)
    pid = os.fork()
    if pid == 0:
        connection.close()
        _become(*order)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # these signals are meant for the command
    for fd in (0, 1, 2, *order[0]):
        os.close(fd)
    ended = os.pidfd_open(pid)
    with suppress(OSError):  # the caller has ended
        connection.sendall(b"%d\n" % pid)
        if ended not in select.select([ended, connection.fileno()], [], [])[0]:
            os.kill(pid, signal.SIGKILL)  # its caller was killed
        _, status = os.waitpid(pid, 0)
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(fds: list[int], order: dict[str, Any]) -> NoReturn:
    arguments, memory = order["arguments"], order["memory"]
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    _open_streams()
    os.environ.clear()
    os.environ.update(order["environ"])
    time.tzset()
    os.chdir(order["cwd"])
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    sys.argv = ["bsd", *arguments]
    # the command line of a daemon's restart
    sys.orig_argv = [sys.executable, "-m", "bsd", *arguments]
    runpy.run_module("bsd", run_name="__main__", alter_sys=True)
    sys.exit(0)


def _open_streams() -> None:
    """Reopen the standard streams: the server's may be files, and the command's pipes."""
    # Not closed here: they serve for as long as the process lives.
    sys.stdin = open(0, encoding=sys.stdin.encoding, closefd=False)  # noqa: SIM115
    for name, fd in (("stdout", 1), ("stderr", 2)):
        had = getattr(sys, name)
        stream = open(  # noqa: SIM115
            fd,
            "w",
            buffering=1 if fd == 2 or os.isatty(fd) else -1,
            encoding=had.encoding,
            errors=had.errors,
            closefd=False,
        )
        setattr(sys, name, stream)


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
    with socket.socket(socket.AF_UNIX) as place:
        place.bind(sys.argv[2])
        place.listen()
        end.sendall(b"ready\n")
        serve(end, place)
