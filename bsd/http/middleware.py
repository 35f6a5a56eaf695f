"""The layers around the application: Host and Origin on every door, the API key on TCP, read-only.

Outermost is `Edge`: headers that all answers have, and how a request ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Collection, Iterable
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bsd.core.logs import BoundLogger
from bsd.http.answer import (
    LARGEST_BODY,
    LARGEST_HEAD,
    TOO_LARGE,
    TOO_LONG,
    JsonAnswer,
    error_document,
)

_log: BoundLogger = structlog.get_logger(module="api")

_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# Answered without a key (SPEC §8), as are the parts of the page: it asks for the key.
_OPEN = ("/api/health", "/api/config", "/")
_PARTS = "/web/"


class ErrorBoundary:
    """Wraps the application of a listener. What escapes from it is logged here, once."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _log.trace("A request begins", method=scope["method"], path=scope["path"])
        started = complete = False

        async def send_on(message: Message) -> None:
            nonlocal started, complete
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": _with_ours(message)}
            elif message["type"] == "http.response.body":
                complete = not message.get("more_body", False)
            await send(message)

        try:
            await (_too_much(scope) or self._app)(scope, receive, send_on)
        except asyncio.CancelledError:  # the server stops, and this took too long
            if not started:
                text = error_document(
                    "the daemon is stopping", "`bsd status` tells when it is back"
                )
                await JsonAnswer(text, HTTPStatus.SERVICE_UNAVAILABLE)(scope, receive, send_on)
        except ClientDisconnect:
            _log.debug("Somebody hung up in the middle of a request", path=scope["path"])
        except Exception:  # the edge of the API: each request gets an answer
            _log.exception("A request has failed", method=scope["method"], path=scope["path"])
            if not complete:  # uvicorn must break the connection off
                raise


class OriginGuard:
    """Keeps web pages of others out, which a browser would let in on its user's behalf.

    `hosts`: the names by which this server may be called; None for a Unix socket, where a name
    means nothing. Numeric addresses and localhost are always right: no foreign name can be
    rebound to them. `origins`: what other pages may ask (`https://bs.example.com`).
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str] | None, origins: Collection[str]
    ) -> None:
        self._app = app
        self._hosts = None if hosts is None else {host.lower() for host in hosts}
        self._origins = set(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        refusal = None
        if self._hosts is not None and not self._is_ours(_name(host)):
            refusal = error_document(
                f"this server is not called {_name(host) or 'nothing'!r}",
                "add the address that people use to BRAINSURGEON_CORS_ORIGINS",
            )
        elif origin is not None and not self._may_ask(origin.lower(), host.lower()):
            refusal = error_document(
                f"pages of {origin} may not ask here",
                "add this origin to BRAINSURGEON_CORS_ORIGINS if they shall",
            )
        if refusal is None:
            await self._app(scope, receive, send)
            return
        _log.warning("A request is refused", path=scope["path"], reason=refusal["error"])
        await JsonAnswer(refusal, HTTPStatus.FORBIDDEN)(scope, receive, send)

    def _is_ours(self, name: str) -> bool:
        return name == "localhost" or _is_address(name) or name in (self._hosts or ())

    def _may_ask(self, origin: str, host: str) -> bool:
        # A proxy in front may speak TLS, so the scheme is not compared.
        return origin in self._origins or (bool(host) and origin.partition("://")[2] == host)


class KeyGuard:
    """Lets in whoever shows one of the keys; with no keys, or not `required`, everybody.

    In any case it notes whose key it was: so the audit names him.
    """

    def __init__(self, app: ASGIApp, keys: Iterable[str], *, required: bool = True) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]
        self._required = required and bool(self._keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get("x-api-key", "").encode("latin-1")
        known = self._knows(given)
        if known:
            scope.setdefault("state", {})["actor"] = hashlib.sha256(given).hexdigest()[:8]
        if known or not self._required or _is_open(scope):
            await self._app(scope, receive, send)
            return
        if given:
            answer = JsonAnswer({"error": "Invalid API key"}, HTTPStatus.FORBIDDEN)
        else:
            text = "API key required. Pass X-API-Key header."
            answer = JsonAnswer({"error": text}, HTTPStatus.UNAUTHORIZED)
        _log.debug("A request without a valid key is refused", path=scope["path"])
        await answer(scope, receive, send)

    def _knows(self, given: bytes) -> bool:
        """Compare with every key, in a time that tells nothing about any of them."""
        found = False
        for key in self._keys:
            found |= hmac.compare_digest(given, key)
        return found


class ReadOnlyGuard:
    """Refuses everything that would change something."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _SAFE_METHODS:
            await self._app(scope, receive, send)
            return
        refusal = {"error": "Server is in read-only mode", "readonly": True}
        await JsonAnswer(refusal, HTTPStatus.FORBIDDEN)(scope, receive, send)


def host_of(origin: str) -> str:
    """The host's name in an origin such as `https://bs.example.com:8443`."""
    return urlsplit(origin).hostname or ""


def _is_open(scope: Scope) -> bool:
    is_open = scope["path"] in _OPEN or scope["path"].startswith(_PARTS)
    return is_open and scope["method"] in _SAFE_METHODS


def _name(host: str) -> str:
    """A Host header without its port, small; nothing if it is none."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _too_much(scope: Scope) -> ASGIApp | None:
    """What says so, if a request is larger than anybody here would read."""
    # h11 looks only at the length of heads that come in pieces.
    head = len(scope["path"]) + len(scope["query_string"])
    head += sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    if head > LARGEST_HEAD:
        return TOO_LONG
    length = Headers(scope=scope).get("content-length", "")
    # Starlette would say so in plain text.
    is_large = length.isdecimal() and (len(length) > 18 or int(length) > LARGEST_BODY)
    return TOO_LARGE if is_large else None


def _with_ours(message: Message) -> list[tuple[bytes, bytes]]:
    headers: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
    given = {name.lower() for name, _ in headers}
    headers += [(name, value) for name, value in _HEADERS if name not in given]
    # uvicorn would need its clock to tick for this one.
    headers.append((b"date", formatdate(usegmt=True).encode()))
    return headers
