"""Calls of our tools that stand in a transcript: carried out once, then out of the agent's sight.

All calls of finished turns are one plan: what they ask for, and that they are redacted. So a crash
cannot come between the two, and what stands in the transcript says what is done: the call is gone,
its entry is `_redacted`, or (where nothing may be changed that the model sees) `_answered` names
it. The audit says it as well: after an undo the transcript shows the call as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bsd.agents.dialect import Format
from bsd.agents.owners import owner_of
from bsd.doors.agent.own_calls import OwnCall, own_calls
from bsd.doors.agent.rounds import Answered, Round, names_of, search_for
from bsd.foundation.audit import AuditLog
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger
from bsd.foundation.pruning_config import ConfigService
from bsd.session.notes import Notes
from bsd.session.remember import Remembered
from bsd.session.session import Session
from bsd.session.surgeon import Surgeon
from bsd.store.extracted import SessionStore
from bsd.store.state import StateDb
from bsd.surgery.plan import Plan
from bsd.surgery.rules import Policy
from bsd.text.reader import TranscriptFile

_log = get_logger("agent")

_ACTOR = "agent"


@dataclass(frozen=True, slots=True)
class InBand:
    """Looks into a session at rest; `surgeon` does it, `state` knows where new lines begin."""

    layout: Layout
    config: ConfigService
    surgeon: Surgeon
    state: StateDb | None = None
    clock: Callable[[], float] = time.time

    def __call__(self, name: SessionName) -> bool:
        """Deal with the calls of finished turns; whether the session was changed.

        Raises Busy, LeftAlone, NotFound, and what a commit raises.
        """
        due = self._due(name)
        if not due:
            return False
        if why := owner_of(self.layout, name.agent).uncallable:
            # Not a warning: as long as the call stands there, this is found at every visit.
            _log.info(f"{due[0].tool}: {name}, not carried out", actor=_ACTOR, why=why)
            return False
        audited = self._audited(name)
        due = [call for call in due if _key(call) not in audited]
        if not due:
            return False
        found = search_for(self.layout, name, due)

        def plan(
            source: TranscriptFile, fmt: Format, store: SessionStore
        ) -> tuple[Plan, list[Answered]]:
            policy = Policy.of(self.config.current)
            calls = [call for call in own_calls(source, fmt, policy, None) if call.is_due]
            calls = [call for call in calls if _key(call) not in audited]
            now, names = self.clock(), names_of(self.layout, name)
            calls_due = Round(source, fmt, store, self.config.current, now, found, names)
            return calls_due.answer(calls)

        done, answers = self.surgeon.operator.carry_out(name, plan)
        if done.outcome is None:
            return False
        for answered in answers:
            self._tell(name, answered)
        return True

    def _due(self, name: SessionName) -> list[OwnCall]:
        """Look without a lock: nearly always there is nothing, and that costs only the tail."""
        source, fmt = Session(self.layout, name).open()
        with source:
            return self._calls(source, fmt, name)

    def _calls(self, source: TranscriptFile, fmt: Format, name: SessionName) -> list[OwnCall]:
        config = self.config.current
        since = Remembered(self.state, name, config).recall(source)
        found = own_calls(source, fmt, Policy.of(config), since)
        return [call for call in found if call.is_due]

    def _audited(self, name: SessionName) -> set[tuple[str, str]]:
        """The calls of a session that were dealt with, whatever the transcript says now."""
        audit = AuditLog(self.layout.audit_file)
        return {
            (str(line.get("callEntry")), str(line.get("call")))
            for line in audit.search(b'"inBand":true')
            if (line.get("agent"), line.get("sessionId")) == (name.agent, name.session)
        }

    def _tell(self, name: SessionName, answered: Answered) -> None:
        call, restored = answered.call, answered.restored
        outcome = answered.note if answered.outcome is None else answered.outcome
        if restored is not None:
            notes = Notes(self.layout, _ACTOR, self.clock)
            notes.restored(name, restored, committed=True, redacted=answered.how is not None)
        _log.info(f"{call.tool}: {name}, entry {call.entry_id}", actor=_ACTOR, outcome=outcome)
        AuditLog(self.layout.audit_file, self.clock).record(
            actor=_ACTOR,
            action=answered.action,
            agent=name.agent,
            session_id=name.session,
            tool=call.name,
            call_entry=call.entry_id or f"#{call.index}",
            call=call.key,
            in_band=True,
            entry_id=answered.entry_id,
            values=answered.values,
            failed=answered.failed,
            outcome=outcome,
            redacted=answered.how,
        )


def _key(call: OwnCall) -> tuple[str, str]:
    return call.entry_id or f"#{call.index}", call.key
