"""Host, Origin and keys, checked by the listeners before the routes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from bsd.http.middleware import AccessMiddleware, host_of
from tests.http.fake_daemon import Reply, ask

KEYS = ("first-key", "schlüssel")


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    state: Any = scope["state"]
    told = {"actor": state.get("actor")} | ({"trusted": True} if state["trusted"] else {})
    await JSONResponse(told)(scope, receive, send)


def keyed(path: str, key: str | None, method: str = "GET", keys: tuple[str, ...] = KEYS) -> Reply:
    headers = {} if key is None else {"X-API-Key": key}
    return ask(AccessMiddleware(inner, keys=keys), method, path, headers=headers)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_opens_and_names_who_it_was(key: str) -> None:
    reply = keyed("/api/status", key)
    assert reply.status == 200
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    assert reply.json() == {"actor": digest, "trusted": True}


def test_a_listener_that_requires_no_key_trusts_all_and_one_without_keys_none() -> None:
    local = AccessMiddleware(inner, keys=KEYS, keys_required=False)
    assert ask(local, "GET", "/api/status").json()["trusted"]
    assert "trusted" not in keyed("/api/status", None, keys=()).json()
    assert "trusted" not in keyed("/api/status", "any", keys=()).json()


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
    app = AccessMiddleware(inner, hosts=hosts, origins=[BS])
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


def test_no_answer_is_kept() -> None:
    for reply in (ask(AccessMiddleware(inner), "GET", "/"), keyed("/api/status", None)):
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-content-type-options"] == "nosniff"


def test_head_is_answered_as_get_is() -> None:
    async def method(scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse(scope["method"])(scope, receive, send)

    assert ask(AccessMiddleware(method), "HEAD", "/").json() == "GET"


def test_a_read_only_server_changes_nothing() -> None:
    app = AccessMiddleware(inner, readonly=True)
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        reply = ask(app, method, "/api/config")
        assert reply.status == 403
        assert reply.json() == {"error": "Server is in read-only mode", "readonly": True}
    assert ask(app, "GET", "/api/config").status == 200
    assert ask(app, "HEAD", "/api/config").status == 200
