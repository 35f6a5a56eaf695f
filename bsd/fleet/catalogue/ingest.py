"""Writes the rows of this host's sessions into the catalogue.

A watermark for each session, written in the transaction of its rows, says how far it was read: any
interruption resumes there, and nothing is written twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog

from bsd.core.errors import BsdError, Busy, NotFound
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout, SessionName
from bsd.core.prices import PriceTable
from bsd.fleet.catalogue.connection import connected
from bsd.fleet.catalogue.migrating import require_writable
from bsd.fleet.catalogue.writing import CatalogueWriter
from bsd.fleet.host import HostDirectory, this_host
from bsd.fleet.session_rows import RowsPart, SessionRows, Watermark
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import deleted_sessions, is_deleted
from bsd.maintenance.indexing import file_of
from bsd.transcripts.change import Identity

_log = structlog.stdlib.get_logger(module="fleet")

_MOST_NAMED = 20  # sessions that could not be read


@dataclass(frozen=True, slots=True)
class Behind:
    """The files of this host that are not in the bucket yet, for the catalogue's list of hosts."""

    files: int = 0
    bytes: int = 0
    seconds: float | None = None  # age of the oldest file; None: nothing waits


@dataclass(frozen=True, slots=True)
class Ingested:
    """The outcome of a run."""

    sessions: int  # that were written
    rows: int
    deleted: int  # sessions that are marked as deleted
    more: bool  # time ran out; another run goes on
    failed: tuple[str, ...] = ()  # sessions that could not be read, with the reason


def ingest(
    layout: Layout,
    settings: FleetSettings,
    *,
    prices: PriceTable,
    seconds: float = 60.0,
    stopping: Callable[[], bool] = lambda: False,
    behind: Behind | None = None,
) -> Ingested:
    """Write the sessions that have changed since the last run, for at most about `seconds`.

    Args:
        layout: the root.
        settings: with the database.
        prices: for calls of which the program records no cost.
        seconds: after which no further session is begun.
        stopping: returns True if the run must end.
        behind: how far uploads are behind; None: nothing waits.

    Raises:
        TemporaryFailure: the database is not reachable, or another process writes the same rows.
        Unavailable: it is full, or has another problem.
        Forbidden: password or rights.
        ConfigError: the schema is of another version.
    """
    host = this_host(layout, settings)
    with connected(settings) as connection:
        require_writable(connection, settings)
        run = _IngestRun(layout, settings, host, CatalogueWriter(connection, host), prices)
        end = time.monotonic() + seconds
        return run.run(lambda: stopping() or time.monotonic() >= end, behind or Behind())


@dataclass(slots=True)
class _IngestRun:
    layout: Layout
    settings: FleetSettings
    host: HostDirectory
    writer: CatalogueWriter
    prices: PriceTable

    def run(self, over: Callable[[], bool], behind: Behind) -> Ingested:
        failed = self.writer.failed
        names, due = self._find_due()
        deleted = self._note_gone(names)
        done, more = 0, False
        for name in due:
            if done and over():  # so that each run gets on
                more = True
                break
            try:
                more = not write_session(self.writer, self._rows(name), over) or more
                done += 1
            except NotFound:  # deleted since it was listed
                continue
            except Busy:  # shortened while it was read; the next run reads it
                more = True
            except BsdError as problem:
                failed.append(f"{name}: {problem.message}")
        self.writer.flush()
        for each in failed:
            _log.warning("A session is not in the catalogue", problem=each)
        self.writer.tell((behind.files, behind.bytes, behind.seconds), failed)
        return Ingested(done, self.writer.rows, deleted, more, tuple(failed[:_MOST_NAMED]))

    def _rows(self, name: SessionName) -> SessionRows:
        return SessionRows.of(self.layout, name, prices=self.prices, text=self.settings.text)

    def _find_due(self) -> tuple[set[str], list[SessionName]]:
        """Return the names of all sessions, and those that have changed, by stat alone."""
        known = self.writer.known
        names: set[str] = set()
        due = []
        for name, stat in catalog.with_stats(self.layout):
            names.add(str(name))
            there = known.get(str(name))
            if there is None or there.deleted or there.file != file_of(Identity.of(stat)):
                due.append(name)
        for copy in deleted_sessions(self.layout):
            if str(copy.name) in names or self.layout.excluded(copy.name):
                continue
            names.add(str(copy.name))
            there = known.get(str(copy.name))
            if there is None or not there.deleted or there.file != file_of(copy.transcript.was):
                due.append(copy.name)
        return names, due

    def _note_gone(self, names: set[str]) -> int:
        """Mark sessions as deleted that are gone without a copy; remove those that are excluded."""
        gone, excluded = [], []
        for name, known in self.writer.known.items():
            if name in names:
                continue
            parsed = SessionName.parse(name)
            if self.layout.excluded(parsed):
                excluded.append(known.id)
            elif not known.deleted and is_deleted(self.layout, parsed):
                gone.append(known.id)
        self.writer.remove(excluded)
        return self.writer.mark_deleted(gone)


def write_session(
    writer: CatalogueWriter, rows: SessionRows, over: Callable[[], bool] = lambda: False
) -> bool:
    """Add the new rows of a session to the batch; return False if parts are left because of `over`.

    Raises as `SessionRows`; psycopg.Error, TemporaryFailure.
    """
    mark, stale = writer.watermark(rows.name)
    last = mark
    for part, is_stale in _with_stale(rows, mark, stale=stale):
        writer.add(rows.name, rows.facts(), part, stale=is_stale)
        last = None
        if part.more and over():
            return False
    if last is not None:  # only its facts have changed
        writer.add(rows.name, rows.facts(), last, stale=False)
    return True


def _with_stale(
    rows: SessionRows, mark: Watermark | None, *, stale: bool
) -> Iterator[tuple[RowsPart, bool]]:
    """Yield parts, each with whether the catalogue may have other rows of its lines."""
    for part in rows.parts(mark):
        stale = stale or not part.fresh
        yield part, stale
