"""The outermost layer of every request: headers that all answers have, and how a request ends."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bsd.doors.http.answer import LARGEST_BODY, TOO_LARGE, Answer, error_document
from bsd.foundation.logs import get_logger

_log = get_logger("api")

_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class Edge:
    """Wraps the application of a listener. What escapes from it is logged here, once."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            if _is_too_large(scope):  # FastAPI would say so in plain text
                await TOO_LARGE(scope, receive, send_on)
                return
            await self._app(scope, receive, send_on)
        except asyncio.CancelledError:  # the server stops, and this took too long
            if not started:
                text = error_document(
                    "the daemon is stopping", "`bsd status` tells when it is back"
                )
                await Answer(text, HTTPStatus.SERVICE_UNAVAILABLE)(scope, receive, send_on)
        except ClientDisconnect:
            _log.debug("Somebody hung up in the middle of a request", path=scope["path"])
        except Exception:  # the edge of the API: each request gets an answer
            _log.exception("A request has failed", method=scope["method"], path=scope["path"])
            if not complete:  # uvicorn must break the connection off
                raise


def _is_too_large(scope: Scope) -> bool:
    """Whether a request announces a body that nobody here would read."""
    length = Headers(scope=scope).get("content-length", "")
    return length.isdecimal() and (len(length) > 18 or int(length) > LARGEST_BODY)


def _with_ours(message: Message) -> list[tuple[bytes, bytes]]:
    headers: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
    given = {name.lower() for name, _ in headers}
    headers += [(name, value) for name, value in _HEADERS if name not in given]
    # uvicorn would need its clock to tick for this one.
    headers.append((b"date", formatdate(usegmt=True).encode()))
    return headers
