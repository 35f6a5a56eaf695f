"""extract: move all due values of one session into the store (SPEC §3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import structlog

from bsd.actions.context import ActionContext
from bsd.core.config import PER_CALL, PruningConfig
from bsd.core.errors import BsdError, FieldError, Invalid
from bsd.core.layout import SessionName
from bsd.planning.extract import plan_extraction
from bsd.planning.plan import Plan, Report
from bsd.planning.prompt_cache import PromptCache
from bsd.planning.result import SessionResult, Status
from bsd.planning.survey import fingerprint
from bsd.sessions.commit.protocol import CommitOutcome
from bsd.sessions.editor import Worth, left_as
from bsd.sessions.session import OpenSession, Session
from bsd.store.changed_lines import undone_in
from bsd.store.entry_notes import latest
from bsd.store.state import Accounted, Checkpoints, StateDb, guard, state_at
from bsd.transcripts.agents.entry import time_ms
from bsd.transcripts.reader import Transcript

_log = structlog.stdlib.get_logger(module="session")

# Bytes: a smaller session is read again as a whole as fast as its checkpoint could be loaded.
_SMALL = 16 << 10


def extract(
    context: ActionContext,
    session: SessionName,
    *,
    dry_run: bool = False,
    settings: Mapping[str, Any] | None = None,
    turn_over: bool = False,
) -> SessionResult:
    """Extract all due values of a session, including values that an undo has restored.

    Args:
        dry_run: return the result of an extraction, and change no file.
        settings: settings of config.json with other values for this call.
        turn_over: treat the last turn of the session as finished, even if its entries do not show
            it. A session in use is still left alone.

    Returns:
        The result. If the session is busy, left alone or failed, it has that status and a `reason`.

    Raises:
        NotFound: there is no such session.
        LeftAlone: the file is not a session of its program.
        Invalid: a setting has an invalid value.
    """
    extraction = _ExtractionRun(
        context, session, settings, by_hand=True, dry_run=dry_run, turn_over=turn_over
    )
    return extraction.foretell() if dry_run else extraction.run()


class CallWatch(Transcript, Protocol):
    """An open session that detects calls of bsd's tools in the lines that a planner reads."""

    def has_due_calls(self) -> bool:
        """Return True if it has found calls that are due now."""

    def waits_until(self) -> float | None:
        """Return when (epoch seconds) calls become due that wait for the prompt cache, or None."""


def extract_due(  # noqa: PLR0913 - options, each by its name
    context: ActionContext,
    session: SessionName,
    state: StateDb | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    asked: bool = False,
    worth: Worth | None = None,
    goes_on: Callable[[], bool] = lambda: True,
    watch: Callable[[OpenSession], CallWatch] | None = None,
) -> SessionResult | None:
    """Extract all due values of a session, as the daemon does: an undone extraction stays undone.

    Args:
        state: the database of checkpoints. An extraction starts at the position up to which all
            outcomes were final at the last extraction, and reports on the lines after it.
        settings: settings of config.json with other values for this call.
        asked: a person asked for the extraction: no value waits for the prompt cache to get cold.
        worth: returns False for a plan that saves too little and must wait.
        goes_on: called between two plans of a backlog; False ends the extraction.
        watch: wraps the open session to find calls of bsd's tools.

    Returns:
        The result, as of `extract`. None if `watch` has found due calls: the session was not
        changed.

    Raises:
        NotFound, LeftAlone, Invalid: as `extract`.
    """
    extraction = _ExtractionRun(context, session, settings, state=state, asked=asked, watch=watch)
    result = extraction.run(worth, goes_on)
    return None if extraction.found_calls else result


class _ExtractionRun:
    """One extraction of one session, with the checkpoint at which it starts."""

    def __init__(  # noqa: PLR0913 - options, each by its name
        self,
        context: ActionContext,
        session: SessionName,
        settings: Mapping[str, Any] | None,
        *,
        state: StateDb | None = None,
        by_hand: bool = False,
        asked: bool = False,
        dry_run: bool = False,
        turn_over: bool = False,
        watch: Callable[[OpenSession], CallWatch] | None = None,
    ) -> None:
        self.found_calls = False
        self._config = context.config.current
        if settings:
            self._config = PruningConfig.from_json({**self._config.as_json(), **settings})
        Session(context.layout, session).refuse_no_session(unless_stored=False)
        self._context = context
        self._name = session
        self._by_settings = "enabled" in (settings or {})
        self._state = state
        self._fingerprint = fingerprint(self._config) if state else ""
        self._by_hand = by_hand
        by_itself = not (by_hand or asked) or "when" in (settings or {})
        self._waits = by_itself
        self._dry_run = dry_run
        self._turn_over = turn_over
        self._watch = watch
        self._since = Checkpoints()
        # Of the bytes before each checkpoint, once the plan is in effect.
        self._guards: list[bytes] = []
        self._accounts = state or state_at(context.layout.state_db)
        self._accounted: Accounted | None = None
        self._editor = context.editor(session)

    def run(
        self,
        worth: Worth | None = None,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> SessionResult:
        """Extract until no due value is left, or until `goes_on` returns False."""
        notes, result = self._editor.notes, SessionResult(str(self._name), Status.UNCHANGED)
        try:
            for plan, outcome, _ in self._editor.apply_all(self._plan, worth=worth):
                result = result.plus(
                    plan,
                    Status.EXTRACTED,
                    in_effect=outcome is not None,
                    left_as=left_as(plan, outcome),
                )
                if not result.postponed:
                    self._remember(plan, outcome)
                if outcome is not None:
                    notes.extracted(plan)
                    if not plan.complete and not goes_on():
                        result = replace(result, unfinished=True)
                        break
                del plan  # it may take many megabytes: free it before the next plan is made
        except BsdError as error:
            result = result.failed(error)
        notes.concluded("extract", result)
        return result

    def foretell(self) -> SessionResult:
        """Return the result of an extraction now, and change no file."""
        result = SessionResult(str(self._name), Status.UNCHANGED, dry_run=True)
        try:
            with self._context.reader(self._name, to_edit=True) as opened:
                plan, _ = self._plan(opened)
            result = result.plus(plan, Status.EXTRACTED, in_effect=False, left_as=plan.planned_on)
        except BsdError as error:
            result = result.failed(error)
        self._editor.notes.concluded("extract", result)
        return result

    def _plan(self, opened: OpenSession) -> tuple[Plan, None]:
        config, source = self._config, opened.transcript
        if not (self._dry_run or self._by_settings or opened.settings.enabled):
            # bsd was switched off after the call began. A user may have restored everything since
            # then, in a way that does not protect values from extraction.
            config = config.model_copy(update={"enabled": False})
        undone = undone_in(source, opened.history)
        restored = _restored_in(opened) if opened.format.keeps_length else {}
        self._since = Checkpoints()
        if self._state and not (self._by_hand and undone):
            self._since = self._usable(
                self._state.load(self._name, self._fingerprint, source), opened
            )
            hit = "miss" if self._since.first is None else "hit"
            _log.debug(f"Session {self._name}: cache {hit}", session=str(self._name))
        self._accounted = self._accounts.account(self._name)
        watched = self._watch(opened) if self._watch else None
        plan = plan_extraction(
            watched or source,
            opened.format,
            config,
            opened.now,
            opened.store,
            dry_run=self._dry_run,
            tell=self._editor.notes.decision_logger(),
            progress=self._context.progress,
            since=self._since.first,
            further=self._since.further,
            undone=undone,
            restored=restored,
            by_hand=self._by_hand,
            turn_over=self._turn_over,
            waits=self._waits,
            prices=self._context.prices.table(),
            accounted=self._accounted,
        )
        if watched is not None and watched.has_due_calls():
            self.found_calls = True
            return Plan(plan.planned_on, (), Report("extract")), None
        if watched is not None:
            plan = self._with_waiting_calls(plan, watched.waits_until())
        if self._state:
            places = filter(None, (plan.checkpoint, plan.further))
            self._guards = [guard(source, at.offset, plan.edits) for at in places]
        return plan, None

    def _usable(self, stored: Checkpoints, opened: OpenSession) -> Checkpoints:
        """Return the checkpoints unless calls before them must be found again, to be handled now.

        Calls are detected in lines that are read.
        """
        latest = stored.further or stored.first
        if latest is None or not latest.calls_wait:
            return stored
        cache = PromptCache(latest.cache, self._context.prices.table())
        is_warm = (
            cache.warm_until(opened.now, opened.transcript.identity.mtime_ns / 1e9) is not None
        )
        return stored if self._waits and is_warm else Checkpoints()

    def _with_waiting_calls(self, plan: Plan, until: float | None) -> Plan:
        """Return a plan after which the calls that wait are handled once the cache is cold.

        Args:
            until: when (epoch seconds) the calls in the lines that were read become due; None:
                none of them waits.
        """
        latest = self._since.further or self._since.first
        if until is None and latest is not None and latest.calls_wait:
            until = plan.warm_until
        if until is None:
            return plan
        first, further = (
            at and replace(at, calls_wait=True) for at in (plan.checkpoint, plan.further)
        )
        due_at = min(until, plan.due_at or until)
        return replace(plan, checkpoint=first, further=further, due_at=due_at)

    def _remember(self, plan: Plan, outcome: CommitOutcome | None) -> None:
        """Save the checkpoints and the account of the session, once a plan is in effect."""
        if self.found_calls:
            return
        if plan.accounted is not None and plan.accounted != self._accounted:
            self._accounts.note_account(self._name, plan.accounted)
        if self._state is None:
            return
        left = outcome.identity if outcome else plan.planned_on
        places = Checkpoints(plan.checkpoint, plan.further)
        if places.first is None or left is None:
            self._state.forget(self._name)
        elif self._since.first is None and outcome is None and left.size < _SMALL:
            pass
        elif places != self._since or outcome is not None:
            self._state.save(self._name, self._fingerprint, left, self._guards, places)


def _restored_in(opened: OpenSession) -> dict[str, float]:
    """Return when entries were restored, by id, in epoch milliseconds, as the notes tell."""
    times = latest(opened.history.entry_notes.stamps()).items()
    return {entry_id: time for entry_id, at in times if (time := time_ms(at)) is not None}


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check the settings of one extraction.

    Raises:
        Invalid: `errors` names every unknown member and every invalid value.
    """
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
        raise Invalid(text, hint=f"the settings are {', '.join(PER_CALL)}", errors=tuple(errors))
