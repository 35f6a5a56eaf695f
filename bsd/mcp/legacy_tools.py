"""The agent's tools (SPEC §5), made from verbs, for the command line, MCP and transcripts alike.

Models write arguments freely: lists as one text with commas, numbers as texts. What can only mean
one thing is taken as that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic_core import ErrorDetails

from bsd.actions.models import Expected, answer_model, arguments_model, field_errors, fields_of
from bsd.actions.parameters import ACTIONS
from bsd.actions.verb import (
    Meanwhile,
    Tool,
    Verb,
    all_verbs,
    arguments_of,
    no_one_waits,
    perform,
)
from bsd.actions.verbs import (
    GET_CONTEXT,
    SET_EXTRACTABLE,
    GetContext,
    ReadExtracted,
    SetExtractable,
)
from bsd.core.definition import Answer
from bsd.core.errors import BsdError, Busy, FieldError, Invalid
from bsd.core.layout import SessionName
from bsd.mcp.legacy_restoring import RESTORE_INLINE, RestoreInline, explained
from bsd.planning.targets import Refused
from bsd.transcripts.agents.page_size import PageSize

# --- what an agent may hand to a tool, read as what it means ---


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


# --- the tools ---


# A listing that fills the context would be worse than what it helps against.
MOST_ENTRIES = 50


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of a tool, understood: the verb that is meant, and what it is given."""

    session: str | None
    verb: Verb[Any, Any]
    arguments: Any
    offset: int = 0  # where a listing goes on, if it is one

    def with_pages_of(self, size: PageSize) -> Asked:
        """The same call by a program that takes answers of this size."""
        if isinstance(self.arguments, RestoreInline | ReadExtracted):
            return replace(self, arguments=replace(self.arguments, size=size))
        return self

    @property
    def lacks(self) -> str | None:
        """The entry whose text is asked for: it is away of the session that is meant."""
        gives = isinstance(self.arguments, RestoreInline | ReadExtracted)
        return self.arguments.entry if gives else None


@dataclass(frozen=True, slots=True)
class AgentTool:
    """What a model is told of, and how its calls are read."""

    told: Tool
    changes: bool  # it may change a session
    model: type[Arguments]
    meant: Callable[[Any], tuple[Verb[Any, Any], Any]]  # verb and arguments; raises Invalid
    answer: type[Answer]

    @property
    def name(self) -> str:
        return self.told.name

    def read(self, arguments: object) -> Asked:
        """Understand a call; raises Invalid that says everything that is wrong with it."""
        read = read_arguments(self.model, arguments)
        return Asked(read.session, *self.meant(read), offset=getattr(read, "offset", 0))

    def schema(self, *, takes_session: bool = True) -> dict[str, Any]:
        """The JSON schema of its arguments; without `session` where there is only one."""
        schema = schema_of(self.model)
        schema.pop("description", None)  # the tool has one, and each takes room
        if not takes_session:
            del schema["properties"]["session"]
        return schema

    def output_schema(self) -> dict[str, Any] | None:
        """The JSON schema of its answers; None if some are not JSON alone."""
        return None if self.told.pictures else schema_of(answer_model(self.answer))


def _tool(told: Tool, verb: Verb[Any, Any]) -> AgentTool:
    """The tool of one verb."""
    takes = verb.arguments
    known = {
        name: said
        for name, (_, said) in arguments_of(takes).items()
        if not (said.query or said.by_door)
    }

    def meant(read: Arguments) -> tuple[Verb[Any, Any], Any]:
        given = {name: _plain(getattr(read, name)) for name in known}
        for name, said in known.items():
            if said.choices and given[name] not in said.choices:
                raise unknown_choice(name, given[name], said.choices)
        return verb, takes(**given)

    model = arguments_model(takes, Arguments, names=known, door=told.name, reader=freely)
    return AgentTool(told, verb.changes, model, meant, verb.answer)


# --- purge_control: three verbs under one name (seed 001) ---

_PURGE_CONTROL = Tool(
    "purge_control",
    "Look at and control what is out of the session",
    "See and control what was moved out of a session to keep it small. Old large values "
    "stand there as [[extracted-ID]] and can be had again. get_context lists every entry "
    "with its id, its hash, its size, and whether it is extracted. restore does what the "
    "tool restore does with `entry`. set_extractable says what shall become of `entry`: "
    "false keeps it in sight for good, a number for so many messages, true lets it go "
    "soon.",
    pictures=True,
)


def _read_value(value: Any) -> Any:
    """Read `_extractable` as it is typed; what it cannot be stays, and is refused by its type."""
    words = {"true": True, "false": False, "unset": "unset"}
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if text in words:
        return words[text]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else value


_Value = Annotated[
    bool | Annotated[int, Field(ge=0, lt=10**9)] | Literal["unset"] | None,
    BeforeValidator(_read_value),
    Expected('true, false, a number or "unset"'),
]
_OWN: dict[str, Any] = {
    "action": (str, Field(description="What to do.", json_schema_extra={"enum": list(ACTIONS)})),
    "entry": (
        str | None,
        Field(None, description="Id of an entry; restore and set_extractable need it."),
    ),
    "value": (
        _Value,
        Field(
            None,
            description="For set_extractable: false keeps the entry in sight, true lets it go, a "
            'number keeps it for so many messages, "unset" takes back what was said.',
        ),
    ),
}


def _purge_control_model() -> type[Arguments]:
    """What its three verbs take, in one: which of it an action wants is said when it is read."""
    restoring = arguments_model(
        RestoreInline, Arguments, names=("keys", "inline", "offset"), reader=freely
    ).model_fields
    of_restore: dict[str, Any] = {
        name: (restoring[name].annotation, restoring[name]) for name in restoring
    }
    order = ("action", "entry", "keys", "value", "inline", "offset")
    taken = {name: (_OWN | of_restore)[name] for name in order}
    return create_model("PurgeControl", __base__=Arguments, **taken)


def _one_of_three(read: Any) -> tuple[Verb[Any, Any], Any]:
    """What a call of purge_control means."""
    if read.action == "get_context":
        return GET_CONTEXT, GetContext()
    if read.action not in ACTIONS:
        raise unknown_choice("action", read.action, ACTIONS)
    if not read.entry:
        raise refused("entry", f"entry parameter is required for {read.action} action")
    if read.action == "restore":
        return RESTORE_INLINE, RestoreInline(
            read.entry, _plain(read.keys), read.inline, read.offset
        )
    if read.value is None:
        raise refused(
            "value",
            "value parameter is required for set_extractable action (true, false, or integer)",
        )
    value = None if read.value == "unset" else read.value
    return SET_EXTRACTABLE, SetExtractable(read.entry, value)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


_VERBS = (RESTORE_INLINE, *all_verbs(of_agents=True).values())
TOOLS = {
    one.name: one
    for one in (
        AgentTool(
            _PURGE_CONTROL,
            changes=True,
            model=_purge_control_model(),
            meant=_one_of_three,
            answer=GET_CONTEXT.answer,
        ),
        *(_tool(told, verb) for verb in _VERBS for told in verb.tools),
    )
}


def read_call(name: str, arguments: object) -> Asked:
    """Understand a call; raises Invalid that says everything that is wrong with it."""
    tool = TOOLS.get(name)
    if tool is None:
        raise Invalid(f"there is no tool {name}", hint=f"one of {', '.join(TOOLS)}")
    return tool.read(arguments)


def reads_much(name: str, arguments: object) -> bool:
    """Whether a call reads a whole session, and would keep others from their answers."""
    try:
        return read_call(name, arguments).verb.reads
    except Invalid:  # it is refused at once
        return False


def carry_out(
    asked: Asked, name: SessionName, hands: Any, meanwhile: Meanwhile = no_one_waits
) -> dict[str, Any]:
    """Do what a call asks of a session, and return the answer: a JSON object.

    `meanwhile` is given an answer that is true before that is done, if there is one. Raises what
    the surgeon raises.
    """
    try:
        answer = perform(asked.verb, hands, name, asked.arguments, meanwhile).as_json()
    except Busy as busy:
        raise explained(busy, name, hands.layout) from None
    # Who did not say which session was meant is told.
    return answer if asked.session is not None else {"session": str(name), **answer}


def error_answer(error: BsdError) -> dict[str, Any]:
    """What a caller is told of an error; `busy` says that the same call may succeed later."""
    if isinstance(error, Refused):
        return error.as_json()
    answer: dict[str, Any] = {"error": error.message}
    if error.hint is not None:
        answer["hint"] = error.hint
    if [one.message for one in error.errors] not in ([], [error.message]):
        answer["errors"] = [{"field": one.field, "message": one.message} for one in error.errors]
    if isinstance(error, Busy):
        answer["busy"] = True
    return answer


def in_short(context: dict[str, Any], offset: int = 0, most: int = MOST_ENTRIES) -> dict[str, Any]:
    """What a model is told, which `get_context` could be too much for: the largest entries first.

    `offset`: how many of them, and of the ids that are away, earlier pages had.
    """
    entries: list[dict[str, Any]] = context.get("entries", [])
    ids: list[Any] = context.get("extracted_ids", [])
    if max(len(entries), len(ids)) <= most and not offset:
        return context
    end = offset + most
    largest = sorted(entries, key=lambda entry: -int(entry["size_bytes"]))[offset:end]
    page = {
        **context,
        "extracted_ids": ids[offset:end],
        "entries": sorted(largest, key=lambda entry: int(entry["index"])),
        "entries_left_out": max(len(entries) - end, 0),
    }
    if max(len(entries), len(ids)) > end:
        page["extracted_ids_left_out"] = max(len(ids) - end, 0)
        page["next"] = {"tool": _PURGE_CONTROL.name, "action": "get_context", "offset": end}
    return page
