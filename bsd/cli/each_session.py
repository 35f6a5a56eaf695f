"""One action on many sessions, one after the other: order, waiting, interruption, progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self

from bsd.actions.context import ActionContext
from bsd.cli.call import LONGEST_WAIT, Call
from bsd.cli.outcomes import Outcomes
from bsd.cli.output import one_line
from bsd.cli.progress import bar
from bsd.cli.stopping import Stopped
from bsd.core.errors import BsdError, Busy, ConfigError, Invalid, NotFound
from bsd.core.layout import Layout, SessionName
from bsd.planning.result import SessionResult, Status

Action = Callable[[ActionContext, SessionName], SessionResult]

_REFRESH_SECONDS = 0.1


def each_session(
    call: Call,
    action: Action,
    names: Sequence[SessionName],
    aim: Status,
    *,
    dry_run: bool = False,
    may_go: bool = False,
) -> Outcomes:
    """Apply an action to each session and return what became of them.

    Busy sessions are tried once more at the end, and waited for: LONGEST_WAIT seconds in all. If
    there is only one session, its error is raised; otherwise an error is the session's result.
    After SIGINT or SIGTERM no further session is begun.

    Args:
        aim: the status of a session that the action changed.
        may_go: a session that its program deletes meanwhile is left alone and is no failure.
    """
    outcomes = Outcomes(aim, dry_run=dry_run, not_begun=len(names))
    if may_go:
        action = _leave_deleted_alone(action)
    begun = time.monotonic()
    with (
        _Display(call, names) as display,
        call.context(
            changes=not dry_run, wait=0.0, ends_early=dry_run, progress=display.progress
        ) as context,
    ):
        try:
            for name in names:
                display.begin(name)
                outcomes.not_begun -= 1
                outcomes.results.append(
                    _attempt(display, action, context, name, only=len(names) == 1)
                )
            if not dry_run:
                _try_busy_again(display, action, context, names, outcomes)
        except Stopped as stopped:
            outcomes.stopped_by = stopped.number
            outcomes.stopped_in = display.current
            outcomes.torn_off = call.stop is not None and call.stop.insisted
    outcomes.seconds = time.monotonic() - begun
    return outcomes


def _leave_deleted_alone(action: Action) -> Action:
    """Return the action with another result for a session that is deleted meanwhile.

    A missing file of bsd's own stays a failure: the session is still there then.
    """

    def act(context: ActionContext, name: SessionName) -> SessionResult:
        gone = SessionResult(str(name), Status.LEFT_ALONE, reason="deleted or renamed meanwhile")
        try:
            result = action(context, name)
        except NotFound:
            if is_there(context.layout, name):
                raise
            return gone
        failed = result.error is NotFound and not is_there(context.layout, name)
        return gone if failed else result

    return act


def is_there(layout: Layout, name: SessionName) -> bool:
    """Return whether a session's file exists; True if that cannot be told."""
    try:
        layout.session_file(name)
    except NotFound:
        return False
    except BsdError:
        return True
    return True


def _attempt(
    display: _Display, action: Action, context: ActionContext, name: SessionName, *, only: bool
) -> SessionResult:
    """Apply the action to one session, and return its error as a result unless it is the only."""
    try:
        result = action(context, name)
    except (ConfigError, Invalid):  # these concern the call, not this session
        raise
    except BsdError as error:
        if only:
            raise
        status = Status.BUSY if isinstance(error, Busy) else Status.FAILED
        result = SessionResult(
            str(name), status, reason=error.message, hint=error.hint, error=type(error)
        )
    display.end(name, result)
    return result


def _try_busy_again(
    display: _Display,
    action: Action,
    context: ActionContext,
    names: Sequence[SessionName],
    outcomes: Outcomes,
) -> None:
    """Wait for the sessions that were busy, and replace their results."""
    end = time.monotonic() + LONGEST_WAIT
    for position, name in enumerate(names):
        first = outcomes.results[position]
        if first.status is not Status.BUSY:
            continue
        display.begin(name)
        # A session that was changed waits for nothing but the trace of bsd's own commit.
        wait = LONGEST_WAIT if first.entries else max(0.0, end - time.monotonic())
        patient = replace(context, budget=replace(context.budget, wait=wait))
        second = _attempt(display, action, patient, name, only=len(names) == 1)
        outcomes.results[position] = _sum_of(outcomes.aim, first, second)


def _sum_of(aim: Status, first: SessionResult, second: SessionResult) -> SessionResult:
    """Return the result of a session that was worked on twice."""
    if not first.entries:
        return second
    return replace(
        second,
        status=aim if second.status is Status.UNCHANGED else second.status,
        entries=first.entries + second.entries,
        values=first.values + second.values,
        bytes_before=first.bytes_before,
        bytes_after=second.bytes_after or first.bytes_after,
        tokens_saved=first.tokens_saved + second.tokens_saved,
        unavailable={**first.unavailable, **second.unavailable},
    )


class _Display:
    """How far a call is: a progress bar in bytes, on stderr if that is a terminal.

    The working thread draws it. A thread of the bar's own could hold the interpreter lock during a
    commit, which must not wait.
    """

    def __init__(self, call: Call, names: Sequence[SessionName]) -> None:
        self.current: SessionName | None = None  # the session that the action is at work on
        self._call = call
        shown = sys.stderr.isatty()
        self._sizes = {name: _size(call.layout, name) if shown else 0 for name in names}
        self._bytes_done = 0  # of the sessions that are finished
        self._drawn = 0.0
        self._progress = bar(sum(self._sizes.values()), disable=not shown)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, name: SessionName) -> None:
        """Note which session comes next; raises Stopped if a stop was asked for."""
        self._check()
        self.current = name

    def progress(self, done: int, of: int | None = None) -> None:  # noqa: ARG002
        """Draw that `done` bytes of the session are read; raises Stopped."""
        self._check()
        if self.current is not None:
            self._draw(self.current, done)

    def end(self, name: SessionName, result: SessionResult) -> None:
        """Note that the action is done with a session."""
        self.current = None
        if result.status is not Status.BUSY:
            self._draw(name, self._sizes[name])
            self._bytes_done += self._sizes[name]

    def _check(self) -> None:
        if self._call.stop is not None:
            self._call.stop.check()

    def _draw(self, name: SessionName, done: int) -> None:
        completed = self._bytes_done + min(done, self._sizes[name])
        self._progress.update(
            self._progress.task_ids[0], completed=completed, description=one_line(str(name), 30)
        )
        if time.monotonic() - self._drawn >= _REFRESH_SECONDS:
            self._progress.refresh()
            self._drawn = time.monotonic()


def _size(layout: Layout, name: SessionName) -> int:
    try:
        return layout.session_file(name).stat().st_size
    except (BsdError, OSError):  # the action says what is wrong
        return 0
