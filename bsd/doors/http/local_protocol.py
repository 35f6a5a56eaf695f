"""HTTP on the Unix socket: a connection like any other, behind a look at who is calling."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from http import HTTPStatus

from bsd.doors.http.connection import BoundedProtocol
from bsd.foundation.locations import may_talk_to_us, peer_uid
from bsd.foundation.logs import get_logger

_log = get_logger("api")


class LocalProtocol(BoundedProtocol):
    """Serves the owner of the daemon and root; the mode of the socket keeps others out before."""

    may_talk: Callable[[int], bool] = staticmethod(may_talk_to_us)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        uid = _uid(transport.get_extra_info("socket"))
        if uid is None or not self.may_talk(uid):
            _log.warning("A connection of another user is refused", uid=uid)
            self.refuse(
                HTTPStatus.FORBIDDEN,
                "this socket is for another user",
                "run it as the user whose daemon this is",
            )


def _uid(connection: socket.socket) -> int | None:
    try:
        return peer_uid(connection)
    except OSError:  # gone already, or a system that does not tell: a stranger
        return None
