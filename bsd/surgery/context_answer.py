"""What replace, discard and distill answer (seed 003's ReplaceResult), and the plan around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from bsd.foundation.answers import Answer, contract
from bsd.foundation.immutable import immutable
from bsd.store.history import TouchedLine
from bsd.surgery.plan import Plan, Report, Saving, Source
from bsd.surgery.targets import DISCARDED, Action
from bsd.surgery.tokens import Rate
from bsd.text.change import Edit


@immutable
class ContextChange(Answer):
    """One target in effect (seed 003); lengths are characters, tokens an estimate."""

    operation: Mapping[str, str]
    message_id: str = field(metadata=contract(name="messageId"))
    original_length: int = field(metadata=contract(name="originalLength"))
    new_length: int = field(metadata=contract(name="newLength"))
    tokens_saved: int = field(metadata=contract(name="tokensSaved"))


@immutable
class ContextChanged(Answer):
    """Seed 003's ReplaceResult: all targets of one call, in its order."""

    success: bool = field(init=False, metadata=contract(by=lambda _: True))
    action: Action
    changed: tuple[ContextChange, ...] = field(metadata=contract(name="replacements"))
    errors: tuple[str, ...] = field(init=False, metadata=contract(by=lambda _: ()))
    warnings: tuple[str, ...] = ()
    tokens_saved: int = field(
        init=False,
        metadata=contract(
            name="tokensSaved", by=lambda one: sum(each.tokens_saved for each in one.changed)
        ),
    )
    operation: int | None = field(
        default=None, metadata=contract("Its number in the history; null for a dry run")
    )

    @property
    def entry_ids(self) -> list[str]:
        return list(dict.fromkeys(one.message_id for one in self.changed))


def change_plan(
    source: Source,
    action: str,
    edits: Sequence[Edit],
    touched: Sequence[TouchedLine],
    answer: ContextChanged,
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
