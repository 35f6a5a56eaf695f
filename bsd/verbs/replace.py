"""replace: other texts in the place of what stands between two markers (seed 003)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bsd.agents.dialect import Format
from bsd.surgery.plan import Means, Plan
from bsd.surgery.targets import REPLACE as ACTION
from bsd.surgery.targets import ContextChanged
from bsd.text.reader import Transcript
from bsd.verbs.change_context import ChangeContext, plan_change
from bsd.verbs.verb import Route, Verb, argument


@dataclass(frozen=True, slots=True)
class Replace:
    """One replacement, or several under `targets`: all of them or none."""

    start: str | None = None
    end: str | None = None
    replacement: str | None = None
    targets: Sequence[Any] | None = None
    include_user: bool = field(default=False, metadata=argument("Also change what the user wrote"))
    dry_run: bool = field(
        default=False, metadata=argument("Say what would change; change nothing.", query=True)
    )

    def __post_init__(self) -> None:
        """Refuse what is no target before a session is opened for it; raises Refused."""
        self.change()

    def change(self) -> ChangeContext:
        """What this is in the terms of the context tool."""
        one = {"start": self.start, "end": self.end, "replacement": self.replacement}
        given = {name: value for name, value in one.items() if value is not None}
        all_of_them = [*([given] if given else []), *(self.targets or [])]
        return ChangeContext(ACTION, all_of_them, self.include_user)


def _plan(
    source: Transcript, fmt: Format, asked: Replace, means: Means
) -> tuple[Plan, ContextChanged]:
    return plan_change(source, fmt, asked.change(), means)


REPLACE = Verb(
    name="context",
    arguments=Replace,
    answer=ContextChanged,
    plan=_plan,
    changes=True,
    entries=lambda answer: answer.entry_ids,
    route=Route(
        "POST",
        "/api/sessions/{agent}/{session}/replace",
        "replace",
        "Put another text in the place of what stands between two markers (seed 003).",
        needs_body=True,
    ),
)
