"""Bodies of requests: JSON, whatever their Content-Type says (SPEC §8).

They are read here and not as parameters of FastAPI's, which takes NaN and half characters for JSON,
and makes each model's validator at the start of every daemon.
"""

from __future__ import annotations

from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from bsd.doors.http.description import body
from bsd.foundation.errors import Invalid
from bsd.foundation.field_words import field_errors, fields_of

_EXAMPLE = 'send a JSON object, as in {"keep_recent": 10}'


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
    body = await request.body()
    if optional and not body:
        return {}
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Invalid(
            f"the body is not valid JSON: {error}" if body else "the body is empty",
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
