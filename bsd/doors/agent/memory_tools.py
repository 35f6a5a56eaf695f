"""The agent's tools for the memory, over MCP, made from the verbs in `bsd.memory.tools`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from bsd.doors.agent.arguments import freely, read_arguments, schema_of
from bsd.doors.models import answer_model, arguments_model
from bsd.foundation.definition import Tool, WingVerb, arguments_of
from bsd.memory.facts import Memory
from bsd.memory.tools import A_MOMENT, VERBS


class _Parameters(BaseModel):
    """What all of them have in common; both spellings of a name are taken."""

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )


def _read_moment(moment: Any) -> Any:
    """Read a date or a time, of UTC if it does not say otherwise, as epoch seconds."""
    if not isinstance(moment, str):
        return moment
    text = moment.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        read = datetime.fromisoformat(text)
        return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise ValueError(f"must be {A_MOMENT}") from None


def _reader(annotation: Any) -> Callable[[Any], Any] | None:
    return _read_moment if annotation == int | None else freely(annotation)


@dataclass(frozen=True)
class MemoryTool:
    """One tool: what a model is told of it, and the verb that it does."""

    told: Tool
    verb: WingVerb[Memory, Any, Any]

    @property
    def name(self) -> str:
        return self.told.name

    @cached_property
    def _parameters(self) -> type[BaseModel]:
        # Whether what is found lives on is not for an agent to say.
        known = [one for one in arguments_of(self.verb.arguments) if one != "refresh"]
        names = self.told.takes or known
        return arguments_model(self.verb.arguments, _Parameters, names=names, reader=_reader)

    def read(self, arguments: object) -> dict[str, Any]:
        """Understand what a model wrote; raises Invalid that names every bad field."""
        read = read_arguments(self._parameters, arguments)
        return {name: getattr(read, name) for name in read.model_fields_set}

    def schema(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """The JSON schema of its arguments, where these are the classes that there are."""
        schema = schema_of(self._parameters)
        schema.pop("description", None)  # the tool has one, and each takes room
        if (decay_class := schema["properties"].get("decayClass")) is not None:
            described = decay_class["description"]
            named = {"type": "string", "enum": list(classes), "description": described}
            schema["properties"]["decayClass"] = named
        return schema

    def output_schema(self) -> dict[str, Any]:
        """The JSON schema of its answers."""
        return schema_of(answer_model(self.verb.answer))


MEMORY_TOOLS = {told.name: MemoryTool(told, verb) for verb in VERBS for told in verb.tools}


@dataclass(frozen=True, slots=True)
class MemoryHands:
    """Who does it: opens a memory, True if it is to be written; raises Forbidden."""

    open: Callable[[bool], Memory]
    classes: tuple[str, ...]  # by their names
    refresh: bool  # what is found lives on


def carry_out(tool: MemoryTool, arguments: object, hands: MemoryHands) -> dict[str, Any]:
    """Do what a call asks for; raises Invalid that names every bad field, or what memory raises."""
    verb, given = tool.verb, tool.read(arguments)
    if "refresh" in arguments_of(verb.arguments):
        given["refresh"] = hands.refresh
    asked = verb.arguments(**given)
    with hands.open(verb.will_change(asked)) as memory:
        document: dict[str, Any] = verb.act(memory, asked).as_json()
        return document
