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

_log = get_logger(__name__)


class LocalProtocol(H11Protocol):
    """Serves the owner of the daemon and root; the mode of the socket keeps others out before."""

    may_talk: Callable[[int], bool] = staticmethod(may_talk_to_us)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        uid = _uid(transport.get_extra_info("socket"))
        if uid is not None and self.may_talk(uid):
            super().connection_made(transport)
            return
        self._refused = True
        _log.warning("A connection of another user is refused", uid=uid)
        transport.write(_refusal())
        transport.close()

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._refused:
            super().connection_lost(exc)


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
