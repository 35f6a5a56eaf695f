"""Host, Origin and keys, as the listeners put them in front of the routes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bsd.http.middleware import ErrorBoundary, KeyGuard, OriginGuard, host_of
from tests.http.fake_daemon import Reply, ask
from tests.logs import capture_logs

KEYS = ("first-key", "schlüssel")


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    actor: Any = scope["state"].get("actor")
    await JSONResponse({"actor": actor})(scope, receive, send)


def keyed(path: str, key: str | None, method: str = "GET", keys: tuple[str, ...] = KEYS) -> Reply:
    headers = {} if key is None else {"X-API-Key": key}
    return ask(KeyGuard(inner, keys), method, path, headers=headers)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_opens_and_names_who_it_was(key: str) -> None:
    reply = keyed("/api/status", key)
    assert reply.status == 200
    assert reply.json() == {"actor": hashlib.sha256(key.encode()).hexdigest()[:8]}


@pytest.mark.parametrize(
    ("key", "status", "text"),
    [
        (None, 401, "API key required. Pass X-API-Key header."),
        ("", 401, "API key required. Pass X-API-Key header."),
        ("wrong", 403, "Invalid API key"),
        ("first-key ", 403, "Invalid API key"),
        ("first-ke", 403, "Invalid API key"),
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/status"),
        ("POST", "/api/config"),
        ("POST", "/api/health"),
        ("GET", "/api/openapi.json"),
        ("GET", "//api/health"),
        ("GET", "/api/health/"),
    ],
)
def test_without_a_right_key_it_stays_closed(
    method: str, path: str, key: str | None, status: int, text: str
) -> None:
    reply = keyed(path, key, method)
    assert (reply.status, reply.json()) == (status, {"error": text})


@pytest.mark.parametrize("path", ["/api/health", "/api/config"])
@pytest.mark.parametrize("key", [None, "wrong"])
def test_health_and_config_may_be_read_by_all(path: str, key: str | None) -> None:
    assert keyed(path, key).status == 200


def test_without_keys_everything_is_open() -> None:
    assert keyed("/api/status", None, "POST", keys=()).json() == {"actor": None}
    assert keyed("/api/status", "some", keys=()).json() == {"actor": None}


# --- Host and Origin ------------------------------------------------------------------------

BS = "https://bs.example.com"


def guarded(
    host: str | None, origin: str | None = None, *, hosts: list[str] | None = None
) -> Reply:
    app: ASGIApp = OriginGuard(inner, hosts=hosts, origins=[BS])
    headers: Mapping[str, str] = {} if origin is None else {"Origin": origin}
    return ask(app, "POST", "/api/config", headers=headers, host=host)


NAMES = ["desk.lan", host_of(BS)]


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:8000", "127.0.0.1", "[::1]:8000", "192.168.1.7:8000", "localhost:8000"),
        *("LocalHost", "desk.lan:8000", "Desk.LAN", "bs.example.com"),
    ],
)
def test_its_own_names_are_right(host: str) -> None:
    assert guarded(host, hosts=NAMES).status == 200


@pytest.mark.parametrize(
    "host",
    [
        *(None, "", ":8000", "[::1", "evil.example", "evil.example:8000", "127.0.0.1.evil.example"),
        *("localhost.evil.example", "evil.example@127.0.0.1:x", "1.2.3.4.5"),
    ],
)
def test_a_name_that_was_rebound_to_us_is_refused(host: str | None) -> None:
    reply = guarded(host, hosts=NAMES)
    assert reply.status == 403
    assert "CORS_ORIGINS" in reply.json()["hint"]


def test_on_the_unix_socket_every_name_is_right() -> None:
    assert guarded("bsd").status == 200
    assert guarded(None).status == 200


@pytest.mark.parametrize("hosts", [None, NAMES])
@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000", 200),
        ("bs.example.com", "https://bs.example.com", 200),
        ("desk.lan:8000", "HTTP://Desk.lan:8000", 200),
        ("127.0.0.1:8000", BS, 200),
        ("127.0.0.1:8000", "http://127.0.0.1:3000", 403),
        ("127.0.0.1:8000", "https://evil.example", 403),
        ("127.0.0.1:8000", "null", 403),
        ("127.0.0.1:8000", "", 403),
        ("127.0.0.1:8000", "http://127.0.0.1:8000.evil.example", 403),
        ("127.0.0.1:8000", "http://bs.example.com", 403),
    ],
)
def test_pages_of_others_may_not_ask(
    hosts: list[str] | None, host: str, origin: str, status: int
) -> None:
    assert guarded(host, origin, hosts=hosts).status == status


def test_every_answer_has_a_date_and_is_not_kept() -> None:
    reply = ask(ErrorBoundary(inner), "GET", "/")
    assert reply.headers["date"].endswith("GMT")
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["x-content-type-options"] == "nosniff"


# --- how a request ends when the application does not end it ---


SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "GET",
    "path": "/api/x",
    "query_string": b"",
    "headers": [],
}
START: Message = {"type": "http.response.start", "status": 200, "headers": []}


def answer(*messages: Message) -> list[Message]:
    """What goes out if the application says this, and then fails."""
    sent: list[Message] = []

    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)
        raise ZeroDivisionError

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(ErrorBoundary(failing)(SCOPE, receive, send))
    return sent


@pytest.mark.parametrize(
    "messages",
    [(), (START,), (START, {"type": "http.response.body", "body": b"half", "more_body": True})],
)
def test_half_an_answer_is_broken_off(messages: tuple[Message, ...]) -> None:
    """Whoever reads it must not take it for the whole."""
    with capture_logs() as logs, pytest.raises(ZeroDivisionError):
        answer(*messages)
    assert [one["event"] for one in logs if one["log_level"] != "trace"] == ["A request has failed"]


def test_a_whole_answer_stays_one() -> None:
    with capture_logs() as logs:
        sent = answer(START, {"type": "http.response.body", "body": b"whole"})
    assert [one["type"] for one in sent] == ["http.response.start", "http.response.body"]
    assert [one["event"] for one in logs if one["log_level"] != "trace"] == [
        "A request has failed"
    ], "once"
