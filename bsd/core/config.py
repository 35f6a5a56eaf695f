"""The runtime settings (SPEC §4): the table. A setting is one line of `PruningConfig`.

All else derives from that line: what is valid, config.json, `bsd config`, the API's description,
the page's labels, the man page, what a call may say otherwise, what unsettles, and which job gets
another time. What a setting means for an entry is decided in `bsd.planning`. What a value must be
is said by a `SettingKind`: it checks, words what is wrong, and says how the page lets people
write it.
No library does the checking: reading the settings must cost less than loading pydantic.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from difflib import SequenceMatcher
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar, get_args

from bsd.core.errors import FieldError, Invalid
from bsd.core.formatting import NEVER, lifetime_seconds, nearest, shown
from bsd.core.pattern import check_pattern

# --- what the values of a setting must be ---

_Default = TypeVar("_Default")
_LINE = "line"  # in the metadata of a dataclass's field


class SettingKind(ABC):
    """What the values of a setting must be."""

    control: ClassVar[str]  # how the page lets it be written
    hint = ""  # what may be written there

    @property
    @abstractmethod
    def words(self) -> str:
        """What a value must be, as in `keep_recent must be …`."""

    @abstractmethod
    def check(self, name: str, value: object) -> Any:
        """Return a JSON value as the settings hold it; raises ValueError with a whole sentence."""

    @property
    def choices(self) -> Mapping[str, str]:
        """The texts that may be chosen, and what the page calls them; empty: they are not known."""
        return {}

    def note(self, text: str) -> str:
        """What stands beside the setting on the page: `text`, and what may be written there."""
        return f"{text} {self.hint}".strip()

    def refusal(self, name: str, value: object, reason: str = "") -> ValueError:
        """The words for a bad value, with the `reason` if it only lacks the right form."""
        expected = f"{name} must be {self.words}"
        return ValueError(f"{expected}. {reason}" if reason else f"{expected}, not {shown(value)}")


class Switch(SettingKind):
    """True or false."""

    control = "switch"
    words = "a boolean"

    def check(self, name: str, value: object) -> bool:
        if isinstance(value, bool):
            return value
        raise self.refusal(name, value)


@dataclass(frozen=True, slots=True)
class Number(SettingKind):
    """A number between two bounds; `meaning` says of what."""

    least: int
    most: int
    meaning: str
    whole: bool = True

    control = "number"

    @property
    def words(self) -> str:
        return f"a number between {self.least} and {self.most} ({self.meaning})"

    def check(self, name: str, value: object) -> int | float:
        if self.fits(value):
            return value  # type: ignore[return-value]  # as it was given: 2 is not written as 2.0
        refusal = self.refusal(name, value)
        if isinstance(value, float) and self.whole:
            raise ValueError(str(refusal).replace("a number", "a whole number", 1))
        raise refusal

    def fits(self, value: object) -> bool:
        """Whether it is such a number."""
        known = int if self.whole else (int, float)
        numeric = isinstance(value, known) and not isinstance(value, bool)
        return numeric and self.least <= value <= self.most  # type: ignore[operator]

    def note(self, text: str) -> str:
        return f"{text} ({self.least}–{self.most})."


@dataclass(frozen=True, slots=True)
class Choice(SettingKind):
    """One of some texts; `labels` has what the page calls each."""

    labels: Mapping[str, str]

    control = "choice"

    @property
    def words(self) -> str:
        return " or ".join(f'"{one}"' for one in self.labels)

    @property
    def choices(self) -> Mapping[str, str]:
        return self.labels

    def check(self, name: str, value: object) -> str:
        if isinstance(value, str) and value in self.labels:
            return value
        raise self.refusal(name, value)


@dataclass(frozen=True, slots=True)
class Text(SettingKind):
    """A text of a form: `read` returns it as it is kept, or raises ValueError with the reason."""

    words: str = field()  # not the property of the class above
    read: Callable[[str], str]
    hint: str = ""
    optional: bool = False  # None will do, too

    control = "text"

    def check(self, name: str, value: object) -> str | None:
        if value is None and self.optional:
            return None
        if not isinstance(value, str):
            raise self.refusal(name, value)
        try:
            return self.read(value)
        except ValueError as problem:
            raise self.refusal(name, value, str(problem)) from None


@dataclass(frozen=True, slots=True)
class Texts(SettingKind):
    """A list of texts; `check_one` raises ValueError with the reason why one will not do."""

    words: str = field()  # not the property of the class above
    hint: str
    check_one: Callable[[str], object] = str

    control = "lines"

    def check(self, name: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)):
            raise self.refusal(name, value)
        for one in value:
            if not isinstance(one, str):
                raise ValueError(f"{name} must be {self.words}")  # noqa: TRY004 - as all refusals
            try:
                self.check_one(one)
            except ValueError as problem:
                raise self.refusal(name, one, str(problem)) from None
        return tuple(value)


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the table."""

    name: str
    default: Any
    kind: SettingKind
    place: str = ""  # its group on the page; empty: nobody sets it, bsd notes something there
    label: str = ""
    help: str = ""  # what it means, where the label does not say so
    unsettles: bool = False  # a change of it has settled entries looked at again
    per_call: bool = False  # one extraction may say otherwise
    job: str = ""  # the daemon's job whose times it says; empty: none
    alias: str = ""  # another name that is understood

    @property
    def note(self) -> str:
        """What stands beside it on the page, and in the man page."""
        return self.kind.note(self.help)


def setting(default: _Default, kind: SettingKind, *said: str, **more: Any) -> _Default:
    """A field of a dataclass that is a line of the table: place, label, help, and `more`."""
    more |= zip(("place", "label", "help"), said, strict=False)
    line = partial(Setting, default=default, kind=kind, **more)
    return field(default=default, metadata={_LINE: line})


def settings_of(table: type) -> dict[str, Setting]:
    """The lines of such a dataclass, by their names."""
    return {one.name: one.metadata[_LINE](name=one.name) for one in fields(table)}


# --- forms of texts ---


def check_cron(text: str) -> str:
    """When a job runs; raises ValueError."""
    text = text.strip()
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


def _lifetime(text: str) -> str:
    try:
        return NEVER if lifetime_seconds(text) is None else text
    except Invalid as problem:
        raise ValueError(problem.message) from None


def _moment(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def cron(default: str) -> Text:
    """A schedule; the default one needs no look."""

    def read(text: str) -> str:
        return default if text.strip() == default else check_cron(text)

    return Text(f'a valid cron expression (e.g., "{default}")', read, "A cron expression.")


LIFETIME = Text(
    'a duration string like "24h", "1d", "7d", "30m". '
    'Minimum: 30 minutes (30m), Maximum: 52 weeks (52w), or "never"',
    _lifetime,
    "30m to 52w, as in 24h, 7d, 1d12h; or never.",
)
OFF = "off"
LIFETIME_OR_OFF = Text(
    'a duration string like "180d", "26w". '
    'Minimum: 30 minutes (30m), Maximum: 52 weeks (52w), or "never", or "off"',
    lambda text: OFF if text.strip().casefold() == OFF else _lifetime(text),
    "30m to 52w, as in 180d, 26w; never: for ever; off: none.",
)
MOMENT = Text("an ISO 8601 time or null", _moment, optional=True)


# --- which values are extracted: types and rules ---

TriggerType = Literal["thinking", "tool_call", "tool_result", "assistant", "user", "system"]
TRIGGER_TYPES: tuple[TriggerType, ...] = get_args(TriggerType)
_VALID = f"Valid values: {', '.join(TRIGGER_TYPES)}"

SMALLEST = Number(0, 100_000, "characters")
KEEP_RECENT = Number(0, 100, "messages to keep in context")
KEEP_CHARS = Number(0, 10_000, "characters")
# What a rule may limit as the settings do for all.
RULE_LIMITS = {"min_length": SMALLEST, "keep_recent": KEEP_RECENT, "keep_chars": KEEP_CHARS}


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
        own = {name: getattr(self, name) for name in _OWN}
        return {**{name: said for name, said in own.items() if said is not None}, **self.matchers}


_OWN = tuple(one.name for one in fields(TriggerRule) if one.name != "matchers")


class TypesKind(SettingKind):
    """Types of values; null is none of them, as an empty list is."""

    control = "types"
    words = "an array"

    @property
    def choices(self) -> Mapping[str, str]:
        return {one: one for one in TRIGGER_TYPES}

    def check(self, name: str, value: object) -> tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value, (list, tuple)):
            raise self.refusal(name, value)
        if wrong := [one for one in value if one not in TRIGGER_TYPES]:
            raise ValueError(f"Invalid {name}: {', '.join(map(str, wrong))}. {_VALID}")
        return tuple(value)


class RulesKind(SettingKind):
    """A list of rules, or null where there is none."""

    control = "json"
    words = "an array"

    def check(self, name: str, value: object) -> tuple[TriggerRule, ...] | None:
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise self.refusal(name, value)
        problems = [
            problem
            for number, rule in enumerate(value)
            for problem in _problems(f"{name}[{number}]", rule)
        ]
        if problems:
            raise ValueError("; ".join(problems))
        return tuple(_rule(one) for one in value)


def _rule(values: Mapping[str, Any]) -> TriggerRule:
    own = {name: values[name] for name in _OWN if name in values}
    return TriggerRule(**own, matchers={k: v for k, v in values.items() if k not in _OWN})


def _problems(place: str, rule: object) -> Iterator[str]:
    if not isinstance(rule, dict):
        yield f"{place} must be an object"
    elif misspelt := _misspelt(rule):
        yield f"{place}.{misspelt[0]} is not known; did you mean {misspelt[1]}?"
    else:
        yield from _bad_values(place, rule)


def _misspelt(rule: Mapping[str, object]) -> tuple[str, str] | None:
    """A key like `min_lenght`, and what was meant: as a matcher it would silently match nothing."""
    for key in rule:
        if key not in _OWN:
            near = nearest(key, _OWN)
            alike = SequenceMatcher(None, key.casefold(), near).ratio() > 0.75
            if "_" in near and alike:
                return key, near
    return None


def _bad_values(place: str, rule: Mapping[str, object]) -> Iterator[str]:
    kind = rule.get("type")
    if not isinstance(kind, str):
        yield f"{place}: type is required and must be a string"
    elif kind not in {*TRIGGER_TYPES, "*"}:
        yield f"{place}: invalid trigger type '{kind}'. {_VALID}, or '*' for wildcard"
    if not isinstance(rule.get("role", ""), str):
        yield f"{place}.role must be a string"
    for key, limit in RULE_LIMITS.items():
        if key in rule and not limit.fits(rule[key]):
            yield f"{place}.{key} must be non-negative and at most {limit.most}"
    for key, wanted in rule.items():
        if key not in _OWN and not isinstance(wanted, (str, int, float)):
            yield f"{place}.{key} must be a string, a number or a boolean"


# --- the table ---

# Signatures of these models cover the whole conversation before them: from 5.1 or 5.5 on by
# family, and all from 6 on. A date is not a minor version: no third digit may follow.
PREFIX_BOUND_MODELS = (
    r"claude-(fable|mythos)-5[-._]([1-9]|[1-9]\d)(?!\d)",
    r"claude-(opus|sonnet|haiku)-5[-._]([5-9]|[1-9]\d)(?!\d)",
    r"claude-([a-z]+-)*([6-9]|[1-9]\d)(?!\d)",
)


def _extraction(default: _Default, kind: SettingKind, *said: str) -> _Default:
    """A setting that decides what leaves."""
    return setting(default, kind, "What is extracted", *said, unsettles=True, per_call=True)


def _schedule(default: str, place: str, label: str, job: str) -> str:
    """A setting that says when a job of the daemon runs."""
    return setting(default, cron(default), place, label, job=job)


_WHEN = "When"
_KEPT = "How long it is kept"
_SEEN = "What agents see"


@dataclass(frozen=True, slots=True)
class PruningConfig:
    """The runtime settings; immutable, one object per state of the file."""

    # fmt: off
    enabled: bool = _extraction(
        True, Switch(), "Extract by itself", "The daemon moves large old values out of sessions.")
    trigger_types: tuple[TriggerType, ...] = _extraction(
        ("thinking", "tool_result"), TypesKind(), "Types of values", "None: nothing is extracted.")
    trigger_rules: tuple[TriggerRule, ...] | None = _extraction(
        None, RulesKind(), "Rules", "A JSON array; if there is one, it takes the place of types, "
        "messages to keep, smallest value and characters left.")
    keep_recent: int = _extraction(
        3, KEEP_RECENT, "Messages to keep", "So many of the newest messages stay whole")
    min_value_length: int = _extraction(
        500, SMALLEST, "Smallest value", "Characters; shorter ones stay")
    keep_chars: int = _extraction(
        0, KEEP_CHARS, "Characters left in place",
        "The beginning that stays before the placeholder")
    age_threshold_hours: float = _extraction(
        0, Number(0, 87_600, "hours; 0 = off", whole=False), "Minimum age",
        "Hours, fractions too; 0: of any age")
    scan_interval_seconds: int = setting(
        30, Number(10, 3600, "10 seconds to 1 hour"), _WHEN, "Look for changes every", "Seconds",
        job="scan")
    auto_cron: str = _schedule("*/2 * * * *", _WHEN, "Look into changed sessions", "auto_cron")
    retention: str = setting("24h", LIFETIME, _KEPT, "Extracted content, in the store")
    retention_cron: str = _schedule("0 */6 * * *", _KEPT, "Clear away what expired", "retention")
    trash_retention: str = setting("14d", LIFETIME, _KEPT, "Trash and history")
    archive: bool = setting(
        True, Switch(), _KEPT, "Archive what expires",
        "Extracted content is then compressed and can still be restored; else it is deleted.")
    archive_retention: str = setting("never", LIFETIME, _KEPT, "Archive")
    archive_max_bytes: int = setting(
        0, Number(0, 1 << 53, "bytes; 0 = no limit"), _KEPT, "Largest archive",
        "Bytes, with copies of sessions; if it is larger, the oldest goes; 0: no limit")
    archive_sessions: str = setting(
        "180d", LIFETIME_OR_OFF, _KEPT, "Sessions that their program deletes")
    search_index: bool = setting(
        True, Switch(), "Search", "Keep an index of words",
        "Of what users and assistants say, titles, tools and paths; else text is found only by "
        "searching everything.")
    keep_restore_remote_calls: bool = setting(
        False, Switch(), _SEEN, "Keep calls of restore_remote",
        "Else they are taken out of the session.")
    # It governs `restore` too, so seed 001's name for it is understood.
    keep_purge_control_calls: bool = setting(
        False, Switch(), _SEEN, "Keep calls of purge_control and restore",
        "Else they are shortened.", alias="keep_restore_calls")
    keep_after_restore_seconds: int = _extraction(
        600, Number(0, 86_400, "0 to 24 hours"), "Protection after a restore", "Seconds")
    scope: Literal["all", "display"] = _extraction(
        "all", Choice({"all": "all values", "display": "only what is never sent to the model"}),
        "Scope")
    prefix_bound: Literal["skip", "extract"] = _extraction(
        "skip", Choice({"skip": "leave it", "extract": "extract it all the same"}),
        "What later signatures are bound to",
        "Some models sign all that stands before; changing it makes them refuse the session.")
    prefix_bound_models: tuple[str, ...] = _extraction(
        PREFIX_BOUND_MODELS, Texts("an array of regular expressions",
        "Regular expressions, one a line.", check_pattern), "Models that sign so")
    protected_tools: tuple[str, ...] = setting(
        (), Texts("an array of names of tools whose calls and results are never discarded",
        "Names, one a line."), _SEEN, "Protected tools",
        "Their calls and results are never replaced, discarded or distilled.")
    last_run_at: str | None = setting(None, MOMENT)
    last_retention_run_at: str | None = setting(None, MOMENT)
    # fmt: on

    def as_json(self) -> dict[str, Any]:
        """The settings as the file has them."""
        values = {name: getattr(self, name) for name in SETTINGS}
        if self.trigger_rules is not None:
            values["trigger_rules"] = [rule.as_json() for rule in self.trigger_rules]
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @classmethod
    def checked(cls, values: Mapping[str, object]) -> PruningConfig:
        """Build one from JSON values; raises Invalid with one FieldError per bad field."""
        good, errors = {}, []
        for name, one in SETTINGS.items():
            if name in values:
                try:
                    good[name] = one.kind.check(name, values[name])
                except ValueError as problem:
                    errors.append(FieldError(name, str(problem)))
        errors += [FieldError(name, unknown_field(name)) for name in values if name not in SETTINGS]
        if errors:
            raise Invalid(summary(errors), errors=tuple(errors))
        return cls(**good)


SETTINGS = settings_of(PruningConfig)

SETTABLE = tuple(name for name, one in SETTINGS.items() if one.place)
NOTED = tuple(name for name, one in SETTINGS.items() if not one.place)
PER_CALL = tuple(name for name, one in SETTINGS.items() if one.per_call)
UNSETTLING = frozenset(name for name, one in SETTINGS.items() if one.unsettles)
ALIASES = {one.alias: name for name, one in SETTINGS.items() if one.alias}


def unknown_field(name: str) -> str:
    """What to say of a field that does not exist."""
    return f"{name} is not a known setting; did you mean {nearest(name, [*SETTINGS, *ALIASES])}?"


def summary(errors: Sequence[FieldError]) -> str:
    """One line about all of them."""
    if len(errors) == 1:
        return errors[0].message
    names = ", ".join(error.field for error in errors)
    return f"{len(errors)} settings are not valid: {names}"
