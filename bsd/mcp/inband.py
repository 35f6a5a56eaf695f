"""Carries out calls of bsd's tools in a transcript once, then removes them from the context.

The requests of all calls of finished turns and their redaction are a single plan, so a crash cannot
separate them. The transcript records the result: the call is gone, its entry is `_redacted`, or (if
content for the model must not change) the entry's `_answered` names the call. The audit log records
it too, since an undo restores the original call.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import structlog

from bsd.actions.context import ActionContext
from bsd.actions.context_tool import plan_change
from bsd.actions.edit import plan_with_reason
from bsd.actions.read_extracted import read_page
from bsd.actions.restore import explain_missing
from bsd.actions.search import search_extracted
from bsd.core.audit import AuditLog
from bsd.core.errors import BsdError, Busy, Forbidden, TemporaryFailure, Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.mcp.calls import (
    ChangeContextCall,
    GetContextCall,
    ParsedCall,
    RestoreCall,
    SearchCall,
    SetExtractableCall,
    read_call,
)
from bsd.mcp.tools import error_answer
from bsd.mcp.transcript_answers import (
    describe_change,
    describe_context,
    describe_error,
    describe_extractable,
    describe_hits,
    describe_restored,
    describe_texts,
    read_answer,
)
from bsd.mcp.transcript_calls import (
    ANSWERED,
    READING_TOOLS,
    OwnCall,
    WatchedTranscript,
)
from bsd.planning.locate import locate
from bsd.planning.plan import Plan, Report, Revised
from bsd.planning.redact import CallToRedact, RedactionKind, plan_redact
from bsd.planning.restore import Restored, plan_restore
from bsd.planning.rules import Policy
from bsd.planning.targets import Refused, read_targets
from bsd.planning.view import context as view_context
from bsd.sessions.notes import Notes
from bsd.sessions.session import OpenSession
from bsd.store.history import TouchedLine
from bsd.store.originals import SessionStore
from bsd.transcripts.agents.entry import EXTRACTABLE, standing_at, text_of
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Line, parse_entry
from bsd.transcripts.spans import paths_of
from bsd.transcripts.splice import SpliceError, edit

_log = structlog.stdlib.get_logger(module="agent")

_ACTOR = "agent"
_ACTION = "in_band"
_REMOTE = "restore_remote"
_CONTEXT = "context"
_MESSAGES_TO_STAY = 10
# The output of bsd's commands if they fail; a shell's result may show the failure in no other way.
_SHELL_ERROR = re.compile(r"^Error: ", re.MULTILINE)
_FAILED = re.compile(r"Error: |Restore failed: ")


@dataclass(frozen=True, slots=True)
class Answered:
    """A call that was handled."""

    call: OwnCall
    action: str
    note: str  # for the model, replaces the result
    failed: bool = False
    only_read: bool = False  # a read-only call; the note is its answer
    entry_id: str | None = None  # the entry to which the call refers
    values: int = 0
    restored: Restored | None = None
    how: str | None = None  # how it left the context: consumed, marked
    # The text for log and audit, which must not quote sessions; None: `note`, which has no quote.
    outcome: str | None = None


class InBand:
    """Finds and carries out the calls in a session.

    Args:
        context: the context of the agent, the actor of the calls.
        waits: calls that are already carried out, and only need to be removed from the agent's
            context, wait while the prompt cache is warm (setting `when`).
    """

    def __init__(self, context: ActionContext, session: SessionName, *, waits: bool = True) -> None:
        self._context = context
        self._name = session
        self._waits = waits

    def watch(self, opened: OpenSession) -> WatchedTranscript:
        """Return the transcript for a planner; it finds calls in lines that the planner reads."""
        policy = Policy.of(opened.settings)
        waits_at = opened.now if self._waits and opened.settings.when != "now" else None
        prices = self._context.prices.table()
        return WatchedTranscript(
            opened.transcript, opened.format, policy, self.due, waits_at, prices
        )

    def due(self, calls: Sequence[OwnCall]) -> list[OwnCall]:
        """Return the calls that must be handled now; usually none."""
        due = [call for call in calls if call.is_due]
        if not due:
            return []
        if why := program_of(self._context.layout, self._name.agent).uncallable:
            # Not a warning: this repeats at every visit while the call is in the session.
            _log.info(f"{due[0].tool}: {self._name}, not carried out", actor=_ACTOR, why=why)
            return []
        audit = AuditLog(self._context.layout.audit_file)
        audited = {
            (str(line.get("callEntry")), str(line.get("call")))
            for line in audit.search(b'"inBand":true')
            if (line.get("agent"), line.get("sessionId")) == (self._name.agent, self._name.session)
        }
        return [call for call in due if _key(call) not in audited]

    def carry_out(self) -> bool:
        """Carry out the calls of finished turns; return True if the session was changed.

        Raises:
            Busy, LeftAlone, NotFound: as for any change of a session.
        """
        editor = self._context.editor(self._name)
        answers = editor.apply(self._plan)
        if editor.operation is None:
            return False
        for answered in answers:
            self._tell(editor.notes, answered)
        return True

    def _plan(self, opened: OpenSession) -> tuple[Plan, list[Answered]]:
        watched = self.watch(opened)
        deque(watched.lines(), maxlen=0)
        calls = watched.due_calls()
        layout = replace(self._context.layout, bound_to=self._name)
        revised = Revised(opened.transcript, opened.format)
        bound = replace(opened, transcript=revised, store=SessionStore(layout, self._name))
        names = names_of(layout, self._name)
        return _Round(self._context, bound, revised, names).answer(calls)

    def _tell(self, notes: Notes, answered: Answered) -> None:
        call, restored = answered.call, answered.restored
        outcome = answered.note if answered.outcome is None else answered.outcome
        if restored is not None:
            notes.restored(restored, redacted=answered.how is not None)
        _log.info(
            f"{call.tool}: {self._name}, entry {call.entry_id}", actor=_ACTOR, outcome=outcome
        )
        AuditLog(self._context.layout.audit_file, self._context.now).record(
            actor=_ACTOR,
            action=answered.action,
            agent=self._name.agent,
            session_id=self._name.session,
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
    """All due calls of a session in a single plan; each call is planned on the result before."""

    def __init__(
        self,
        context: ActionContext,
        opened: OpenSession,
        revised: Revised,
        names: Collection[str],
    ) -> None:
        self._context = context
        self._opened = opened  # its transcript is `revised`
        self._revised = revised
        self._fmt = opened.format
        self._name = opened.name
        self._config = opened.settings
        self._names = names  # the names of the session that an agent may use

    def answer(self, calls: Sequence[OwnCall]) -> tuple[Plan, list[Answered]]:
        """Plan all calls in order; raises only errors that are not caused by a call."""
        answers = [answer for call in calls if (answer := self._answer(call)) is not None]
        redactable = [one for one in answers if self._may_leave(one.call)]
        gone = self._redact(redactable)
        final = [replace(one, how=gone.get(_place(one.call))) for one in answers]
        for one in final:
            nowhere = one.failed and one.call.result_index is None
            if one.how is None or nowhere:  # an error without a result is noted on the entry
                self._mark(one)
            elif one.how == RedactionKind.MARKED and not (one.call.by_shell and one.call.is_done):
                self._finish_result(one)
        return self._revised.plan(_ACTION), final

    def _answer(self, call: OwnCall) -> Answered | None:
        """Carry out the request of a call unless it is done; return None if no work is left."""
        if call.by_shell and call.is_done:
            seen = call.failed or not call.alone or _SHELL_ERROR.search(call.result or "")
            return None if seen or not self._may_leave(call) else Answered(call, "redact", "")
        if call.by_shell and not self._is_for_us(call):
            return None
        if call.is_done:
            keeps_result = call.tool == _CONTEXT or call.tool in READING_TOOLS
            if keeps_result or not self._may_leave(call):
                return None  # its result stays
            return self._redacted(call)
        try:
            session, asked = read_call(call.tool, call.arguments)
            if session is None or session in self._names:
                return self._carry_out(call, asked)
            if (read_answer(call.result or "") or {}).get("busy"):
                return None  # the MCP server was able to reach that session, and has answered
            text = f"{session} is out of reach: a call in a session reaches that session only"
            return _failure(call, Forbidden(text, hint="omit `session`"))
        except (Busy, TemporaryFailure, Unavailable):
            raise  # a problem of the session or the disk, not of the call
        except BsdError as error:
            return _failure(call, error)
        except Exception as error:  # noqa: BLE001 - a call must not be retried for ever
            _log.exception("A call cannot be carried out", session=str(self._name), tool=call.tool)
            problem = {"error": f"internal error: {error!r}"}
            return Answered(call, call.tool, describe_error(call.tool, problem), failed=True)

    def _is_for_us(self, call: OwnCall) -> bool:
        """Return True if a command that found its session in use is readable and names this one."""
        given = call.arguments if call.alone and isinstance(call.arguments, dict) else {}
        return given.get("session") in self._names

    def _redacted(self, call: OwnCall) -> Answered:
        """Return how to redact a call that a command or the MCP server has answered."""
        text = call.result or ""
        answer = read_answer(text)
        if answer is None:  # a text, not JSON; it stays if it reports an error
            failed = _FAILED.match(text) is not None
            return Answered(call, "redact", text if failed else "", failed=failed)
        failed = "error" in answer or answer.get("success") is False
        note = describe_error(call.tool, answer) if failed else ""
        return Answered(call, "redact", note, failed=failed)

    def _carry_out(self, call: OwnCall, asked: ParsedCall) -> Answered:
        """Plan or read what a call requests; raises the errors of planners."""
        source, fmt, opened = self._revised, self._fmt, self._opened
        match asked:
            case RestoreCall(inline=False):
                page = read_page(opened, asked.entry, asked.keys, asked.offset)
                outcome = f"[{len(page.texts)} values read]"
                done = Answered(call, "read_extracted", describe_texts(page), outcome=outcome)
                return replace(done, only_read=True, entry_id=page.entry_id)
            case GetContextCall():
                listing = view_context(self._name, source, fmt)
                outcome = f"[{listing.total_entries} entries listed]"
                done = Answered(call, "get_context", describe_context(listing), outcome=outcome)
                return replace(done, only_read=True)
            case SearchCall():
                hits = search_extracted(
                    self._context, self._name, asked.query, limit=asked.limit, offset=asked.offset
                )
                outcome = f"[{len(hits.results)} places found]"
                done = Answered(call, "search_extracted", describe_hits(hits), outcome=outcome)
                return replace(done, only_read=True)
            case RestoreCall():
                plan, restored = plan_restore(
                    source, fmt, asked.entry, asked.keys, opened.now, opened.store
                )
                restored = explain_missing(self._context.layout, restored)
                done = Answered(call, "restore", describe_restored(restored), restored=restored)
                # If a call that restored no value were removed, the model would repeat it.
                failed = not restored.keys_restored
                done = replace(done, failed=failed, entry_id=restored.entry_id)
            case SetExtractableCall():
                plan, pinned = plan_with_reason(opened, asked.entry, asked.value)
                done = Answered(call, "set_extractable", describe_extractable(pinned))
                done = replace(done, entry_id=pinned.entry_id)
            case ChangeContextCall():
                targets = read_targets(asked.action, asked.targets)
                plan, changed = plan_change(
                    opened, asked.action, targets, include_user=asked.include_user
                )
                done = Answered(call, asked.action, describe_change(changed))
        source.take(plan)
        return replace(done, values=plan.report.values)

    def _stays(self, call: OwnCall) -> bool:
        """Return True if the settings or a signature require that the call stays."""
        remote = call.tool == _REMOTE
        config = self._config
        kept = config.keep_restore_remote_calls if remote else config.keep_purge_control_calls
        return kept or (call.bound and config.prefix_bound == "skip")

    def _may_leave(self, call: OwnCall) -> bool:
        return not self._stays(call) and not (call.gives_text and self._is_missed(call))

    def _is_missed(self, call: OwnCall) -> bool:
        """Return True if the text of a result is not inline here, so that it would be lost."""
        arguments = call.arguments if isinstance(call.arguments, dict) else {}
        answer = read_answer(call.result or "") or {}
        session = answer.get("session", arguments.get("session"))
        named = (answer.get("entry_id"), arguments.get("entry"), arguments.get("entry_id"))
        entry = next(filter(None, map(text_of, named)), None)
        if entry is None or (session is not None and session not in self._names):
            return True
        try:
            located = locate(self._revised, self._fmt, entry)
        except BsdError:  # the entry belongs to another session
            return True
        given = answer.get("texts")
        if isinstance(given, dict):
            paths = list(paths_of(given).values())
        else:
            paths = [value.path for value in self._fmt.values(located.entry)]
        return any(standing_at(located.entry, path) for path in paths)

    def _redact(self, answers: Sequence[Answered]) -> dict[tuple[int, str], str]:
        """Remove calls from the context; return how each was removed, by its place."""
        wishes = {_place(one.call): _wish(one) for one in answers}
        if not wishes:
            return {}
        try:
            calls = list(wishes.values())
            plan, answer = plan_redact(self._revised, self._fmt, calls, self._opened.store)
            self._revised.take(plan)
        except (Busy, TemporaryFailure, Unavailable):
            raise
        except Exception:  # noqa: BLE001 - the requests must still be carried out
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
        """Record the result of a call on its entry, for a call that stays."""
        call = answered.call
        line = self._line(call.index)
        before = (parse_entry(line.raw) or {}).get(ANSWERED)
        notes = {**(before if isinstance(before, dict) else {}), call.key: answered.note or "done"}
        # JSON with escapes, since texts of transcripts contain lone surrogates.
        note = json.dumps(notes).encode()
        with self._unless_odd(call):
            self._put(line, edit(line.raw, put={ANSWERED: note}), call.entry_id)

    @contextmanager
    def _unless_odd(self, call: OwnCall) -> Iterator[None]:
        """Leave a line unchanged if it cannot be edited (a key occurs twice in it)."""
        try:
            yield
        except SpliceError as error:  # the audit log has the result of the call
            where = f"#{call.index}"
            _log.warning(
                "A call cannot be marked", session=str(self._name), line=where, why=str(error)
            )

    def _finish_result(self, answered: Answered) -> None:
        """Correct the error flag of a result with a new text; protect text that was read."""
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
                # The text was written after the turn and must stay until the agent continues.
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
    """Return how to remove a call from the context."""
    call = answered.call
    consumed = call.tool == _REMOTE and not answered.failed
    how = RedactionKind.CONSUMED if consumed else RedactionKind.MARKED
    return CallToRedact(call.name, how, call.call_id or None, call.entry_id, note=answered.note)


def _failure(call: OwnCall, error: BsdError) -> Answered:
    outcome = None
    if isinstance(error, Refused):  # its message quotes the session
        outcome = f"[{call.tool} failed: {', '.join(one.field for one in error.errors)} refused]"
    note = describe_error(call.tool, error_answer(error))
    return Answered(call, call.tool, note, failed=True, outcome=outcome)


def names_of(layout: Layout, name: SessionName) -> set[str]:
    """Return the names that an agent may use for its own session."""
    ids = program_of(layout, name.agent).ids_in(name.session)
    return {*ids, *(f"{name.agent}/{one}" for one in ids)}


def _place(call: OwnCall) -> tuple[int, str]:
    return call.index, call.key


def _key(call: OwnCall) -> tuple[str, str]:
    return call.entry_id or f"#{call.index}", call.key
