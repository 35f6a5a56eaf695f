"""The settings of config.json (SPEC §4): each setting is a field of `PruningConfig`.

Everything else derives from the fields: valid values, the file's defaults, `bsd config`, the API's
document, the page's labels and the man page. `bsd.planning` applies the settings to entries;
`bsd.core.config_file` reads and writes the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from functools import cache
from typing import Annotated, Any, Literal, Self, get_args

from croniter import CroniterError, croniter  # type: ignore[import-untyped]
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    StrictBool,
    StrictInt,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_core import ErrorDetails

from bsd.core.errors import FieldError, Invalid
from bsd.core.exclude import check_pattern
from bsd.core.formatting import NEVER, lifetime_seconds, nearest, shown
from bsd.core.validation import details_of, is_unknown, reason_of, spelled

OFF = "off"

# --- types of values ---

LONGEST_PATTERN = 500  # characters


def check_cron(text: str) -> str:
    """Return a cron expression without surrounding spaces.

    Raises:
        ValueError: The text is not a cron expression, its times never come, or they are random.
    """
    text = text.strip()
    if not text.startswith("@") and len(text.split()) != 5:
        raise ValueError("a cron expression has five fields, or is @hourly, @daily, @weekly, …")
    if re.search(r"(?<![a-z])[hr](?![a-z])", text.casefold()):
        raise ValueError("H and R stand for random times, which would change with every start")
    try:
        croniter.expand(text, strict=True)
        croniter(text, datetime(2024, 1, 1)).get_next()  # noqa: DTZ001 - does it ever fire?
    except CroniterError:
        raise ValueError("not a cron expression, or it names a time that never comes") from None
    return text


def _check_lifetime(text: str) -> str:
    try:
        return NEVER if lifetime_seconds(text) is None else text
    except Invalid as problem:
        raise ValueError(problem.message) from None


def _check_lifetime_or_off(text: str) -> str:
    return OFF if text.strip().casefold() == OFF else _check_lifetime(text)


def _check_time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def _check_pattern(text: str) -> str:
    if len(text) > LONGEST_PATTERN:
        raise ValueError(f"a regular expression has at most {LONGEST_PATTERN} characters")
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as problem:
        raise ValueError(f"{text!r} is not a regular expression: {problem}") from None
    return text


def _check_matcher(value: object) -> object:
    if not isinstance(value, str | int | float):
        raise ValueError("a matcher is a string, a number or a boolean")  # noqa: TRY004 - for pydantic
    return value


TriggerType = Literal["thinking", "tool_call", "tool_result", "assistant", "user", "system"]
TRIGGER_TYPES: tuple[TriggerType, ...] = get_args(TriggerType)

Cron = Annotated[str, AfterValidator(check_cron)]
Lifetime = Annotated[str, AfterValidator(_check_lifetime)]
LifetimeOrOff = Annotated[str, AfterValidator(_check_lifetime_or_off)]
Time = Annotated[str, AfterValidator(_check_time)]
Pattern = Annotated[str, AfterValidator(_check_pattern)]
ExcludePattern = Annotated[str, AfterValidator(check_pattern)]
# Whole hours are written without a fraction.
Hours = Annotated[
    float,
    Strict(),
    PlainSerializer(
        lambda hours: int(hours) if hours == int(hours) else hours, return_type=int | float
    ),
]
# null means no types, like an empty list.
TriggerTypes = Annotated[
    tuple[TriggerType, ...], BeforeValidator(lambda given: () if given is None else given)
]
Matcher = Annotated[
    Any,
    AfterValidator(_check_matcher),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]

# Limits that apply to all values; a rule can set other limits for its values.
KeepRecent = Annotated[StrictInt, Field(ge=0, le=100)]
MinLength = Annotated[StrictInt, Field(ge=0, le=100_000)]
KeepChars = Annotated[StrictInt, Field(ge=0, le=10_000)]


def _is_none(value: object) -> bool:
    return value is None


class TriggerRule(BaseModel):
    """A rule of `trigger_rules`: the values to which it applies, and their limits.

    Every other key is a matcher on the entry's key of the same name: a string is a list separated
    by `|`, compared without case; numbers and booleans must be equal. `role` is such a list too.
    Lengths are in characters, `keep_recent` is a number of messages. A limit of None takes the
    value of the setting (`min_value_length`, `keep_recent`, `keep_chars`).
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    __pydantic_extra__: dict[str, Matcher] = Field(init=False)

    type: Literal[TriggerType, "*"]
    role: str = "*"
    min_length: MinLength | None = Field(None, exclude_if=_is_none)
    keep_recent: KeepRecent | None = Field(None, exclude_if=_is_none)
    keep_chars: KeepChars | None = Field(None, exclude_if=_is_none)

    @property
    def matchers(self) -> Mapping[str, str | int | float | bool]:
        """The matchers by key."""
        return self.model_extra or {}

    @model_validator(mode="after")
    def _refuse_misspelt(self) -> Self:
        """Refuse a misspelt key such as `min_lenght`: as a matcher it would match no entry."""
        for key in self.matchers:
            near = nearest(key, type(self).model_fields)
            alike = SequenceMatcher(None, key.casefold(), near).ratio() > 0.75
            if "_" in near and alike:
                raise ValueError(f"{key} is not a known key; did you mean {near}?")
        return self


# The signatures of these models cover the whole conversation before them: versions from 5.1 or 5.5
# on, depending on the family, and all from 6 on. A minor version has at most two digits; a longer
# number is a date.
PREFIX_BOUND_MODELS = (
    r"claude-(fable|mythos)-5[-._]([1-9]|[1-9]\d)(?!\d)",
    r"claude-(opus|sonnet|haiku)-5[-._]([5-9]|[1-9]\d)(?!\d)",
    r"claude-([a-z]+-)*([6-9]|[1-9]\d)(?!\d)",
)

# --- the settings ---

# Marks of a field, in `json_schema_extra`:
#   group      the group on the page; fields without a group are written by bsd, not by users
#   unsettles  a change of the field makes bsd check entries again whose outcome was final
#   per_call   the body of an extraction can override the field for this call
#   job        the daemon's job whose schedule the field sets
#   labels     the page's names for the values of a choice
_WHAT: JsonDict = {"group": "What is extracted", "unsettles": True, "per_call": True}
_WHEN: JsonDict = {"group": "When"}
_KEPT: JsonDict = {"group": "How long it is kept"}
_SEARCH: JsonDict = {"group": "Search"}
_SEEN: JsonDict = {"group": "What agents see"}
_LEFT_OUT: JsonDict = {"group": "What is left out"}
_SCOPES: JsonDict = {"all": "all values", "display": "only values that the model never gets"}
_BOUND: JsonDict = {"skip": "never extract", "extract": "extract anyway"}
_MOMENTS: JsonDict = {
    "pays": "when the cache is cold, or earlier if it pays",
    "now": "at once",
    "cold": "when the cache is cold",
}

_CRON = "A cron expression."
_LIFETIME = "30m to 52w, as in 24h, 7d, 1d12h; or never."


class PruningConfig(BaseModel):
    """All runtime settings, as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # fmt: off
    enabled: StrictBool = Field(
        default=True, title="Extract by itself", json_schema_extra=_WHAT,
        description="The daemon moves large old values out of sessions.")
    trigger_types: TriggerTypes = Field(
        ("thinking", "tool_result"), title="Types of values", json_schema_extra=_WHAT,
        description="Without a type, bsd extracts no values.")
    trigger_rules: tuple[TriggerRule, ...] | None = Field(
        None, title="Rules", json_schema_extra=_WHAT,
        description="A JSON array; it replaces the settings types, messages to keep, "
        "smallest value and characters left.")
    keep_recent: KeepRecent = Field(
        3, title="Messages to keep", json_schema_extra=_WHAT,
        description="The number of newest messages that stay whole")
    min_value_length: MinLength = Field(
        500, title="Smallest value", json_schema_extra=_WHAT,
        description="Characters; shorter values stay")
    keep_chars: KeepChars = Field(
        0, title="Characters left in place", json_schema_extra=_WHAT,
        description="Length of the beginning that stays before the placeholder")
    age_threshold_hours: Hours = Field(
        0, ge=0, le=87_600, title="Minimum age", json_schema_extra=_WHAT,
        description="Hours, also fractions; 0: any age")
    scan_interval_seconds: StrictInt = Field(
        30, ge=10, le=3600, title="Look for changes every",
        json_schema_extra=_WHEN | {"job": "scan"}, description="Seconds")
    auto_cron: Cron = Field(
        "*/2 * * * *", title="Look into changed sessions",
        json_schema_extra=_WHEN | {"job": "auto_cron"}, description=_CRON)
    when: Literal["pays", "now", "cold"] = Field(
        "pays", title="What the model sees leaves",
        json_schema_extra=_WHEN | {"unsettles": True, "per_call": True, "labels": _MOMENTS},
        description="After a change in a warm prompt cache, the provider caches the rest of the "
        "session again, at a price. Extractions that you start yourself never wait.")
    retention: Lifetime = Field(
        "24h", title="Extracted content, in the store", json_schema_extra=_KEPT,
        description=_LIFETIME)
    retention_cron: Cron = Field(
        "0 */6 * * *", title="Clear away what expired",
        json_schema_extra=_KEPT | {"job": "retention"}, description=_CRON)
    trash_retention: Lifetime = Field(
        "14d", title="Trash and history", json_schema_extra=_KEPT, description=_LIFETIME)
    archive: StrictBool = Field(
        default=True, title="Archive what expires", json_schema_extra=_KEPT,
        description="On: expired content is compressed and can still be restored. Off: it is "
        "deleted.")
    archive_retention: Lifetime = Field(
        "never", title="Archive", json_schema_extra=_KEPT, description=_LIFETIME)
    archive_max_bytes: StrictInt = Field(
        0, ge=0, le=1 << 53, title="Largest archive", json_schema_extra=_KEPT,
        description="Bytes, with copies of sessions; beyond it the oldest is deleted; 0: no limit")
    archive_sessions: LifetimeOrOff = Field(
        "180d", title="Sessions that their program deletes", json_schema_extra=_KEPT,
        description="30m to 52w, as in 180d, 26w; never: no expiry; off: no copies.")
    search_index: StrictBool = Field(
        default=True, title="Keep an index of words", json_schema_extra=_SEARCH,
        description="Of texts of users and assistants, titles, tools and paths. Off: only "
        "“search everything” finds text.")
    keep_restore_remote_calls: StrictBool = Field(
        default=False, title="Keep calls of restore_remote", json_schema_extra=_SEEN,
        description="Off: bsd removes them from the session.")
    keep_purge_control_calls: StrictBool = Field(
        default=False, title="Keep calls of purge_control and restore", json_schema_extra=_SEEN,
        description="Off: bsd shortens them.")
    keep_after_restore_seconds: StrictInt = Field(
        600, ge=0, le=86_400, title="Protection after a restore", json_schema_extra=_WHAT,
        description="Seconds")
    scope: Literal["all", "display"] = Field(
        "all", title="Scope", json_schema_extra=_WHAT | {"labels": _SCOPES})
    prefix_bound: Literal["skip", "extract"] = Field(
        "skip", title="Values that later signatures cover",
        json_schema_extra=_WHAT | {"labels": _BOUND},
        description="Some models sign the whole conversation before an answer, and refuse a "
        "session in which it was changed.")
    prefix_bound_models: tuple[Pattern, ...] = Field(
        PREFIX_BOUND_MODELS, title="Models with such signatures", json_schema_extra=_WHAT,
        description="Regular expressions, one per line.")
    protected_tools: tuple[str, ...] = Field(
        (), title="Protected tools", json_schema_extra=_SEEN,
        description="Their calls and results are never replaced, discarded or distilled. "
        "Names, one per line.")
    exclude: tuple[ExcludePattern, ...] = Field(
        (), title="Excluded", json_schema_extra=_LEFT_OUT,
        description="Agents, sessions and projects: AGENT, AGENT/SESSION, or a directory such as "
        "~/secret, with all below it; * and ? stand for any characters. One per line.")
    last_run_at: Time | None = None
    last_retention_run_at: Time | None = None
    # fmt: on

    def as_json(self) -> dict[str, Any]:
        """Return the settings as JSON values, as in the file."""
        return self.model_dump(mode="json")

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Self:
        """Validate JSON values; missing members get their defaults.

        Raises:
            Invalid: With a FieldError for each setting that is not valid.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            errors = _field_errors(error)
            raise Invalid(summary(errors), errors=tuple(errors)) from None


def _field_errors(error: ValidationError) -> list[FieldError]:
    """Return an error for each bad setting; it lists all bad items of a list."""
    messages: dict[str, list[str]] = {}
    for detail in details_of(error):
        messages.setdefault(str(detail["loc"][0]), []).append(_message(detail))
    return [FieldError(name, "; ".join(told)) for name, told in messages.items()]


def _message(detail: ErrorDetails) -> str:
    if is_unknown(detail):
        return unknown_field(str(detail["loc"][0]))
    says_it_all = detail["type"] in {"value_error", "missing"}
    given = "" if says_it_all else f", not {shown(detail['input'])}"
    return f"{spelled(detail['loc'])}: {reason_of(detail)}{given}"


SETTINGS = PruningConfig.model_fields
# Seed 001's name of a setting that also applies to `restore`.
ALIASES = {"keep_restore_calls": "keep_purge_control_calls"}


def _marks(name: str) -> JsonDict:
    extra = SETTINGS[name].json_schema_extra
    return extra if isinstance(extra, dict) else {}


def _marked(mark: str) -> tuple[str, ...]:
    return tuple(name for name in SETTINGS if _marks(name).get(mark))


SETTABLE = _marked("group")
NOTED = tuple(name for name in SETTINGS if name not in SETTABLE)  # written by bsd
PER_CALL = _marked("per_call")
UNSETTLING = frozenset(_marked("unsettles"))
JOBS = {str(_marks(name)["job"]): name for name in _marked("job")}


def canonical(values: Mapping[str, object]) -> dict[str, object]:
    """Replace aliases of settings by their names.

    Raises:
        Invalid: A setting is given by both names, with different values.
    """
    own = {name: value for name, value in values.items() if name not in ALIASES}
    for alias, name in ALIASES.items():
        if alias in values and own.setdefault(name, values[alias]) != values[alias]:
            text = f"{alias} is another name of {name}, and their values differ"
            raise Invalid(text, errors=(FieldError(alias, text),))
    return own


def unknown_field(name: str) -> str:
    """Return the message about a setting that does not exist."""
    return f"{name} is not a known setting; did you mean {nearest(name, [*SETTINGS, *ALIASES])}?"


def summary(errors: Sequence[FieldError]) -> str:
    """Return a line about all errors."""
    if len(errors) == 1:
        return errors[0].message
    names = ", ".join(error.field for error in errors)
    return f"{len(errors)} settings are not valid: {names}"


# --- how settings are shown ---


@dataclass(frozen=True, slots=True)
class SettingDescription:
    """How the page, the man page and completion show a setting that users set.

    `control` is the page's: switch, number, choice, types, lines, json or text. `choices` has the
    values that may be chosen, with their labels.
    """

    name: str
    group: str
    label: str
    help: str
    control: str
    choices: Mapping[str, str]
    default: Any


@cache
def setting_descriptions() -> Mapping[str, SettingDescription]:
    """Return the descriptions of all settings that users can set, in the order of the model."""
    schema = PruningConfig.model_json_schema()["properties"]
    defaults = PruningConfig().as_json()
    return {name: _description(name, schema[name], defaults[name]) for name in SETTABLE}


def _description(name: str, schema: dict[str, Any], default: object) -> SettingDescription:
    text = schema.get("description", "")
    if "minimum" in schema:
        text = f"{text} ({schema['minimum']}–{schema['maximum']})."
    labels = schema.get("labels", {})
    values = schema.get("enum") or schema.get("items", {}).get("enum", ())
    return SettingDescription(
        name=name,
        group=schema["group"],
        label=schema["title"],
        help=text,
        control=_control(schema),
        choices={value: labels.get(value, value) for value in values},
        default=default,
    )


def _control(schema: dict[str, Any]) -> str:
    match schema:
        case {"type": "boolean"}:
            return "switch"
        case {"type": "integer" | "number"}:
            return "number"
        case {"enum": _}:
            return "choice"
        case {"type": "array", "items": {"enum": _}}:
            return "types"
        case {"type": "array"}:
            return "lines"
        case {"anyOf": _}:
            return "json"
    return "text"
