"""purge_control: three verbs under one name (seed 001), as a model is told of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, create_model

from bsd.doors.agent.arguments import Arguments, freely
from bsd.doors.agent.restoring import RestoreInline
from bsd.doors.models import arguments_model
from bsd.foundation.field_words import Expected
from bsd.verbs.verb import Tool

ACTIONS = ("get_context", "restore", "set_extractable")

PURGE_CONTROL = Tool(
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


def purge_control_model() -> type[Arguments]:
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
