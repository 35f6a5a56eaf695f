"""The form of all errors: `{"error": …, "hint": …, "errors": [{"field": …, "message": …}]}`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

import structlog
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from bsd.core.answers import OMIT_EMPTY
from bsd.core.errors import BsdError, FieldError
from bsd.core.formatting import document
from bsd.core.validation import reason_of
from bsd.daemon.child import Stopping

_log = structlog.stdlib.get_logger(module="api")

LARGEST_BODY = 1 << 20  # bytes
_EXAMPLE = 'send a JSON object, as in {"keep_recent": 10}'
TOO_LARGE = f"the body is larger than {LARGEST_BODY} bytes"


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """A bad field of the input."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Error:
    """The body of every error answer."""

    error: str
    hint: Annotated[str | None, OMIT_EMPTY] = None
    errors: Annotated[list[FieldProblem] | None, OMIT_EMPTY] = None


class JsonAnswer(JSONResponse):
    """A JSON document; may contain lone surrogates and huge integers, as transcripts do."""

    def render(self, content: Any) -> bytes:
        return document(content)


def error_answer(
    status: int,
    message: str,
    hint: str | None = None,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> JsonAnswer:
    """Return an error answer with the given HTTP status."""
    content: dict[str, Any] = {"error": message}
    if hint:
        content["hint"] = hint
    if errors:
        content["errors"] = [{"field": one.field, "message": one.message} for one in errors]
    return JsonAnswer(content, status, headers)


async def _bsd_error(request: Request, error: BsdError) -> JsonAnswer:
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.warning("A request could not be served", path=request.url.path, error=error.message)
    return error_answer(error.status, error.message, error.hint, error.errors)


async def _bad_input(_request: Request, error: RequestValidationError) -> JsonAnswer:
    """List every bad field once; a field that allows several types gets the error for each."""
    problems: dict[str, list[str]] = {}
    for detail in error.errors():
        place, *path = detail["loc"]
        if detail["type"] == "json_invalid":
            text = f"the body is not valid JSON: {detail['ctx']['error']}"
            return error_answer(400, text, _EXAMPLE)
        if place == "body" and not path:
            return error_answer(400, "the body is not a JSON object {…}", _EXAMPLE)
        name = str(path[0] if path else place)
        problems.setdefault(name, []).append(reason_of(detail))
    errors = [FieldError(name, " or ".join(messages)) for name, messages in problems.items()]
    text = "; ".join(f"{one.field}: {one.message}" for one in errors)
    return error_answer(400, text, errors=errors)


def _methods_of(request: Request) -> str:
    """Return the methods of all routes at the request's path, as the header Allow lists them."""
    paths: dict[str, dict[str, Any]] = request.app.openapi()["paths"]
    methods = {
        method.upper()
        for path, operations in paths.items()
        if compile_path(path)[0].match(request.url.path)
        for method in operations
    } or {"GET"}  # the page is not in the document
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


async def _http_error(request: Request, error: HTTPException) -> JsonAnswer:
    path, hint = request.url.path, None
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            text, hint = f"there is no {path}", "/api/openapi.json lists all routes"
        case HTTPStatus.METHOD_NOT_ALLOWED:
            text = f"{path} does not take {request.method}"
            hint = "/api/openapi.json lists all routes"
            return error_answer(405, text, hint, headers={"allow": _methods_of(request)})
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            text = TOO_LARGE
        case _:
            text = str(error.detail)
    return error_answer(error.status_code, text, hint, headers=error.headers)


async def _stopping(_request: Request, _error: Stopping) -> JsonAnswer:
    return error_answer(503, "the daemon is stopping", "`bsd status` shows when it runs again")


async def _unforeseen(request: Request, error: Exception) -> JsonAnswer:
    """Answer with the type of the error only; the server logs the traceback."""
    _log.error("A request has failed", method=request.method, path=request.url.path)
    text = f"internal error: {type(error).__name__}"
    return error_answer(500, text, "the details are in the log; please report them")


ERROR_HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]]
ERROR_HANDLERS = {
    BsdError: _bsd_error,
    RequestValidationError: _bad_input,
    HTTPException: _http_error,
    Stopping: _stopping,
    Exception: _unforeseen,
}
