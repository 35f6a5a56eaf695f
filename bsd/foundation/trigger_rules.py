"""The settings `trigger_types` and `trigger_rules`: which values are extracted (SPEC §4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import SequenceMatcher
from typing import Any, Literal, get_args

from bsd.foundation.setting import Number, SettingKind
from bsd.foundation.spelling import nearest

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
