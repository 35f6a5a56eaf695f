"""The context tool (seed 003): an agent lists the entries of its session and makes them smaller.

`get_context` lists entries and hashes. `change_context` replaces ranges of text, empties entries,
or replaces entries by summaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bsd.actions.context import ActionContext
from bsd.core.layout import SessionName
from bsd.planning.discard import plan_discard
from bsd.planning.plan import Plan
from bsd.planning.replace import plan_replace
from bsd.planning.rules import Policy
from bsd.planning.targets import REPLACE, ContextChanged, read_targets
from bsd.planning.view import Context
from bsd.planning.view import context as view_context
from bsd.sessions.session import OpenSession


def get_context(context: ActionContext, session: SessionName) -> Context:
    """List every entry of a session with its hash, its size, and whether it can be extracted.

    Raises:
        NotFound: there is no such session.
        LeftAlone: bsd does not know the format of its lines.
    """
    with context.reader(session) as opened:
        return view_context(session, opened.transcript, opened.format)


def change_context(
    context: ActionContext,
    session: SessionName,
    action: str,
    targets: object,
    *,
    include_user: bool = False,
    dry_run: bool = False,
) -> ContextChanged:
    """Replace ranges, discard entries, or replace entries by summaries: all targets or none.

    Args:
        action: `replace`, `discard` or `distill`.
        targets: as JSON, in any form that `planning.targets.read_targets` accepts.
        include_user: also change texts of the user.
        dry_run: return the changes without making them.

    Raises:
        Invalid: there is no such action.
        Refused: at least one target cannot be changed; `errors` has the reason for each.
        NotFound: there is no such session.
        Busy: the session is in use.
    """
    wanted = read_targets(action, targets)

    if dry_run:
        with context.reader(session, to_edit=True) as opened:
            return plan_change(opened, action, wanted, include_user=include_user)[1]
    editor = context.editor(session)
    answer = editor.apply(
        lambda opened: plan_change(opened, action, wanted, include_user=include_user)
    )
    return replace(answer, operation=editor.operation)


def plan_change(
    opened: OpenSession, action: str, targets: Sequence[Any], *, include_user: bool
) -> tuple[Plan, ContextChanged]:
    """Plan a change of context; `targets` are those of `read_targets`. Raises Refused."""
    config = opened.settings
    plan = plan_replace if action == REPLACE else plan_discard
    return plan(
        opened.transcript,
        opened.format,
        targets,
        include_user=include_user,
        protected_tools=config.protected_tools,
        binds=Policy.of(config).binds,
        now=opened.now,
    )


def replace_targets(
    start: str | None = None,
    end: str | None = None,
    replacement: str | None = None,
    targets: Sequence[Any] | None = None,
) -> list[Any]:
    """Return the targets of `replace`: the target of the single arguments, then `targets`."""
    one: Mapping[str, str | None] = {"start": start, "end": end, "replacement": replacement}
    given = {name: value for name, value in one.items() if value is not None}
    return [*([given] if given else []), *(targets or [])]
