"""get_context: what agents know of their session; change_context: what they make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bsd.agents.dialect import Format
from bsd.surgery.discard import plan_discard
from bsd.surgery.plan import Means, Plan
from bsd.surgery.replace import plan_replace
from bsd.surgery.rules import Policy
from bsd.surgery.targets import ACTIONS, ContextChanged, read_targets
from bsd.surgery.targets import REPLACE as BY_RANGE
from bsd.surgery.view import Context, context
from bsd.text.reader import Transcript
from bsd.verbs.verb import Route, Tool, Verb, argument


@dataclass(frozen=True, slots=True)
class GetContext:
    """Nothing but the session."""


def _query(source: Transcript, fmt: Format, _: GetContext, means: Means) -> Context:
    return context(means.name, source, fmt)


GET_CONTEXT = Verb(
    name="get_context",
    arguments=GetContext,
    answer=Context,
    query=_query,
    reads=True,
    route=Route(
        "GET",
        "/api/sessions/{agent}/{session}/context",
        "context",
        "What an agent may know of its session: sizes, what is away, what could be.",
    ),
    about="""
    Lists every entry with the six-digit hash of its content, its size, and whether it can be or
    has been extracted.
    """,
    examples=(
        "bsd context main/4f2a",
        "bsd context main/4f2a --json | jq -r '.extracted_ids[]'",
    ),
)


# --- change_context ---


_TARGETS: dict[str, Any] = {
    "minItems": 1,
    "items": {
        "anyOf": [
            {
                "type": "object",
                "description": "for replace",
                "properties": {
                    "start": {"type": "string", "description": "Exact text that begins the piece"},
                    "end": {"type": "string", "description": "Exact text that ends the piece"},
                    "replacement": {"type": "string", "description": "What stands there instead"},
                },
                "required": ["start", "end", "replacement"],
            },
            {
                "type": "array",
                "description": "for discard [hash], for distill [hash, summary]",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": 2,
            },
        ]
    },
}


@dataclass(frozen=True, slots=True)
class ChangeContext:
    """Seed 003's context tool."""

    action: str = field(metadata=argument("What to do.", choices=ACTIONS))
    targets: Sequence[Any] = field(
        metadata=argument("What to do it to; all of it is done or nothing.", schema=_TARGETS)
    )
    include_user: bool = field(
        default=False,
        metadata=argument("Also look at what the user wrote, which is left alone else."),
    )
    dry_run: bool = field(
        default=False, metadata=argument("Say what would change; change nothing.", query=True)
    )

    def __post_init__(self) -> None:
        """Read the targets, in any of the seed's forms; raises Refused for what is none."""
        object.__setattr__(self, "targets", read_targets(self.action, self.targets))


def plan_change(
    source: Transcript, fmt: Format, asked: ChangeContext, means: Means
) -> tuple[Plan, ContextChanged]:
    config = means.config()
    plan = plan_replace if asked.action == BY_RANGE else plan_discard
    return plan(
        source,
        fmt,
        asked.targets,
        include_user=asked.include_user,
        protected_tools=config.protected_tools,
        binds=Policy.of(config).binds,
    )


CHANGE_CONTEXT = Verb(
    name="context",
    arguments=ChangeContext,
    answer=ContextChanged,
    plan=plan_change,
    changes=True,
    entries=lambda answer: answer.entry_ids,
    route=Route(
        "POST",
        "/api/sessions/{agent}/{session}/context",
        "change_context",
        "Replace ranges, discard entries or put summaries in their place; an undo takes it back."
        "\n\nAll that is wrong is told at once, by target.",
    ),
    tools=(
        Tool(
            "context",
            "Replace, discard or distill content",
            "Make your context smaller where you know that you need less than is there. replace "
            "puts `replacement` in place of everything from the text `start` to the next text "
            "`end`, both included: literal, at least 30 characters, and exactly one match in the "
            "session. discard [hash] empties an entry, distill [hash, summary] leaves your summary "
            "there; get_context lists the hashes. All targets of a call are done or none, and a "
            "person can undo it. Use it for logs, traces and listings that are dealt with, never "
            "for what you may have to quote.",
            destroys=True,
        ),
    ),
)


# --- replace: the same, as the page asks for it ---


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
        return ChangeContext(BY_RANGE, all_of_them, self.include_user)


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
