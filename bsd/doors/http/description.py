"""What the OpenAPI document says beyond the routes' signatures, and what can be read from it.

Answers are described by the dataclasses that they are made of. Nobody who is served needs any of
it: what answers and bodies hold is worked out, and `models` is loaded, when somebody asks for the
document. As `response_model` of their routes they would take 2 MB of every daemon, and to check
each answer takes a status of 500 sessions from 0.1 to 2.3 ms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from http import HTTPStatus
from typing import Any, cast

from fastapi import FastAPI

from bsd.foundation.answers import schema_name

_SCHEMAS = "#/components/schemas/"

_NAME = {"pattern": "^[A-Za-z0-9._@:+-]+$", "minLength": 1, "maxLength": 240}

# Names in paths, wherever they stand. The routes check them by themselves: so the answer to a wrong
# one is the same in all doors.
_IN_PATHS: dict[str, dict[str, Any]] = {
    "agent": _NAME,
    "session": _NAME,
    "entry": {"minLength": 1, "maxLength": 1000},
    "id": _NAME,
    "name": {"pattern": "^[a-z_]+$"},
    "session_id": {"pattern": r"^[^/\\]+$"},
}

Answers = dict[int | str, dict[str, Any]]  # status → what OpenAPI says of it
_told: set[type] = set()  # the dataclasses among the answers


def answers(model: str | type) -> Answers:
    """Say that a route answers with a dataclass, or with a document of `models` here."""
    return {HTTPStatus.OK.value: document_of(model)}


def document_of(model: str | type, **said: Any) -> dict[str, Any]:
    """Say what one answer holds, and what else is `said` of it."""
    if isinstance(model, type):
        _told.add(model)
        model = schema_name(model)
    return said | {"content": {"application/json": {"schema": {"$ref": _SCHEMAS + model}}}}


def body(
    schema: Callable[[], dict[str, Any]], *, required: bool = True, **said: Any
) -> dict[str, Any]:
    """Say what a route takes, and what else is `said` of it."""

    def make() -> dict[str, Any]:
        content = {"application/json": {"schema": schema()}}
        return {"requestBody": {"required": required, "content": content, **said}}

    # FastAPI only reads it, and not before it describes the route.
    return cast("dict[str, Any]", _Later(make))


class _Later(Mapping[str, Any]):
    """Made when somebody looks into it."""

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> dict[str, Any]:
        return self._make()

    def __getitem__(self, key: str) -> Any:
        return self._made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def complete(app: FastAPI) -> None:
    """Let the document say what answers hold and what names in paths may look like."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = plain()
            schemas = _models().answer_schemas(_told, _SCHEMAS + "{model}")
            document["components"] = {"schemas": schemas}
            for operation in _operations(document):
                for parameter in operation.get("parameters", ()):
                    if parameter["in"] == "path":
                        parameter["schema"].update(_IN_PATHS.get(parameter["name"], {}))
        return plain()

    # This is how FastAPI wants it done.
    app.openapi = openapi  # type: ignore[method-assign]


def settings_schema(names: Iterable[str]) -> dict[str, Any]:
    """What a body may hold that changes some of the settings."""
    found: dict[str, Any] = _models().settings_schema(names, _SCHEMAS + "{model}")
    return found


def _models() -> Any:
    from bsd.doors.http import models  # noqa: PLC0415 - see above

    return models


def methods_at(document: Callable[[], dict[str, Any]], path: str) -> list[str]:
    """The methods that a path takes; empty if the document does not know it."""
    for template, operations in document()["paths"].items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path):
            return sorted(map(str.upper, operations))
    return []


def _operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for methods in document["paths"].values() for one in methods.values()]
