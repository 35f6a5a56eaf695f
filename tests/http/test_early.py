"""The application while its routes are being loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from bsd.http.answer import JsonAnswer
from bsd.http.server import Early
from tests.http.fake_daemon import FakeDaemon, ask
from tests.refusing import raising
from tests.waiting import DEADLINE_SECONDS


async def routes(scope: Scope, receive: Receive, send: Send) -> None:
    """All there is, when it is there."""
    await JsonAnswer({"routes": scope["path"]})(scope, receive, send)


def loading(daemon: FakeDaemon, make: Callable[[], ASGIApp]) -> Early:
    early = Early(daemon, make)
    early.load()
    return early


def end_of_loading() -> None:
    for thread in threading.enumerate():
        if thread.name == "bsd-routes":
            thread.join(DEADLINE_SECONDS)


def test_how_it_is_is_said_before_and_everything_else_waits() -> None:
    go_on = threading.Event()

    def make() -> ASGIApp:
        assert go_on.wait(DEADLINE_SECONDS)
        return routes

    daemon = FakeDaemon()
    early = loading(daemon, make)
    try:
        with ThreadPoolExecutor(1) as others:
            jobs = others.submit(ask, early, "GET", "/api/jobs")
            assert ask(early, "GET", "/api/health").json()["status"] == "ok"
            assert ask(early, "GET", "/api/status").json() == daemon.document
            assert daemon.beats == [("routes", 300.0)]
            assert daemon.ended == []
            assert not jobs.done()
            go_on.set()
            assert jobs.result(DEADLINE_SECONDS).json() == {"routes": "/api/jobs"}
    finally:
        go_on.set()
        end_of_loading()
    assert daemon.ended == ["routes"]
    assert ask(early, "POST", "/api/status").json() == {"routes": "/api/status"}
    assert ask(early, "GET", "/api/trash").json() == {"routes": "/api/trash"}


def test_it_is_not_well_before_it_is_ready() -> None:
    early = Early(FakeDaemon(state="starting"), lambda: routes)
    reply = ask(early, "GET", "/api/health")
    assert (reply.status, reply.json()["status"]) == (503, "starting")


def test_what_fails_is_told_by_the_routes() -> None:
    daemon = FakeDaemon(failing=RuntimeError("broken"))
    early = loading(daemon, lambda: routes)
    assert ask(early, "GET", "/api/status").json() == {"routes": "/api/status"}


def test_routes_that_cannot_be_loaded_leave_their_promise_broken() -> None:
    daemon = FakeDaemon()
    early = loading(daemon, raising(ImportError("no such library")))
    reply = ask(early, "GET", "/api/jobs")
    assert reply.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert reply.json()["error"] == "the API could not be loaded"
    end_of_loading()
    assert (daemon.beats, daemon.ended) == ([("routes", 300.0)], [])
    assert ask(early, "GET", "/api/health").status == HTTPStatus.OK
