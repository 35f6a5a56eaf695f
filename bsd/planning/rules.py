"""The decision table of SPEC §3, row by row: which values leave an entry, or why none does.

Settings come in the form in which entries are judged: `trigger_rules` and the plain fields become
the same thing, a list of triggers; the first that fits a value decides about it, even if it then
says that the value is too recent or too small.
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
# The tools of bsd for sessions, whose results an agent has just asked for. `context` is not among
# them: tools of other programs may have that name.
_OWN_TOOLS = frozenset(
    ("purge_control", "restore_remote", "restore", "read_extracted", "search_extracted")
)
# Seed 000's last resort: an entry whose time cannot be read is this old per later message.
_SECONDS_PER_MESSAGE = 60


@dataclass(frozen=True, slots=True, eq=False)  # one object per rule: compared by identity
class Trigger:
    """One rule: the values that it fits, and the conditions for them."""

    types: frozenset[str] | None  # None: every type, and values of none
    min_length: int  # characters
    keep_recent: int  # messages
    keep_chars: int  # characters
    roles: frozenset[str] | None = None  # lower case; None: every role, and none
    matchers: tuple[tuple[str, Any], ...] = ()  # members of the entry and their required values

    @classmethod
    def of(cls, rule: TriggerRule, config: PruningConfig) -> Trigger:
        """Read one of `trigger_rules`; the settings give the members that it lacks."""

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
        """Whether role and matchers hold for an entry."""
        if self.roles is not None and (info.role or "").lower() not in self.roles:
            return False
        if not self.matchers:
            return True
        return all(_matches(wanted, _member(entry, key)) for key, wanted in self.matchers)

    def fits_value(self, value: Value) -> bool:
        """Whether a value of an entry that fits is of its type; state must be asked for by name."""
        if value.custom and all(key != "customType" for key, _ in self.matchers):
            return False
        return self.types is None or value.type in self.types


def _alternatives(text: str) -> list[str]:
    return [part.strip().lower() for part in text.split("|")]


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


LONGEST_MODEL = 128  # characters of a model's name that are searched


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything of the settings that decides about an entry."""

    enabled: bool
    triggers: tuple[Trigger, ...]
    min_value_length: int  # characters, of forced leaves
    keep_chars: int  # characters, of forced values that no trigger fits
    age_threshold_s: float
    keep_after_restore_s: float
    display_only: bool
    bound_models: tuple[re.Pattern[str], ...]  # empty: prefixes are not protected

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
            bound_models=tuple(re.compile(model, re.IGNORECASE) for model in models),
        )

    @property
    def shortest(self) -> int:
        """The length from which a leaf could be of interest to any trigger, in characters."""
        return min([self.min_value_length, *(trigger.min_length for trigger in self.triggers)])

    def limits(self) -> list[int]:
        """Every length that a value's length is compared with, ascending, from 0."""
        limits = {0, self.min_value_length, self.keep_chars + 1}
        for trigger in self.triggers:
            limits |= {trigger.min_length, trigger.keep_chars + 1}
        return sorted(limits)

    def binds(self, model: str) -> bool:
        """Whether a signature of this model covers the whole conversation before it."""
        return any(pattern.search(model[:LONGEST_MODEL]) for pattern in self.bound_models)


class Reason(StrEnum):
    """The outcome for one entry: the first row that applies."""

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
    """A value that is in its entry now, as far as the rules and the edit need it."""

    path: ValuePath
    removes: tuple[ValuePath, ...]
    shape: Shape
    type: str | None
    display: bool
    leaf: bool
    custom: bool
    length: int  # characters, rounded down to the next limit of the settings
    trigger: Trigger | None  # the rule that decides about it

    @property
    def is_thought(self) -> bool:
        """Whether the model thought it: providers check the thinking of the last turn (row 4)."""
        return self.type == "thinking" and not self.display


class Subject(NamedTuple):
    """The properties that decide about an entry, at any place: equal for entries that are alike."""

    options: tuple[Option, ...]
    id_problem: Reason | None
    some_away: bool  # a placeholder stands for at least one value
    marked: bool  # it has an `_extracted` member, ours or not
    pinned: bool  # `_extractable` is false
    forced: bool  # `_extractable` is true
    window: int | None  # `_extractable` is a number of messages
    restored_ms: float | None
    own_result: bool  # the answer of one of bsd's tools
    undone: bool  # its extraction was taken back

    @property
    def thinks(self) -> bool:
        """Whether it has a value that stays as long as the entry is of the last turn."""
        return any(option.is_thought for option in self.options)


@dataclass(frozen=True, slots=True)
class Standing:
    """The surroundings of an entry, as far as they decide about it."""

    position: int  # message entries after it
    time_ms: float | None = None  # when it was written
    duplicate: bool = False
    turn_open: bool = False  # in an unfinished turn, or the latest assistant message
    last_turn: bool = False  # in the last turn, finished or not
    prefix_bound: bool = False  # a later signature covers its values in context
    # Epoch seconds at which its turn, of which nothing tells the end, is over by silence.
    over_at: float | None = None
    # Epoch seconds: until then its values in context wait for the provider's prompt cache to
    # get cold; None: they wait for nothing.
    warm_until: float | None = None


class Chosen(NamedTuple):
    """A value that leaves, but for its first `keep_chars` characters."""

    value: Option
    keep_chars: int


@dataclass(frozen=True)
class Decision:
    """The outcome for an entry."""

    reason: Reason
    chosen: tuple[Chosen, ...] = ()
    due_at: float | None = None  # epoch seconds at which the reason ends by itself
    waiting: tuple[Chosen, ...] = ()  # values that leave at `due_at`

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The paths of the values that leave, as a marker names them."""
        return tuple(format_path(value.path) for value, _ in self.chosen)

    @cached_property
    def removes(self) -> tuple[ValuePath, ...]:
        """Members that leave without a placeholder."""
        return tuple(path for value, _ in self.chosen for path in value.removes)


@lru_cache(maxsize=256)
def own_tool(name: str | None) -> bool:
    """Return True if a tool is bsd's, under any prefix of an MCP client."""
    # `mcp__bsd__restore` in most of them, `bsd_restore` in some.
    return name is not None and name.rpartition("__")[2].removeprefix("bsd_") in _OWN_TOOLS


def subject_of(
    entry: Entry,
    info: EntryInfo,
    values: Iterable[Value],
    policy: Policy,
    limits: list[int],
    *,
    own_result: bool = False,
    undone: bool = False,
) -> Subject:
    """Look at one entry.

    Args:
        values: those of the entry that are at least `policy.shortest` characters long.
        limits: `policy.limits()`.
        own_result: it answers a call of one of bsd's tools.
        undone: its extraction was taken back.
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
        restored_ms=time_ms(entry[RESTORED]) if RESTORED in entry else None,
        own_result=own_result or own_tool(info.result_tool),
        undone=undone,
    )


def _id_problem(entry_id: str | None) -> Reason | None:
    if entry_id is None:
        return Reason.NO_ENTRY_ID
    return None if is_safe_id(entry_id) else Reason.UNSAFE_ENTRY_ID


def away_test(entry: Entry, entry_id: str | None) -> Callable[[Value], bool]:
    """Return the test for values whose place a placeholder holds now.

    Our marker names the value, or the text block that took its block's place, and it ends with
    this entry's placeholder; or it is a placeholder of any entry, and nothing else.
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
    """Apply the table; `now` in epoch seconds.

    Values are filtered step by step, and the reason is that of the step after which none is left.
    """
    if (reason := _before_values(subject, standing, policy)) is not None:
        due = _due_after_turn(subject, standing, policy) if reason is Reason.TURN_OPEN else None
        return Decision(reason, due_at=due)
    options = subject.options
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
    """Rows 1 to 5, which no value can change."""
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
    """When an entry of an unfinished turn will leave, if nothing is added to its session."""
    if standing.over_at is None or not standing.turn_open:
        return None
    warm = standing.warm_until
    still_warm = warm if warm is not None and warm > standing.over_at else None
    then = replace(standing, turn_open=False, over_at=None, warm_until=still_warm)
    decision = decide(subject, then, policy, standing.over_at)
    return standing.over_at if decision.reason is Reason.EXTRACT else decision.due_at


def _only_thinks(subject: Subject) -> bool:
    """Whether thinking is all of an entry that could leave."""
    due = [option for option in subject.options if subject.forced or option.trigger is not None]
    return bool(due) and all(option.is_thought for option in due)


def _forced(options: tuple[Option, ...], policy: Policy) -> Decision:
    """Row 6: every value, but state of extensions and short leaves."""
    chosen = []
    for option in options:
        if option.leaf and option.length < policy.min_value_length:
            continue
        if option.custom and option.trigger is None:
            continue
        keep = option.trigger.keep_chars if option.trigger else policy.keep_chars
        # A short value that is forced out shall be gone: keeping the whole value would do nothing.
        is_cut = option.shape is Shape.TEXT and keep < option.length
        chosen.append(Chosen(option, keep if is_cut else 0))
    return _extract_or(Reason.VALUES_TOO_SMALL, chosen)


def _protected_until(subject: Subject, standing: Standing, policy: Policy, now: float) -> float:
    """Row 7: the end of the window after a restoration, or after an answer of our own tools."""
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
    """Rows 8 to 13; `window` is the entry's own number of messages, instead of `keep_recent`."""
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
        # Without a time of its own an entry ages by later messages only, not by waiting.
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

    # Values that no model is sent do not touch the cache.
    leaving = tuple(one for one in free if one.value.display)
    reason = Reason.EXTRACT if leaving else Reason.CACHE_WARM
    return Decision(reason, leaving, standing.warm_until, waiting)


def _is_large_enough(option: Option, trigger: Trigger) -> bool:
    """Row 11; a value that would be kept whole by `keep_chars` is too small as well."""
    if option.shape is Shape.TEXT and option.length <= trigger.keep_chars:
        return False
    return option.length >= trigger.min_length


def _age(standing: Standing, now: float) -> float:
    """Return an entry's age in seconds; a time in the future is age 0."""
    if standing.time_ms is None:
        return standing.position * _SECONDS_PER_MESSAGE
    return max(0.0, now - standing.time_ms / 1000)


def _extract_or(reason: Reason, chosen: list[Chosen]) -> Decision:
    return Decision(Reason.EXTRACT, tuple(chosen)) if chosen else Decision(reason)
