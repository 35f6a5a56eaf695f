"""Events as they happen, and large content: what lasts long or is large must cost little."""

from __future__ import annotations

import http.client
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bsd.daemon.events import Event
from bsd.doors.http.feed import MOST_LISTENERS, Listener
from tests.daemon.api import DEADLINE_SECONDS, UnixConnection, over_socket, serving
from tests.unit.api.fake import FakeDaemon


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    return root


def listen(socket: Path) -> tuple[UnixConnection, http.client.HTTPResponse]:
    connection = UnixConnection(socket)
    connection.request("GET", "/api/events")
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.readline() == b": listening\n"
    assert answer.readline() == b"\n"
    return connection, answer


def next_event(answer: http.client.HTTPResponse) -> tuple[str, Any]:
    kind = answer.readline().decode().removeprefix("event: ").strip()
    data = answer.readline().decode().removeprefix("data: ")
    assert answer.readline() == b"\n"
    return kind, json.loads(data)


def pumps() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "bsd-events"]


def wait_until_nobody_listens() -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while pumps() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert pumps() == []


def test_events_come_to_all_who_listen_and_end_with_the_server(root: Path) -> None:
    daemon = FakeDaemon()
    with serving(root, daemon) as (server, settings):
        assert pumps() == [], "it costs nothing while nobody listens"
        first, one = listen(settings.socket)
        second, two = listen(settings.socket)
        assert len(pumps()) == 1
        assert one.headers["content-type"] == "text/event-stream; charset=utf-8"
        daemon.events.publish("session", session="main/a", bytes_saved=5)
        for answer in (one, two):
            kind, data = next_event(answer)
            assert (kind, data["session"], data["bytes_saved"]) == ("session", "main/a", 5)
        assert server.stop()
        assert (one.read(), two.read()) == (b"", b""), "the answers are complete"
        first.close()
        second.close()
        wait_until_nobody_listens()


def test_events_end_with_the_daemon(root: Path) -> None:
    daemon = FakeDaemon()
    with serving(root, daemon) as (_, settings):
        connection, answer = listen(settings.socket)
        daemon.events.publish("state", state="stopping")
        daemon.events.close()
        assert next_event(answer)[0] == "state"
        assert answer.read() == b""
        connection.close()
        wait_until_nobody_listens()


def test_whoever_hangs_up_is_forgotten(root: Path) -> None:
    with serving(root) as (_, settings):
        connection, answer = listen(settings.socket)
        answer.close()
        connection.close()
        wait_until_nobody_listens()


def test_only_so_many_may_listen(root: Path) -> None:
    with serving(root) as (_, settings):
        listening = [listen(settings.socket) for _ in range(MOST_LISTENERS)]
        status, answer = over_socket(settings.socket, "/api/events")
        assert (status, answer["hint"]) == (503, "close one of them")
        assert over_socket(settings.socket, "/api/health")[0] == 200
        for connection, reply in listening:
            reply.close()
            connection.close()
        wait_until_nobody_listens()


def test_a_slow_listener_loses_the_oldest_and_is_told() -> None:
    listener = Listener()
    for number in range(1200):
        listener.put(Event("job", float(number)))
    listener.end()
    assert (listener.take_lost(), listener.take_lost()) == (200, 0)
