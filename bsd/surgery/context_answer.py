"""What replace, discard and distill answer (seed 003's ReplaceResult), and the plan around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bsd.foundation.immutable import immutable
from bsd.store.history import Touched
from bsd.surgery.plan import Plan, Report, Saving, Source
from bsd.surgery.targets import DISCARDED
from bsd.surgery.tokens import Rate
from bsd.text.change import Edit


@immutable
class Changed:
    """One target in effect; lengths are characters, tokens an estimate."""

    operation: Mapping[str, str]
    message_id: str
    original_length: int
    new_length: int
    tokens_saved: int

    def as_json(self) -> dict[str, Any]:
        """In the seed's names."""
        return {
            "operation": dict(self.operation),
            "messageId": self.message_id,
            "originalLength": self.original_length,
            "newLength": self.new_length,
            "tokensSaved": self.tokens_saved,
        }


@immutable
class ContextAnswer:
    """All targets of one call, in its order."""

    action: str  # replace, discard or distill
    changed: tuple[Changed, ...]
    warnings: tuple[str, ...] = ()

    @property
    def entry_ids(self) -> list[str]:
        return list(dict.fromkeys(one.message_id for one in self.changed))

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the contract."""
        return {
            "success": True,
            "action": self.action,
            "replacements": [one.as_json() for one in self.changed],
            "errors": [],
            "warnings": list(self.warnings),
            "tokensSaved": sum(one.tokens_saved for one in self.changed),
        }


def change_plan(
    source: Source,
    action: str,
    edits: Sequence[Edit],
    touched: Sequence[Touched],
    answer: ContextAnswer,
    rate: Rate,
) -> Plan:
    """The plan of these edits, in the order of the file; `rate` is that of their tokens."""
    size = source.identity.size
    after = size + sum(len(edit.new) - edit.length for edit in edits)
    tokens = sum(one.tokens_saved for one in answer.changed)
    report = Report(
        action,
        entries=len(edits),
        values=len(answer.changed),
        bytes_before=size,
        bytes_after=after,
        savings={"other": Saving(len(answer.changed), size - after, tokens)},
        rate=rate,
    )
    return Plan(source.identity, tuple(edits), report, touched=tuple(touched))


def text_or_note(text: str) -> str:
    """A text that may stand in a message: providers refuse one that says nothing."""
    return text if text.strip() else DISCARDED
