"""The tasks of the daemon's children (`children.Children.call`): functions of a child.

A child loads only the module of its task: rarer tasks stand in `child_tasks`.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from bsd.core.errors import BsdError, LeftAlone
from bsd.core.layout import SessionName
from bsd.daemon.child import Child, Stopping
from bsd.planning.plan import Plan
from bsd.planning.result import SessionResult
from bsd.sessions.commit.displaced import Recovered

_log = structlog.stdlib.get_logger(module="worker")

LONGEST_WAIT_SECONDS = 3600.0  # that a small saving waits for others, to be worth a whole copy
_SHARE = 32  # a commit saves at least one part in so many of the bytes it has to copy

# A new line with one of these is there because it was asked for: it was restored and its protection
# is over, or it was set free. Inside a JSON string the quotes would stand behind backslashes.
_ASKED_FOR = (b'"_restored"', b'"_extractable"')
_ASK_SECONDS = 0.01  # after which a batch asks again whether others shall go first


class ToLook(NamedTuple):
    """A session to be looked into, among others."""

    name: SessionName
    waited: float  # seconds for which small savings in it have waited for more
    urgent: bool
    asked: bool = False  # by a person: nothing waits for the prompt cache to get cold
    told_idle: float | None = None  # when its program said that it is idle (epoch seconds)


# The result: the answer of `look_into`, or the error that it raised.
Looked = SessionResult | BsdError | None


def look_into_several(child: Child, wanted: list[ToLook]) -> list[Looked]:
    """Look into sessions of a backlog, in order, until others shall go first.

    Those that the answer says nothing of were not touched.
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
) -> SessionResult | None:
    """Extract the due values of a session; None if calls in it were carried out, which changed it.

    Calls come first: an extraction does not look again at outcomes that are final. They are found
    in the lines that the extraction reads, and carried out in the name of the agent.

    Args:
        waited: seconds for which small savings in the session have waited for more.
        urgent: commit however little it saves.
        asked: a person has asked for it: nothing waits for the prompt cache to get cold.
        told_idle: when its program said that it is idle (epoch seconds).

    Raises:
        NotFound, LeftAlone, Busy: as `extract_due`, and as carrying out calls.
    """
    child.check()
    told = False

    def worth(plan: Plan) -> bool:
        nonlocal told
        if not told and _log.isEnabledFor(logging.DEBUG):
            entries = plan.report.reasons.total()
            _log.debug(f"Processing session {name}, {entries} entries to check")
        told = True
        return urgent or is_worth(plan, waited)

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
        with suppress(LeftAlone):  # as the extraction will say
            if calls.carry_out():
                return None
        result = extraction()
    return result


def is_worth(plan: Plan, waited: float) -> bool:
    """Whether a plan is to be committed now.

    Write amplification is bounded: small savings gather until they are worth a whole copy, or the
    oldest has waited long enough (seconds).
    """
    if not plan.edits or waited >= LONGEST_WAIT_SECONDS:
        return True
    # The new file is written as a whole, however small the change.
    if plan.report.bytes_saved * _SHARE >= plan.report.bytes_after:
        return True
    return any(mark in edit.new for edit in plan.edits for mark in _ASKED_FOR)


def recover_session(child: Child, records: list[Path]) -> list[Recovered]:
    """Finish or undo the commits that one session has in flight, since its child has died."""
    return child.context("daemon").recover(records)
