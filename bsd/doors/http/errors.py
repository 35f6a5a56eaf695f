"""Whatever goes wrong in a request becomes an error document; no traceback leaves the house."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic.fields import FieldInfo
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bsd.doors.http.answer import TOO_LARGE_TEXT, Answer, error_answer, error_document
from bsd.doors.http.description import methods_at
from bsd.foundation.errors import BsdError
from bsd.foundation.field_words import field_errors
from bsd.foundation.logs import get_logger

_log = get_logger("api")


def handle_errors(app: FastAPI) -> None:
    """Let `app` answer all errors in our form."""
    app.add_exception_handler(BsdError, _ours)
    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_exception_handler(HTTPException, _by_status)
    app.add_exception_handler(Exception, _unforeseen)


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, BsdError)  # noqa: S101 - what it is registered for
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.warning("A request could not be served", path=request.url.path, error=error.message)
    return error_answer(error)


async def _bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - what it is registered for
    # A path begins with where the field was: query, path, header.
    errors = field_errors(error.errors(), _parameters(request), skip=1)
    text = "; ".join(one.message for one in errors)
    return Answer(error_document(text, errors=errors), HTTPStatus.BAD_REQUEST)


def _parameters(request: Request) -> dict[str, FieldInfo]:
    """What the route takes, by the names that users know."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return {}
    taken = route.dependant
    return {
        one.alias: one.field_info
        for one in (*taken.path_params, *taken.query_params, *taken.header_params)
    }


async def _by_status(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
    hint, headers = None, error.headers
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            text = f"there is no {request.url.path}"
            hint = "/api/openapi.json lists what there is"
        case HTTPStatus.METHOD_NOT_ALLOWED:
            text = f"{request.url.path} does not take {request.method}"
            # Starlette knows the methods of the first route there, not of all.
            if allowed := methods_at(request.app.openapi, request.url.path):
                headers = {**(headers or {}), "Allow": ", ".join(allowed)}
            hint = "/api/openapi.json lists what there is"
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            text = TOO_LARGE_TEXT
        case _:
            text = str(error.detail)
    return Answer(error_document(text, hint), error.status_code, headers=headers)


async def _unforeseen(_request: Request, error: Exception) -> Response:
    text = f"internal error: {type(error).__name__}"
    return Answer(error_document(text, "the details are in the log; please report them"), 500)
