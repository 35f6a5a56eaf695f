"""Says how the daemon is from the first moment on; all other routes are loaded behind that.

Loading them takes longer than everything else that a start needs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from http import HTTPStatus

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bsd.daemon.status import Service
from bsd.doors.http.answer import JsonAnswer, error_document, in_thread
from bsd.foundation.logs import get_logger

_log = get_logger("api")

_NAME = "routes"
_LOAD_SECONDS = 300.0  # on the slowest machine
_NOT_LOADED = JsonAnswer(
    error_document("the API could not be loaded", "the details are in the log"),
    HTTPStatus.SERVICE_UNAVAILABLE,
)


def health(daemon: Service) -> Response:
    """Whether all is well. 503 before the start is complete and while it stops."""
    told = daemon.health()
    ready = told["status"] in {"ok", "degraded"}
    return JsonAnswer(told, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)


def status(daemon: Service) -> Response:
    """Everything."""
    return Response(daemon.status_json(), media_type=JsonAnswer.media_type)


class Early:
    """The application while it is being loaded, and afterwards."""

    def __init__(self, daemon: Service, make: Callable[[], ASGIApp]) -> None:
        self._daemon = daemon
        self._make = make
        self._routes: Future[ASGIApp] = Future()
        # The routes of these names do the same; so it does not matter who answers.
        self._at_once: Mapping[str, Callable[[], Response]] = {
            "/api/health": lambda: health(daemon),
            "/api/status": lambda: status(daemon),
        }

    def load(self) -> None:
        """Load the routes, in a thread of their own; whoever asks for them waits until then."""
        # If that fails or hangs, nothing ends this beat: then the daemon is not well, and says so.
        self._daemon.beat(_NAME, _LOAD_SECONDS)
        threading.Thread(target=self._load, name=f"bsd-{_NAME}").start()

    def _load(self) -> None:
        try:
            self._routes.set_result(self._make())
        except BaseException as error:  # noqa: BLE001 - whoever waits must hear of any
            _log.exception("The routes of the API cannot be loaded")
            self._routes.set_exception(error)
            return
        self._daemon.end_beat(_NAME)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET":
            answer = await self._answer_at_once(scope["path"])
            if answer is not None:
                await answer(scope, receive, send)
                return
        if not self._routes.done():
            await self._until_loaded()
        app = _NOT_LOADED if self._routes.exception() else self._routes.result()
        await app(scope, receive, send)

    async def _until_loaded(self) -> None:
        loop, loaded = asyncio.get_running_loop(), asyncio.Event()

        def tell(_: object) -> None:
            with suppress(RuntimeError):  # the server has stopped meanwhile
                loop.call_soon_threadsafe(loaded.set)

        self._routes.add_done_callback(tell)
        await loaded.wait()

    async def _answer_at_once(self, path: str) -> Response | None:
        look = self._at_once.get(path)
        # What fails here fails in the routes as well, and there it is told as all that fails.
        with suppress(Exception):
            return None if look is None else await in_thread(look)
        return None
