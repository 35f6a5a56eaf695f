"""The runtime settings (SPEC §4): their names and defaults, and what is good without a second look.

Data only. What a field means for an entry is decided in `bsd.surgery`; what is said of a bad value
in `bsd.foundation.pruning_check`, which takes a seventh of a second to load: most calls find
nothing in the file that they would need it for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal

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

# Numbers, whole but for the hours, from … to.
LIMITS = {
    "keep_recent": (0, 100),
    "min_value_length": (0, 100_000),
    "keep_chars": (0, 10_000),
    "age_threshold_hours": (0, 87_600),
    "scan_interval_seconds": (10, 3600),
    "keep_after_restore_seconds": (0, 86_400),
}


def check_lifetime(text: str) -> str:
    """How long something is kept; raises ValueError."""
    if text.strip().casefold() == "never":
        return "never"
    try:
        parse_duration(text)
    except Invalid as problem:
        raise ValueError(problem.message) from None
    return text


def check_cron(text: str) -> str:
    """When a job runs; raises ValueError."""
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
    except CroniterError:
        raise ValueError(f"'{text:.40}' is none, or names a time that never comes") from None
    return text


def check_moment(text: str) -> str:
    """When something was done, as ISO 8601; raises ValueError."""
    datetime.fromisoformat(text)
    return text


# Fields that are texts of a form, and what tells whether they have it.
FORMS: dict[str, Callable[[str], str]] = {
    "auto_cron": check_cron,
    "retention": check_lifetime,
    "retention_cron": check_cron,
    "trash_retention": check_lifetime,
    "last_run_at": check_moment,
    "last_retention_run_at": check_moment,
}


@dataclass(frozen=True, slots=True)
class TriggerRule:
    """One of `trigger_rules`: which values it is for, and what holds for them.

    Every key that is not one of the five is a matcher on the entry's own key of that name:
    strings are lists separated by `|`, compared without case; numbers and booleans must be equal.
    `role` is such a list too. Lengths are characters, `keep_recent` is a position; None takes what
    the settings say (`min_value_length`, `keep_recent`, `keep_chars`).
    """

    type: TriggerType | Literal["*"]
    role: str = "*"
    min_length: int | None = None
    keep_recent: int | None = None
    keep_chars: int | None = None
    matchers: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The rule as the file has it."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        del own["matchers"]
        return {**{name: said for name, said in own.items() if said is not None}, **self.matchers}


@dataclass(frozen=True, slots=True)
class PruningConfig:
    """The runtime settings; immutable, one object per state of the file."""

    enabled: bool = True
    trigger_types: tuple[TriggerType, ...] = ("thinking", "tool_result")
    trigger_rules: tuple[TriggerRule, ...] | None = None
    keep_recent: int = 3
    min_value_length: int = 500
    keep_chars: int = 0
    age_threshold_hours: float = 0
    scan_interval_seconds: int = 30
    auto_cron: str = AUTO_CRON
    retention: str = "24h"
    retention_cron: str = RETENTION_CRON
    trash_retention: str = "14d"
    keep_restore_remote_calls: bool = False
    keep_purge_control_calls: bool = False
    keep_after_restore_seconds: int = 600
    scope: Literal["all", "display"] = "all"
    prefix_bound: Literal["skip", "extract"] = "skip"
    prefix_bound_models: tuple[str, ...] = PREFIX_BOUND_MODELS
    protected_tools: tuple[str, ...] = ()
    last_run_at: str | None = None
    last_retention_run_at: str | None = None

    @property
    def retention_ms(self) -> int | None:
        """How long the store keeps content, in milliseconds; None: for ever."""
        return _lifetime(self.retention)

    @property
    def trash_retention_ms(self) -> int | None:
        """How long the trash keeps a session, in milliseconds; None: for ever."""
        return _lifetime(self.trash_retention)

    def as_json(self) -> dict[str, Any]:
        """The settings as the file has them."""
        values = {name: getattr(self, name) for name in FIELDS}
        if self.trigger_rules is not None:
            values["trigger_rules"] = [rule.as_json() for rule in self.trigger_rules]
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @classmethod
    def checked(cls, values: Mapping[str, object]) -> PruningConfig:
        """Build one from JSON values; raises Invalid with one FieldError per bad field."""
        try:
            return cls(**{name: _plainly_good(name, value) for name, value in values.items()})
        except ValueError:  # that takes a closer look
            from bsd.foundation.pruning_check import look_closely  # noqa: PLC0415

            return look_closely(values)


FIELDS = tuple(one.name for one in fields(PruningConfig))
_DEFAULTS = PruningConfig()


def _plainly_good(name: str, value: object) -> Any:
    """The value as the settings hold it, if that needs no second look; else raises ValueError.

    The closer look decides the same of all that comes through here.
    """
    if name not in FIELDS:
        raise ValueError(name)
    default = getattr(_DEFAULTS, name)
    if type(default) is bool and type(value) is bool:
        return value
    if name in LIMITS and type(value) is int:
        least, most = LIMITS[name]
        if least <= value <= most:
            return value
    if name in FORMS and type(value) is str:
        return FORMS[name](value)
    if type(value) is list and type(default) is tuple and tuple(value) == default:
        return default
    if type(value) is type(default) and value == default:
        return default
    raise ValueError(name)


def unknown_field(name: str) -> str:
    """What to say of a field that does not exist."""
    return f"{name} is not a known setting; did you mean {nearest(name, [*FIELDS, *ALIASES])}?"


def summary(errors: Sequence[FieldError]) -> str:
    """One line about all of them."""
    if len(errors) == 1:
        return errors[0].message
    names = ", ".join(error.field for error in errors)
    return f"{len(errors)} settings are not valid: {names}"


def _lifetime(text: str) -> int | None:
    return None if text == "never" else parse_duration(text)
