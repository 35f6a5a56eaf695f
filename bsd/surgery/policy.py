"""Settings in the form in which entries are judged: which values trigger, and within what bounds.

`trigger_rules` and the plain fields become the same thing, a list of triggers; the first that
fits a value decides about it, even if it then says that the value is too recent or too small.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bsd.agents.dialect import Facts, Value
from bsd.agents.entry import Entry, message_of
from bsd.foundation.immutable import immutable
from bsd.foundation.pattern import Pattern
from bsd.foundation.pruning_fields import PruningConfig, TriggerRule

_ANY = "*"


@dataclass(frozen=True, slots=True, eq=False)  # one object per rule: compared by identity
class Trigger:
    """One rule: which values it fits, and what holds for them."""

    types: frozenset[str] | None  # None: every type, and values of none
    min_length: int  # characters
    keep_recent: int  # messages
    keep_chars: int  # characters
    roles: frozenset[str] | None = None  # lower case; None: every role, and none
    matchers: tuple[tuple[str, Any], ...] = ()  # members of the entry and what they must be

    @classmethod
    def of(cls, rule: TriggerRule, config: PruningConfig) -> Trigger:
        """Read one of `trigger_rules`; what it does not say, the settings say."""
        return cls(
            types=None if rule.type == _ANY else frozenset({rule.type}),
            min_length=_said(rule.min_length, config.min_value_length),
            keep_recent=_said(rule.keep_recent, config.keep_recent),
            keep_chars=_said(rule.keep_chars, config.keep_chars),
            roles=None if rule.role == _ANY else frozenset(_alternatives(rule.role)),
            matchers=tuple(rule.matchers.items()),
        )

    def fits_entry(self, entry: Entry, facts: Facts) -> bool:
        """Whether role and matchers hold for an entry."""
        if self.roles is not None and (facts.role or "").lower() not in self.roles:
            return False
        if not self.matchers:
            return True
        return all(_matches(wanted, _member(entry, key)) for key, wanted in self.matchers)

    def fits_value(self, value: Value) -> bool:
        """Whether a value of an entry that fits is of its type; state must be asked for by name."""
        if value.custom and all(key != "customType" for key, _ in self.matchers):
            return False
        return self.types is None or value.type in self.types


def _said(own: int | None, otherwise: int) -> int:
    return otherwise if own is None else own


def _alternatives(text: str) -> list[str]:
    return [part.strip().lower() for part in text.split("|")]


_ABSENT = object()


def _member(entry: Entry, key: str) -> Any:
    """A member of the entry, else of its message: there real entries have `toolName`, `model`."""
    return entry[key] if key in entry else message_of(entry).get(key, _ABSENT)


def _matches(wanted: Any, present: Any) -> bool:
    """Compare as the original does: a text with the member's text, a number strictly."""
    if isinstance(wanted, str):
        text = _as_text(present)
        return text is not None and text.lower() in _alternatives(wanted)
    if isinstance(wanted, bool) or isinstance(present, bool):
        return wanted is present
    if isinstance(wanted, (int, float)) and isinstance(present, (int, float)):
        return wanted == present
    return wanted is None and present is None


def _as_text(value: Any) -> str | None:
    match value:
        case str():
            return value
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer():
            return str(int(value))
        case int() | float():
            return str(value)
    return None


@immutable
class Policy:
    """Everything of the settings that decides about an entry."""

    enabled: bool
    triggers: tuple[Trigger, ...]
    min_value_length: int  # characters, of forced leaves
    keep_chars: int  # characters, of forced values that no trigger fits
    age_threshold_s: float
    keep_after_restore_s: float
    display_only: bool
    bound_models: tuple[Pattern, ...]  # empty: prefixes are not protected

    @classmethod
    def of(cls, config: PruningConfig) -> Policy:
        """Read the settings; a list of rules replaces the plain fields, an empty one too."""
        if config.trigger_rules is not None:
            triggers = tuple(Trigger.of(rule, config) for rule in config.trigger_rules)
        elif config.trigger_types:
            triggers = (
                Trigger(
                    frozenset(config.trigger_types),
                    config.min_value_length,
                    config.keep_recent,
                    config.keep_chars,
                ),
            )
        else:
            triggers = ()
        models = config.prefix_bound_models if config.prefix_bound == "skip" else ()
        return cls(
            enabled=config.enabled,
            triggers=triggers,
            min_value_length=config.min_value_length,
            keep_chars=config.keep_chars if config.trigger_rules is None else 0,
            age_threshold_s=config.age_threshold_hours * 3600,
            keep_after_restore_s=config.keep_after_restore_seconds,
            display_only=config.scope == "display",
            bound_models=tuple(map(Pattern, models)),
        )

    @property
    def shortest(self) -> int:
        """The length from which a leaf could be of interest to any trigger, in characters."""
        return min([self.min_value_length, *(trigger.min_length for trigger in self.triggers)])

    @property
    def grades(self) -> tuple[int, ...]:
        """Every length that a value's length is compared with, ascending, from 0."""
        limits = {0, self.min_value_length, self.keep_chars + 1}
        for trigger in self.triggers:
            limits |= {trigger.min_length, trigger.keep_chars + 1}
        return tuple(sorted(limits))

    def trigger_for(self, value: Value, fitting: Iterable[Trigger]) -> Trigger | None:
        """Return the first of the triggers that fit the entry which fits the value too."""
        for trigger in fitting:
            if trigger.fits_value(value):
                return trigger
        return None

    def binds(self, model: str) -> bool:
        """Whether a signature of this model covers the whole conversation before it."""
        return any(pattern.search(model) for pattern in self.bound_models)
