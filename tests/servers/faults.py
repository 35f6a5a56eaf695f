"""A proxy before an HTTP server on loopback that does to requests what networks and services do.

    with faulty(moto.url) as proxy:
        proxy.add(Fault("status", status=503, times=3))
        …                       # the client talks to proxy.url
        assert proxy.seen[-1].status == 200

A fault applies to the next requests that match it, in the order in which faults were added.
"""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

from tests.waiting import DEADLINE_SECONDS

Kind = Literal[
    "status",  # an answer with this status, without a request to the server
    "hang",  # no answer until the proxy ends
    "lost_answer",  # the server carries the request out, the connection breaks before the answer
    "reset_request",  # the connection is reset in the middle of the request's body
    "reset_response",  # … of the answer's body
    "corrupt_request",  # a byte of the request's body is changed on its way
    "corrupt_response",  # … of the answer's body
    "short_response",  # the answer has half of its bytes, and says so
    "slow",  # the answer comes in small pieces, `seconds` apart
    "late",  # the answer begins after `seconds`
    "other_etag",  # the answer's ETag is no MD5, as with encryption by the service
    "no_etag",  # the answer has none
    "call",  # `call()` runs before the request goes on
]
_PIECE = 1 << 14


@dataclass(slots=True)
class Fault:
    """What happens to requests that match.

    Attributes:
        times: the number of requests; None: all.
        method: of the requests, such as "PUT"; "" is every method.
        path: a regular expression that is found in the path with its query.
        body: of an answer of kind "status"; None: an error as S3 writes it.
    """

    kind: Kind
    times: int | None = 1
    method: str = ""
    path: str = ""
    status: int = 500
    body: bytes | None = None
    code: str = "InternalError"
    seconds: float = 0.05
    call: Callable[[], object] | None = None

    def matches(self, method: str, path: str) -> bool:
        """Whether it applies to a request."""
        return self.method in {"", method} and re.search(self.path, path) is not None


@dataclass(slots=True)
class Seen:
    """A request that came through, noted before it is answered. Sizes are bytes; `status` 0: the
    client got no answer.
    """

    method: str
    path: str
    range: str
    fault: str
    received: int = 0
    status: int = 0
    sent: int = 0


@dataclass(slots=True)
class Proxy:
    """The proxy: its URL, the faults that are still to come, and the requests so far."""

    url: str = ""
    faults: list[Fault] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    ending: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, *faults: Fault) -> None:
        """Add faults."""
        with self.lock:
            self.faults.extend(faults)

    def clear(self) -> None:
        """Forget all faults and requests."""
        with self.lock:
            self.faults.clear()
            self.seen.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """Return the fault of a request."""
        with self.lock:
            for fault in self.faults:
                if fault.matches(method, path):
                    if fault.times is not None:
                        fault.times -= 1
                        if not fault.times:
                            self.faults.remove(fault)
                    return fault
        return None


class _Broken(Exception):
    """The connection is to be closed as it is."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy
    server_url: str

    def log_message(self, format: str, *args: object) -> None:
        pass

    def __getattr__(self, name: str) -> object:
        if name.startswith("do_"):
            return self._handle
        raise AttributeError(name)

    def _handle(self) -> None:
        fault = self.proxy.take(self.command, self.path)
        kind = fault.kind if fault else ""
        seen = Seen(self.command, self.path, self.headers.get("Range", ""), kind)
        self.proxy.seen.append(seen)
        try:
            body = self._body(kind)
            seen.received = len(body)
            if fault and kind == "status":
                self._error(fault, seen)
            else:
                self._forward(body, fault, seen)
        except (_Broken, OSError, http.client.HTTPException):
            seen.status = seen.sent = 0
            self.close_connection = True

    def _body(self, kind: str) -> bytes:
        length = int(self.headers.get("Content-Length") or 0)
        if kind == "hang":
            self.proxy.ending.wait()
            raise _Broken
        if kind == "reset_request":
            self.rfile.read(length // 2)
            self._reset()
        body = self.rfile.read(length)
        return _changed(body) if kind == "corrupt_request" else body

    def _error(self, fault: Fault, seen: Seen) -> None:
        body = fault.body
        if body is None:
            text = f"<Error><Code>{fault.code}</Code><Message>made up</Message></Error>"
            body = text.encode()
        seen.status, seen.sent = fault.status, len(body)
        self.send_response(fault.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _forward(self, body: bytes, fault: Fault | None, seen: Seen) -> None:
        """Send the request on, and its answer back."""
        if fault and fault.call:
            fault.call()
        parts = urlsplit(self.server_url)
        connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port, timeout=DEADLINE_SECONDS
        )
        try:
            headers = {name: value for name, value in self.headers.items() if name != "Connection"}
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        kind = fault.kind if fault else ""
        if kind == "lost_answer":
            raise _Broken
        if fault and kind == "late":
            self.proxy.ending.wait(fault.seconds)
        if kind == "short_response":
            sent = data[: len(data) // 2]
        elif kind == "corrupt_response":
            sent = _changed(data)
        else:
            sent = data
        if kind != "reset_response":
            seen.status, seen.sent = answer.status, len(sent)
        self._answer(answer, len(sent), kind)
        if self.command != "HEAD":
            self._send(sent, fault)

    def _answer(self, answer: http.client.HTTPResponse, size: int, kind: str) -> None:
        """Send the status and the headers of an answer whose body has `size` bytes."""
        length = str(size)
        if self.command == "HEAD":
            length = answer.getheader("Content-Length") or length
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            lower = name.lower()
            if lower in {"content-length", "transfer-encoding", "connection", "date", "server"}:
                continue
            if lower == "etag" and kind == "no_etag":
                continue
            shown = '"not-an-md5-1"' if lower == "etag" and kind == "other_etag" else value
            self.send_header(name, shown)
        self.send_header("Content-Length", length)
        self.end_headers()

    def _send(self, data: bytes, fault: Fault | None) -> None:
        """Send the body of an answer."""
        if fault and fault.kind == "reset_response":
            self.wfile.write(data[: len(data) // 2])
            self._reset()
        pause = fault.seconds if fault and fault.kind == "slow" else 0.0
        for start in range(0, len(data), _PIECE):
            self.wfile.write(data[start : start + _PIECE])
            if pause:
                self.proxy.ending.wait(pause)

    def _reset(self) -> None:
        """Close the connection with a reset (RST)."""
        self.wfile.flush()
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        raise _Broken


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = 64

    def __init__(self, handler: type[_Handler]) -> None:
        self.open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), handler)

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        self.open.add(connection)
        return connection, address

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        # Without the polite end of the base class: a reset must stay a reset.
        self.open.discard(request)
        self.close_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients go away


def _changed(data: bytes) -> bytes:
    if not data:
        return data
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@contextmanager
def faulty(server_url: str) -> Iterator[Proxy]:
    """Run a proxy before the server."""
    proxy = Proxy()
    handler = type("Handler", (_Handler,), {"proxy": proxy, "server_url": server_url})
    server = _Server(handler)
    proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield proxy
    finally:
        proxy.ending.set()
        server.shutdown()
        thread.join()
        for connection in list(server.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()
