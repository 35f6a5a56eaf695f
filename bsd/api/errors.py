"""Whatever goes wrong in a request becomes an error document; no traceback leaves the house."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bsd.api.answer import TOO_LARGE_TEXT, Answer, error_answer, error_document
from bsd.api.description import methods_at
from bsd.foundation.errors import BsdError, FieldError
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


async def _bad_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - what it is registered for
    errors = tuple(FieldError(_field(one["loc"]), one["msg"]) for one in error.errors())
    text = "; ".join(f"{one.field}: {one.message}" for one in errors)
    return Answer(error_document(text, errors=errors), HTTPStatus.BAD_REQUEST)


def _field(location: tuple[Any, ...]) -> str:
    # It begins with where the field was: query, path, header.
    return ".".join(map(str, location[1:] or location))


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
