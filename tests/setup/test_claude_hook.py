"""The command of Claude Code's hooks: its requests and output; it never blocks the program."""

from __future__ import annotations

import ast
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from bsd.core.locations import find_socket, usual_roots
from bsd.setup import claude_hook
from tests.needs import NOBODY, as_ordinary_user
from tests.setup.patient_hook import SCRIPT, patient
from tests.waiting import DEADLINE_SECONDS

SAID = b'{"hook_event_name":"Stop"}'
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\nServer: x\r\n\r\n{"a": 1}\n'
# The modules that Python loads before the script, and the few that the script needs.
_MOST_MODULES = 45
_SLOW = {"socket", "json", "re", "enum", "typing", "collections", "http.client", "hashlib"}


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory whose name is short enough for a socket in it."""
    with tempfile.TemporaryDirectory(prefix="bsd-hook-") as name:
        yield Path(name)


def hook(
    *arguments: str,
    script: Path = SCRIPT,
    said: bytes | IO[bytes] = SAID,
    environ: Mapping[str, str] | None = None,
    user: tuple[str, ...] = (),
) -> bytes:
    """Run the script and return its output; it must succeed without any other output."""
    given: dict[str, Any] = {"input": said} if isinstance(said, bytes) else {"stdin": said}
    done: subprocess.CompletedProcess[bytes] = subprocess.run(
        [*user, sys.executable, "-I", "-S", str(script), *arguments],
        check=False,
        capture_output=True,
        env=dict(environ or {}),
        timeout=DEADLINE_SECONDS,
        **given,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return bytes(done.stdout)


@pytest.fixture
def script(place: Path) -> Path:
    return patient(place / "hook.py", 60.0)


@contextmanager
def answering(path: Path, answer: bytes | None = ANSWER) -> Iterator[list[bytes]]:
    """A daemon that gives this answer, or none (None); yields the requests that it received."""
    sent: list[bytes] = []
    over = threading.Event()
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(DEADLINE_SECONDS)
                sent.append(read_request(connection))
                if answer is None:
                    over.wait(DEADLINE_SECONDS)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield sent
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def read_request(connection: socket.socket) -> bytes:
    """Return the head and body of a request."""
    read = b""
    while b"\r\n\r\n" not in read and (part := connection.recv(1 << 16)):
        read += part
    if found := re.search(rb"Content-Length: (\d+)", read):
        end = read.index(b"\r\n\r\n") + 4 + int(found[1])
        while len(read) < end and (part := connection.recv(1 << 16)):
            read += part
    return read


def test_the_daemon_gets_the_json_and_its_answer_is_printed(place: Path, script: Path) -> None:
    with answering(place / "s") as sent:
        assert hook("--socket", str(place / "s"), script=script) == b'{"a": 1}\n\n'
    [request] = sent
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /api/hooks/claude-code HTTP/1.1\r\nHost: bsd\r\n")
    assert body == SAID


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{}",  # cut short
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        b"SSH-2.0-OpenSSH\r\n",
        b"",
    ],
)
def test_nothing_is_printed_of_other_answers(place: Path, script: Path, answer: bytes) -> None:
    with answering(place / "s", answer) as sent:
        assert hook("--socket", str(place / "s"), script=script) == b""
    assert len(sent) == 1


def test_it_does_not_wait_for_a_daemon_that_hangs(place: Path) -> None:
    with answering(place / "s", None) as sent:
        assert hook("--socket", str(place / "s"), script=patient(place / "hook.py", 2.0)) == b""
    assert sent[0].endswith(SAID), "the daemon has it all the same"


def test_it_does_not_wait_for_a_daemon_that_accepts_nothing(place: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(place / "s"))
        listening.listen(0)
        waiting = []
        for _ in range(3):  # until its queue is full
            waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(str(place / "s"))
        assert hook("--socket", str(place / "s")) == b""
        for one in waiting:
            one.close()


def a_stale_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(path))


@pytest.mark.parametrize(
    "make",
    [lambda _: None, Path.touch, os.mkfifo, Path.mkdir, a_stale_socket],
    ids=["nothing", "file", "fifo", "directory", "stale"],
)
def test_without_a_daemon_it_says_nothing(place: Path, make: Callable[[Path], None]) -> None:
    make(place / "s")
    assert hook("--socket", str(place / "s")) == b""
    assert hook("--socket", str(place / "s" / "below")) == b""


def test_no_path_is_too_long_or_too_odd(place: Path) -> None:
    for path in ("/" + "x" * 300, "", "~nobody-has-this-name/s", "relative", "\udcff"):
        assert hook("--socket", path, environ={"HOME": str(place)}) == b""
    assert hook("--socket", environ={"HOME": str(place)}) == b""
    assert hook("more", "than", "it", "knows", environ={"HOME": str(place)}) == b""


def test_broken_json_is_passed_on_and_no_input_is_nothing(place: Path, script: Path) -> None:
    with answering(place / "s") as sent:
        assert hook("--socket", str(place / "s"), script=script, said=b"{") == b'{"a": 1}\n\n'
    assert sent[0].endswith(b"\r\n\r\n{")
    (place / "s").unlink()
    for said in (b"", b"x" * (1 << 21)):
        with answering(place / "s") as sent:
            assert hook("--socket", str(place / "s"), script=script, said=said) == b""
            assert sent == []
        (place / "s").unlink()


def test_an_input_that_stays_open_is_taken_as_far_as_it_came(place: Path) -> None:
    read, write = os.pipe()
    os.write(write, SAID)
    with answering(place / "s") as sent, os.fdopen(read, "rb") as said:
        script = patient(place / "hook.py", 6.0)
        assert hook("--socket", str(place / "s"), script=script, said=said) == b'{"a": 1}\n\n'
    os.close(write)
    assert sent[0].endswith(SAID)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full"])
def test_it_needs_no_open_descriptors(place: Path, closed: str) -> None:
    command = f'"$0" -I -S "$1" --socket "$2" {closed}'
    with answering(place / "s"):
        done = subprocess.run(
            ["sh", "-c", command, sys.executable, str(SCRIPT), str(place / "s")],
            check=False,
            input=SAID,
            capture_output=True,
            timeout=DEADLINE_SECONDS,
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_socket_of_another_user_is_told_nothing(place: Path, script: Path) -> None:
    user = as_ordinary_user()
    if not user:
        pytest.skip("needs root, to listen as another user")
    place.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(place / "s"))
        (place / "s").chmod(0o777)
        os.seteuid(NOBODY - 1)
        try:
            listening.listen()  # the kernel records the sender
        finally:
            os.seteuid(0)
        assert hook("--socket", str(place / "s"), script=script, user=tuple(user)) == b""
        connection, _ = listening.accept()
        with connection:
            connection.settimeout(DEADLINE_SECONDS)
            assert connection.recv(100) == b""


def test_the_daemon_of_root_is_believed(place: Path, script: Path) -> None:
    user = as_ordinary_user()
    if not user:
        pytest.skip("needs root")
    place.chmod(0o755)
    with answering(place / "s"):
        (place / "s").chmod(0o777)
        assert (
            hook("--socket", str(place / "s"), script=script, user=tuple(user)) == b'{"a": 1}\n\n'
        )


# --- the path of the socket ---


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"XDG_DATA_HOME": "/data"},
        {"XDG_DATA_HOME": "not/absolute"},
        {"OPENCLAW_ROOT": "~/there", "BRAINSURGEON_AGENTS_DIR": "/elsewhere/agents"},
        {"BRAINSURGEON_AGENTS_DIR": "/elsewhere/agents"},
        {"BRAINSURGEON_SOCKET": "~/a.sock", "OPENCLAW_ROOT": "/there"},
        {"OPENCLAW_ROOT": "/" + "long/" * 30, "XDG_RUNTIME_DIR": "/run/user/1000"},
        {"OPENCLAW_ROOT": "/" + "long/" * 30},
    ],
)
def test_it_looks_where_bsd_listens(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_DATA_HOME", "XDG_RUNTIME_DIR", "OPENCLAW_ROOT", "BRAINSURGEON_AGENTS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("BRAINSURGEON_SOCKET", raising=False)
    environ = {"HOME": "/home/ada", **environ}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    looked = claude_hook._socket_paths([])
    named = environ.get("OPENCLAW_ROOT") or environ.get("BRAINSURGEON_AGENTS_DIR")
    roots = usual_roots(environ)
    if named:
        given = Path(named).expanduser()
        roots = (given if "OPENCLAW_ROOT" in environ else given.parent,) * 2
    expected = [find_socket(root, environ, environ.get("BRAINSURGEON_SOCKET")) for root in roots]
    assert looked == list(dict.fromkeys(map(str, expected)))


def test_the_socket_of_the_other_usual_root_is_found_too(place: Path, script: Path) -> None:
    environ = {"HOME": str(place)}
    with answering(place / ".local/share/bsd/.brainsurgeon/bsd.sock"):
        assert hook(script=script, environ=environ) == b'{"a": 1}\n\n'


def test_without_home_it_asks_the_system_for_it() -> None:
    assert hook(environ={}) == b""


# --- the script itself ---


def test_it_imports_little() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", str(SCRIPT)],
        check=True,
        input=SAID,
        capture_output=True,
        env={},
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()[1:]}
    assert "_socket" in loaded
    assert loaded & _SLOW == set()
    assert len(loaded) < _MOST_MODULES, sorted(loaded)


def test_python_3_8_understands_it() -> None:
    ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 8))
