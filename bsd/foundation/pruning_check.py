"""A closer look at the runtime settings: what is wrong with which of them; their JSON schema."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from bsd.foundation.errors import FieldError, Invalid
from bsd.foundation.field_words import shown
from bsd.foundation.pattern import Pattern
from bsd.foundation.pruning_fields import (
    AUTO_CRON,
    FIELDS,
    LIMITS,
    PREFIX_BOUND_MODELS,
    RETENTION_CRON,
    TRIGGER_TYPES,
    PruningConfig,
    TriggerRule,
    TriggerType,
    check_cron,
    check_lifetime,
    check_moment,
    summary,
    unknown_field,
)
from bsd.foundation.spelling import nearest


def _pattern(text: str) -> str:
    try:
        with warnings.catch_warnings():
            # What a later Python will read in another way: this one is what it is read by now.
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(text)
    except (re.error, RecursionError, OverflowError) as problem:
        raise ValueError(f"{text!r} is not a regular expression: {problem}") from None
    try:
        Pattern(text)
    except ValueError as problem:
        raise ValueError(f"{text!r} is not a regular expression that bsd uses: {problem}") from None
    return text


def _nothing(value: object) -> object:
    return () if value is None else value


Cron = Annotated[str, AfterValidator(check_cron)]
_Lifetime = Annotated[str, AfterValidator(check_lifetime)]
_Pattern = Annotated[str, AfterValidator(_pattern)]
_Moment = Annotated[str, AfterValidator(check_moment)]

# JSON has arrays only; strict would insist on Python's tuples.
_array = partial(Field, strict=False)
_LIFETIME = (
    'a duration string like "24h", "1d", "7d", "30m". '
    'Minimum: 30 minutes (30m), Maximum: 52 weeks (52w), or "never"'
)


def _number(name: str, default: int, meaning: str) -> Any:
    least, most = LIMITS[name]
    described = f"a number between {least} and {most} ({meaning})"
    return Field(default, ge=least, le=most, description=described)


_UNSAID: Any = None  # as the settings say; a rule that is given says a number


class Rule(BaseModel):
    """One of `trigger_rules`, as JSON. Other keys are matchers on the entry's own keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")
    __pydantic_extra__: dict[str, str | int | float | bool]

    type: Literal[TriggerType, "*"]
    role: str = "*"
    min_length: int = Field(_UNSAID, ge=0, le=100_000)
    keep_recent: int = Field(_UNSAID, ge=0, le=100)
    keep_chars: int = Field(_UNSAID, ge=0, le=10_000)

    @model_validator(mode="before")
    @classmethod
    def _no_misspelt_limits(cls, rule: object) -> object:
        """Refuse `min_lenght`: as a matcher it would silently match nothing."""
        if isinstance(rule, dict):
            for key in rule.keys() - cls.model_fields.keys():
                near = nearest(str(key), cls.model_fields)
                if "_" in near and _alike(str(key), near):
                    raise ValueError(f"{key} is not known; did you mean {near}?")
        return rule

    def as_rule(self) -> TriggerRule:
        known = {name: getattr(self, name) for name in type(self).model_fields}
        return TriggerRule(**known, matchers=self.__pydantic_extra__)


class RuntimeConfig(BaseModel):
    """All runtime settings, as JSON."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    enabled: bool = Field(default=True, description="a boolean")
    trigger_types: Annotated[tuple[TriggerType, ...], BeforeValidator(_nothing)] = _array(
        ("thinking", "tool_result"), description="an array"
    )
    trigger_rules: tuple[Rule, ...] | None = _array(None, description="an array")
    keep_recent: int = _number("keep_recent", 3, "messages to keep in context")
    min_value_length: int = _number("min_value_length", 500, "characters")
    keep_chars: int = _number("keep_chars", 0, "characters")
    age_threshold_hours: int | float = _number("age_threshold_hours", 0, "hours; 0 = off")
    scan_interval_seconds: int = _number("scan_interval_seconds", 30, "10 seconds to 1 hour")
    auto_cron: Cron = Field(AUTO_CRON, description=f'a valid cron expression (e.g., "{AUTO_CRON}")')
    retention: _Lifetime = Field("24h", description=_LIFETIME)
    retention_cron: Cron = Field(
        RETENTION_CRON, description=f'a valid cron expression (e.g., "{RETENTION_CRON}")'
    )
    trash_retention: _Lifetime = Field("14d", description=_LIFETIME)
    keep_restore_remote_calls: bool = Field(default=False, description="a boolean")
    keep_purge_control_calls: bool = Field(default=False, description="a boolean")
    keep_after_restore_seconds: int = _number("keep_after_restore_seconds", 600, "0 to 24 hours")
    scope: Literal["all", "display"] = Field("all", description='"all" or "display"')
    prefix_bound: Literal["skip", "extract"] = Field("skip", description='"skip" or "extract"')
    prefix_bound_models: tuple[_Pattern, ...] = _array(
        PREFIX_BOUND_MODELS, description="an array of regular expressions"
    )
    protected_tools: tuple[str, ...] = _array(
        (), description="an array of names of tools whose calls and results are never discarded"
    )
    last_run_at: _Moment | None = Field(None, description="an ISO 8601 time or null")
    last_retention_run_at: _Moment | None = Field(None, description="an ISO 8601 time or null")


def look_closely(values: Mapping[str, object]) -> PruningConfig:
    """Build settings from JSON values; raises Invalid with one FieldError per bad field."""
    try:
        good = RuntimeConfig.model_validate(dict(values))
    except ValidationError as problem:
        errors = _field_errors(problem.errors(include_url=False))
        raise Invalid(summary(errors), errors=errors) from None
    rules = good.trigger_rules
    known = {name: getattr(good, name) for name in FIELDS}
    known["trigger_rules"] = None if rules is None else tuple(rule.as_rule() for rule in rules)
    return PruningConfig(**known)


def _alike(one: str, other: str) -> bool:
    return SequenceMatcher(None, one.casefold(), other).ratio() > 0.75


def _field_errors(details: Sequence[ErrorDetails]) -> tuple[FieldError, ...]:
    """One FieldError per field, in the order of the fields, from pydantic's one per value."""
    by_field: dict[str, list[ErrorDetails]] = {}
    for detail in details:
        by_field.setdefault(str(detail["loc"][0]), []).append(detail)
    return tuple(
        FieldError(field, _message(field, by_field[field]))
        for field in sorted(by_field, key=_position)
    )


def _position(field: str) -> int:
    return FIELDS.index(field) if field in FIELDS else len(FIELDS)


def _message(field: str, details: Sequence[ErrorDetails]) -> str:
    first = details[0]
    if first["type"] == "extra_forbidden":
        return unknown_field(field)
    nested = len(first["loc"]) > 1
    if field == "trigger_types" and nested:
        wrong = ", ".join(str(detail["input"]) for detail in details)
        return f"Invalid trigger_types: {wrong}. Valid values: {', '.join(TRIGGER_TYPES)}"
    if field == "trigger_rules" and nested:
        return "; ".join(dict.fromkeys(_rule_message(detail) for detail in details))
    expected = f"{field} must be {RuntimeConfig.model_fields[field].description}"
    if first["type"] == "value_error":
        return f"{expected}. {_reason(first)}"
    if isinstance(first["input"], float) and field != "age_threshold_hours":
        expected = expected.replace("a number", "a whole number")
    return expected if nested else f"{expected}, not {shown(first['input'])}"


def _rule_message(detail: ErrorDetails) -> str:
    _, number, *rest = detail["loc"]
    rule = f"trigger_rules[{number}]"
    if not rest:
        if detail["type"] == "value_error":
            return f"{rule}.{_reason(detail)}"
        return f"{rule} must be an object"
    field = str(rest[0])
    if field == "type":
        if detail["type"] == "missing" or not isinstance(detail["input"], str):
            return f"{rule}: type is required and must be a string"
        valid = f"Valid values: {', '.join(TRIGGER_TYPES)}, or '*' for wildcard"
        return f"{rule}: invalid trigger type '{detail['input']}'. {valid}"
    if field == "role":
        return f"{rule}.role must be a string"
    if known := Rule.model_fields.get(field):
        most = next(limit.le for limit in known.metadata if hasattr(limit, "le"))
        return f"{rule}.{field} must be non-negative and at most {most}"
    return f"{rule}.{field} must be a string, a number or a boolean"


def _reason(detail: ErrorDetails) -> str:
    context: dict[str, Any] = detail.get("ctx", {})
    return str(context.get("error", ""))
