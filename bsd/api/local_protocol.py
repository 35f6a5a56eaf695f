"""HTTP on the Unix socket: uvicorn's protocol, behind a look at who is calling."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from bsd.api.answer import error_document
from bsd.api.peer import may_talk_to_us, peer_uid
from bsd.foundation.logs import get_logger

_log = get_logger("api")


_PATIENCE_SECONDS = 2.0


class LocalProtocol(H11Protocol):
    """Serves the owner of the daemon and root; the mode of the socket keeps others out before."""

    may_talk: Callable[[int], bool] = staticmethod(may_talk_to_us)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refused: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        uid = _uid(transport.get_extra_info("socket"))
        if uid is not None and self.may_talk(uid):
            super().connection_made(transport)
            return
        _log.warning("A connection of another user is refused", uid=uid)
        self._refused = transport
        self.connections.add(self)
        # Closed at once, the connection would break before our answer has been read.
        transport.write(_refusal())
        transport.write_eof()
        self.loop.call_later(_PATIENCE_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._refused is None:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._refused is None:
            super().connection_lost(exc)
        self.connections.discard(self)

    def shutdown(self) -> None:
        """Called when the server stops."""
        if self._refused is None:
            super().shutdown()
        else:
            self._refused.abort()


def _uid(connection: socket.socket) -> int | None:
    try:
        return peer_uid(connection)
    except OSError:  # gone already, or a system that does not tell: a stranger
        return None


def _refusal() -> bytes:
    hint = "run it as the user whose daemon this is"
    body = json.dumps(error_document("this socket is for another user", hint)).encode()
    head = "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
