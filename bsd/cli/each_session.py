"""One action on many sessions, one after the other: order, waiting, interruption, progress."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from bsd.actions.context import ActionContext
from bsd.cli.call import LONGEST_WAIT, Call
from bsd.cli.outcomes import Outcomes
from bsd.cli.output import one_line
from bsd.cli.progress import Progress
from bsd.cli.stopping import Stopped
from bsd.core.errors import BsdError, Busy, ConfigError, Invalid, NotFound
from bsd.core.layout import Layout, SessionName
from bsd.planning.result import SessionResult, Status
from bsd.transcripts.agents.opening import require_transcript, stat_transcript

Action = Callable[[ActionContext, SessionName], SessionResult]


def each_session(
    call: Call,
    action: Action,
    names: Sequence[SessionName],
    aim: Status,
    *,
    dry_run: bool = False,
    may_go: bool = False,
    waits: bool = True,
    seconds: float = math.inf,
) -> Outcomes:
    """Apply an action to each session, in order, and return the outcomes.

    Busy sessions are tried again at the end, and waited for: LONGEST_WAIT seconds in total. If
    there is only one session, its error is raised; otherwise an error becomes the session's result.
    After SIGINT or SIGTERM no further session is begun.

    Args:
        aim: the status of a session that the action changed.
        may_go: a session that its program deletes meanwhile is left alone and is no failure.
        waits: if False, busy sessions are left for later.
        seconds: no session is begun after this time.
    """
    outcomes = Outcomes(aim, dry_run=dry_run, not_begun=len(names))
    end = time.monotonic() + seconds
    with Progress(least=0) as bar:
        run = _SessionRun(call, _leave_deleted_alone(action) if may_go else action, names, bar)
        with call.context(
            changes=not dry_run, wait=0.0, ends_early=dry_run, progress=run.progress
        ) as context:
            try:
                for name in names:
                    if time.monotonic() >= end:
                        break
                    run.begin(name)
                    outcomes.not_begun -= 1
                    outcomes.results.append(run.attempt(context))
                if waits and not dry_run:
                    _try_busy_again(run, context, outcomes)
            except Stopped as stopped:
                outcomes.stopped_by = stopped.number
                outcomes.stopped_in = run.current
                outcomes.torn_off = call.stop is not None and call.stop.insisted
    return outcomes


def _leave_deleted_alone(action: Action) -> Action:
    """Wrap an action: a session that is deleted meanwhile is left alone instead of failing.

    If a file of bsd's own is missing, that stays a failure, since the session still exists.
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
    """Return whether a session's file exists; True if that cannot be determined."""
    try:
        require_transcript(layout, name)
    except NotFound:
        return False
    except BsdError:
        return True
    return True


class _SessionRun:
    """The sessions of one call, and the progress in bytes, for a bar on a terminal."""

    def __init__(
        self, call: Call, action: Action, names: Sequence[SessionName], bar: Progress
    ) -> None:
        self.names = names
        self.current: SessionName | None = None  # the session to which the action is applied
        self._call, self._action, self._bar = call, action, bar
        shown = sys.stderr.isatty()
        self._sizes = {name: _size(call.layout, name) if shown else 0 for name in names}
        self._total, self._finished = sum(self._sizes.values()), 0  # bytes

    def begin(self, name: SessionName) -> None:
        """Set the current session; raises Stopped if a signal came."""
        self.progress(0)
        self.current = name

    def progress(self, done: int, of: int | None = None) -> None:  # noqa: ARG002
        """Show that `done` bytes of the session are read; raises Stopped if a signal came."""
        if self._call.stop is not None:
            self._call.stop.check()
        if self.current is not None:
            read = self._finished + min(done, self._sizes[self.current])
            self._bar(read, self._total, one_line(str(self.current), 30))

    def attempt(self, context: ActionContext) -> SessionResult:
        """Apply the action to the current session and return its result.

        An error becomes the result, unless there is only one session: then it is raised.
        """
        name = self.current
        assert name is not None  # noqa: S101 - `begin` comes first
        try:
            result = self._action(context, name)
        except (ConfigError, Invalid):  # these concern the call, not this session
            raise
        except BsdError as error:
            if len(self.names) == 1:
                raise
            status = Status.BUSY if isinstance(error, Busy) else Status.FAILED
            result = SessionResult(
                str(name), status, reason=error.message, hint=error.hint, error=type(error)
            )
        if result.status is not Status.BUSY:
            self._finished += self._sizes[name]
        self.current = None
        return result


def _size(layout: Layout, name: SessionName) -> int:
    try:
        return stat_transcript(layout, name).st_size
    except (BsdError, OSError):  # the action reports the problem
        return 0


def _try_busy_again(run: _SessionRun, context: ActionContext, outcomes: Outcomes) -> None:
    """Try the busy sessions again, waiting for them, and replace their results."""
    end = time.monotonic() + LONGEST_WAIT
    for position, name in enumerate(run.names):
        first = outcomes.results[position]
        if first.status is not Status.BUSY:
            continue
        run.begin(name)
        # A changed session is busy only through bsd's own commit, so it gets the full wait.
        wait = LONGEST_WAIT if first.entries else max(0.0, end - time.monotonic())
        second = run.attempt(replace(context, budget=replace(context.budget, wait=wait)))
        outcomes.results[position] = _sum_of(outcomes.aim, first, second)


def _sum_of(aim: Status, first: SessionResult, second: SessionResult) -> SessionResult:
    """Return the result of a session that was processed twice."""
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
