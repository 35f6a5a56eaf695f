"""Frequent tasks of the daemon's children (`children.Children.call`): functions of a child.

A child imports only the module of its task, so rarer tasks are in `child_tasks`.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import NamedTuple

import structlog

from bsd.core.errors import BsdError, LeftAlone
from bsd.core.layout import SessionName
from bsd.daemon.child import Child, Stopping
from bsd.planning.plan import Plan
from bsd.planning.result import SessionResult
from bsd.planning.worth import LONGEST_WAIT_SECONDS, is_worth_writing
from bsd.sessions.commit.displaced import Recovered

_log = structlog.stdlib.get_logger(module="worker")

# A new line with one of these members is committed however small the saving is: it was restored and
# its protection has ended, or it was made extractable. Within a JSON string, the quotes would
# follow backslashes.
_ASKED_FOR = (b'"_restored"', b'"_extractable"')
_ASK_SECONDS = 0.01  # interval at which a batch asks whether other sessions must go first


class ToLook(NamedTuple):
    """A session of a batch; the fields are arguments of `look_into`."""

    name: SessionName
    waited: float
    urgent: bool
    asked: bool = False
    told_idle: float | None = None
    since_unpaid: float = inf


# The result for one session: the answer of `look_into`, or the error that it raised.
Looked = SessionResult | BsdError | None


def look_into_several(child: Child, wanted: list[ToLook]) -> list[Looked]:
    """Process the sessions of a batch in order, until other sessions must go first.

    Returns:
        The results of the first sessions. Sessions without a result were not processed.
    """
    looked: list[Looked] = []
    asked = time.monotonic()
    for one in wanted:
        if looked and time.monotonic() >= asked + _ASK_SECONDS:
            if not child.ask("goes_on", one.name):
                break
            asked = time.monotonic()
        child.begin()
        try:
            result = look_into(
                child,
                one.name,
                waited=one.waited,
                urgent=one.urgent,
                asked=one.asked,
                told_idle=one.told_idle,
                since_unpaid=one.since_unpaid,
            )
            looked.append(result)
        except Stopping:
            break
        except BsdError as problem:
            looked.append(problem)
    return looked


def look_into(
    child: Child,
    name: SessionName,
    *,
    waited: float,
    urgent: bool,
    asked: bool = False,
    told_idle: float | None = None,
    since_unpaid: float = inf,
) -> SessionResult | None:
    """Execute calls of bsd's tools in a session, or extract its due values.

    Calls come first, because an extraction does not read lines with final outcomes again. They are
    detected in the lines that the extraction reads, and executed in the name of the agent.

    Args:
        waited: seconds for which small savings in the session have waited for more savings.
        urgent: commit even the smallest saving.
        asked: a person asked for it: no value waits for the prompt cache to get cold.
        told_idle: when its program reported the session as idle (epoch seconds).
        since_unpaid: seconds since the last commit of the session that saved no bytes.

    Returns:
        The result of the extraction; None if executed calls have changed the session.

    Raises:
        NotFound, LeftAlone, Busy: as `extract_due` and `CallsInSession.carry_out`.
    """
    child.check()
    told = False

    def worth(plan: Plan) -> bool:
        nonlocal told
        if not told and _log.isEnabledFor(logging.DEBUG):
            entries = plan.report.reasons.total()
            _log.debug(f"Processing session {name}, {entries} entries to check")
        told = True
        return asked or is_worth(plan, waited, since_unpaid, urgent=urgent)

    extraction = partial(
        child.extract,
        name,
        asked=asked,
        told_idle=told_idle,
        worth=worth,
        goes_on=lambda: bool(child.ask("goes_on", name)),
    )
    calls = child.calls_in(name, waits=not asked)
    result = extraction(watch=calls.watch if calls else None)
    if result is None and calls:
        with suppress(LeftAlone):  # the extraction reports the same
            if calls.carry_out():
                return None
        result = extraction()
    return result


def is_worth(plan: Plan, waited: float, since_unpaid: float = inf, *, urgent: bool = False) -> bool:
    """Return True if a plan is to be committed now.

    This limits write amplification: small savings wait until they are worth writing the whole file,
    or until the oldest has waited for `LONGEST_WAIT_SECONDS`. Plans that save no bytes wait until
    the last of them is so long ago, urgent or not.

    Args:
        waited: seconds for which the oldest saving has waited.
        since_unpaid: seconds since the last commit of the session that saved no bytes.
        urgent: commit even the smallest saving.
    """
    report = plan.report
    if plan.edits and not report.bytes_saved:
        return since_unpaid >= LONGEST_WAIT_SECONDS
    if urgent or not plan.edits or is_worth_writing(report.bytes_saved, report.bytes_after, waited):
        return True
    return any(mark in edit.new for edit in plan.edits for mark in _ASKED_FOR)


def recover_session(child: Child, records: list[Path]) -> list[Recovered]:
    """Finish or undo the commits of these records, after a child has died."""
    return child.context("daemon").recover(records)
