"""Calls of our tools that stand in a transcript: carried out once, then out of the agent's sight.

All calls of finished turns are one plan: what they ask for, and that they are redacted. So a crash
cannot come between the two, and what stands in the transcript says what is done: the call is gone,
its entry is `_redacted`, or (where nothing may be changed that the model sees) `_answered` names
it. The audit says it as well: after an undo the transcript shows the call as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bsd.actions.answers import as_json
from bsd.actions.context import ActionContext
from bsd.actions.context_tool import plan_change
from bsd.actions.edit import plan_with_reason
from bsd.actions.read_extracted import ReadOut, read_page
from bsd.actions.restore import explain_missing
from bsd.actions.search import ExtractedHits, search_extracted
from bsd.core.audit import AuditLog
from bsd.core.errors import BsdError, Busy, Forbidden, TemporaryFailure, Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.core.logs import get_logger
from bsd.mcp.calls import (
    ChangeContextCall,
    GetContextCall,
    ParsedCall,
    ReadCall,
    RestoreCall,
    SearchCall,
    SetExtractableCall,
    read_call,
)
from bsd.mcp.tools import error_answer
from bsd.mcp.transcript_answers import read_answer, told, told_error
from bsd.mcp.transcript_calls import ANSWERED, READING_TOOLS, OwnCall, own_calls
from bsd.planning.edit import ExtractableSet
from bsd.planning.locate import locate
from bsd.planning.plan import Means, Plan, Report, Revised
from bsd.planning.redact import CallToRedact, RedactionKind, plan_redact
from bsd.planning.restore import Restored, plan_restore
from bsd.planning.rules import Policy
from bsd.planning.targets import ContextChanged, Refused, read_targets
from bsd.planning.view import Context
from bsd.planning.view import context as view_context
from bsd.sessions.notes import Notes
from bsd.sessions.session import Session
from bsd.sessions.surgeon import Remembered
from bsd.store.extracted import SessionStore
from bsd.store.history import TouchedLine
from bsd.store.state import StateDb
from bsd.transcripts.agents.entry import EXTRACTABLE, standing_at, text_of
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Line, TranscriptFile, parse_entry
from bsd.transcripts.spans import paths_of
from bsd.transcripts.splice import SpliceError, edit

_log = get_logger("agent")

_ACTOR = "agent"
_ACTION = "in_band"
_REMOTE = "restore_remote"
_CONTEXT = "context"
_MESSAGES_TO_STAY = 10
# What our commands print when they fail; a shell's result may not say so in any other way.
_SHELL_ERROR = re.compile(r"^Error: ", re.MULTILINE)
_FAILED = re.compile(r"Error: |Restore failed: ")

Found = Mapping[str, ExtractedHits | BsdError]  # answers of searches, by the call's key

# What log and audit call an action that only reads.
_ACTIONS: Mapping[type, str] = {
    ReadCall: "read_extracted",
    GetContextCall: "get_context",
    SearchCall: "search_extracted",
}


@dataclass(frozen=True, slots=True)
class Answered:
    """A call, and what came of it."""

    call: OwnCall
    action: str
    note: str  # for the model, in place of the result
    failed: bool = False
    only_read: bool = False  # it changed nothing: the note is all that it was called for
    entry_id: str | None = None  # of the entry it was about
    values: int = 0
    restored: Restored | None = None
    how: str | None = None  # it left the agent's sight: consumed, marked
    # The note as log and audit have it: they outlive what is said in sessions, and must not quote
    # it. None: the note quotes nothing.
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class InBand:
    """Carries out the calls that stand in a session; `state` knows where new lines begin."""

    context: ActionContext
    state: StateDb | None = None

    def __call__(self, name: SessionName) -> bool:
        """Deal with the calls of finished turns; return whether the session was changed.

        Raises:
            Busy, LeftAlone, NotFound: as for any change of a session.
        """
        due = self._due(name)
        if not due:
            return False
        if why := program_of(self.context.layout, name.agent).uncallable:
            # Not a warning: as long as the call stands there, this is found at every visit.
            _log.info(f"{due[0].tool}: {name}, not carried out", actor=_ACTOR, why=why)
            return False
        audited = self._audited(name)
        due = [call for call in due if _key(call) not in audited]
        if not due:
            return False
        operator = self.context.surgeon().operator
        done, answers = operator.carry_out(name, self._planner(name, due, audited))
        if done.outcome is None:
            return False
        for answered in answers:
            self._tell(name, answered)
        return True

    def _planner(
        self, name: SessionName, due: Sequence[OwnCall], audited: Collection[tuple[str, str]]
    ) -> Callable[[TranscriptFile, TranscriptFormat, SessionStore], tuple[Plan, list[Answered]]]:
        """Return a planner of what these calls ask for, and calls that have come meanwhile."""
        layout, config = self.context.layout, self.context.config
        names = names_of(layout, name)
        found = self._search(name, due, names)

        def plan(
            source: TranscriptFile, fmt: TranscriptFormat, _: SessionStore
        ) -> tuple[Plan, list[Answered]]:
            policy = Policy.of(config.current)
            calls = [call for call in own_calls(source, fmt, policy, None) if call.is_due]
            calls = [call for call in calls if _key(call) not in audited]
            bound = SessionStore(replace(layout, bound_to=name), name)
            means = Means(name, bound, self.context.now(), lambda: config.current)
            planning = _Round(self.context, Revised(source), fmt, means, found, names)
            return planning.answer(calls)

        return plan

    def _search(self, name: SessionName, calls: Sequence[OwnCall], names: Collection[str]) -> Found:
        """Do the searches among these calls, before the session is locked: they take their time."""
        found: dict[str, ExtractedHits | BsdError] = {}
        for call in calls:
            if call.is_done:
                continue
            try:
                asked = _own(call, names)
                if isinstance(asked, SearchCall):
                    found[call.key] = _search(self.context, name, asked)
            except BsdError as error:
                found[call.key] = error
        return found

    def _due(self, name: SessionName) -> list[OwnCall]:
        """Look without a lock: nearly always there is nothing, and that costs only the tail."""
        source, fmt = Session(self.context.layout, name).open()
        with source:
            return self._calls(source, fmt, name)

    def _calls(
        self, source: TranscriptFile, fmt: TranscriptFormat, name: SessionName
    ) -> list[OwnCall]:
        config = self.context.config.current
        since = Remembered(self.state, name, config).recall(source)
        found = own_calls(source, fmt, Policy.of(config), since)
        return [call for call in found if call.is_due]

    def _audited(self, name: SessionName) -> set[tuple[str, str]]:
        """The calls of a session that were dealt with, whatever the transcript says now."""
        audit = AuditLog(self.context.layout.audit_file)
        return {
            (str(line.get("callEntry")), str(line.get("call")))
            for line in audit.search(b'"inBand":true')
            if (line.get("agent"), line.get("sessionId")) == (name.agent, name.session)
        }

    def _tell(self, name: SessionName, answered: Answered) -> None:
        call, restored = answered.call, answered.restored
        outcome = answered.note if answered.outcome is None else answered.outcome
        if restored is not None:
            notes = Notes(self.context.layout, _ACTOR, self.context.now)
            notes.restored(name, restored, committed=True, redacted=answered.how is not None)
        _log.info(f"{call.tool}: {name}, entry {call.entry_id}", actor=_ACTOR, outcome=outcome)
        AuditLog(self.context.layout.audit_file, self.context.now).record(
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


class _Round:
    """All calls of a session that are due, on one plan: each is planned after the last one."""

    def __init__(
        self,
        context: ActionContext,
        revised: Revised,
        fmt: TranscriptFormat,
        means: Means,
        found: Found,
        names: Collection[str],
    ) -> None:
        self._context = context
        self._revised = revised
        self._fmt = fmt
        self._means = means
        self._name = means.name
        self._config = means.config()
        self._found = found
        self._names = names  # of the session, as an agent may call it

    def answer(self, calls: Sequence[OwnCall]) -> tuple[Plan, list[Answered]]:
        """Plan all of them in their order; raises only what is no fault of a call."""
        answers = [answer for call in calls if (answer := self._answer(call)) is not None]
        redactable = [one for one in answers if self._may_leave(one.call)]
        gone = self._redact(redactable)
        final = [replace(one, how=gone.get(_place(one.call))) for one in answers]
        for one in final:
            nowhere = one.failed and one.call.result_index is None
            if one.how is None or nowhere:  # an error wants a place to stand
                self._mark(one)
            elif one.how == RedactionKind.MARKED and not (one.call.by_shell and one.call.is_done):
                self._finish_result(one)
        return self._revised.plan(_ACTION), final

    def _answer(self, call: OwnCall) -> Answered | None:
        """Do what a call asks for, unless it was done; None: there is nothing left to do."""
        if call.by_shell and call.is_done:
            seen = call.failed or not call.alone or _SHELL_ERROR.search(call.result or "")
            return None if seen or not self._may_leave(call) else Answered(call, "redact", "")
        if call.by_shell and not self._is_for_us(call):
            return None
        if call.is_done:
            keeps_result = call.tool == _CONTEXT or call.tool in READING_TOOLS
            if keeps_result or not self._may_leave(call):
                return None  # its result is its answer
            return self._redacted(call)
        try:
            return self._carry_out(call, _own(call, self._names))
        except (Busy, TemporaryFailure, Unavailable):
            raise  # of the session or the disk, not of the call
        except _Elsewhere as error:
            if (read_answer(call.result or "") or {}).get("busy"):
                return None  # a door could have reached it, and has said all there is to say
            return _failure(call, error)
        except BsdError as error:
            return _failure(call, error)
        except Exception as error:  # noqa: BLE001 - a call must not be tried for ever
            _log.exception("A call cannot be carried out", session=str(self._name), tool=call.tool)
            problem = {"error": f"internal error: {error!r}"}
            return Answered(call, call.tool, told_error(call.tool, problem), failed=True)

    def _is_for_us(self, call: OwnCall) -> bool:
        """Whether a command that found its session in use meant this one, and can be understood."""
        given = call.arguments if call.alone and isinstance(call.arguments, dict) else {}
        return given.get("session") in self._names

    def _redacted(self, call: OwnCall) -> Answered:
        """A call that one of our doors has dealt with; what it said was heard in its turn."""
        text = call.result or ""
        answer = read_answer(text)
        if answer is None:  # in words: they may stay, if they say what went wrong
            failed = _FAILED.match(text) is not None
            return Answered(call, "redact", text if failed else "", failed=failed)
        failed = "error" in answer or answer.get("success") is False
        note = told_error(call.tool, answer) if failed else ""
        return Answered(call, "redact", note, failed=failed)

    def _carry_out(self, call: OwnCall, asked: ParsedCall) -> Answered:
        """Plan what a call asks for, or read it; raises what planners raise."""
        if isinstance(asked, RestoreCall) and asked.inline is False:
            asked = ReadCall(asked.entry, asked.keys, asked.offset)
        match asked:
            case RestoreCall() | SetExtractableCall() | ChangeContextCall():
                return self._change(call, asked)
            case _:
                document = as_json(self._read(call, asked))
                return Answered(
                    call,
                    _ACTIONS[type(asked)],
                    told(asked, document),
                    only_read=True,
                    entry_id=document.get("entry_id") or getattr(asked, "entry", None),
                    outcome=_in_numbers(document),
                )

    def _change(
        self, call: OwnCall, asked: RestoreCall | SetExtractableCall | ChangeContextCall
    ) -> Answered:
        source, fmt, means = self._revised, self._fmt, self._means
        restored, entry_id, plan = None, None, None
        answer: Restored | ExtractableSet | ContextChanged
        match asked:
            case RestoreCall():
                plan, answer = plan_restore(
                    source, fmt, asked.entry, asked.keys, means.now, means.stored
                )
                restored = answer = explain_missing(self._context.layout, answer)
                action, entry_id = "restore", answer.entry_id
            case SetExtractableCall():
                plan, answer = plan_with_reason(source, fmt, asked.entry, asked.value, means)
                action, entry_id = "set_extractable", answer.entry_id
            case ChangeContextCall():
                action, targets = asked.action, read_targets(asked.action, asked.targets)
                plan, answer = plan_change(
                    source, fmt, action, targets, means, include_user=asked.include_user
                )
        source.take(plan)
        return Answered(
            call,
            action,
            told(asked, as_json(answer)),
            # Nothing came back: were the call taken out, it would be called again and again.
            failed=restored is not None and not restored.keys_restored,
            entry_id=entry_id or getattr(asked, "entry", None),
            values=plan.report.values,
            restored=restored,
        )

    def _read(
        self, call: OwnCall, asked: ReadCall | GetContextCall | SearchCall
    ) -> ReadOut | Context | ExtractedHits:
        match asked:
            case ReadCall():
                return read_page(
                    self._revised, self._fmt, self._means, asked.entry, asked.keys, asked.offset
                )
            case GetContextCall():
                return view_context(self._name, self._revised, self._fmt)
            case SearchCall():
                found = self._found.get(call.key)
                if isinstance(found, BsdError):
                    raise found
                # A search that was written behind the others is done now.
                return found or _search(self._context, self._name, asked)

    def _stays(self, call: OwnCall) -> bool:
        """Whether settings or the provider want the call to stay as it is."""
        remote = call.tool == _REMOTE
        config = self._config
        kept = config.keep_restore_remote_calls if remote else config.keep_purge_control_calls
        return kept or (call.bound and config.prefix_bound == "skip")

    def _may_leave(self, call: OwnCall) -> bool:
        return not self._stays(call) and not (call.gives_text and self._is_missed(call))

    def _is_missed(self, call: OwnCall) -> bool:
        """Whether what a result gives is not inline here, so that it would vanish with it."""
        arguments = call.arguments if isinstance(call.arguments, dict) else {}
        answer = read_answer(call.result or "") or {}
        session = answer.get("session", arguments.get("session"))
        named = (answer.get("entry_id"), arguments.get("entry"), arguments.get("entry_id"))
        entry = next(filter(None, map(text_of, named)), None)
        if entry is None or (session is not None and session not in self._names):
            return True
        try:
            located = locate(self._revised, self._fmt, entry)
        except BsdError:  # of another session, then
            return True
        given = answer.get("texts")
        if isinstance(given, dict):
            paths = list(paths_of(given).values())
        else:
            paths = [value.path for value in self._fmt.values(located.entry)]
        return any(standing_at(located.entry, path) for path in paths)

    def _redact(self, answers: Sequence[Answered]) -> dict[tuple[int, str], str]:
        """Take calls out of context; returns how, by where they stood."""
        wishes = {_place(one.call): _wish(one) for one in answers}
        if not wishes:
            return {}
        try:
            calls = list(wishes.values())
            plan, answer = plan_redact(self._revised, self._fmt, calls, self._means.stored)
            self._revised.take(plan)
        except (Busy, TemporaryFailure, Unavailable):
            raise
        except Exception:  # noqa: BLE001 - what was asked for is done all the same, and noted
            _log.exception("Calls cannot be redacted", session=str(self._name))
            return {}
        return {
            place: str(found.how)
            for place, wish in wishes.items()
            for found in answer.redacted
            if found.how
            and found.entry_id == wish.entry_id
            and found.call in {wish.call_id, wish.entry_id}
        }

    def _mark(self, answered: Answered) -> None:
        """Note on the entry itself what came of a call that stays as it is."""
        call = answered.call
        line = self._line(call.index)
        before = (parse_entry(line.raw) or {}).get(ANSWERED)
        notes = {**(before if isinstance(before, dict) else {}), call.key: answered.note or "done"}
        # Escapes, since texts of transcripts hold lone surrogates.
        note = json.dumps(notes).encode()
        with self._unless_odd(call):
            self._put(line, edit(line.raw, put={ANSWERED: note}), call.entry_id)

    @contextmanager
    def _unless_odd(self, call: OwnCall) -> Iterator[None]:
        """Let a line stay as it is that cannot be edited (a key stands in it twice)."""
        try:
            yield
        except SpliceError as error:  # the audit says what came of the call
            where = f"#{call.index}"
            _log.warning(
                "A call cannot be marked", session=str(self._name), line=where, why=str(error)
            )

    def _finish_result(self, answered: Answered) -> None:
        """Make the rest of a result fit its new text: its owner knew nothing of that."""
        if answered.call.result_index is None:
            return
        line = self._line(answered.call.result_index)
        entry = parse_entry(line.raw) or {}
        truth = b"true" if answered.failed else b"false"
        said = self._fmt.error_flags(entry)
        flags = {path: truth for path, flag in said if flag is not answered.failed}
        with self._unless_odd(answered.call):
            new = edit(line.raw, replace=flags) if flags else line.raw
            if answered.only_read and EXTRACTABLE not in entry:
                # Written when the turn was over, it shall be there when somebody reads it.
                new = edit(new, put={EXTRACTABLE: b"%d" % _MESSAGES_TO_STAY})
            if new != line.raw:
                self._put(line, new, self._fmt.info(entry).id)

    def _line(self, index: int) -> Line:
        return next(line for line in self._revised.lines() if line.index == index)

    def _put(self, line: Line, new: bytes, entry_id: str | None) -> None:
        self._revised.take(
            Plan(
                self._revised.identity,
                (Edit(line.offset, len(line.raw), new),),
                Report(_ACTION),
                touched=(TouchedLine(line.index, entry_id),),
            )
        )


def _wish(answered: Answered) -> CallToRedact:
    """How a call shall leave the agent's sight."""
    call = answered.call
    consumed = call.tool == _REMOTE and not answered.failed
    how = RedactionKind.CONSUMED if consumed else RedactionKind.MARKED
    return CallToRedact(call.name, how, call.call_id or None, call.entry_id, note=answered.note)


class _Elsewhere(Forbidden):
    """A call means another session than the one in which it stands."""


def _failure(call: OwnCall, error: BsdError) -> Answered:
    outcome = None
    if isinstance(error, Refused):  # it quotes what was searched for, and what is there instead
        outcome = f"[{call.tool} failed: {', '.join(one.field for one in error.errors)} refused]"
    note = told_error(call.tool, error_answer(error))
    return Answered(call, call.tool, note, failed=True, outcome=outcome)


def _in_numbers(answer: Mapping[str, Any]) -> str:
    """How much was found, and nothing of it."""
    for name, what in (
        ("texts", "values read"),
        ("total_entries", "entries listed"),
        ("results", "places found"),
    ):
        if name in answer:
            many = answer[name] if isinstance(answer[name], int) else len(answer[name])
            return f"[{many} {what}]"
    return "[answered]"


def _own(call: OwnCall, names: Collection[str]) -> ParsedCall:
    """Understand a call; raises Invalid, and Forbidden (`_Elsewhere`)."""
    session, asked = read_call(call.tool, call.arguments)
    if session is not None and session not in names:
        raise _Elsewhere(
            f"{session} is out of reach: a call in a session reaches that session only",
            hint="leave `session` out",
        )
    return asked


def _search(context: ActionContext, session: SessionName, asked: SearchCall) -> ExtractedHits:
    return search_extracted(context, session, asked.query, limit=asked.limit, offset=asked.offset)


def names_of(layout: Layout, name: SessionName) -> set[str]:
    """What an agent may call its own session."""
    ids = program_of(layout, name.agent).ids_in(name.session)
    return {*ids, *(f"{name.agent}/{one}" for one in ids)}


def _place(call: OwnCall) -> tuple[int, str]:
    return call.index, call.key


def _key(call: OwnCall) -> tuple[str, str]:
    return call.entry_id or f"#{call.index}", call.key
