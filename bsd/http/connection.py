"""HTTP on one connection: uvicorn's protocol, with an end to everybody's patience.

uvicorn waits for ever for the first byte, for the end of a request, and for a client that does not
read; limits were asked for in Kludex/uvicorn issue 157, and begun in pull request 1685, for which
its maintainer had no time. Here each of these has its time, and a door has so many places: who does
not ask makes way for those who come, so that descriptors are left for the other door and for work.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from bsd.core.locations import may_talk_to_us, peer_uid
from bsd.http.answer import LARGEST_HEAD, TOO_LONG_TEXT, error_document

_log = structlog.stdlib.get_logger(module="api")

_Waits = type[h11.IDLE] | type[h11.SEND_BODY] | None

MOST_CONNECTIONS = 128  # at each door
_FEWEST_CONNECTIONS = 4
# Of all descriptors that the process may have; each connection may have files open besides.
_SHARE = 8
_MOST_REFUSED = 16
_REFUSAL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """How long a client is waited for, in seconds."""

    head: float = 10.0  # from when it connects, or begins a request, until the head is complete
    body: float = 30.0  # and from there until the request is
    reading: float = 30.0  # until it takes what was sent


def places() -> int:
    """How many connections each door may have, by the limit of open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(_FEWEST_CONNECTIONS, min(MOST_CONNECTIONS, soft // _SHARE))


@dataclass(slots=True)
class Door:
    """The connections of one listener; whoever came first stands first. For one event loop."""

    name: str
    most: int = field(default_factory=places)
    limits: TimeLimits = field(default_factory=TimeLimits)
    _inside: dict[BoundedProtocol, None] = field(default_factory=dict)
    _refused: dict[BoundedProtocol, None] = field(default_factory=dict)

    def admit(self, newcomer: BoundedProtocol) -> bool:
        """Let somebody in; if all places are taken, in the place of one who makes nobody work."""
        if len(self._inside) >= self.most:
            _log.warning("There are too many connections", door=self.name, most=self.most)
            idle = next((one for one in self._inside if one.waits_for is h11.IDLE), None)
            slow = next((one for one in self._inside if one.waits_for is not None), None)
            if (last := idle or slow) is None:
                return False
            last.break_off()
        self._inside[newcomer] = None
        return True

    def turn_away(self, one: BoundedProtocol) -> None:
        """Let somebody read why he must go; a few at a time."""
        self.leave(one)
        self._refused[one] = None
        if len(self._refused) > _MOST_REFUSED:
            next(iter(self._refused)).break_off()

    def leave(self, one: BoundedProtocol) -> None:
        self._inside.pop(one, None)
        self._refused.pop(one, None)


class BoundedProtocol(H11Protocol):
    """One connection at a door; the further arguments are uvicorn's."""

    def __init__(self, door: Door, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.door = door
        self._refused = False
        self._timed_for: _Waits = None
        self._request_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None

    @property
    def waits_for(self) -> _Waits:
        """IDLE: the head of a request, SEND_BODY: the rest of one; None if it has all it needs."""
        state = self.conn.their_state
        return state if state is h11.IDLE or state is h11.SEND_BODY else None

    # What the event loop and uvicorn call.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # A client that does not read is noticed by the first byte that it leaves lying.
        transport.set_write_buffer_limits(high=0)
        super().connection_made(transport)
        if self.door.admit(self):
            self._time_request()
        else:
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "there are too many connections")

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        self._time_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.waits_for is h11.SEND_BODY:  # and nobody wants it any more
            self._time_request()
        else:  # until the next byte comes, uvicorn's own clock runs
            self._stop_request_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._reader_timer is None:
            self._reader_timer = self.loop.call_later(self.door.limits.reading, self.break_off)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_reader_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_request_timer()
        self._stop_reader_timer()
        if self.timeout_keep_alive_task is not None:  # which uvicorn forgets if there was an error
            self.timeout_keep_alive_task.cancel()
        self.door.leave(self)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        if len(self.conn.trailing_data[0]) > LARGEST_HEAD:
            self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, TOO_LONG_TEXT)
        else:
            self.refuse(HTTPStatus.BAD_REQUEST, msg)

    def shutdown(self) -> None:
        """Called when the server stops."""
        if self._refused or self.conn.our_state is h11.ERROR:
            self.break_off()
        else:
            super().shutdown()

    # What they come to.

    def refuse(self, status: HTTPStatus, why: str, hint: str | None = None) -> None:
        """Answer in the place of the application, and hang up once that has been read."""
        if self._refused:
            return
        self._refused = True
        self._stop_request_timer()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started:
                self.break_off()
                return
            cycle.disconnected = True  # for whoever waits for the rest of the request
            cycle.message_event.set()
        self.door.turn_away(self)
        self.transport.write(_answer(status, why, hint))
        # Closed at once, the connection would break before our answer has been read.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_REFUSAL_SECONDS, self.break_off)

    def break_off(self) -> None:
        """Hang up, whatever was still to be said."""
        self.door.leave(self)
        self.transport.abort()

    def _time_request(self) -> None:
        """See that what is waited for comes in time; more of the same gets no more of it."""
        waits_for = self.waits_for
        if waits_for is not None and waits_for is self._timed_for:
            return
        self._stop_request_timer()
        if waits_for is None or self._refused or self.transport.is_closing():
            return
        limits = self.door.limits
        seconds = limits.head if waits_for is h11.IDLE else limits.body
        self._timed_for = waits_for
        self._request_timer = self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        if self.waits_for is h11.SEND_BODY and not self.cycle.response_started:
            self.refuse(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive")
        else:
            self.break_off()

    def _stop_request_timer(self) -> None:
        self._timed_for = None
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _stop_reader_timer(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None


class LocalProtocol(BoundedProtocol):
    """One connection on the Unix socket, behind a look at who is calling.

    Serves the owner of the daemon and root; the mode of the socket keeps others out before.
    """

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


def _answer(status: HTTPStatus, why: str, hint: str | None) -> bytes:
    body = json.dumps(error_document(why, hint)).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "content-type: application/json\r\nconnection: close\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
