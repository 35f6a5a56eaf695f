"""A route of the API: what OpenAPI is told of it, and how what comes in is read.

Bodies are JSON, whatever their Content-Type says (SPEC §8). Neither the models by which they and
queries are checked nor the schemas of these are made before somebody asks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import getdoc
from typing import Any, Self

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bsd.doors.models import field_errors, fields_of
from bsd.foundation.definition import Body
from bsd.foundation.definition import Route as Told
from bsd.foundation.errors import Invalid

NOBODY_KNOWN = "api"
_EXAMPLE = 'send a JSON object, as in {"keep_recent": 10}'


class InQuery(BaseModel):
    """What may stand in a query, as text; what else stands there is passed over."""

    model_config = ConfigDict(populate_by_name=False)


class InBody(BaseModel):
    """What may stand in a body, and nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=False)


class ApiRoute(Route):
    """Where something is done, and all that OpenAPI says of it.

    `answer`: a dataclass, the name of a model in `openapi`, or, of what is no JSON, the words of
    OpenAPI; it comes with these `statuses`, too. `body`: its model, unless it is read in a way of
    its own (`told.body`).
    """

    def __init__(
        self,
        told: Told,
        endpoint: Callable[[Request], Awaitable[Response]],
        answer: type | str | Mapping[str, Any],
        *,
        query: Callable[[], type[InQuery]] | None = None,
        body: Callable[[], type[InBody]] | None = None,
        statuses: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__(told.path, endpoint, methods=[told.method], name=told.name)
        self.told, self.answer, self.statuses = told, answer, statuses or {}
        self.query, self.body = query, body

    @classmethod
    def of(
        cls,
        where: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        tag: str,
        answer: type | str | Mapping[str, Any],
        *,
        body: Body | None = None,
        statuses: Mapping[int, str] | None = None,
    ) -> Self:
        """A route that is no verb's; its name and what is told of it are the endpoint's."""
        method, path = where.split()
        doc = getdoc(endpoint) or ""
        told = Told(method, path, endpoint.__name__, doc, tag, body=body)
        return cls(told, endpoint, answer, statuses=statuses)


def actor_of(request: Request) -> str:
    """The first digits of the key's hash, which `KeyGuard` has noted; `api` without a key.

    So whatever comes without one, over the socket or over an open TCP port, is `api`: that it came
    this way is all that is known for certain.
    """
    return str(getattr(request.state, "actor", NOBODY_KNOWN))


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


def checked(model: type[BaseModel], found: Mapping[str, Any]) -> dict[str, Any]:
    """What was said, of what may be said; raises Invalid that names every bad field.

    What was left out is not there: the verb's own arguments know what it is then.
    """
    try:
        said = model.model_validate(found)
    except ValidationError as problem:
        errors = field_errors(problem.errors(include_url=False), fields_of(model))
    else:
        return {name: getattr(said, name) for name in said.model_fields_set}
    raise Invalid("; ".join(one.message for one in errors), errors=errors)
