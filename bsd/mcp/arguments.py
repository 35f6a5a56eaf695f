"""Arguments of tools: their types, and the validation of a call's arguments.

The parameters of a tool are those of its method (`tools.SessionTools`, `memory_tools.MemoryTools`).
Models vary the form of arguments: a list as a string with commas, a number as a string, null for a
missing argument, `entry` for `entry_id`. All these forms are accepted. The answer reports all
errors of a call, in words that a model can act on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge, Le
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from bsd.core.errors import FieldError, Invalid
from bsd.core.formatting import shown
from bsd.planning.targets import ACTIONS as CONTEXT_ACTIONS


@dataclass(frozen=True, slots=True)
class MustBe:
    """Metadata of an argument: its required form in words, if the type is not sufficient."""

    words: str


# Alternative names of parameters; seeds 000, 001 and 002 use both.
_OTHER_NAME = {"entry": "entry_id", "entry_id": "entry", "id": "memoryId", "memoryId": "id"}


def read_arguments(tool: Callable[..., Any], arguments: object) -> dict[str, Any]:
    """Validate the arguments of a call against the parameters of the tool's function.

    Returns:
        The given arguments by parameter; missing arguments are not in the result.

    Raises:
        Invalid: lists every bad argument.
    """
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise Invalid("the arguments are not a JSON object", hint='send {"name": value, …}')
    model = _model(tool)
    try:
        read = model.model_validate(_renamed(arguments, model.model_fields))
    except ValidationError as problem:
        errors = _field_errors(model, problem.errors(include_url=False))
    else:
        return {name: getattr(read, name) for name in read.model_fields_set}
    raise Invalid(
        "; ".join(error.message for error in errors),
        hint=f"its parameters: {', '.join(model.model_fields)}",
        errors=errors,
    )


@cache
def _model(tool: Callable[..., Any]) -> type[BaseModel]:
    """Return a model with a field for each parameter of a function except `self`."""
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(tool, eval_str=True).parameters.items():
        if name != "self":
            required = parameter.default is inspect.Parameter.empty
            fields[name] = (parameter.annotation, ... if required else parameter.default)
    config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    return create_model(tool.__name__, __config__=config, **fields)


def _renamed(arguments: Mapping[Any, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are not null, renamed to the tool's parameters."""
    renamed: dict[str, Any] = {}
    for name, value in arguments.items():
        if value is None:
            continue
        others = () if name in known else (_OTHER_NAME.get(name), to_camel(str(name)))
        other = next((one for one in others if one in known and one not in arguments), None)
        renamed[str(name) if other is None else other] = value
    return renamed


def _field_errors(
    model: type[BaseModel], details: Sequence[ErrorDetails]
) -> tuple[FieldError, ...]:
    """Return an error for each bad argument."""
    found: dict[str, FieldError] = {}
    for detail in details:
        name, *steps = (str(step) for step in detail["loc"])
        if detail["type"] in {"missing", "string_too_short"}:
            words = "parameter is required"
        elif detail["type"] == "extra_forbidden":
            words = "is not a parameter of this tool"
        else:
            words = f"must be {_expected(model.model_fields[name])}"
            if not any(step.isdecimal() for step in steps):  # not for a member of a list
                words += f", not {shown(detail['input'])}"
        found.setdefault(name, FieldError(name, f"{name} {words}"))
    return tuple(found.values())


def _expected(field: FieldInfo) -> str:
    """Return the required form of an argument in words."""
    for one in field.metadata:
        if isinstance(one, MustBe):
            return one.words
    least = next((one.ge for one in field.metadata if isinstance(one, Ge)), None)
    most = next((one.le for one in field.metadata if isinstance(one, Le)), None)
    if most is not None:
        return f"a {'whole ' * (field.annotation is int)}number from {least} to {most}"
    words = {str: "a text", bool: "true or false", list[str]: "a list of texts"}
    return next(
        words[kind] for kind in (field.annotation, *get_args(field.annotation)) if kind in words
    )


def refused(name: str, message: str) -> Invalid:
    """Return the error for a bad argument."""
    return Invalid(message, hint=f"say what {name} is", errors=(FieldError(name, message),))


def unknown_choice(name: str, value: object, choices: Sequence[str]) -> Invalid:
    """Return the error for a word that is not among the choices."""
    return refused(name, f"Unknown {name} '{value}'. Valid {name}s: {', '.join(choices)}")


# Readers of the forms that models write.


def split_list(value: Any) -> Any:
    """Read a list of strings, or a string with commas; None if it is empty."""
    if isinstance(value, str):
        value = value.split(",")
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [item.strip() for item in value if item.strip()] or None
    return value


def read_number(value: Any) -> Any:
    """Convert a string of digits to a number; return other values unchanged."""
    text = value.strip() if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 12 else value


def read_extractable(value: Any) -> Any:
    """Convert a string to a value of `_extractable`; return other values unchanged."""
    words = {"true": True, "false": False, "unset": "unset"}
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    return words[text] if text in words else read_number(value)


def read_moment(value: Any) -> Any:
    """Convert a date or time (UTC if it has no time zone) to epoch seconds."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        read = datetime.fromisoformat(text)
        return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp())
    except OverflowError as error:
        raise ValueError(str(error)) from None


# Arguments of the tools for sessions.

SessionArg = Annotated[str | None, Field(min_length=1, description="Default: your own.")]
EntryArg = Annotated[str, Field(min_length=1, description="ID of [[extracted-ID]].")]
KeysArg = Annotated[
    list[str] | None, BeforeValidator(split_list), Field(description="Only these values.")
]
InlineArg = Annotated[
    bool | None, Field(description="true: also put it back later; false: text only.")
]
OffsetArg = Annotated[
    int, BeforeValidator(read_number), Field(ge=0, le=10**12 - 1, description="From `next`.")
]
PURGE_ACTIONS = ("get_context", "restore", "set_extractable")
PurgeActionArg = Annotated[str, Field(json_schema_extra={"enum": [*PURGE_ACTIONS]})]
PurgeEntryArg = Annotated[str | None, Field(description="Id, for restore and set_extractable.")]
ExtractableArg = Annotated[
    bool | Annotated[int, Field(ge=0, lt=10**9)] | Literal["unset"] | None,
    BeforeValidator(read_extractable),
    MustBe('true, false, a number or "unset"'),
    WithJsonSchema(
        {
            "type": ["boolean", "integer", "string"],
            "description": "For set_extractable: false keeps the entry, true allows extraction, a "
            'number keeps it for that many messages, "unset" ends this.',
        }
    ),
]
ContextActionArg = Annotated[str, Field(json_schema_extra={"enum": [*CONTEXT_ACTIONS]})]
TargetsArg = Annotated[
    list[Any],
    MustBe("a list"),
    WithJsonSchema(
        {
            "type": "array",
            "items": {
                "anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "string"}}]
            },
            "description": "replace: {start, end, replacement}, discard: [hash], distill: "
            "[hash, summary]",
        }
    ),
]
IncludeUserArg = Annotated[bool, Field(description="Also what the user wrote.")]
SearchQueryArg = Annotated[
    str,
    MustBe("a text of 1 to 1000 characters"),
    Field(min_length=1, max_length=1000, description='All these words; also "a phrase", begin*.'),
]
SearchLimitArg = Annotated[int, BeforeValidator(read_number), Field(ge=1, le=100)]
SearchOffsetArg = Annotated[
    int, BeforeValidator(read_number), Field(ge=0, le=1000, description="From `next`.")
]
