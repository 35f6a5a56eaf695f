"""The decision table of SPEC §3: which values leave an entry, or why none does.

`trigger_rules` and the plain settings are both turned into a list of triggers. The first trigger
that fits a value decides about it, even if it then finds the value too recent or too small.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from bsd.core.config import PruningConfig, TriggerRule
from bsd.transcripts.agents.entry import (
    EXTRACTABLE,
    MARKER,
    PLACEHOLDER_END,
    RESTORED,
    Entry,
    Marker,
    is_placeholder,
    is_safe_id,
    message_of,
    placeholder,
    time_ms,
)
from bsd.transcripts.agents.format import EntryInfo, Shape, Value
from bsd.transcripts.spans import ValuePath, format_path, paths_of

_ANY = "*"
_ABSENT = object()
# bsd's tools for sessions. Their results are recent requests of the agent. `context` is left out,
# since tools of other programs may have that name.
_OWN_TOOLS = frozenset(
    ("purge_control", "restore_remote", "restore", "read_extracted", "search_extracted")
)
# Seed 000's fallback for an entry without a readable time: its age per later message.
_SECONDS_PER_MESSAGE = 60


@dataclass(frozen=True, slots=True, eq=False)  # one object per rule: compared by identity
class Trigger:
    """One rule: the values that it fits, and the conditions under which they leave."""

    types: frozenset[str] | None  # None: any type, and values without a type
    min_length: int  # characters
    keep_recent: int  # messages
    keep_chars: int  # characters
    roles: frozenset[str] | None = None  # lower case; None: any role, or no role
    matchers: tuple[tuple[str, Any], ...] = ()  # (member of the entry, required value)

    @classmethod
    def of(cls, rule: TriggerRule, config: PruningConfig) -> Trigger:
        """Make a trigger of one of `trigger_rules`; the settings supply missing members."""

        def own(value: int | None, otherwise: int) -> int:
            return otherwise if value is None else value

        return cls(
            types=None if rule.type == _ANY else frozenset({rule.type}),
            min_length=own(rule.min_length, config.min_value_length),
            keep_recent=own(rule.keep_recent, config.keep_recent),
            keep_chars=own(rule.keep_chars, config.keep_chars),
            roles=None if rule.role == _ANY else frozenset(_alternatives(rule.role)),
            matchers=tuple(rule.matchers.items()),
        )

    def fits_entry(self, entry: Entry, info: EntryInfo) -> bool:
        """Return whether an entry has the role and the members that the rule asks for."""
        if self.roles is not None and (info.role or "").lower() not in self.roles:
            return False
        if not self.matchers:
            return True
        return all(_matches(wanted, _member(entry, key)) for key, wanted in self.matchers)

    def fits_value(self, value: Value) -> bool:
        """Return whether a value of a fitting entry has the rule's type.

        State of extensions fits only if a matcher names `customType`.
        """
        if value.custom and all(key != "customType" for key, _ in self.matchers):
            return False
        return self.types is None or value.type in self.types


def _alternatives(text: str) -> list[str]:
    return [part.strip().lower() for part in text.split("|")]


def _member(entry: Entry, key: str) -> Any:
    """Return a member of the entry, or else of its message (`toolName`, `model`)."""
    return entry[key] if key in entry else message_of(entry).get(key, _ABSENT)


def _matches(wanted: Any, present: Any) -> bool:
    """Compare like the original: a text with the member's text, a number strictly."""
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


LONGEST_MODEL = 128  # characters of a model's name that are searched


@dataclass(frozen=True, slots=True)
class Policy:
    """All settings that decide about an entry."""

    enabled: bool
    triggers: tuple[Trigger, ...]
    min_value_length: int  # characters; for forced leaves
    keep_chars: int  # characters; for forced values without a trigger
    age_threshold_s: float
    keep_after_restore_s: float
    display_only: bool
    bound_models: tuple[re.Pattern[str], ...]  # empty: prefixes are not protected

    @classmethod
    def of(cls, config: PruningConfig) -> Policy:
        """Read the settings. A list of rules, even an empty one, replaces the plain settings."""
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
            bound_models=tuple(re.compile(model, re.IGNORECASE) for model in models),
        )

    @property
    def shortest(self) -> int:
        """The length in characters from which a leaf may interest any trigger."""
        return min([self.min_value_length, *(trigger.min_length for trigger in self.triggers)])

    def limits(self) -> list[int]:
        """Return all lengths that a value's length is compared with, ascending, from 0."""
        limits = {0, self.min_value_length, self.keep_chars + 1}
        for trigger in self.triggers:
            limits |= {trigger.min_length, trigger.keep_chars + 1}
        return sorted(limits)

    def binds(self, model: str) -> bool:
        """Return whether a signature of this model covers the whole conversation before it."""
        return any(pattern.search(model[:LONGEST_MODEL]) for pattern in self.bound_models)


class Reason(StrEnum):
    """The outcome for one entry: the first row of the table that applies."""

    __hash__ = str.__hash__  # Enum's own is written in Python

    DISABLED = "disabled"
    NO_ENTRY_ID = "no_entry_id"
    UNSAFE_ENTRY_ID = "unsafe_entry_id"
    DUPLICATE_ENTRY_ID = "duplicate_entry_id"
    ALREADY_EXTRACTED = "already_extracted"
    TURN_OPEN = "turn_open"
    PINNED = "pinned"
    UNDONE = "undone"
    RECENTLY_RESTORED = "recently_restored"
    TYPE_NOT_MATCHED = "type_not_matched"
    TOO_RECENT = "too_recent"
    TOO_YOUNG = "too_young"
    VALUES_TOO_SMALL = "values_too_small"
    PREFIX_BOUND = "prefix_bound"
    CACHE_WARM = "cache_warm"
    TOO_LARGE_IN_MEMORY = "too_large_in_memory"
    EXTRACT = "extract"


class Option(NamedTuple):
    """An inline value of an entry, with the properties that rules and edit need."""

    path: ValuePath
    removes: tuple[ValuePath, ...]
    shape: Shape
    type: str | None
    display: bool
    leaf: bool
    custom: bool
    length: int  # characters, rounded down to the next limit of the settings
    trigger: Trigger | None  # the first trigger that fits
    once_superseded: bool = False

    @property
    def is_thought(self) -> bool:
        """True for thinking. Providers check the thinking of the last turn (row 4)."""
        return self.type == "thinking" and not self.display


class Subject(NamedTuple):
    """The properties of an entry that decide about it, apart from its place in the session.

    Entries that are alike to the rules have equal subjects.
    """

    options: tuple[Option, ...]
    id_problem: Reason | None
    some_away: bool  # at least one value is extracted
    marked: bool  # it has an `_extracted` member, bsd's or not
    pinned: bool  # `_extractable` is false
    forced: bool  # `_extractable` is true
    window: int | None  # `_extractable` is a number of messages
    restored_ms: float | None
    own_result: bool  # it is a result of one of bsd's tools
    undone: bool  # its extraction was undone

    @property
    def thinks(self) -> bool:
        """True if a value stays as long as the entry belongs to the last turn."""
        return any(option.is_thought for option in self.options)


@dataclass(frozen=True, slots=True)
class Standing:
    """The surroundings of an entry that decide about it."""

    position: int  # message entries after it
    time_ms: float | None = None  # when it was written
    duplicate: bool = False
    turn_open: bool = False  # in an unfinished turn or the latest assistant message
    last_turn: bool = False  # in the last turn, finished or not
    prefix_bound: bool = False  # a later signature covers its values in context
    # Epoch seconds: silence ends the entry's turn then; None: silence does not end it.
    over_at: float | None = None
    # Epoch seconds: its values in context wait until then for the provider's prompt cache to get
    # cold; None: they do not wait.
    warm_until: float | None = None
    superseded: bool = False  # the program never reads it again: all its values count as `display`


class Chosen(NamedTuple):
    """A value that leaves, except its first `keep_chars` characters."""

    value: Option
    keep_chars: int


@dataclass(frozen=True)
class Decision:
    """The outcome for an entry."""

    reason: Reason
    chosen: tuple[Chosen, ...] = ()
    due_at: float | None = None  # epoch seconds: the reason ends then by itself
    waiting: tuple[Chosen, ...] = ()  # values that leave at `due_at`

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The paths of the leaving values, as a marker names them."""
        return tuple(format_path(value.path) for value, _ in self.chosen)

    @cached_property
    def removes(self) -> tuple[ValuePath, ...]:
        """Members that leave without a placeholder."""
        return tuple(path for value, _ in self.chosen for path in value.removes)


@lru_cache(maxsize=256)
def own_tool(name: str | None) -> bool:
    """Return whether a tool is bsd's, under any prefix of an MCP client."""
    if name is None:
        return False
    # Most clients write `mcp__bsd__restore`, some `bsd_restore` or `mcp_bsd_restore`.
    return name.rpartition("__")[2].removeprefix("mcp_").removeprefix("bsd_") in _OWN_TOOLS


def subject_of(  # noqa: PLR0913 - facts, each by its name
    entry: Entry,
    info: EntryInfo,
    values: Iterable[Value],
    policy: Policy,
    limits: list[int],
    *,
    own_result: bool = False,
    undone: bool = False,
    restored_ms: float | None = None,
) -> Subject:
    """Return the subject of an entry.

    Args:
        values: the entry's values of at least `policy.shortest` characters.
        limits: `policy.limits()`.
        own_result: it answers a call of one of bsd's tools.
        undone: its extraction was undone.
        restored_ms: when it was restored (epoch milliseconds), unless its `_restored` tells.
    """
    fitting = [trigger for trigger in policy.triggers if trigger.fits_entry(entry, info)]
    away: Callable[[Value], bool] | None = None
    some_away = False
    options = []
    for value in values:
        if value.fixed:
            continue
        if value.text is not None and value.text.endswith(PLACEHOLDER_END):
            away = away or away_test(entry, info.id)
            if away(value):
                some_away = True
                continue
        options.append(
            Option(
                value.path,
                value.removes,
                value.shape,
                value.type,
                value.display,
                value.leaf,
                value.custom,
                limits[bisect_right(limits, value.length) - 1],
                next((trigger for trigger in fitting if trigger.fits_value(value)), None),
                value.once_superseded,
            )
        )
    wish = entry.get(EXTRACTABLE)
    is_whole = isinstance(wish, int) or (isinstance(wish, float) and wish.is_integer())
    window = int(wish) if wish is not None and is_whole and not isinstance(wish, bool) else None
    return Subject(
        tuple(options),
        _id_problem(info.id),
        some_away,
        marked=MARKER in entry,
        pinned=wish is False,
        forced=wish is True,
        window=window,
        restored_ms=time_ms(entry[RESTORED]) if RESTORED in entry else restored_ms,
        own_result=own_result or own_tool(info.result_tool),
        undone=undone,
    )


def _id_problem(entry_id: str | None) -> Reason | None:
    if entry_id is None:
        return Reason.NO_ENTRY_ID
    return None if is_safe_id(entry_id) else Reason.UNSAFE_ENTRY_ID


def away_test(entry: Entry, entry_id: str | None) -> Callable[[Value], bool]:
    """Return a function that tells whether a value is extracted.

    A value is extracted if it is nothing but a placeholder, of any entry; or if the marker names
    the value, or the text block in its place, and its text ends with this entry's placeholder.
    """
    marker = Marker.of(entry)
    keys = set(paths_of(marker.keys).values()) if marker else set()

    def away(value: Value) -> bool:
        text = value.text
        if text is None or not text.endswith(PLACEHOLDER_END):
            return False
        named = value.path in keys or value.path[:-1] in keys
        return (named and text.endswith(placeholder(entry_id or ""))) or is_placeholder(text)

    return away


def decide(subject: Subject, standing: Standing, policy: Policy, now: float) -> Decision:
    """Apply the table to an entry; `now` is in epoch seconds.

    Each step filters the values. The reason is that of the step that leaves no value.
    """
    if (reason := _before_values(subject, standing, policy)) is not None:
        due = _due_after_turn(subject, standing, policy) if reason is Reason.TURN_OPEN else None
        return Decision(reason, due_at=due)
    options = subject.options
    if standing.superseded:
        options = tuple(option._replace(display=True) for option in options)
    elif any(option.once_superseded for option in options):
        options = tuple(option for option in options if not option.once_superseded)
    if standing.last_turn:
        options = tuple(option for option in options if not option.is_thought)
    if subject.forced:
        return _forced(options, policy)
    if subject.undone:
        return Decision(Reason.UNDONE)
    if (due := _protected_until(subject, standing, policy, now)) > now:
        return Decision(Reason.RECENTLY_RESTORED, due_at=due)
    return _choose(options, subject.window, standing, policy, now)


def _before_values(subject: Subject, standing: Standing, policy: Policy) -> Reason | None:
    """Return the reason of rows 1 to 5, which ignore single values; None if none applies."""
    if not policy.enabled or not policy.triggers:
        return Reason.DISABLED
    if subject.id_problem is not None:
        return subject.id_problem
    if standing.duplicate:
        return Reason.DUPLICATE_ENTRY_ID
    if subject.some_away and not subject.options:
        return Reason.ALREADY_EXTRACTED
    if standing.turn_open or (standing.last_turn and _only_thinks(subject)):
        return Reason.TURN_OPEN
    return Reason.PINNED if subject.pinned else None


def _due_after_turn(subject: Subject, standing: Standing, policy: Policy) -> float | None:
    """Return when an entry of an unfinished turn will leave if its session does not grow."""
    if standing.over_at is None or not standing.turn_open:
        return None
    warm = standing.warm_until
    still_warm = warm if warm is not None and warm > standing.over_at else None
    then = replace(standing, turn_open=False, over_at=None, warm_until=still_warm)
    decision = decide(subject, then, policy, standing.over_at)
    return standing.over_at if decision.reason is Reason.EXTRACT else decision.due_at


def _only_thinks(subject: Subject) -> bool:
    """Return whether only thinking could leave the entry."""
    due = [option for option in subject.options if subject.forced or option.trigger is not None]
    return bool(due) and all(option.is_thought for option in due)


def _forced(options: tuple[Option, ...], policy: Policy) -> Decision:
    """Apply row 6: choose all values except state of extensions and short leaves."""
    chosen = []
    for option in options:
        if option.leaf and option.length < policy.min_value_length:
            continue
        if option.custom and option.trigger is None:
            continue
        keep = option.trigger.keep_chars if option.trigger else policy.keep_chars
        # A forced value that is no longer than `keep` leaves whole, or it would not leave at all.
        is_cut = option.shape is Shape.TEXT and keep < option.length
        chosen.append(Chosen(option, keep if is_cut else 0))
    return _extract_or(Reason.VALUES_TOO_SMALL, chosen)


def _protected_until(subject: Subject, standing: Standing, policy: Policy, now: float) -> float:
    """Apply row 7: return the end of protection after a restoration or an answer of bsd's tools."""
    ends = [0.0]
    if subject.restored_ms is not None:
        ends.append(subject.restored_ms / 1000 + policy.keep_after_restore_s)
    if subject.own_result:
        ends.append(now - _age(standing, now) + policy.keep_after_restore_s)
    return max(ends)


def _choose(
    options: tuple[Option, ...],
    window: int | None,
    standing: Standing,
    policy: Policy,
    now: float,
) -> Decision:
    """Apply rows 8 to 13; `window`, if set, replaces `keep_recent` by the entry's own number."""
    matched = [
        (option, option.trigger)
        for option in options
        if option.trigger is not None and (option.display or not policy.display_only)
    ]
    if not matched:
        return Decision(Reason.TYPE_NOT_MATCHED)

    old = [
        (option, trigger)
        for option, trigger in matched
        if standing.position >= (trigger.keep_recent if window is None else window)
    ]
    if not old:
        return Decision(Reason.TOO_RECENT)

    if (missing := policy.age_threshold_s - _age(standing, now)) > 0:
        # An entry without a time ages only with later messages, not with time.
        due = None if standing.time_ms is None else now + missing
        return Decision(Reason.TOO_YOUNG, due_at=due)

    large = [(option, trigger) for option, trigger in old if _is_large_enough(option, trigger)]
    if not large:
        return Decision(Reason.VALUES_TOO_SMALL)

    free = [
        Chosen(option, trigger.keep_chars if option.shape is Shape.TEXT else 0)
        for option, trigger in large
        if option.display or not standing.prefix_bound
    ]
    waiting = tuple(one for one in free if not one.value.display)
    if standing.warm_until is None or not waiting:
        return _extract_or(Reason.PREFIX_BOUND, free)

    # Values that are never sent do not affect the cache.
    leaving = tuple(one for one in free if one.value.display)
    reason = Reason.EXTRACT if leaving else Reason.CACHE_WARM
    return Decision(reason, leaving, standing.warm_until, waiting)


def _is_large_enough(option: Option, trigger: Trigger) -> bool:
    """Apply row 11. A value that `keep_chars` would keep whole is too small as well."""
    if option.shape is Shape.TEXT and option.length <= trigger.keep_chars:
        return False
    return option.length >= trigger.min_length


def _age(standing: Standing, now: float) -> float:
    """Return an entry's age in seconds; 0 for a time in the future."""
    if standing.time_ms is None:
        return standing.position * _SECONDS_PER_MESSAGE
    return max(0.0, now - standing.time_ms / 1000)


def _extract_or(reason: Reason, chosen: list[Chosen]) -> Decision:
    return Decision(Reason.EXTRACT, tuple(chosen)) if chosen else Decision(reason)
