"""The schemas of answers and runtime settings for OpenAPI; nothing is checked by them.

The models of the settings are made from their table: what is valid only that decides
(`bsd.foundation.pruning_fields`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_type_hints

from fastapi.openapi.models import Schema
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.json_schema import models_json_schema

from bsd.doors.models import Document, answer_model
from bsd.foundation.pruning_fields import RULE_LIMITS, SETTINGS, PruningConfig, TriggerType
from bsd.foundation.setting import Number, SettingKind


class EntryDocument(Document):
    """A whole entry, numbers as they are spelled, for somebody to edit."""

    entry_id: str | None
    index: int
    seen: str = Field(description="Hash of the line; an edit may say what it was made on")
    entry: dict[str, Any]


def _bounds(kind: SettingKind) -> dict[str, Any]:
    return {"ge": kind.least, "le": kind.most} if isinstance(kind, Number) else {}


class _AnyRule(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str | int | float | bool]

    type: Literal[TriggerType, "*"]
    role: str = "*"


_limits: dict[str, Any] = {
    name: (int, Field(None, **_bounds(kind))) for name, kind in RULE_LIMITS.items()
}
Rule = create_model(
    "Rule",
    __base__=_AnyRule,
    __doc__="One of `trigger_rules`, as JSON. Other keys are matchers on the entry's own keys.",
    **_limits,
)

_hints = get_type_hints(PruningConfig, localns={"TriggerRule": Rule})
_fields: dict[str, Any] = {
    name: (
        _hints[name],
        Field(one.default, description=one.kind.words, **_bounds(one.kind)),
    )
    for name, one in SETTINGS.items()
}
RuntimeConfig = create_model(
    "RuntimeConfig",
    __config__=ConfigDict(extra="forbid"),
    __doc__="All runtime settings, as JSON.",
    **_fields,
)


def settings_schema(names: Iterable[str], reference: str) -> dict[str, Any]:
    """What a body may hold that changes some of the settings."""
    whole = RuntimeConfig.model_json_schema(ref_template=reference)
    known = {name: whole["properties"][name] for name in names}
    return {"type": "object", "properties": known, "additionalProperties": False}


def answer_schemas(told: Iterable[type], reference: str) -> dict[str, Any]:
    """All answers by their names: those that are dataclasses (`told`), and the models here."""
    known: set[type[BaseModel]] = {RuntimeConfig, EntryDocument, *map(answer_model, told)}
    _, schemas = models_json_schema(
        [(model, "serialization") for model in known], ref_template=reference
    )
    return {
        name: Schema.model_validate(schema).model_dump(by_alias=True, exclude_none=True)
        for name, schema in sorted(schemas["$defs"].items())
    }
