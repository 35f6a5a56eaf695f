"""Plans a person's or an agent's word on one entry: `_extractable` true, false, or a number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bsd.agents.dialect import Format
from bsd.agents.marker import EXTRACTABLE
from bsd.foundation.answers import INTERNAL, Answer
from bsd.foundation.errors import Invalid
from bsd.store.entry_notes import Noting
from bsd.store.history import TouchedLine
from bsd.surgery.locate import locate
from bsd.surgery.plan import Plan, Report, Source
from bsd.text.change import Edit
from bsd.text.splice import remove_members, set_member

Extractable = bool | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractableSet(Answer):
    """What an entry's `_extractable` is now and was before; null: it has none."""

    updated: bool = True
    entry_id: str | None
    extractable: Extractable
    previous: Any
    index: int = field(metadata=INTERNAL)  # 0-based line number


def plan_set_extractable(
    source: Source, fmt: Format, entry: str, value: Extractable
) -> tuple[Plan, ExtractableSet]:
    """Plan the setting of `_extractable`, or with None its removal; either frees the entry.

    Raises NotFound, Invalid for a negative number, and Conflict if the line cannot be edited.
    """
    if value is not None and value < 0:
        raise Invalid(
            f"_extractable cannot be {value}",
            hint="true, false, or for how many messages to keep the entry",
        )
    located = locate(source, fmt, entry)
    raw = located.line.raw
    previous = located.entry.get(EXTRACTABLE)
    if value is None:
        new = remove_members(raw, [(EXTRACTABLE,)]) if EXTRACTABLE in located.entry else raw
    else:
        new = set_member(raw, EXTRACTABLE, _json(value))
    edits = () if new == raw else (Edit(located.line.offset, len(raw), new),)
    size = source.identity.size
    report = Report(
        "set_extractable",
        entries=len(edits),
        bytes_before=size,
        bytes_after=size + (len(new) - len(raw)),
    )
    answer = ExtractableSet(
        entry_id=located.facts.id,
        extractable=value,
        previous=previous,
        index=located.line.index,
    )
    touched = (TouchedLine(answer.index, answer.entry_id),) if edits else ()
    freed = Noting(freed=(answer.entry_id,) if answer.entry_id else ())
    return Plan(source.identity, edits, report, touched=touched, noting=freed), answer


def _json(value: bool | int) -> bytes:  # noqa: FBT001 - the value itself, not a switch
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return b"%d" % value
