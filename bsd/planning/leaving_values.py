"""The values of a recording that leave under each policy, by the rules of the product.

Policies that differ only in `keep_recent` agree about everything but the place from which a value
leaves, so an entry is judged once for all of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from sys import maxsize

from bsd.planning.recorded import TYPES, LeaveColumns, ValueColumns
from bsd.planning.rules import (
    Chosen,
    Policy,
    Reason,
    Standing,
    Subject,
    Trigger,
    decide,
    subject_of,
)
from bsd.planning.tokens import Sizes, size_of_value
from bsd.transcripts.agents.entry import EXTRACTABLE, Entry, placeholder
from bsd.transcripts.agents.format import EntryInfo, TranscriptFormat, Value
from bsd.transcripts.spans import ValuePath

_SECONDS_PER_MESSAGE = 60  # of age, for an entry without a time, as in `rules`
_TYPE_NUMBER = {type_: number for number, type_ in enumerate(TYPES)}


@dataclass(frozen=True, slots=True)
class _Group:
    """Policies that differ only in `keep_recent`."""

    policy: Policy
    shortest: int
    limits: list[int]
    # Number of each policy, and its `keep_recent` by the identity of the trigger in `policy`.
    members: list[tuple[int, Mapping[int, int]]]


def _groups(policies: Sequence[Policy]) -> list[_Group]:
    groups: dict[tuple[object, ...], _Group] = {}
    for number, policy in enumerate(policies):
        same = [
            tuple(getattr(trigger, name) for name in Trigger.__slots__ if name != "keep_recent")
            for trigger in policy.triggers
        ]
        key = replace(policy, triggers=()), repr(same)
        group = groups.setdefault(key, _Group(policy, policy.shortest, policy.limits(), []))
        recent = {
            id(first): own.keep_recent
            for first, own in zip(group.policy.triggers, policy.triggers, strict=True)
        }
        group.members.append((number, recent))
    return list(groups.values())


class LeavingValues:
    """Collects the values that leave under at least one policy."""

    def __init__(
        self,
        fmt: TranscriptFormat,
        policies: Sequence[Policy],
        columns: ValueColumns,
        leaves: Sequence[LeaveColumns],
    ) -> None:
        self._fmt, self._policies = fmt, policies
        self._columns, self._leaves = columns, leaves
        self._groups = _groups(policies)
        self._binding: dict[str, tuple[int, ...]] = {}  # model → policies whose values it binds
        # The length in characters from which a value may leave.
        self.shortest = min((group.shortest for group in self._groups), default=maxsize)
        self.sizes = Sizes()  # of the values
        self.kept = [array("I") for _ in policies]  # as the columns: characters that stay

    def add(
        self,
        number: int,
        entry: Entry,
        info: EntryInfo,
        values: Sequence[Value],
        *,
        own_result: bool,
    ) -> dict[ValuePath, int]:
        """Add the values of an entry, and return their numbers.

        Restorations and undone extractions are ignored: whether a value is wanted again is for the
        replay to find out.

        Args:
            number: of the entry.
            entry: the entry with all values inline.
            info: its properties.
            values: its values of at least `shortest` characters.
            own_result: it answers a call of one of bsd's tools.
        """
        is_long = any(value.length >= self.shortest for value in values)
        numbers: dict[ValuePath, int] = {}
        if not is_long and EXTRACTABLE not in entry:
            return numbers
        for group in self._groups:
            listed = values
            if any(value.leaf and value.length < group.shortest for value in values):
                listed = self._fmt.values(entry, group.shortest)
            subject = subject_of(
                entry, info, listed, group.policy, group.limits, own_result=own_result
            )._replace(restored_ms=None)
            chosen, not_before = _chosen(subject, info, group.policy)
            if chosen:
                by_path = {value.path: value for value in listed}
                for one, _ in chosen:
                    self._number(number, by_path[one.path], numbers)
                chosen = sorted(chosen, key=lambda one: numbers[one.value.path])
                self._add_leaves(group, subject, chosen, not_before, info, numbers)
        return numbers

    def _number(self, entry: int, value: Value, numbers: dict[ValuePath, int]) -> None:
        """Add a value to the columns, unless another policy has added it."""
        columns = self._columns
        if value.path not in numbers:
            numbers[value.path] = len(columns)
            columns.entries.append(entry)
            columns.types.append(_TYPE_NUMBER[value.type])
            columns.displays.append(value.display)
            columns.characters.append(value.length)
            self.sizes.append(size_of_value(value))

    def _add_leaves(
        self,
        group: _Group,
        subject: Subject,
        chosen: Sequence[Chosen],
        not_before: float,
        info: EntryInfo,
        numbers: Mapping[ValuePath, int],
    ) -> None:
        stays = len(placeholder(info.id or ""))
        least = ceil(group.policy.age_threshold_s / _SECONDS_PER_MESSAGE)
        for policy, recent in group.members:
            leaves, kept = self._leaves[policy], self.kept[policy]
            for value, keep_chars in chosen:
                position = recent[id(value.trigger)] if value.trigger else 0
                if subject.window is not None:
                    position = max(0, subject.window)
                if info.time_ms is None:  # it ages with later messages
                    position = max(position, least)
                leaves.values.append(numbers[value.path])
                leaves.positions.append(0 if subject.forced else position)
                leaves.not_before.append(not_before)
                kept.append(0 if value.display else keep_chars + stays)

    def bind(self, number: int, info: EntryInfo) -> None:
        """Note the signature of an entry that binds earlier entries."""
        model = info.signed_by
        if model is None:
            return
        if model not in self._binding:
            self._binding[model] = tuple(
                at for at, policy in enumerate(self._policies) if policy.binds(model)
            )
        for at in self._binding[model]:
            self._leaves[at].bindings.append(number)

    def drop(self, entries: set[int]) -> None:
        """Let no value of these entries leave."""
        holders = self._columns.entries
        for leaves, kept in zip(self._leaves, self.kept, strict=True):
            stay = [at for at, value in enumerate(leaves.values) if holders[value] not in entries]
            for column in (leaves.values, leaves.positions, kept):
                column[:] = array(column.typecode, [column[at] for at in stay])
            times = leaves.not_before
            times[:] = array("d", [times[at] for at in stay])


def _chosen(subject: Subject, info: EntryInfo, policy: Policy) -> tuple[Sequence[Chosen], float]:
    """Return the values that leave in the best case, and the time from which they may.

    The time is in epoch seconds; 0 if they may leave at any time.
    """
    standing = Standing(maxsize, info.time_ms)
    now = (info.time_ms or 0.0) / 1000
    for _ in range(3):  # an age and a protection may end one after the other
        decision = decide(subject, standing, policy, now)
        if decision.reason is Reason.EXTRACT:
            is_timed = subject.own_result or policy.age_threshold_s
            return decision.chosen, now if is_timed else 0.0
        if decision.due_at is None:
            break
        now = decision.due_at
    return (), 0.0
