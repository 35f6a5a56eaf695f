"""Many sessions, one after the other: progress, interruption, and what became of each (SPEC §9)."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from bsd.actions.answers import as_json
from bsd.actions.verb import Verb, perform
from bsd.cli.call import LONGEST_WAIT, Call, Stopped, StopRequest, stop_request
from bsd.cli.output import counted, note, one_line, print_json, print_table, say, share, size
from bsd.cli.problem import Problem
from bsd.cli.status import in_flight_line
from bsd.cli.verb_words import MEANINGS
from bsd.cli.verbs import CallHands
from bsd.core.errors import BsdError, Busy, ConfigError, Invalid, NotFound
from bsd.core.layout import SessionName
from bsd.maintenance.disk_use import in_flight_use
from bsd.planning.plan import Rate
from bsd.planning.result import SessionResult, Status

if TYPE_CHECKING:
    from rich.progress import Progress

Worker = Callable[[CallHands, SessionName], SessionResult]

_REFRESH_SECONDS = 0.1
_NAMED_AT_MOST = 3  # sessions that were left alone for one reason


@dataclass
class Outcomes:
    """What became of all sessions of one call."""

    aim: Status  # of a session that something was done to
    dry_run: bool = False
    results: list[SessionResult] = field(default_factory=list)
    seconds: float = 0.0
    stopped_by: int | None = None  # signal
    stopped_in: SessionName | None = None
    torn_off: bool = False  # a second signal came: the next call tidies up
    not_begun: int = 0

    def count(self, *statuses: Status) -> int:
        return sum(result.status in statuses for result in self.results)

    @property
    def bytes_saved(self) -> int:
        return sum(result.bytes_before - result.bytes_after for result in self.results)

    @property
    def reasons(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for result in self.results:
            total.update(result.reasons)
        return total

    @property
    def exit_code(self) -> int:
        """0 if all is well, 4 if some were only busy, 128 + n if stopped.

        1 if something that was to come back did not. If sessions failed, the code of their errors
        (69 for a full disk), 1 if these differ.
        """
        if self.stopped_by is not None:
            return 128 + self.stopped_by
        failed = {code_of(one) for one in self.results if one.status is Status.FAILED}
        if failed:
            return failed.pop() if len(failed) == 1 else 1
        if self.count(Status.BUSY):
            return Busy.exit_code
        return 1 if any(result.unavailable for result in self.results) else 0

    def as_json(self) -> dict[str, Any]:
        return {
            "dry_run": self.dry_run,
            "sessions": [as_json(result) for result in self.results],
            "totals": {
                "sessions": len(self.results),
                **{status.value: self.count(status) for status in Status},
                "entries": sum(result.entries for result in self.results),
                "values": sum(result.values for result in self.results),
                "bytes_before": sum(result.bytes_before for result in self.results),
                "bytes_after": sum(result.bytes_after for result in self.results),
                "bytes_saved": self.bytes_saved,
                "tokens_saved": sum(result.tokens_saved for result in self.results),
                "reasons": dict(sorted(self.reasons.items())),
            },
            "interrupted": self.stopped_by is not None,
            "interrupted_session": str(self.stopped_in) if self.stopped_in else None,
            "not_begun": self.not_begun,
        }


def code_of(failed: SessionResult) -> int:
    """The exit code for what went wrong with one session."""
    return failed.error.exit_code if failed.error else 1


def each_session(
    call: Call,
    verb: Verb[Any, SessionResult],
    asked: Any,
    names: Sequence[SessionName],
    aim: Status,
    *,
    may_go: bool = False,
) -> Outcomes:
    """Do a verb to each session. Busy ones are tried again at the end, 30 s at most in all.

    What goes wrong with one of several sessions is its result; with a single one it is raised.
    Nothing is wrong if one goes meanwhile that `may_go`: gateways reset and delete them.
    """

    def work(hands: CallHands, name: SessionName) -> SessionResult:
        return perform(verb, hands, name, asked)

    begun = time.monotonic()
    outcomes = Outcomes(aim, dry_run=bool(getattr(asked, "dry_run", False)))
    with stop_request() as request, _ProgressBar(call, names) as bar:
        does = _let_go(call, work) if may_go else work
        run = _EachSession(call, names, does, outcomes, request, bar)
        try:
            run.first_round()
            if not outcomes.dry_run:
                run.second_round()
        except Stopped as stopped:
            outcomes.stopped_by = stopped.number
            outcomes.torn_off = request.insisted
            outcomes.stopped_in = run.at_work_on
            outcomes.not_begun = run.not_begun
    outcomes.seconds = time.monotonic() - begun
    return outcomes


def _let_go(call: Call, work: Worker) -> Worker:
    """A session that is gone is left alone; a file of bsd's own that is missing is a failure."""

    def let_go(hands: CallHands, name: SessionName) -> SessionResult:
        gone = SessionResult(str(name), Status.LEFT_ALONE, reason="deleted or renamed meanwhile")
        try:
            result = work(hands, name)
        except NotFound:
            if _is_there(call, name):
                raise
            return gone
        return gone if result.error is NotFound and not _is_there(call, name) else result

    return let_go


def _is_there(call: Call, name: SessionName) -> bool:
    try:
        call.layout.session_file(name)
    except NotFound:
        return False
    except BsdError:  # an error is no absence
        return True
    return True


class _EachSession(CallHands):
    """Hands that go from session to session, and show how far they are."""

    def __init__(
        self,
        call: Call,
        names: Sequence[SessionName],
        work: Worker,
        outcomes: Outcomes,
        request: StopRequest,
        bar: _ProgressBar,
    ) -> None:
        super().__init__(call, request)
        self.at_work_on: SessionName | None = None
        self.not_begun = len(names)
        self._names, self._work, self._outcomes = names, work, outcomes
        self._stop, self._bar = request, bar
        self._who: Any = None  # does it, in this round

    def surgeon(self, _: SessionName, *, writes: bool) -> Any:  # noqa: ARG002 - all are asked the same
        return self._who

    def progressed(self, done: int, of: int | None = None) -> None:  # noqa: ARG002 - the bar knows
        """Stop if somebody has asked for that; draw."""
        self._stop.check()
        if self.at_work_on is not None:
            self._bar.show(self.at_work_on, done)

    def _hire(self, wait: float) -> None:
        call = self.call
        dry_run = self._outcomes.dry_run
        self._who = call.queries() if dry_run else call.surgeon(wait=wait, sleep=self._stop.sleep)

    def first_round(self) -> None:
        """Do all of them, and wait for none."""
        self._hire(0.0)
        for name in self._names:
            self._stop.check()
            self.not_begun -= 1
            self._outcomes.results.append(self._one(name))

    def second_round(self) -> None:
        """Wait for those that were busy."""
        end, results = time.monotonic() + LONGEST_WAIT, self._outcomes.results
        for position, name in enumerate(self._names):
            before = results[position]
            if before.status is Status.BUSY:
                self._stop.check()
                # Who has got somewhere waits for nothing but the trace of his own writing.
                wait = LONGEST_WAIT if before.entries else max(0.0, end - time.monotonic())
                self._hire(wait)
                results[position] = _together(self._outcomes.aim, before, self._one(name))

    def _one(self, name: SessionName) -> SessionResult:
        self.at_work_on = name
        try:
            result = self._work(self, name)
        except (ConfigError, Invalid):  # concerns the call, not this session
            raise
        except BsdError as error:
            if len(self._names) == 1:
                raise
            status = Status.BUSY if isinstance(error, Busy) else Status.FAILED
            result = SessionResult(
                str(name), status, reason=error.message, hint=error.hint, error=type(error)
            )
        self.at_work_on = None
        self._bar.finish(name, result)
        return result


def _together(aim: Status, first: SessionResult, second: SessionResult) -> SessionResult:
    """What became of a session that was worked on twice."""
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


class _ProgressBar:
    """A progress bar on stderr, if that is a terminal and there is enough to do.

    It is drawn by whoever works, never by a thread of its own: a commit must not wait for one.
    """

    def __init__(self, call: Call, names: Sequence[SessionName]) -> None:
        self._progress: Progress | None = None
        self._sizes: dict[SessionName, int] = {}
        self._before = 0  # bytes of the sessions that are done
        self._drawn = 0.0
        if sys.stderr.isatty():
            self._sizes = {name: _size(call, name) for name in names}

    def __enter__(self) -> Self:
        if self._sizes:
            self._progress = _bar_of(sum(self._sizes.values()))
            self._progress.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, name: SessionName, done: int) -> None:
        if self._progress is None:
            return
        completed = self._before + min(done, self._sizes[name])
        task = self._progress.task_ids[0]
        self._progress.update(task, completed=completed, description=one_line(str(name), 30))
        if time.monotonic() - self._drawn >= _REFRESH_SECONDS:
            self._progress.refresh()
            self._drawn = time.monotonic()

    def finish(self, name: SessionName, result: SessionResult) -> None:
        if self._progress is not None and result.status is not Status.BUSY:
            self.show(name, self._sizes[name])
            self._before += self._sizes[name]


def _bar_of(total: int) -> Progress:
    from rich import console, progress  # it takes longer to load than few sessions to extract

    bar = progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(compact=True),
        console=console.Console(stderr=True, markup=False, highlight=False),
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        transient=True,
    )
    bar.add_task("", total=total)
    return bar


def _size(call: Call, name: SessionName) -> int:
    try:
        return call.layout.session_file(name).stat().st_size
    except (BsdError, OSError):  # whoever works on it will say what is wrong
        return 0


# --- what people are told: a line for each that matters, totals, what to do ---


_QUIET = (Status.UNCHANGED, Status.LEFT_ALONE)


def report(call: Call, outcomes: Outcomes, *, named: bool) -> None:
    """Print what became of the sessions; `named`: the user named them, each shall be listed."""
    if call.json:
        print_json(outcomes.as_json())
    else:
        _table(outcomes, [r for r in outcomes.results if named or r.status not in _QUIET])
        _totals(outcomes)
        _reasons(outcomes)
    _troubles(outcomes, named=named)
    if outcomes.stopped_by is not None:
        _stopped(outcomes)
    elif outcomes.dry_run and not call.json:
        say("\nThis was a dry run: nothing was changed.")
    elif not call.json:
        _in_flight(call)


def _in_flight(call: Call) -> None:
    """Say what still lies there of the sessions as they were: perhaps nobody comes after us."""
    found = in_flight_use(call.layout)
    if found.files:
        say(in_flight_line(found.as_json(), time.time()))


def _table(outcomes: Outcomes, shown: list[SessionResult]) -> None:
    columns = ["SESSION", "", "ENTRIES", "VALUES", "BEFORE", "AFTER", "SAVED", "TOKENS"]
    if outcomes.aim is not Status.EXTRACTED:
        columns = columns[:6]  # nothing is saved by giving back
    rows = [_row(result)[: len(columns)] for result in shown]
    if rows:
        print_table(columns, rows, right=columns[2:])
        say()


def _row(result: SessionResult) -> list[str]:
    saved = result.bytes_before - result.bytes_after
    numbers = [
        f"{result.entries:,}",
        f"{result.values:,}",
        size(result.bytes_before),
        size(result.bytes_after),
        f"{size(saved)} ({share(saved, result.bytes_before)})",
        f"~{result.tokens_saved:,}",
    ]
    status = result.status.value.replace("_", " ")
    return [result.session, status, *(numbers if result.entries else [""] * len(numbers))]


def _totals(outcomes: Outcomes) -> None:
    values = sum(result.values for result in outcomes.results)
    entries = sum(result.entries for result in outcomes.results)
    touched = sum(result.entries > 0 for result in outcomes.results)
    would = "would be " if outcomes.dry_run else ""
    where = f"of {counted(entries, 'entry')} in {counted(touched, 'session')}"
    text = f"{counted(values, 'value')} {where} {would}{outcomes.aim.value}"
    if outcomes.aim is Status.EXTRACTED:
        tokens = sum(result.tokens_saved for result in outcomes.results)
        before = sum(result.bytes_before for result in outcomes.results)
        percent = share(outcomes.bytes_saved, before)
        text += f": {size(outcomes.bytes_saved)} ({percent}) and ~{tokens:,} tokens saved"
    if touched:
        say(text)
        if outcomes.aim is Status.EXTRACTED:
            say(_estimate(outcomes.results))
    if count := outcomes.count(Status.UNCHANGED):
        say(f"nothing to do in {counted(count, 'session')}")
    if not outcomes.results and outcomes.stopped_by is None:
        say("there are no sessions")
    if outcomes.reasons["disabled"]:
        note("extraction is switched off; `bsd config set enabled true` switches it on")


def _estimate(results: list[SessionResult]) -> str:
    """How the tokens were estimated, and what they do not count."""
    rates = [result.rate for result in results if result.entries]
    measured = sorted(rate.characters for rate in rates if rate.measured)
    if not measured:
        how = f"{Rate().characters:g} characters each, since no session says what it was charged"
    else:
        low, high = f"{measured[0]:.1f}", f"{measured[-1]:.1f}"
        how = low if low == high else f"{low} to {high}"
        how += " characters each, by what the sessions were charged"
        if others := len(rates) - len(measured):
            how += f" ({Rate().characters:g} in {others} that do not say)"
    none = "what is not sent (copies, what was compacted), pictures and PDFs count none"
    return f"tokens: {how}; {none}"


def _reasons(outcomes: Outcomes) -> None:
    stay = {reason: count for reason, count in outcomes.reasons.items() if reason != "extract"}
    if stay:
        say("\nEntries that stay whole:")
        ordered = sorted(stay.items(), key=lambda item: (-item[1], item[0]))
        rows = [(f"{count:,}", reason, MEANINGS.get(reason, "")) for reason, count in ordered]
        print_table(("ENTRIES", "REASON", "MEANING"), rows, right=("ENTRIES",))


def _troubles(outcomes: Outcomes, *, named: bool) -> None:
    alone: dict[str, list[str]] = {}
    for result in outcomes.results:
        reason = result.reason or "for no known reason"
        match result.status:
            case Status.FAILED:
                Problem(f"{result.session}: {reason}", code_of(result), result.hint).show()
            case Status.BUSY:
                Problem(f"{result.session} is busy: {reason}", Busy.exit_code, result.hint).show()
            case Status.LEFT_ALONE if named:
                note(f"{result.session} was left alone: {reason}{_try(result)}")
            case Status.LEFT_ALONE:
                alone.setdefault(reason + _try(result), []).append(str(result.session))
        for warning in result.warnings:
            note(f"{result.session}: {warning}")
        for key, why in result.unavailable.items():
            note(f"{result.session}: {key} stays a placeholder: {why}")
    for reason, names in sorted(alone.items()):
        more = ", …" if len(names) > _NAMED_AT_MOST else ""
        shown = f"{', '.join(sorted(names)[:_NAMED_AT_MOST])}{more}"
        note(f"{counted(len(names), 'session')} left alone ({shown}): {reason}")


def _try(result: SessionResult) -> str:
    return f" (try: {result.hint})" if result.hint else ""


def _stopped(outcomes: Outcomes) -> None:
    done = len(outcomes.results)
    saves = outcomes.aim is Status.EXTRACTED and not outcomes.dry_run
    saved = f", {size(outcomes.bytes_saved)} saved" if saves else ""
    note(f"Stopped: {counted(done, 'session')} done{saved}, {outcomes.not_begun} not begun")
    if outcomes.stopped_in is not None and outcomes.torn_off:
        note(f"{outcomes.stopped_in} was cut off; the next call finishes or undoes what it began")
    elif outcomes.stopped_in is not None:
        note(f"{outcomes.stopped_in} was left as it was")
