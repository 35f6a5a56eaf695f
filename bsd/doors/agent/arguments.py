"""What an agent may hand to a tool, read as what it means.

Models write arguments freely: lists as one text with commas, numbers as texts. What can only mean
one thing is taken as that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from bsd.foundation.errors import FieldError, Invalid
from bsd.foundation.field_words import field_errors, fields_of

# Two names of one parameter; the seeds, and the plugin hybrid-memory, use both.
_PAIRS = (("entry", "entry_id"), ("id", "memoryId"))
_SAME = (*_PAIRS, *((other, name) for name, other in _PAIRS))

_Model = TypeVar("_Model", bound=BaseModel)


class Arguments(BaseModel):
    """What all tools for sessions take."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    session: str | None = Field(
        None,
        min_length=1,
        description="Leave it out for your own. Else AGENT/SESSION, or an id that only one agent "
        "has.",
    )


def split_list(keys: Any) -> Any:
    """Read a list of texts, also one that was written with commas."""
    if isinstance(keys, str):
        keys = keys.split(",")
    if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
        return [key.strip() for key in keys if key.strip()] or None
    return keys


def _read_number(value: Any) -> Any:
    """Read a number that was written as text; what is none stays, and is refused by its type."""
    text = value.strip() if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 12 else value


def freely(annotation: Any) -> Callable[[Any], Any] | None:
    """How an argument of this type is read, if it may be written in several ways."""
    if annotation == tuple[str, ...] | None:
        return split_list
    return _read_number if annotation is int else None


def read_arguments(model: type[_Model], arguments: object) -> _Model:
    """Read what a model wrote; raises Invalid that names every bad field."""
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise Invalid("the arguments are not a JSON object", hint='send {"name": value, …}')
    known = [field.alias or name for name, field in model.model_fields.items()]
    given = dict(arguments)
    for name, other in _SAME:
        if name in given and name not in known and other in known and other not in given:
            given[other] = given.pop(name)
    try:
        return model.model_validate(given)
    except ValidationError as problem:
        details = [_without_empty(one) for one in problem.errors(include_url=False)]
        errors = field_errors(
            details,
            fields_of(model),
            missing="parameter is required",
            unknown="is no parameter of this tool",
        )
    raise Invalid(
        "; ".join(one.message for one in errors),
        hint=f"its parameters: {', '.join(known)}",
        errors=errors,
    )


def _without_empty(detail: ErrorDetails) -> ErrorDetails:
    """The same; an empty text is as good as none."""
    return {**detail, "type": "missing"} if detail["type"] == "string_too_short" else detail


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of arguments or answers, without the titles: they only repeat the names."""
    schema: dict[str, Any] = _untitled(model.model_json_schema())
    return schema


def _untitled(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: _untitled(value)
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str))
        }
    return [_untitled(item) for item in schema] if isinstance(schema, list) else schema


def refused(field: str, message: str) -> Invalid:
    """What to raise for a parameter that does not do."""
    return Invalid(message, hint=f"say what {field} is", errors=(FieldError(field, message),))


def unknown_choice(name: str, value: object, choices: tuple[str, ...]) -> Invalid:
    """What to raise for a word that is none of those there are."""
    return refused(name, f"Unknown {name} '{value}'. Valid {name}s: {', '.join(choices)}")
