"""Access control: Host and Origin, API keys, and read-only mode; one instance per listener.

Starlette's TrustedHostMiddleware cannot allow "any numeric address". A server that listens on
0.0.0.0 is reached by every address of its machine, and numeric addresses are safe: DNS rebinding
needs a name.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Collection, Iterable
from http import HTTPStatus
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bsd.http.errors import LARGEST_BODY, TOO_LARGE, JsonAnswer, error_answer

_log = structlog.stdlib.get_logger(module="api")

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# Served without a key (SPEC §8), like the files of the page: the page asks the user for the key.
_OPEN = ("/api/health", "/api/config", "/")
_PAGE = "/web/"


class AccessMiddleware:
    """Passes a request on, or refuses it.

    Sets two members of the request's state: `actor`, the first eight hex digits of the hash of the
    API key, and `trusted`, true if the request came with a key or on a listener that requires none.

    Args:
        keys: API keys; if `keys_required` and the list is not empty, a request needs a key.
        hosts: names of this server; None for a Unix socket, which has no host name.
        origins: other origins whose pages may send requests (`https://bs.example.com`).
        readonly: refuse every method except GET, HEAD and OPTIONS.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: Iterable[str] = (),
        keys_required: bool = True,
        hosts: Collection[str] | None = None,
        origins: Collection[str] = (),
        readonly: bool = False,
    ) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]
        self._keys_required = keys_required and bool(self._keys)
        self._all_trusted = not keys_required
        self._hosts = None if hosts is None else {"localhost", *map(str.lower, hosts)}
        self._origins = set(origins)
        self._readonly = readonly

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("cache-control", "no-store")
                headers.setdefault("x-content-type-options", "nosniff")
            await send(message)

        headers = Headers(scope=scope)
        key = headers.get("x-api-key", "").encode("latin-1")
        known = self._is_known(key)
        state = scope.setdefault("state", {})
        state["trusted"] = known or self._all_trusted
        if known:
            state["actor"] = hashlib.sha256(key).hexdigest()[:8]
        refusal = self._refuse_page(scope, headers)
        if refusal is None and not known and self._keys_required and not _is_open(scope):
            refusal = _refuse_key(scope, key)
        if refusal is None and self._readonly and scope["method"] not in _SAFE_METHODS:
            document = {"error": "Server is in read-only mode", "readonly": True}
            refusal = JsonAnswer(document, HTTPStatus.FORBIDDEN)
        length = headers.get("content-length", "")
        if refusal is None and length.isdecimal() and int(length[:20]) > LARGEST_BODY:
            refusal = error_answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, TOO_LARGE)
        if scope["method"] == "HEAD":  # handled like GET; the server omits the body
            scope = {**scope, "method": "GET"}
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _is_known(self, given: bytes) -> bool:
        """Compare with every key in constant time."""
        found = False
        for key in self._keys:
            found |= hmac.compare_digest(given, key)
        return found

    def _refuse_page(self, scope: Scope, headers: Headers) -> JsonAnswer | None:
        """Refuse requests that a browser sends for a foreign web page, and foreign Host names."""
        host, origin = headers.get("host", ""), headers.get("origin")
        name = _host_name(host)
        if self._hosts is not None and name not in self._hosts and not _is_address(name):
            text = f"this server does not accept the Host header {name or 'nothing'!r}"
            hint = "add the address of this server to BRAINSURGEON_CORS_ORIGINS"
        elif origin is not None and not self._may_ask(origin.lower(), host.lower()):
            text = f"pages of {origin} may not send requests to this server"
            hint = "to allow them, add this origin to BRAINSURGEON_CORS_ORIGINS"
        else:
            return None
        _log.warning("A request is refused", path=scope["path"], reason=text)
        return error_answer(HTTPStatus.FORBIDDEN, text, hint)

    def _may_ask(self, origin: str, host: str) -> bool:
        # A reverse proxy may use TLS, so the scheme is not compared.
        return origin in self._origins or (bool(host) and origin.partition("://")[2] == host)


def host_of(origin: str) -> str:
    """Return the host's name in an origin such as `https://bs.example.com:8443`."""
    return urlsplit(origin).hostname or ""


def _refuse_key(scope: Scope, given: bytes) -> JsonAnswer:
    _log.debug("A request without a valid key is refused", path=scope["path"])
    if given:
        return error_answer(HTTPStatus.FORBIDDEN, "Invalid API key")
    text = "API key required. Pass X-API-Key header."
    return error_answer(HTTPStatus.UNAUTHORIZED, text)


def _is_open(scope: Scope) -> bool:
    is_open = scope["path"] in _OPEN or scope["path"].startswith(_PAGE)
    return is_open and scope["method"] in _SAFE_METHODS


def _host_name(host: str) -> str:
    """Return the name in a Host header, in lower case and without the port; "" if malformed."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
