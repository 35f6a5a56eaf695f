"""extract: all that is due in one session leaves it, for the store (SPEC §3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bsd.actions.context import ActionContext
from bsd.core.config import PER_CALL, PruningConfig
from bsd.core.errors import FieldError, Invalid
from bsd.core.layout import SessionName
from bsd.planning.extract import plan_extraction
from bsd.planning.result import SessionResult, Status, Tally
from bsd.sessions.session import Session
from bsd.store.changed_lines import undone_in


def extract(
    context: ActionContext,
    session: SessionName,
    *,
    dry_run: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> SessionResult:
    """Extract all that is due in a session, values that an undo had brought back included.

    Args:
        dry_run: say what would be done, and change nothing.
        settings: settings of config.json that have other values for this call.

    Returns:
        The result; a session that is busy, left alone or failed has that status, and a `reason`.

    Raises:
        NotFound: there is no such session.
        LeftAlone: the file is no session of its program.
        Invalid: a setting has no valid value.
    """
    if dry_run:
        return _foretell(context, session, settings)
    surgeon = context.surgeon()
    return surgeon.extract(session, by_hand=True, overrides=settings, progress=context.progress)


def _foretell(
    context: ActionContext, session: SessionName, settings: Mapping[str, Any] | None
) -> SessionResult:
    surgeon = context.surgeon()
    config = surgeon.settings(settings)
    opened = Session(context.layout, session)
    opened.refuse_no_session(unless_stored=False)
    tally = Tally(session, Status.EXTRACTED, dry_run=True)
    with tally.judging():
        source, fmt = opened.open()
        with source:
            plan = plan_extraction(
                source,
                fmt,
                config,
                surgeon.clock(),
                opened.store,
                dry_run=True,
                tell=surgeon.notes.teller(session),
                progress=context.progress,
                undone=undone_in(source, opened.history),
                by_hand=True,
            )
        tally.add(plan.report, committed=False)
        tally.leave(plan.planned_on, due_at=plan.due_at)
    surgeon.notes.concluded("extract", session, tally)
    return tally.result()


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise Invalid that names every member that is no setting of one extraction, or is invalid."""
    errors = [
        FieldError(name, f"{name} is not a setting of one extraction")
        for name in settings
        if name not in PER_CALL
    ]
    try:
        PruningConfig.from_json({name: settings[name] for name in PER_CALL if name in settings})
    except Invalid as problem:
        errors += problem.errors
    if errors:
        text = "; ".join(one.message for one in errors)
        raise Invalid(text, hint=f"known are {', '.join(PER_CALL)}", errors=tuple(errors))
