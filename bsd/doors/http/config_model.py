"""The runtime settings as the API describes them: models made from the table, which check nothing.

What is valid only the table itself decides (`bsd.foundation.pruning_fields`).
"""

from __future__ import annotations

from typing import Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from bsd.foundation.pruning_fields import RULE_LIMITS, SETTINGS, PruningConfig, TriggerType
from bsd.foundation.setting import Number, SettingKind


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
