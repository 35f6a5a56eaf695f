"""The OpenAPI document, made from the routes and from the dataclasses that they answer with.

Nobody who is served needs any of it: this module is loaded when somebody asks for the document.
The models of the settings are made from their table: what is valid only that decides
(`bsd.core.config`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from bsd import __version__
from bsd.actions.models import Document, answer_model
from bsd.core.config import (
    PruningConfig,
)
from bsd.core.definition import Body, schema_name
from bsd.http.answer import Error
from bsd.http.verb_routes import ApiRoute

_INFO = {
    "title": "bsd",
    "summary": "Keeps AI-agent session files lean by moving large old values into a store.",
    "version": __version__,
}
_REFERENCE = "#/components/schemas/{model}"
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


class EntryDocument(Document):
    """A whole entry, numbers as they are spelled, for somebody to edit."""

    entry_id: str | None
    index: int
    seen: str = Field(description="Hash of the line; an edit may say what it was made on")
    entry: dict[str, Any]


def openapi(routes: Iterable[ApiRoute]) -> dict[str, Any]:
    """The document that describes these routes."""
    paths: dict[str, dict[str, Any]] = {}
    answers: set[type] = {Error}
    for route in routes:
        paths.setdefault(route.path, {})[route.told.method.lower()] = _operation(route)
        if isinstance(route.answer, type):
            answers.add(route.answer)
    found = {
        "openapi": "3.1.0",
        "info": _INFO,
        "paths": paths,
        "components": {"schemas": _answer_schemas(answers)},
    }
    tidy: dict[str, Any] = _tidy(found)
    return tidy


def _operation(route: ApiRoute) -> dict[str, Any]:
    said = route.told
    told: dict[str, Any] = {
        "tags": [said.tag],
        "summary": said.name.replace("_", " ").title(),
        "description": said.doc,
        "operationId": f"{said.tag}_{said.name}",
    }
    if parameters := [*map(_in_path, route.param_convertors), *_in_query(route)]:
        told["parameters"] = parameters
    told["responses"] = _responses(route)
    if said.body:
        told["requestBody"] = _body(_own_body(said.body), required=said.body.required)
    elif route.body:
        schema = route.body().model_json_schema()
        told["requestBody"] = _body(schema, required=said.needs_body or "required" in schema)
    return told


def _in_path(name: str) -> dict[str, Any]:
    schema = {"type": "string", "title": name.replace("_", " ").title(), **_IN_PATHS.get(name, {})}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(route: ApiRoute) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = route.query().model_json_schema()
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": one,
            **({"description": one["description"]} if "description" in one else {}),
        }
        for name, one in schema["properties"].items()
    ]


def _body(schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    return {"required": required, "content": {"application/json": {"schema": schema}}}


def _own_body(body: Body) -> dict[str, Any]:
    if body.schema:
        return dict(body.schema)
    # What changes some of the settings.
    whole = PruningConfig.model_json_schema(ref_template=_REFERENCE)["properties"]
    known = {name: whole[name] for name in body.settings}
    return {"type": "object", "properties": known, "additionalProperties": False}


def _responses(route: ApiRoute) -> dict[str, Any]:
    others = {str(status): _response(route.answer, why) for status, why in route.statuses.items()}
    return {
        "200": _response(route.answer, "Successful Response"),
        "default": _response(Error, "What went wrong"),
        **others,
    }


def _response(answer: type | str | Mapping[str, Any], description: str) -> dict[str, Any]:
    if isinstance(answer, Mapping):
        return {"description": description, **answer}
    name = answer if isinstance(answer, str) else schema_name(answer)
    schema = {"$ref": _REFERENCE.format(model=name)}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _answer_schemas(told: Iterable[type]) -> dict[str, Any]:
    """All answers by their names: those that are dataclasses (`told`), and the models here."""
    known: set[type[BaseModel]] = {PruningConfig, EntryDocument, *map(answer_model, told)}
    _, schemas = models_json_schema(
        [(model, "serialization") for model in known], ref_template=_REFERENCE
    )
    return dict(sorted(schemas["$defs"].items()))


def _tidy(part: Any) -> Any:
    """Without defaults of null, which say no more than that something need not be there."""
    if isinstance(part, dict):
        kept = {key: _tidy(one) for key, one in part.items()}
        return {key: one for key, one in kept.items() if key != "default" or one is not None}
    return [_tidy(one) for one in part] if isinstance(part, list) else part
