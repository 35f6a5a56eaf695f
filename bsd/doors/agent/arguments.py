"""What an agent may hand to a tool, and what it then wants done.

Models write arguments freely: lists as one text with commas, numbers as texts. What can only mean
one thing is taken as that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from bsd.foundation.errors import FieldError, Invalid
from bsd.foundation.field_words import Expected, field_errors, fields_of
from bsd.surgery.targets import ACTIONS as CONTEXT_ACTIONS
from bsd.surgery.targets import Discard, Replacement, read_targets

# Two names of one parameter; the seeds, and the plugin hybrid-memory, use both.
_PAIRS = (("entry", "entry_id"), ("id", "memoryId"))
_SAME = (*_PAIRS, *((other, name) for name, other in _PAIRS))

PURGE_ACTIONS = ("get_context", "restore", "set_extractable")
_MOST_FOUND = 100


@dataclass(frozen=True, slots=True)
class Restore:
    """Give the text of an entry's values and put them back; no `keys` means all.

    `inline`: False only gives the text; True also has it put back later, where that can be.
    """

    entry: str
    keys: tuple[str, ...] | None = None
    inline: bool | None = None
    offset: int = 0  # characters of the first value that are passed over
    action = "restore"


@dataclass(frozen=True, slots=True)
class Read:
    """Give the text of an entry's values; no `keys` means all that is away."""

    entry: str
    keys: tuple[str, ...] | None = None
    offset: int = 0
    action = "read_extracted"


@dataclass(frozen=True, slots=True)
class SetExtractable:
    """Set an entry's `_extractable`; None removes it."""

    entry: str
    value: bool | int | None
    action = "set_extractable"


@dataclass(frozen=True, slots=True)
class GetContext:
    """Tell what of the session is away, and what could be."""

    action = "get_context"


@dataclass(frozen=True, slots=True)
class ActOnContext:
    """Replace, discard or distill."""

    action: str
    targets: tuple[Replacement, ...] | tuple[Discard, ...]
    include_user: bool = False


@dataclass(frozen=True, slots=True)
class SearchExtracted:
    """Find words in what was taken out, without putting it back."""

    query: str
    limit: int
    action = "search_extracted"


_Model = TypeVar("_Model", bound=BaseModel)

Deed = Restore | Read | SetExtractable | GetContext | ActOnContext | SearchExtracted


def split_list(keys: Any) -> Any:
    """Read a list of texts, also one that was written with commas."""
    if isinstance(keys, str):
        keys = keys.split(",")
    if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
        return [key.strip() for key in keys if key.strip()] or None
    return keys


def _read_value(value: Any) -> Any:
    """Read `_extractable` as it is typed; what it cannot be stays, and is refused by its type."""
    words = {"true": True, "false": False, "unset": "unset"}
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if text in words:
        return words[text]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else value


def _read_number(value: Any) -> Any:
    """Read a number that was written as text; what is none stays, and is refused by its type."""
    text = value.strip() if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 12 else value


_Keys = Annotated[
    list[str] | None,
    BeforeValidator(split_list),
    Field(None, description="Only these values, by path or by name; leave it out for all of them."),
]
_Inline = Annotated[
    bool | None,
    Field(
        None,
        description="true: put it back inline as well, also if that must wait until your turn is "
        "over; false: only give the text.",
    ),
]
_Offset = Annotated[
    int,
    BeforeValidator(_read_number),
    Field(0, ge=0, lt=10**12, description="Where a long text goes on, as `next` says."),
]
_Value = Annotated[
    bool | Annotated[int, Field(ge=0, lt=10**9)] | Literal["unset"] | None,
    BeforeValidator(_read_value),
    Expected('true, false, a number or "unset"'),
    Field(
        None,
        description="For set_extractable: false keeps the entry in sight, true lets it go, a "
        'number keeps it for so many messages, "unset" takes back what was said.',
    ),
]


class Arguments(BaseModel):
    """What all tools take."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    session: str | None = Field(
        None,
        min_length=1,
        description="Leave it out for your own. Else AGENT/SESSION, or an id that only one agent "
        "has.",
    )

    def deed(self) -> Deed:
        """Say what is to be done; raises Invalid."""
        raise NotImplementedError


class RestoreRemoteArguments(Arguments):
    entry: str = Field(
        min_length=1,
        description="The id in the placeholder [[extracted-ID]].",
    )
    keys: _Keys
    inline: _Inline
    offset: _Offset

    def deed(self) -> Deed:
        return Restore(self.entry, _tuple(self.keys), self.inline, self.offset)


class RestoreArguments(Arguments):
    entry_id: str = Field(
        min_length=1,
        description="The id in the placeholder [[extracted-ID]].",
    )
    keys: _Keys
    inline: _Inline
    offset: _Offset

    def deed(self) -> Deed:
        return Restore(self.entry_id, _tuple(self.keys), self.inline, self.offset)


class ReadArguments(Arguments):
    entry: str = Field(
        min_length=1,
        description="The id in the placeholder [[extracted-ID]].",
    )
    keys: _Keys
    offset: _Offset

    def deed(self) -> Deed:
        return Read(self.entry, _tuple(self.keys), self.offset)


class PurgeControlArguments(Arguments):
    action: str = Field(description="What to do.", json_schema_extra={"enum": list(PURGE_ACTIONS)})
    entry: str | None = Field(
        None,
        description="Id of an entry; restore and set_extractable need it.",
    )
    keys: _Keys
    value: _Value
    inline: _Inline
    offset: _Offset

    def deed(self) -> Deed:
        if self.action == "get_context":
            return GetContext()
        if self.action not in PURGE_ACTIONS:
            raise refused(
                "action",
                f"Unknown action '{self.action}'. Valid actions: {', '.join(PURGE_ACTIONS)}",
            )
        if not self.entry:
            raise refused("entry", f"entry parameter is required for {self.action} action")
        if self.action == "restore":
            return Restore(self.entry, _tuple(self.keys), self.inline, self.offset)
        if self.value is None:
            raise refused(
                "value",
                "value parameter is required for set_extractable action (true, false, or integer)",
            )
        return SetExtractable(self.entry, None if self.value == "unset" else self.value)


_TARGET_SCHEMA: dict[str, Any] = {
    "minItems": 1,
    "items": {
        "anyOf": [
            {
                "type": "object",
                "description": "for replace",
                "properties": {
                    "start": {"type": "string", "description": "Exact text that begins the piece"},
                    "end": {"type": "string", "description": "Exact text that ends the piece"},
                    "replacement": {"type": "string", "description": "What stands there instead"},
                },
                "required": ["start", "end", "replacement"],
            },
            {
                "type": "array",
                "description": "for discard [hash], for distill [hash, summary]",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": 2,
            },
        ]
    },
}


class ContextArguments(Arguments):
    action: str = Field(
        description="What to do.", json_schema_extra={"enum": list(CONTEXT_ACTIONS)}
    )
    targets: list[Any] = Field(
        description="What to do it to; all of it is done or nothing.",
        json_schema_extra=_TARGET_SCHEMA,
    )
    include_user: bool = Field(
        default=False, description="Also look at what the user wrote, which is left alone else."
    )

    def deed(self) -> Deed:
        if self.action not in CONTEXT_ACTIONS:
            raise refused(
                "action",
                f"Unknown action '{self.action}'. Valid actions: {', '.join(CONTEXT_ACTIONS)}",
            )
        return ActOnContext(self.action, read_targets(self.action, self.targets), self.include_user)


class SearchArguments(Arguments):
    query: str = Field(
        min_length=1,
        max_length=1000,
        description='Words that must all be there; "some words" stand together, begin* is any '
        "word that begins so.",
    )
    limit: int = Field(10, ge=1, le=_MOST_FOUND, description="No more than so many entries.")

    def deed(self) -> Deed:
        return SearchExtracted(self.query, self.limit)


def _tuple(keys: list[str] | None) -> tuple[str, ...] | None:
    return None if keys is None else tuple(keys)


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
