"""What comes in: who asks, what stands in the body, and the answer to what cannot be served.

Bodies are JSON, whatever their Content-Type says (SPEC §8). They are read here and not as
parameters of FastAPI's, which takes NaN and half characters for JSON, and makes each model's
validator at the start of every daemon. Whatever goes wrong becomes an error document; no traceback
leaves the house.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, TypeVar

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bsd.doors.http.answer import TOO_LARGE_TEXT, JsonAnswer, error_answer, error_document
from bsd.doors.http.description import body, methods_at
from bsd.foundation.errors import BsdError, Invalid
from bsd.foundation.field_words import field_errors, fields_of
from bsd.foundation.logs import get_logger

_log = get_logger("api")

NOBODY_KNOWN = "api"
_EXAMPLE = 'send a JSON object, as in {"keep_recent": 10}'


def actor_of(request: Request) -> str:
    """The first digits of the key's hash, which `KeyGuard` has noted; `api` without a key.

    So whatever comes without one, over the socket or over an open TCP port, is `api`: that it came
    this way is all that is known for certain.
    """
    return str(getattr(request.state, "actor", NOBODY_KNOWN))


class Wish(BaseModel):
    """What somebody may ask for in a body; nothing else may stand there."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        populate_by_name=False,
        defer_build=True,  # until one comes
    )


_W = TypeVar("_W", bound=Wish)


async def json_object(request: Request, *, optional: bool = False) -> dict[str, Any]:
    """Read the body; raises Invalid unless it is a JSON object (or, if `optional`, nothing)."""
    sent = await request.body()
    if optional and not sent:
        return {}
    try:
        document = orjson.loads(sent)
    except orjson.JSONDecodeError as error:
        raise Invalid(
            f"the body is not valid JSON: {error}" if sent else "the body is empty",
            hint=_EXAMPLE,
        ) from None
    if not isinstance(document, dict):
        raise Invalid("the body is not a JSON object {…}")
    return document


async def wish(request: Request, model: type[_W], *, optional: bool = False) -> _W:
    """Read the body as a wish; raises Invalid that names every bad field."""
    document = await json_object(request, optional=optional)
    try:
        return model.model_validate(document)
    except ValidationError as problem:
        errors = field_errors(problem.errors(include_url=False), fields_of(model))
    raise Invalid("; ".join(one.message for one in errors), errors=errors)


def described(model: type[Wish], *, required: bool = True) -> dict[str, Any]:
    """Say in OpenAPI what a body may hold."""
    return body(model.model_json_schema, required=required)


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
    return JsonAnswer(error_document(text, errors=errors), HTTPStatus.BAD_REQUEST)


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
    return JsonAnswer(error_document(text, hint), error.status_code, headers=headers)


async def _unforeseen(_request: Request, error: Exception) -> Response:
    text = f"internal error: {type(error).__name__}"
    return JsonAnswer(error_document(text, "the details are in the log; please report them"), 500)
