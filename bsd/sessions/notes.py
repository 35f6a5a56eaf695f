"""Writes log records (SPEC §3 "Log") and audit records about changes of a session."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

from bsd.core.audit import RESTORE_FAILED, AuditLog
from bsd.core.errors import BsdError, Busy, LeftAlone, NotFound
from bsd.core.formatting import NEVER
from bsd.core.layout import Layout, SessionName
from bsd.planning.locate import name_of
from bsd.planning.timing_words import reason_words
from bsd.store.originals import Missing

if TYPE_CHECKING:
    from bsd.planning.plan import Plan
    from bsd.planning.restore import Restored
    from bsd.planning.result import SessionResult
    from bsd.planning.survey import Judged
    from bsd.planning.undo import Undone

_log = structlog.stdlib.get_logger(module="extraction")

_OF_ONE_ENTRY = {"restore", "edit", "set_extractable"}
_TOLD_ELSEWHERE = {"in_band"}  # each in-band call is recorded separately


class Notes:
    """Writes log and audit records about one session for one actor."""

    def __init__(
        self, layout: Layout, name: SessionName, actor: str, clock: Callable[[], float]
    ) -> None:
        self._layout = layout
        self._name = name
        self._actor = actor
        self._clock = clock
        self._audit = AuditLog(layout.audit_file, clock)

    def decision_logger(self) -> Callable[[Judged], None] | None:
        """Return a function that logs decisions about entries; None if the log level is off."""
        if not _log.isEnabledFor(logging.DEBUG):
            return None

        def tell(judged: Judged) -> None:
            reason = judged.decision.reason
            verdict = "EXTRACT" if reason == "extract" else f"keep ({reason})"
            age_s = judged.age_s(self._clock())
            age = "of unknown age" if age_s is None else f"{age_s / 3600:.0f}h old"
            _log.debug(
                f"Entry {judged.index}: {judged.kind}, {age} → {verdict}", session=str(self._name)
            )

        return tell

    def extracted(self, plan: Plan) -> None:
        """Log the values that left the session."""
        session_log = _log.bind(session=str(self._name))
        for keep in plan.keeps:
            session_log.debug(
                "Extracted",
                entry_id=keep.entry_id,
                keys_extracted=list(keep.keys),
                sizes_bytes=keep.sizes_bytes,
            )
        for leak in plan.report.leaked:
            session_log.warning(
                "A placeholder stands in the arguments of a later tool call",
                line=leak.index,
                tool=leak.tool,
                mentions=leak.mentions,
            )

    def restored(self, answer: Restored, *, redacted: bool = False) -> None:
        """Log the values that came back to an entry; record values that should have and did not."""
        session_log = _log.bind(session=str(self._name))
        # What a user has forgotten, or the settings have deleted, is no failure.
        if answer.missing not in {None, Missing.FORGOTTEN} and answer.expired is None:
            why = str(answer.missing)
            self._record(RESTORE_FAILED, entry_id=answer.entry_id, why=why)
        if answer.missing is Missing.GONE:
            session_log.warning(f"Missing extracted file for {answer.entry_id}")
        elif answer.missing is Missing.CORRUPT:
            path = self._layout.store_dir(self._name) / f"{answer.ref}.json"
            session_log.error(f"Corrupted extracted file {path}")
            self._record("corrupted_extracted_file", entry_id=answer.entry_id, path=str(path))
        if answer.keys_restored:
            session_log.debug(
                "Restored",
                entry_id=answer.entry_id,
                keys_restored=list(answer.keys_restored),
                sizes_bytes=dict(answer.sizes_bytes),
                redacted=redacted,
            )

    def changed(self, plan: Plan) -> None:
        """Record a plan that is in effect."""
        report, action = plan.report, plan.report.action
        if action in _TOLD_ELSEWHERE:
            return
        if action in _OF_ONE_ENTRY:
            entry = plan.touched[0].entry_id
            _log.info(
                f"{action}: {self._name}, entry {entry}", actor=self._actor, values=report.values
            )
            self._record(
                action,
                entry_id=entry,
                values=report.values,
                bytes_before=report.bytes_before,
                bytes_after=report.bytes_after,
            )
            return
        entries = dict.fromkeys(name_of(one.entry_id, one.index) for one in plan.touched)
        counts = {
            "values": report.values,
            "bytes_saved": report.bytes_saved,
            "tokens_saved": report.tokens_saved,
        }
        _log.info(f"{action}: {self._name}, entries {report.entries}", actor=self._actor, **counts)
        self._record(action, entry_ids=list(entries), entries=report.entries, **counts)

    def undone(self, plan: Plan, answer: Undone) -> None:
        """Record an operation that was undone, or partly undone."""
        report = plan.report
        _log.info(f"undo: {self._name}, {answer.of}", actor=self._actor, entries=report.entries)
        self._record(
            "undo",
            operation=answer.of.number,
            undone=answer.of.act.action,
            entries=report.entries,
            bytes_before=report.bytes_before,
            bytes_after=report.bytes_after,
        )

    def concluded(self, action: str, result: SessionResult) -> None:
        """Record the end of a run on the session, complete or early."""
        if result.entries and not result.dry_run:
            counts = {"values": result.values, "bytes_saved": result.bytes_saved}
            entries, cut = result.entries, _cut(result)
            text = f"{action}: {self._name}, entries {entries}"
            _log.info(text, actor=self._actor, **counts, **cut)
            if result.tokens_saved:
                counts["tokens_saved"] = result.tokens_saved
            self._record(action, entries=entries, **counts)
        if result.error is not None:
            # The caller gets the error; gateways reset and delete sessions at any time.
            expected = issubclass(result.error, LeftAlone | Busy | NotFound)
            level = _log.debug if expected else _log.warning
            level(f"{action}: {self._name}: {result.reason}", actor=self._actor)

    def failed(self, plan: Plan, error: BsdError) -> None:
        """Log a commit that ended in an error; the session is as it was before.

        A session that is left alone is no failure: the caller gets the reason in the answer.
        """
        if not isinstance(error, LeftAlone) and plan.report.action == "extract" and plan.keeps:
            _log.error(
                f"Extraction failed for {self._name}/{plan.keeps[0].entry_id}, rolled back",
                session=str(self._name),
                entries=len(plan.keeps),
                error=error.message,
            )

    def _record(self, action: str, **what: object) -> None:
        name = self._name
        self._audit.record(
            actor=self._actor, action=action, agent=name.agent, session_id=name.session, **what
        )


def _cut(result: SessionResult) -> dict[str, Any]:
    """Return why values in context left a session, and the cost, as fields of a log record."""
    timing = result.timing
    if timing is None or timing.waits:
        return {}
    figures = {"tokens_rewritten": result.tokens_rewritten, "cost_usd": result.cost_now}
    known = {name: figure for name, figure in figures.items() if figure}
    return {"because": reason_words(timing), **known}


def expired_before(layout: Layout) -> str:
    """Return the time before which extracted content may have expired: ISO 8601, or empty.

    The time comes from the audit log, since the setting may have been different then.
    """
    with suppress(BsdError):  # without the log, no content counts as expired
        runs = AuditLog(layout.audit_file).search(b'"expiredBefore"')
        return max((str(run.get("expiredBefore", "")) for run in runs), default="")
    return ""


def told_expired(layout: Layout, extracted_at: str) -> str | None:
    """Return when and by which setting content extracted then was deleted; None if it was not.

    The sentence comes from the audit log; see `expired_before`.
    """
    runs: list[dict[str, Any]] = []
    with suppress(BsdError):  # without the log, the content counts as missing
        runs = list(AuditLog(layout.audit_file).search(b'"expiredBefore"'))
    due = [run for run in runs if str(run.get("expiredBefore", "")) > extracted_at]
    if not extracted_at or not due:
        return None
    first = min(due, key=lambda run: str(run.get("time", "")))
    return (
        f"expired: it was extracted at {extracted_at}, and the setting {_deleted_by(first)} let it "
        f"be deleted at {first.get('time', 'an unknown time')}"
    )


def _deleted_by(run: dict[str, Any]) -> str:
    """Return the setting by which a recorded run deleted content."""
    keep, most = run.get("keep"), run.get("maxBytes")
    if run.get("action") != "archive_retention":
        setting = "`retention`"
    elif most is not None or keep == NEVER:  # older versions wrote no limit
        setting = "`archive_max_bytes`"
        keep = None if most is None else f"{most:,} bytes"
    else:
        setting = "`archive_retention`"
    return f"{setting} of {keep}" if keep and keep != NEVER else setting
