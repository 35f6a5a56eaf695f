"""The runtime settings (SPEC §4), field by field: defaults, limits, and what to say of bad values.

Data only. What a field means for an entry is decided in `bsd.surgery`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal, Self

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

from bsd.foundation.durations import parse_duration
from bsd.foundation.errors import FieldError, Invalid
from bsd.foundation.spelling import nearest

TRIGGER_TYPES = ("thinking", "tool_call", "tool_result", "assistant", "user", "system")
TriggerType = Literal["thinking", "tool_call", "tool_result", "assistant", "user", "system"]

# Signatures of these models cover the whole conversation before them: from 5.1 or 5.5 on by
# family, and all from 6 on. A date is not a minor version: no third digit may follow.
PREFIX_BOUND_MODELS = (
    r"claude-(fable|mythos)-5[-._]([1-9]|[1-9]\d)(?!\d)",
    r"claude-(opus|sonnet|haiku)-5[-._]([5-9]|[1-9]\d)(?!\d)",
    r"claude-([a-z]+-)*([6-9]|[1-9]\d)(?!\d)",
)

AUTO_CRON = "*/2 * * * *"
RETENTION_CRON = "0 */6 * * *"

# `keep_purge_control_calls` governs `restore` too, so seed 001's name for it is understood.
ALIASES = {"keep_restore_calls": "keep_purge_control_calls"}
NOT_SETTABLE = ("last_run_at", "last_retention_run_at")


def _duration(text: str) -> str:
    if text.strip().casefold() == "never":
        return "never"
    try:
        parse_duration(text)
    except Invalid as problem:
        raise ValueError(problem.message) from None
    return text


def _cron(text: str) -> str:
    text = text.strip()
    if text in {AUTO_CRON, RETENTION_CRON}:
        return text
    if not text.startswith("@") and len(text.split()) != 5:
        raise ValueError("It has five fields, or is one of @hourly, @daily, @weekly, @monthly")
    if re.search(r"(?<![a-z])[hr](?![a-z])", text.casefold()):
        raise ValueError("H and R stand for times by chance, which would change with every start")
    # Only here: most runs have the default schedules, and need no croniter.
    from croniter import (  # type: ignore[import-untyped]  # noqa: PLC0415
        CroniterError,
        croniter,
    )

    try:
        croniter.expand(text, strict=True)
        croniter(text, datetime(2024, 1, 1)).get_next()  # noqa: DTZ001 - does it ever fire?
    except CroniterError as problem:
        raise ValueError(str(problem)) from None
    return text


def _pattern(text: str) -> str:
    try:
        with warnings.catch_warnings():
            # What a later Python will read in another way: this one is what it is read by now.
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(text)
    except (re.error, RecursionError, OverflowError) as problem:
        raise ValueError(f"{text!r} is not a regular expression: {problem}") from None
    return text


def _moment(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def _nothing(value: object) -> object:
    return () if value is None else value


Duration = Annotated[str, AfterValidator(_duration)]
Cron = Annotated[str, AfterValidator(_cron)]
Pattern = Annotated[str, AfterValidator(_pattern)]
Moment = Annotated[str, AfterValidator(_moment)]

_number = partial(Field, strict=True)
# JSON has arrays only; strict would insist on Python's tuples.
_array = partial(Field, strict=False)
_LIFETIME = (
    'a duration string like "24h", "1d", "7d", "30m". '
    'Minimum: 30 minutes (30m), Maximum: 52 weeks (52w), or "never"'
)


class TriggerRule(BaseModel):
    """One of `trigger_rules`: which values it is for, and what holds for them.

    Every key that is not one of the five is a matcher on the entry's own key of that name:
    strings are lists separated by `|`, compared without case; numbers and booleans must be equal.
    `role` is such a list too. Lengths are characters, `keep_recent` is a position.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")
    __pydantic_extra__: dict[str, str | int | float | bool]

    type: Literal[TriggerType, "*"]
    role: str = "*"
    min_length: int = Field(500, ge=0, le=100_000)
    keep_recent: int = Field(3, ge=0, le=100)
    keep_chars: int = Field(0, ge=0, le=10_000)

    @property
    def matchers(self) -> Mapping[str, str | int | float | bool]:
        return self.__pydantic_extra__

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


class PruningConfig(BaseModel):
    """The runtime settings; immutable, one object per state of the file."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    enabled: bool = Field(default=True, description="a boolean")
    trigger_types: Annotated[tuple[TriggerType, ...], BeforeValidator(_nothing)] = _array(
        ("thinking", "tool_result"), description="an array"
    )
    trigger_rules: tuple[TriggerRule, ...] | None = _array(None, description="an array")
    keep_recent: int = Field(
        3, ge=0, le=100, description="a number between 0 and 100 (messages to keep in context)"
    )
    min_value_length: int = Field(
        500, ge=0, le=100_000, description="a number between 0 and 100000 (characters)"
    )
    keep_chars: int = Field(
        0, ge=0, le=10_000, description="a number between 0 and 10000 (characters)"
    )
    age_threshold_hours: int = Field(
        0, ge=0, le=87_600, description="a number between 0 and 87600 (hours; 0 = off)"
    )
    scan_interval_seconds: int = Field(
        30, ge=10, le=3600, description="a number between 10 and 3600 (10 seconds to 1 hour)"
    )
    auto_cron: Cron = Field(AUTO_CRON, description=f'a valid cron expression (e.g., "{AUTO_CRON}")')
    retention: Duration = Field("24h", description=_LIFETIME)
    retention_cron: Cron = Field(
        RETENTION_CRON, description=f'a valid cron expression (e.g., "{RETENTION_CRON}")'
    )
    trash_retention: Duration = Field("14d", description=_LIFETIME)
    keep_restore_remote_calls: bool = Field(default=False, description="a boolean")
    keep_purge_control_calls: bool = Field(default=False, description="a boolean")
    keep_after_restore_seconds: int = Field(
        600, ge=0, le=86_400, description="a number between 0 and 86400 (0 to 24 hours)"
    )
    scope: Literal["all", "display"] = Field("all", description='"all" or "display"')
    prefix_bound: Literal["skip", "extract"] = Field("skip", description='"skip" or "extract"')
    prefix_bound_models: tuple[Pattern, ...] = _array(
        PREFIX_BOUND_MODELS, description="an array of regular expressions"
    )
    protected_tools: tuple[str, ...] = _array(
        (), description="an array of names of tools whose calls and results are never discarded"
    )
    last_run_at: Moment | None = Field(None, description="an ISO 8601 time or null")
    last_retention_run_at: Moment | None = Field(None, description="an ISO 8601 time or null")

    @property
    def retention_ms(self) -> int | None:
        """How long the store keeps content, in milliseconds; None: for ever."""
        return _lifetime(self.retention)

    @property
    def trash_retention_ms(self) -> int | None:
        """How long the trash keeps a session, in milliseconds; None: for ever."""
        return _lifetime(self.trash_retention)

    @classmethod
    def checked(cls, values: Mapping[str, object]) -> Self:
        """Build one from JSON values; raises Invalid with one FieldError per bad field."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as problem:
            errors = _field_errors(problem.errors(include_url=False))
        raise Invalid(summary(errors), errors=errors)


def unknown_field(name: str) -> str:
    """What to say of a field that does not exist."""
    known = [*PruningConfig.model_fields.keys(), *ALIASES]
    return f"{name} is not a known setting; did you mean {nearest(name, known)}?"


def summary(errors: Sequence[FieldError]) -> str:
    """One line about all of them."""
    if len(errors) == 1:
        return errors[0].message
    names = ", ".join(error.field for error in errors)
    return f"{len(errors)} settings are not valid: {names}"


def _lifetime(text: str) -> int | None:
    return None if text == "never" else parse_duration(text)


def _alike(one: str, other: str) -> bool:
    from difflib import SequenceMatcher  # noqa: PLC0415 - needed for rules with matchers only

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
    fields = list(PruningConfig.model_fields)
    return fields.index(field) if field in fields else len(fields)


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
    expected = f"{field} must be {PruningConfig.model_fields[field].description}"
    if first["type"] == "value_error":
        return f"{expected}. {_reason(first)}"
    if isinstance(first["input"], float):
        return expected.replace("a number", "a whole number")
    return expected


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
    if known := TriggerRule.model_fields.get(field):
        most = next(limit.le for limit in known.metadata if hasattr(limit, "le"))
        return f"{rule}.{field} must be non-negative and at most {most}"
    return f"{rule}.{field} must be a string, a number or a boolean"


def _reason(detail: ErrorDetails) -> str:
    context: dict[str, Any] = detail.get("ctx", {})
    return str(context.get("error", detail["msg"]))
