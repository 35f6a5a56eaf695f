"""What the OpenAPI document says beyond the routes' signatures, and what can be read from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from fastapi import FastAPI

from bsd.foundation.pruning_check import RuntimeConfig

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


def describe_names(app: FastAPI) -> None:
    """Let the document say what names may look like."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            for operation in _operations(plain()):
                for parameter in operation.get("parameters", ()):
                    if parameter["in"] == "path":
                        parameter["schema"].update(_IN_PATHS.get(parameter["name"], {}))
        return plain()

    # This is how FastAPI wants it done.
    app.openapi = openapi  # type: ignore[method-assign]


def settings_schema(names: Iterable[str]) -> dict[str, Any]:
    """What a body may hold that changes some of the settings."""
    whole = RuntimeConfig.model_json_schema(ref_template="#/components/schemas/{model}")
    known = {name: whole["properties"][name] for name in names}
    return {"type": "object", "properties": known, "additionalProperties": False}


def methods_at(document: Callable[[], dict[str, Any]], path: str) -> list[str]:
    """The methods that a path takes; empty if the document does not know it."""
    for template, operations in document()["paths"].items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path):
            return sorted(map(str.upper, operations))
    return []


def _operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for methods in document["paths"].values() for one in methods.values()]
