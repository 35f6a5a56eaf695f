"""What was done to a session, written down: log lines (SPEC §3 "Log") and lines of the audit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

from bsd.core.audit import AuditLog
from bsd.core.errors import BsdError, Busy, LeftAlone, NotFound
from bsd.core.formatting import NEVER
from bsd.core.layout import Layout, SessionName
from bsd.store.originals import Missing

if TYPE_CHECKING:
    from bsd.planning.plan import Plan, Report
    from bsd.planning.restore import Restored
    from bsd.planning.result import Tally
    from bsd.planning.survey import Judged
    from bsd.planning.undo import Undone

_log = structlog.stdlib.get_logger(module="extraction")


class Notes:
    """Writes for one actor."""

    def __init__(self, layout: Layout, actor: str, clock: Callable[[], float]) -> None:
        self._layout = layout
        self._actor = actor
        self._clock = clock
        self._audit = AuditLog(layout.audit_file, clock)

    def teller(self, name: SessionName) -> Callable[[Judged], None] | None:
        """Who is to be told of each decision; nobody, if nobody reads it."""
        if not _log.isEnabledFor(logging.DEBUG):
            return None

        def tell(judged: Judged) -> None:
            reason = judged.decision.reason
            verdict = "EXTRACT" if reason == "extract" else f"keep ({reason})"
            age_s = judged.age_s(self._clock())
            age = "of unknown age" if age_s is None else f"{age_s / 3600:.0f}h old"
            _log.debug(f"Entry {judged.index}: {judged.kind}, {age} → {verdict}", session=str(name))

        return tell

    def extracted(self, name: SessionName, plan: Plan) -> None:
        """Values left a session."""
        session_log = _log.bind(session=str(name))
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

    def restored(
        self,
        name: SessionName,
        answer: Restored,
        *,
        committed: bool,
        redacted: bool = False,
    ) -> None:
        """Values came back to an entry, or could not."""
        session_log = _log.bind(session=str(name))
        if answer.missing is Missing.GONE:
            session_log.warning(f"Missing extracted file for {answer.entry_id}")
        elif answer.missing is Missing.CORRUPT:
            path = self._layout.store_dir(name) / f"{answer.ref}.json"
            session_log.error(f"Corrupted extracted file {path}")
            self._record("corrupted_extracted_file", name, entry_id=answer.entry_id, path=str(path))
        if committed and answer.keys_restored:
            session_log.debug(
                "Restored",
                entry_id=answer.entry_id,
                keys_restored=list(answer.keys_restored),
                sizes_bytes=dict(answer.sizes_bytes),
                redacted=redacted,
            )

    def changed(self, action: str, name: SessionName, report: Report, *, entry: str | None) -> None:
        """One entry of a session was changed."""
        _log.info(f"{action}: {name}, entry {entry}", actor=self._actor, values=report.values)
        self._record(
            action,
            name,
            entry_id=entry,
            values=report.values,
            bytes_before=report.bytes_before,
            bytes_after=report.bytes_after,
        )

    def changed_several(
        self, action: str, name: SessionName, report: Report, entries: Sequence[str]
    ) -> None:
        """Entries of a session were changed, or taken out."""
        counts = {
            "values": report.values,
            "bytes_saved": report.bytes_saved,
            "tokens_saved": report.tokens_saved,
        }
        _log.info(f"{action}: {name}, entries {report.entries}", actor=self._actor, **counts)
        self._record(action, name, entry_ids=list(entries), entries=report.entries, **counts)

    def undone(self, name: SessionName, answer: Undone, report: Report) -> None:
        """An operation on a session was taken back."""
        _log.info(f"undo: {name}, {answer.of}", actor=self._actor, entries=report.entries)
        self._record(
            "undo",
            name,
            operation=answer.of.number,
            undone=answer.of.act.action,
            entries=report.entries,
            bytes_before=report.bytes_before,
            bytes_after=report.bytes_after,
        )

    def concluded(self, action: str, name: SessionName, tally: Tally) -> None:
        """All that was to be done to a session was done, or ended early."""
        if tally.entries and not tally.dry_run:
            counts = {"values": tally.values, "bytes_saved": tally.bytes_saved}
            _log.info(f"{action}: {name}, entries {tally.entries}", actor=self._actor, **counts)
            self._record(action, name, entries=tally.entries, **counts)
        if tally.error is not None:
            # Whoever asked is told; gateways reset and delete sessions at any time.
            expected = isinstance(tally.error, LeftAlone | Busy | NotFound)
            level = _log.debug if expected else _log.warning
            level(f"{action}: {name}: {tally.error.message}", actor=self._actor)

    def _record(self, action: str, name: SessionName, **what: object) -> None:
        self._audit.record(
            actor=self._actor, action=action, agent=name.agent, session_id=name.session, **what
        )


def note_failure(name: SessionName, plan: Plan, error: BsdError) -> None:
    """An extraction ended in an error that waiting does not cure; the session is as it was.

    A session that is left alone is no failure: where no file can be replaced, the answer says so.
    """
    if isinstance(error, LeftAlone):
        return
    if plan.report.action == "extract" and plan.keeps:
        _log.error(
            f"Extraction failed for {name}/{plan.keeps[0].entry_id}, rolled back",
            session=str(name),
            entries=len(plan.keeps),
            error=error.message,
        )


def expired_before(layout: Layout) -> str:
    """What was taken out before this moment may be gone, as its time was up: ISO 8601, or empty.

    By the audit log, since the setting may have been another one then.
    """
    with suppress(BsdError):  # whose log cannot be read is told of all that is missing
        runs = AuditLog(layout.audit_file).search(b'"expiredBefore"')
        return max((str(run.get("expiredBefore", "")) for run in runs), default="")
    return ""


def told_expired(layout: Layout, extracted_at: str) -> str | None:
    """When content that was taken out then was deleted, and by which setting; None: it was not.

    In words, for whoever asked for it; by the audit log, as `expired_before`.
    """
    runs: list[dict[str, Any]] = []
    with suppress(BsdError):  # whose log cannot be read is told that it is missing
        runs = list(AuditLog(layout.audit_file).search(b'"expiredBefore"'))
    due = [run for run in runs if str(run.get("expiredBefore", "")) > extracted_at]
    if not extracted_at or not due:
        return None
    first = min(due, key=lambda run: str(run.get("time", "")))
    return (
        f"expired: it was taken out at {extracted_at}, and the setting {_deleted_by(first)} let it "
        f"be deleted at {first.get('time', 'a time that is not known')}"
    )


def _deleted_by(run: dict[str, Any]) -> str:
    """Name the setting by which a run deleted content, as the audit log has the run."""
    keep, most = run.get("keep"), run.get("maxBytes")
    if run.get("action") != "archive_retention":
        setting = "`retention`"
    elif most is not None or keep == NEVER:  # older versions wrote no limit
        setting = "`archive_max_bytes`"
        keep = None if most is None else f"{most:,} bytes"
    else:
        setting = "`archive_retention`"
    return f"{setting} of {keep}" if keep and keep != NEVER else setting
