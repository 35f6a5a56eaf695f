"""Plans a person's or an agent's word on one entry: `_extractable` true, false, or a number."""

from __future__ import annotations

from typing import Any

from bsd.agents.dialect import Format
from bsd.agents.marker import EXTRACTABLE
from bsd.foundation.errors import Invalid
from bsd.foundation.immutable import immutable
from bsd.store.history import Touched
from bsd.store.lasting import Noting
from bsd.surgery.locate import locate
from bsd.surgery.plan import Plan, Report, Source
from bsd.text.change import Edit
from bsd.text.splice import remove_members, set_member

Extractable = bool | int | None


@immutable
class PinAnswer:
    """What an entry's `_extractable` is now and was before; None: it has none."""

    entry_id: str | None
    index: int  # 0-based line number
    extractable: Extractable
    previous: Any

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the contract."""
        return {
            "updated": True,
            "entry_id": self.entry_id,
            "extractable": self.extractable,
            "previous": self.previous,
        }


def plan_set_extractable(
    source: Source, fmt: Format, entry: str, value: Extractable
) -> tuple[Plan, PinAnswer]:
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
    answer = PinAnswer(located.facts.id, located.line.index, value, previous)
    touched = (Touched(answer.index, answer.entry_id),) if edits else ()
    freed = Noting(freed=(answer.entry_id,) if answer.entry_id else ())
    return Plan(source.identity, edits, report, touched=touched, noting=freed), answer


def _json(value: bool | int) -> bytes:  # noqa: FBT001 - the value itself, not a switch
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return b"%d" % value
