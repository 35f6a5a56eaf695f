"""Datagrams of sd_notify, and silence where no manager listens."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bsd.daemon.loops import Beats
from bsd.daemon.notifier import Notifier, ping_watchdog, watchdog_seconds
from tests.waiting import DEADLINE_SECONDS


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A socket like the service manager's, and the value of $NOTIFY_SOCKET for it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.settimeout(DEADLINE_SECONDS)
        if request.param == "path":
            # Short, as sun_path ends after 108 bytes; tmp_path may be long.
            descriptor = os.open(tmp_path, os.O_RDONLY)
            try:
                listener.bind(f"/proc/self/fd/{descriptor}/n")
            finally:
                os.close(descriptor)
            address = str(tmp_path / "n")
            if len(address) > 100:
                pytest.skip("the directory for tests has too long a name")
        else:
            if sys.platform != "linux":
                pytest.skip("abstract sockets are Linux's")
            address = f"@bsd-test-{secrets.token_hex(8)}"
            listener.bind("\0" + address[1:])
        yield listener, address


def lines(listener: socket.socket) -> list[str]:
    return listener.recv(4096).decode().split("\n")


def test_each_message_is_one_datagram(manager: tuple[socket.socket, str]) -> None:
    listener, address = manager
    notifier = Notifier({"NOTIFY_SOCKET": address})
    assert notifier.listening
    assert notifier.ready("watching 3 agents")
    assert lines(listener) == ["READY=1", "STATUS=watching 3 agents"]
    assert notifier.status("two\nlines")
    assert lines(listener) == ["STATUS=two lines"]
    assert notifier.alive()
    assert lines(listener) == ["WATCHDOG=1"]
    assert notifier.stopping("bye")
    assert lines(listener) == ["STOPPING=1", "STATUS=bye"]


def test_reloading_tells_the_time_in_the_same_datagram(manager: tuple[socket.socket, str]) -> None:
    listener, address = manager
    assert Notifier({"NOTIFY_SOCKET": address}).reloading()
    first, second = lines(listener)
    assert first == "RELOADING=1"
    key, _, value = second.partition("=")
    assert key == "MONOTONIC_USEC"
    assert int(value) > 0


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1234"])
def test_nobody_listens(address: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address} if address else {})
    assert not notifier.listening
    assert not notifier.ready("x")


@pytest.mark.parametrize("address", ["/nowhere/at/all", "/" + "x" * 200, "@" + "y" * 200, "/a\0b"])
def test_a_manager_that_cannot_be_reached_does_no_harm(address: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address})
    assert not notifier.alive()
    assert not notifier.alive()


def test_a_manager_that_does_not_read_does_not_stop_us(manager: tuple[socket.socket, str]) -> None:
    _, address = manager
    notifier = Notifier({"NOTIFY_SOCKET": address})
    assert any(not notifier.status("x" * 1000) for _ in range(100_000))


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, 0),
        ({"WATCHDOG_USEC": "60000000"}, 60),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "42"}, 60),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "43"}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
        ({"WATCHDOG_USEC": "-1"}, 0),
    ],
)
def test_how_often_the_watchdog_wants_to_hear(environ: dict[str, str], seconds: float) -> None:
    assert watchdog_seconds(environ, pid=42) == seconds


def test_the_watchdog_is_pinged_only_if_every_loop_beats(
    manager: tuple[socket.socket, str],
) -> None:
    listener, address = manager
    now = 0.0
    beats = Beats(grace=5, clock=lambda: now)
    told: list[list[str]] = []
    ping = partial(ping_watchdog, Notifier({"NOTIFY_SOCKET": address}), beats, 60, told.append)
    beats.beat("worker 1", within=10)
    beats.beat("timer", within=3600)
    now = 10.0
    assert ping(now) == 40
    assert lines(listener) == ["WATCHDOG=1"]
    now = 40.0
    assert ping(now) == 70
    assert lines(listener) == ["STATUS=not answering: worker 1"]
    assert told == [["worker 1"]]
    now = 50.0
    beats.beat("worker 1", within=10)
    now = 60.0
    ping(now)
    assert lines(listener) == ["WATCHDOG=1"]


def test_without_a_watchdog_nothing_is_pinged() -> None:
    assert ping_watchdog(Notifier({}), Beats(), 0, lambda _: None, 10) is None
