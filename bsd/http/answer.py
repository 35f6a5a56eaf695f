"""How answers look (JSON, one form for all errors), and by which threads they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, ParamSpec, TypeVar

import structlog
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from bsd.core.definition import Answer, contract
from bsd.core.errors import BsdError, FieldError
from bsd.core.formatting import document

_log = structlog.stdlib.get_logger(module="api")

_P = ParamSpec("_P")
_T = TypeVar("_T")

LARGEST_HEAD = 16 * 1024  # bytes, of a request
LARGEST_BODY = 1 << 20
STOPPING = "stopping"  # in the state of a request: the asyncio.Event that the server ends


class JsonAnswer(JSONResponse):
    """A JSON document; lone surrogates and huge integers, which transcripts hold, included."""

    def render(self, content: Any) -> bytes:
        return document(content)


@dataclass(frozen=True, slots=True)
class FieldProblem(Answer):
    """What is wrong with one field of the input."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Error(Answer):
    """Every error, whatever its status."""

    error: str
    hint: str | None = field(default=None, metadata=contract("What to try", omit=True))
    errors: list[FieldProblem] | None = field(
        default=None, metadata=contract("Every bad field of the input", omit=True)
    )


def error_document(
    message: str, hint: str | None = None, errors: Sequence[FieldError] = ()
) -> dict[str, Any]:
    """An `Error` as JSON has it."""
    problems = [FieldProblem(one.field, one.message) for one in errors]
    return Error(message, hint, problems or None).as_json()


TOO_LONG_TEXT = f"the head of the request is larger than {LARGEST_HEAD} bytes"
TOO_LONG = JsonAnswer(error_document(TOO_LONG_TEXT), HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
TOO_LARGE_TEXT = f"the body is larger than {LARGEST_BODY} bytes"
TOO_LARGE = JsonAnswer(error_document(TOO_LARGE_TEXT), HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, BsdError)  # noqa: S101 - what it is registered for
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.warning("A request could not be served", path=request.url.path, error=error.message)
    return JsonAnswer(error_document(error.message, error.hint, error.errors), error.status)


async def _by_status(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
    hint, headers = None, error.headers
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            text = f"there is no {request.url.path}"
            hint = "/api/openapi.json lists what there is"
        case HTTPStatus.METHOD_NOT_ALLOWED:
            text = f"{request.url.path} does not take {request.method}"
            headers = {"Allow": ", ".join(_methods(request))}
            hint = "/api/openapi.json lists what there is"
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            text = TOO_LARGE_TEXT
        case _:
            text = str(error.detail)
    return JsonAnswer(error_document(text, hint), error.status_code, headers=headers)


def _methods(request: Request) -> list[str]:
    """What a path takes; Starlette knows the methods of the first route there, not of all."""
    routes = request.app.routes
    there = [one for one in routes if one.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for one in there for method in one.methods})


async def _unforeseen(_request: Request, error: Exception) -> Response:
    text = f"internal error: {type(error).__name__}"
    return JsonAnswer(error_document(text, "the details are in the log; please report them"), 500)


# Whatever goes wrong becomes an error document; no traceback leaves the house.
ERRORS = {BsdError: _ours, HTTPException: _by_status, Exception: _unforeseen}


class Threads:
    """At most `most` threads for one kind of work; who comes later waits for his turn."""

    def __init__(self, name: str, most: int) -> None:
        self._most = most
        self._limiter = RunVar[CapacityLimiter](f"bsd-{name}")  # one for each event loop

    async def run(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function on a thread of its own.

        A server that stops does not wait for it: what it does, it does to its end all the same.
        """
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = CapacityLimiter(self._most)
            self._limiter.set(limiter)
        call = partial(function, *args, **kwargs)
        return await run_sync(call, abandon_on_cancel=True, limiter=limiter)


# Apart, so that somebody who waits for a busy session keeps nobody from reading, and somebody who
# reads a huge one keeps nobody from asking how the daemon is.
in_thread = Threads("answers", 4).run
reading = Threads("reading", 4).run
changing = Threads("changing", 4).run
