"""The settings under which sessions are played back, from lists of values as users type them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Literal

from bsd.core.config import TRIGGER_TYPES, PruningConfig
from bsd.core.errors import FieldError, Invalid
from bsd.planning.rules import Policy

When = Literal["pays", "now", "cold"]

NAMES = ("keep_recent", "min_value_length", "trigger_types", "when")
MOST_SETTINGS = 64
# Lists with which `--suggest` compares, unless the user gives others.
SUGGESTED_LISTS = {"keep_recent": "3,5,10,20", "min_value_length": "200,500,1000,2000"}
_MOMENTS: tuple[When, ...] = ("pays", "now", "cold")
_EXAMPLES = {
    "keep_recent": "3,10,20",
    "min_value_length": "500,2000",
    "trigger_types": "thinking+tool_result,tool_result",
    "when": "pays,now",
}


@dataclass(frozen=True, kw_only=True)
class ReplaySetting:
    """The settings of config.json under which sessions are played back."""

    keep_recent: int
    min_value_length: int
    trigger_types: tuple[str, ...]
    when: When


@dataclass(frozen=True, slots=True)
class ReplayGrid:
    """Settings to play back, and the policies of the values that leave under them."""

    settings: tuple[ReplaySetting, ...]
    policies: tuple[Policy, ...]  # without equal ones
    policy_of: tuple[int, ...]  # per setting: number of its policy
    current: ReplaySetting  # the settings in force
    has_rules: bool  # `trigger_rules` decide, under at least one setting


def replay_grid(config: PruningConfig, lists: Mapping[str, str]) -> ReplayGrid:
    """Return each combination of the values in the lists.

    A setting without a list has the value in force. Without any list, the settings in force are
    combined with each value of `when`. If types are listed, they replace `trigger_rules`.

    Args:
        config: the settings in force.
        lists: by name of the setting: values with commas between them; `+` joins types.

    Raises:
        Invalid: with a FieldError for each list that has a value that is not valid.
    """
    lists = {name: text for name, text in lists.items() if text.strip()}
    present = config.as_json()
    moments: tuple[When, ...] = (config.when, *(each for each in _MOMENTS if each != config.when))
    values: dict[str, list[Any]] = {name: [present[name]] for name in NAMES}
    if not lists:
        values["when"] = list(moments)
    errors: list[FieldError] = []
    for name, text in lists.items():
        try:
            values[name] = _values(name, text, present)
        except Invalid as problem:
            errors += problem.errors
    if errors:
        told = "; ".join(error.message for error in errors)
        fields = [error.field.partition("[")[0] for error in errors]
        hint = ", ".join(f"{name} {_EXAMPLES[name]}" for name in NAMES if name in fields)
        raise Invalid(told, hint=hint or f"the names are {', '.join(NAMES)}", errors=tuple(errors))
    if (count := prod(map(len, values.values()))) > MOST_SETTINGS:
        text = f"{count} combinations of settings; at most {MOST_SETTINGS} are played back"
        raise Invalid(text, hint="list fewer values")
    without_rules = {"enabled": True} | (
        {"trigger_rules": None} if "trigger_types" in lists else {}
    )
    settings: list[ReplaySetting] = []
    configs: list[PruningConfig] = []
    for combination in product(*values.values()):
        one = dict(zip(values, combination, strict=True))
        made = PruningConfig.from_json({**present, **without_rules, **one})
        settings.append(_setting(made))
        configs.append(made)
    keys = [made.model_copy(update={"when": config.when}) for made in configs]
    different = [key for number, key in enumerate(keys) if key not in keys[:number]]
    return ReplayGrid(
        tuple(settings),
        tuple(map(Policy.of, different)),
        tuple(different.index(key) for key in keys),
        _setting(config),
        any(made.trigger_rules is not None for made in configs),
    )


def _setting(config: PruningConfig) -> ReplaySetting:
    return ReplaySetting(
        keep_recent=config.keep_recent,
        min_value_length=config.min_value_length,
        trigger_types=config.trigger_types,
        when=config.when,
    )


def _values(name: str, text: str, present: Mapping[str, Any]) -> list[Any]:
    """Return the values in a list, each once; raises Invalid."""
    if name not in NAMES:
        told = f"{name} is not one of {', '.join(NAMES)}"
        raise Invalid(told, errors=(FieldError(name, told),))
    found: list[Any] = []
    for item in text.split(","):
        value = _value(name, item.strip())
        PruningConfig.from_json({**present, name: value})
        if value not in found:
            found.append(value)
    return found


def _value(name: str, item: str) -> Any:
    """Return a value for the model of the settings, which refuses it if it is not valid."""
    if name == "trigger_types":
        types = [type_.strip() for type_ in item.split("+")]
        return [type_ for type_ in TRIGGER_TYPES if type_ in types] + [
            type_ for type_ in types if type_ not in TRIGGER_TYPES
        ]
    return int(item) if name != "when" and item.isascii() and item.isdigit() else item
