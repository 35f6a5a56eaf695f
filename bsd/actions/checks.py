"""verify and diagnose: check that the stored data is complete and that bsd can work (SPEC §7)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.core.errors import BsdError, Forbidden
from bsd.core.layout import SessionName
from bsd.fleet.checks import check_fleet
from bsd.maintenance import verify as verification
from bsd.maintenance.doctor import Check, Level, clock, examine, versions
from bsd.maintenance.file_owners import wrongly_owned
from bsd.maintenance.session_check import Verification
from bsd.planning.restore import plan_remark


@dataclass(frozen=True, slots=True)
class Examined:
    """The checks of `diagnose`, with their results."""

    ok: Annotated[bool, Field(description="True if no check failed; warnings do not count")]
    checks: tuple[Check, ...]


def verify(context: ActionContext, *, repair: bool = False) -> Verification:
    """Check that every extracted value of every session can be restored.

    Args:
        repair: repair the problems that bsd can repair.
    """
    if not repair:
        return verification.verify(context.layout, progress=context.progress)
    return verification.verify(
        context.layout,
        repair=True,
        progress=context.progress,
        remark=partial(remark, context),
    )


def remark(context: ActionContext, session: SessionName) -> tuple[str, ...]:
    """Put back the markers that a program has dropped; return the entries.

    Raises:
        NotFound: there is no such session.
        Busy: the session is in use.
        LeftAlone: bsd does not edit the session.
    """
    return context.editor(session).apply(
        lambda opened: plan_remark(opened.transcript, opened.format, opened.store)
    )


def diagnose(context: ActionContext, *, repair: bool = False) -> Examined:
    """Check this machine and this root for problems; changes nothing.

    Args:
        repair: the user asked to give files that the superuser created in another user's root back
            to that user. The caller does that before this call; if such files are left, the call
            is refused.

    Raises:
        Forbidden: only the superuser can do the repair.
    """
    if repair:
        root = context.layout.root
        if any(uid != os.geteuid() for _, uid in wrongly_owned(root, os.environ)):
            hint = f"`sudo bsd --root {root} doctor --repair`"
            raise Forbidden("only the superuser can change the owner of these files", hint=hint)
    return _examined(_checks(context))


def diagnose_without_root(problem: BsdError) -> Examined:
    """Check this machine only; `problem` says why there is no root, or why settings are invalid."""
    settings = [Check("settings", Level.FAIL, f"{e.field}: {e.message}") for e in problem.errors]
    why = Check("settings", Level.FAIL, problem.message, problem.hint)
    return _examined([versions(), *settings, why])


def _examined(checks: Iterable[Check]) -> Examined:
    found = tuple(checks)
    return Examined(not any(check.level is Level.FAIL for check in found), found)


def _checks(context: ActionContext) -> Iterator[Check]:
    layout = context.layout
    yield from examine(layout)
    yield Check("settings", Level.OK, f"valid; the root is {layout.root}")
    try:
        config = context.config.current
    except BsdError as error:
        yield Check("config", Level.FAIL, error.message, error.hint)
        return
    file = layout.config_file
    state = "valid" if file.exists() else "not there yet; the defaults apply"
    yield Check("config", Level.OK, f"{file} is {state}; enabled: {str(config.enabled).lower()}")
    yield clock(layout)
    yield from _price_list(context)
    yield from check_fleet(context)


def _price_list(context: ActionContext) -> Iterator[Check]:
    """Check the file that the setting `prices_file` names."""
    listed = context.prices.table().price_list
    if listed is None:
        return
    if listed.problem is not None:
        yield Check("prices", Level.WARN, listed.problem, listed.hint)
        return
    message = f"{listed.path} has prices of {len(listed.listed):,} models"
    if listed.skipped:
        message += f"; damaged rows, or rows that contradict themselves: {listed.skipped:,}"
    yield Check("prices", Level.OK, message)
