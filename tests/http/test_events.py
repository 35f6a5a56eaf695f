"""Events in real time, and large content: both at a small cost for the server."""

from __future__ import annotations

import asyncio
import http.client
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi.sse import ServerSentEvent

from bsd.daemon.status import Events
from bsd.http.events import Listener, events
from tests.http.api import serving
from tests.http.fake_daemon import FakeDaemon
from tests.unix import UnixConnection
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.daemon


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


def wait_until_nobody_listens(daemon: FakeDaemon) -> None:
    wait_for(lambda: daemon.events._listeners == [], "listeners to leave")


def test_events_come_to_all_who_listen_and_end_with_the_server(root: Path) -> None:
    daemon = FakeDaemon()
    with serving(root, daemon) as (server, settings):
        assert daemon.events._listeners == [], "it costs nothing while nobody listens"
        first, one = listen(settings.socket)
        second, two = listen(settings.socket)
        assert len(daemon.events._listeners) == 2
        assert one.headers["content-type"] == "text/event-stream; charset=utf-8"
        daemon.events.publish("session", session="main/a", bytes_saved=5)
        for answer in (one, two):
            kind, data = next_event(answer)
            assert (kind, data["session"], data["bytes_saved"]) == ("session", "main/a", 5)
        server.stop_listening()
        daemon.events.close()
        assert server.join()
        assert (one.read(), two.read()) == (b"", b""), "the answers are complete"
        first.close()
        second.close()
        wait_until_nobody_listens(daemon)


def test_events_end_with_the_daemon(root: Path) -> None:
    daemon = FakeDaemon()
    with serving(root, daemon) as (_, settings):
        connection, answer = listen(settings.socket)
        daemon.events.publish("state", state="stopping")
        daemon.events.close()
        assert next_event(answer)[0] == "state"
        assert answer.read() == b""
        connection.close()
        wait_until_nobody_listens(daemon)


def test_whoever_hangs_up_is_forgotten(root: Path) -> None:
    daemon = FakeDaemon()
    with serving(root, daemon) as (_, settings):
        connection, answer = listen(settings.socket)
        answer.close()
        connection.close()
        wait_until_nobody_listens(daemon)


def test_a_slow_listener_loses_the_oldest_and_is_told() -> None:
    async def read() -> list[ServerSentEvent]:
        published = Events(lambda: 0.0)
        listener = Listener(FakeDaemon(events=published).as_daemon())
        for number in range(1200):
            published.publish("job", number=number)
        published.close()
        return [event async for event in events(listener)]

    hello, lost, first, *_, last = asyncio.run(read())
    assert hello.comment == "listening"
    assert (lost.event, lost.data) == ("lost", {"type": "lost", "lost": 200})
    assert (first.event, first.data["number"]) == ("job", 200)
    assert last.data["number"] == 1199


def test_whoever_waits_hears_what_another_thread_tells() -> None:
    async def hear() -> list[str | None]:
        published = Events(lambda: 0.0)
        listener = Listener(FakeDaemon(events=published).as_daemon())
        heard = []
        for tell in (partial(published.publish, "session"), published.close):
            waiting = asyncio.ensure_future(listener.next_event())
            await asyncio.sleep(0)
            await asyncio.to_thread(tell)
            event = await asyncio.wait_for(waiting, DEADLINE_SECONDS)
            heard.append(event.type if event else None)
        return heard

    assert asyncio.run(hear()) == ["session", None]
