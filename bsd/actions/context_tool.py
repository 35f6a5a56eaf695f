"""The context tool (seed 003): what an agent may know of its session, and how it makes it smaller.

get_context lists entries and hashes. change_context replaces ranges of text, empties entries, or
puts summaries in their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bsd.actions.context import ActionContext
from bsd.core.layout import SessionName
from bsd.planning.discard import plan_discard
from bsd.planning.plan import Means, Plan, Report
from bsd.planning.replace import plan_replace
from bsd.planning.rules import Policy
from bsd.planning.targets import REPLACE, ContextChanged, read_targets
from bsd.planning.view import Context
from bsd.planning.view import context as view_context
from bsd.sessions.notes import Notes
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.reader import Transcript


def get_context(context: ActionContext, session: SessionName) -> Context:
    """List every entry of a session with its hash, its size, and whether it can be extracted.

    Raises:
        NotFound: there is no such session.
        LeftAlone: its lines are not understood.
    """
    return context.surgeon().look(
        session, lambda source, fmt, means: view_context(means.name, source, fmt)
    )


def change_context(
    context: ActionContext,
    session: SessionName,
    action: str,
    targets: object,
    *,
    include_user: bool = False,
    dry_run: bool = False,
) -> ContextChanged:
    """Replace ranges, discard entries, or put summaries in their place: all targets or none.

    Args:
        action: `replace`, `discard` or `distill`.
        targets: as JSON, in any form that `planning.targets.read_targets` takes.
        include_user: also change texts of the user.
        dry_run: say what would change, and change nothing.

    Raises:
        Invalid: there is no such action.
        Refused: at least one target cannot be changed; `errors` says of each why.
        NotFound: there is no such session.
        Busy: the session is in use.
    """
    wanted = read_targets(action, targets)

    def plan(
        source: Transcript, fmt: TranscriptFormat, means: Means
    ) -> tuple[Plan, ContextChanged]:
        return plan_change(source, fmt, action, wanted, means, include_user=include_user)

    def note(notes: Notes, report: Report | None, answer: ContextChanged) -> None:
        if report is not None:
            notes.changed_several(action, session, report, answer.entry_ids)

    operation, answer = context.surgeon().perform(session, plan, note, dry_run=dry_run)
    return replace(answer, operation=operation)


def plan_change(
    source: Transcript,
    fmt: TranscriptFormat,
    action: str,
    targets: Sequence[Any],
    means: Means,
    *,
    include_user: bool,
) -> tuple[Plan, ContextChanged]:
    """Plan a change of context; `targets` as `read_targets` returns them. Raises Refused."""
    config = means.config()
    plan = plan_replace if action == REPLACE else plan_discard
    return plan(
        source,
        fmt,
        targets,
        include_user=include_user,
        protected_tools=config.protected_tools,
        binds=Policy.of(config).binds,
    )


def replace_targets(
    start: str | None = None,
    end: str | None = None,
    replacement: str | None = None,
    targets: Sequence[Any] | None = None,
) -> list[Any]:
    """Return the targets of `replace`: one whose members are given alone, then all others."""
    one: Mapping[str, str | None] = {"start": start, "end": end, "replacement": replacement}
    given = {name: value for name, value in one.items() if value is not None}
    return [*([given] if given else []), *(targets or [])]
