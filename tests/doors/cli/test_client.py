"""Which daemon is asked: a path that nobody can be sure of is refused, not guessed at."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bsd.doors.cli import status
from bsd.doors.cli.status import find_client
from bsd.foundation.errors import ConfigError, Unavailable


@pytest.mark.parametrize("line", ['root = "here"', "root = 5", 'socket = "run/bsd.sock"'])
def test_a_path_in_the_file_that_is_no_whole_one(tmp_path: Path, line: str) -> None:
    file = tmp_path / "bsd.toml"
    file.write_text(f"{line}\n")
    with pytest.raises(ConfigError, match=r"absolute or from ~"):
        find_client(None, str(file), {"HOME": str(tmp_path)})


@pytest.mark.parametrize(("root", "place"), [("~", ""), ("~/a", "a"), ("/b", "/b")])
def test_a_whole_path_in_the_file(tmp_path: Path, root: str, place: str) -> None:
    file = tmp_path / "bsd.toml"
    file.write_text(f'root = "{root}"\n')
    found = find_client(None, str(file), {"HOME": str(tmp_path)}).path
    assert found == tmp_path / place / ".brainsurgeon" / "bsd.sock"


@pytest.fixture
def full(tmp_path: Path) -> Iterator[tuple[Path, socket.socket]]:
    """A socket on which nobody answers, and where one more must wait to be let in."""
    path = tmp_path / "s"
    with ExitStack() as held:
        listening = held.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(os.path.relpath(path))
        listening.listen(0)
        while True:
            waiting = held.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            try:
                waiting.connect(os.path.relpath(path))
            except BlockingIOError:
                break
        yield Path(os.path.relpath(path)), listening


def test_a_daemon_that_lets_nobody_in_does_not_answer(
    full: tuple[Path, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "_ANSWER_SECONDS", 1.0)
    with pytest.raises(Unavailable, match="does not answer"):
        status.Client(full[0]).get("/api/status")


def test_who_comes_to_a_crowded_socket_waits_for_his_turn(
    full: tuple[Path, socket.socket],
) -> None:
    path, listening = full

    def serve() -> None:
        listening.accept()[0].close()  # the one who waited before
        with listening.accept()[0] as asked:
            asked.recv(65536)
            asked.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    serving = threading.Thread(target=serve)
    asking = threading.Thread(target=lambda: answers.append(status.Client(path).get("/")))
    answers: list[object] = []
    asking.start()
    serving.start()
    asking.join(20)
    serving.join(20)
    assert answers == [{}]
