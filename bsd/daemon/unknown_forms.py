"""The daemon's record of sessions that bsd no longer understands, from the results of its work."""

from __future__ import annotations

import threading
from typing import Any

import structlog

from bsd.core.errors import UPDATE_BSD, NotRecognised, UnknownForm
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.unknown_forms import (
    LEAST_BYTES,
    UnknownSession,
    by_source,
    unrecognised_files,
)
from bsd.planning.result import SessionResult
from bsd.transcripts.agents.programs import title_of
from bsd.transcripts.change import Written

_log = structlog.stdlib.get_logger(module="daemon")


class NotUnderstood:
    """The sessions in a form that bsd does not know, and those that it does not recognise.

    Thread-safe. The record begins anew with each daemon, which therefore opens these sessions again
    at its start; it may be of a newer version, and understand them.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._lock = threading.Lock()
        self._unknown: dict[SessionName, UnknownSession] = {}
        self._unrecognised: set[SessionName] = set()
        self._told: set[tuple[str, str]] = set()  # title and reason

    def worked(self, name: SessionName, result: SessionResult, before: Written) -> bool:
        """Record the result for a session; return whether the next daemon must open it again.

        `before`: the state of its file when the work began.
        """
        error = result.error
        if error is UnknownForm:
            self._add(name, result.reason or "", before.mtime_ns / 1e9)
            return True
        with self._lock:
            if error is NotRecognised:
                self._unrecognised.add(name)
                self._unknown.pop(name, None)
                return before.size >= LEAST_BYTES
        self.forget(name)
        return False

    def _add(self, name: SessionName, reason: str, mtime: float) -> None:
        title = title_of(self._layout, name.agent)
        with self._lock:
            known = self._unknown.get(name)
            since = min(mtime, known.since) if known else mtime
            self._unknown[name] = UnknownSession(name, reason, mtime, since)
            self._unrecognised.discard(name)
            is_new = (title, reason) not in self._told
            self._told.add((title, reason))
        if is_new:
            _log.warning(
                f"{title} writes sessions in a form that bsd does not know",
                session=str(name),
                reason=reason,
                hint=UPDATE_BSD,
            )

    def forget(self, name: SessionName) -> None:
        """Forget a session that was deleted, or that bsd understands."""
        with self._lock:
            self._unknown.pop(name, None)
            self._unrecognised.discard(name)

    def unknown_forms(self) -> list[dict[str, Any]]:
        """Return the sessions in a form that bsd does not know, by source, as in the status."""
        with self._lock:
            found = list(self._unknown.values())
        return [
            {
                "source": forms.source,
                "title": forms.title,
                "sessions": forms.sessions,
                "newest": str(forms.newest.name),
                "reason": forms.newest.reason,
                "since": iso_utc(forms.since),
                "text": str(forms),
            }
            for forms in by_source(self._layout, found)
        ]

    def unrecognised(self, now: float) -> list[dict[str, Any]]:
        """Return the sources whose files grew without a recognised session, as in the status.

        Sources in `unknown_forms` are left out. `now`: epoch seconds.
        """
        with self._lock:
            unknown, unrecognised = set(self._unknown), set(self._unrecognised)
        told = {forms["source"] for forms in self.unknown_forms()}
        sources = (source for source in self._layout.sources if source.name not in told)
        files = (
            unrecognised_files(
                self._layout, source, now, lambda name: name not in unknown | unrecognised
            )
            for source in sources
        )
        return [
            {
                "source": each.source,
                "title": each.title,
                "files": each.files,
                "newest": each.newest,
                "text": str(each),
            }
            for each in files
            if each is not None
        ]
