"""Builds the catalogue from the bucket: from the manifests and copies of all hosts.

The catalogue is never a second truth: what it has can be lost. A host that is still there writes
its newer rows itself, and reads on behind the copy from which its rows were rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from bsd.bucket.objects import Bucket, open_bucket
from bsd.bucket.sealing import Sealing, sealing_of
from bsd.core.errors import BsdError, NotFound
from bsd.core.layout import Layout
from bsd.core.prices import PriceTable
from bsd.fleet.catalogue.connection import connected
from bsd.fleet.catalogue.ingest import write_session
from bsd.fleet.catalogue.migrating import require_writable
from bsd.fleet.catalogue.writing import CatalogueWriter
from bsd.fleet.context import FleetContext
from bsd.fleet.host import HostDirectory
from bsd.fleet.manifest import host_directories, read_host
from bsd.fleet.remote_archive import RemoteCopy, arrived, remote_copies
from bsd.fleet.session_rows import RowsOrigin, SessionRows
from bsd.store.originals import SessionStore
from bsd.store.snapshot_parts import SnapshotReader
from bsd.store.snapshots import Snapshot, read_snapshot, snapshot_directory
from bsd.transcripts.agents.format import NotOurs
from bsd.transcripts.agents.program import AgentProgram
from bsd.transcripts.agents.programs import KINDS, ROOT_KIND, kind_of, program_of


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The outcome; `failed`: hosts and sessions that could not be read, each with the reason."""

    hosts: int
    sessions: int  # that were read
    unchanged: int  # of which the catalogue has the same version, or a later one
    rows: int
    failed: tuple[str, ...] = ()


def rebuild(
    context: FleetContext, *, prices: PriceTable, hosts: Iterable[HostDirectory] | None = None
) -> Rebuilt:
    """Write the rows of all copies in the bucket that the catalogue does not have.

    It can be interrupted at any moment, and goes on where it was.

    Args:
        context: with bucket and database in its settings.
        prices: for calls of which the program records no cost.
        hosts: only these hosts; None: all.

    Raises:
        Errors of `bsd/bucket/errors.py` if the hosts cannot be listed, and of `connected`.
    """
    settings = context.fleet
    bucket, sealing = open_bucket(settings), sealing_of(settings)
    directories = list(host_directories(bucket) if hosts is None else hosts)
    with connected(settings) as connection:
        require_writable(connection, settings)
        found = Rebuilt(0, 0, 0, 0)
        for directory in directories:
            try:
                archive = read_host(bucket, directory, sealing)
            except BsdError as problem:
                found = _failed(found, f"{directory}: {problem.message}")
                continue
            writer = CatalogueWriter(connection, directory, version=archive.version or None)
            run = _RebuildRun(context, bucket, sealing, writer, prices)
            done, unchanged, failed = run.run(remote_copies(archive))
            writer.flush()
            failed += writer.failed
            found = Rebuilt(
                found.hosts + 1,
                found.sessions + done,
                found.unchanged + unchanged,
                found.rows + writer.rows,
                (*found.failed, *archive.broken, *(f"{directory}: {each}" for each in failed)),
            )
            if context.stopping():
                break
    return found


def _failed(found: Rebuilt, problem: str) -> Rebuilt:
    return replace(found, failed=(*found.failed, problem))


@dataclass(slots=True)
class _RebuildRun:
    context: FleetContext
    bucket: Bucket
    sealing: Sealing
    writer: CatalogueWriter
    prices: PriceTable

    def run(self, copies: list[RemoteCopy]) -> tuple[int, int, list[str]]:
        """Write the newest copy of each session; return how many, how many are there, problems."""
        done = unchanged = 0
        failed: list[str] = []
        newest: dict[str, RemoteCopy] = {}
        for copy in copies:
            there = newest.setdefault(str(copy.facts.session), copy)
            if copy.facts.updated > there.facts.updated:
                newest[str(copy.facts.session)] = copy
        for name, copy in newest.items():
            if self.context.stopping():
                break
            if self._is_there(name, copy):
                unchanged += 1
                continue
            try:
                with arrived(self.context, self.bucket, self.sealing, copy) as layout:
                    write_session(self.writer, self._rows(layout, copy))
                done += 1
            except NotFound:  # all hosts have to forget it
                continue
            except BsdError as problem:
                failed.append(f"{name}: {problem.message}")
        return done, unchanged, failed

    def _is_there(self, name: str, copy: RemoteCopy) -> bool:
        """Return whether the catalogue has this version of the session, or a later one."""
        known = self.writer.known.get(name)
        if known is None or len(known.file) != 5:
            return False
        deleted = copy.facts.gone_at is not None
        return known.file[3] / 1e9 >= copy.facts.updated - 0.001 and known.deleted >= deleted

    def _rows(self, layout: Layout, copy: RemoteCopy) -> SessionRows:
        directory = snapshot_directory(layout, copy.facts.session, copy.origin)
        snapshot = read_snapshot(directory)
        if snapshot is None:
            raise NotFound(f"the copy {copy.id} has not arrived")
        origin = origin_of_copy(layout, snapshot, copy.facts.gone_at)
        return SessionRows(origin, prices=self.prices, text=self.context.fleet.text)


def origin_of_copy(layout: Layout, snapshot: Snapshot, deleted_at: float | None) -> RowsOrigin:
    """Return a copy as the origin of rows; its program is found by its lines.

    Args:
        layout: the root with the archive in which the copy is.
        snapshot: the copy.
        deleted_at: when its program deleted the session; None: it did not.
    """
    kind, program = _program_of_lines(layout, snapshot)
    return RowsOrigin(
        snapshot.name,
        kind,
        program,
        partial(SnapshotReader, snapshot),
        SessionStore(layout, snapshot.name),
        title=snapshot.title,
        parent=snapshot.parent,
        directory=snapshot.working_directory,
        deleted_at=deleted_at,
    )


def _program_of_lines(layout: Layout, snapshot: Snapshot) -> tuple[str, AgentProgram]:
    """Return the program of a copy: by the source of its name, else the one that reads its lines.

    A source may have any name, and this root need not have one of that name.
    """
    agent = snapshot.name.agent
    program, source = program_of(layout, agent), layout.source_of(agent)
    if source is not None or ":" not in agent:
        return source.kind if source else ROOT_KIND, program
    there = layout.root / "sessions"  # no program is asked for files
    # A program may keep sessions of sub-agents in directories of their own, in another format.
    places = (there / "agent", there / "agent" / "session" / "subagents")
    for kind, place in product(KINDS, places):
        found = kind_of(kind).program(there, place)
        with suppress(BsdError), SnapshotReader(snapshot) as lines:
            if not isinstance(found.detect(line.raw for line in lines.lines()), NotOurs):
                return kind, found
    return ROOT_KIND, program
