"""The push: uploads new files of this root's archive, and removes files that were deleted here.

Each step can be interrupted anywhere; the next push continues.

1. `prepare`: sessions that rest are copied into the archive, and originals are packed. This opens
   sessions, and so runs in a process of one thread.
2. What other hosts have forgotten is forgotten here (`tombstones.py`).
3. Files that the journal does not have are uploaded (`uploading.py`), and noted.
4. A manifest lists them. Files that were deleted here on purpose leave it (`remote_changes.py`).
5. Objects that no listed file uses are deleted, and this host's tombstones are published.
6. Packs that are older than `keep_local` become thin.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated

import structlog
from pydantic import Field

from bsd.bucket.errors import CannotDecrypt
from bsd.bucket.objects import Bucket, open_bucket
from bsd.bucket.sealing import Sealing, sealing_of
from bsd.core.config import OFF
from bsd.core.errors import BsdError, Busy, Invalid
from bsd.core.file_lock import holding
from bsd.core.formatting import MINUTE, lifetime_seconds
from bsd.fleet.context import FleetContext
from bsd.fleet.host import HostDirectory, take_new_id, this_host
from bsd.fleet.manifest import copy_facts, read_host
from bsd.fleet.pack_stored import pack_stored
from bsd.fleet.remote_changes import PlaceTaken, RemotePlace, sort_deletions
from bsd.fleet.thinning import thin_packs
from bsd.fleet.tombstones import obey, publish_pending
from bsd.fleet.uploading import Uploader, UploadTotals
from bsd.maintenance.bring_back import sweep_returning
from bsd.maintenance.snapshots import SnapshotScope, take_snapshots
from bsd.sessions.commit.exchange import Step, no_step
from bsd.store.upload_places import (
    NO_STAMP,
    Upload,
    current_place,
    deleted_files,
    drop_notes,
    former_places,
)
from bsd.store.uploads import BucketPlace, Stored, UploadJournal

_log = structlog.stdlib.get_logger(module="fleet")

_MANIFEST_SECONDS = 600.0  # a long push writes a manifest after this time
_FIGURES_SECONDS = 5.0  # between two notes of how much is left
_MOST_RUNS = 1000  # of `take_snapshots`, each of which has a limit


@dataclass(frozen=True, slots=True)
class Prepared:
    """The result of `prepare`. `problems`: originals and sessions that could not be read."""

    copied: int = 0
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class Pushed:
    """The result of a push. Sizes are bytes."""

    host: Annotated[str, Field(description="This host's directory in the bucket: HOST/ID")]
    bucket: Annotated[str, Field(description="URL of the bucket")]
    copied: Annotated[int, Field(description="Sessions copied into the archive before")] = 0
    files: Annotated[int, Field(description="Files that were uploaded")] = 0
    uploaded: Annotated[int, Field(description="Their size")] = 0
    removed: Annotated[int, Field(description="Files removed, since they were deleted here")] = 0
    forgotten: Annotated[
        int, Field(description="Sessions of which other hosts had forgotten something")
    ] = 0
    thinned: Annotated[
        int, Field(description="Local packs whose content is now in the bucket only")
    ] = 0
    generation: Annotated[int, Field(description="Number of the newest manifest")] = 0
    waiting: Annotated[int, Field(description="Files that are not in the bucket yet")] = 0
    problems: Annotated[list[str], Field(description="What could not be done, with the reason")] = (
        field(default_factory=list)
    )


def push(
    context: FleetContext,
    *,
    seconds: float | None = None,
    stopping: Callable[[], bool] | None = None,
    after_step: Step = no_step,
) -> Pushed:
    """Bring the bucket up to date with this root's archive.

    Args:
        context: of the action; `context.fleet.bucket` must be set.
        seconds: begin no further upload after this time; None: no limit.
        stopping: as `context.stopping`, which is the default.
        after_step: for tests.

    Raises:
        Invalid: no bucket is set.
        Busy: another push of this root is running.
        BsdError: the bucket refuses, or cannot be reached; all that was done is noted.
    """
    stopping = stopping or context.stopping
    prepared = prepare(context, stopping=stopping)
    return send(context, prepared, seconds=seconds, stopping=stopping, after_step=after_step)


def prepare(context: FleetContext, *, stopping: Callable[[], bool]) -> Prepared:
    """Copy the sessions that rest into the archive, and pack originals; sends no request."""
    _bucket_of(context)
    layout, config, settings = context.layout, context.config.current, context.fleet
    rest = lifetime_seconds(settings.copy_after, minimum=MINUTE)
    copied, problems = 0, list[str]()
    if rest is not None and config.archive_sessions != OFF:
        sweep_returning(layout)
        scope = SnapshotScope(rest_seconds=rest)
        for _ in range(_MOST_RUNS):
            done = take_snapshots(
                layout, config.archive_sessions, context.budget, scope=scope, stopping=stopping
            )
            copied += done.sessions
            if done.complete or not done.sessions or stopping():
                break
        problems += [f"{name}: {why}" for name, why in done.not_copied.items()]
    if rest is not None:
        with UploadJournal(layout, create=True) as journal:
            problems += pack_stored(layout, config, rest, context.now(), journal, stopping)
    return Prepared(copied, tuple(problems))


def send(
    context: FleetContext,
    prepared: Prepared,
    *,
    seconds: float | None = None,
    stopping: Callable[[], bool],
    after_step: Step = no_step,
) -> Pushed:
    """Do everything of a push but `prepare`; arguments and errors as of `push`."""
    url = _bucket_of(context)
    until = float("inf") if seconds is None else time.monotonic() + seconds
    busy = Busy("another push of this root is running", hint="wait until it has ended")
    with (
        holding(context.layout.fleet / "pushing", 0.0, busy),
        UploadJournal(context.layout, create=True) as journal,
    ):
        try:
            pushed = _Push(context, journal, url, until, stopping, after_step).run(prepared)
        except BsdError as problem:
            _note_failure(context, journal, problem.message)
            raise
        if pushed.problems:
            _note_failure(context, journal, pushed.problems[0])
        elif not pushed.waiting:
            journal.note_figures(last_success=context.now(), last_error=None, last_error_at=None)
        return pushed


def _bucket_of(context: FleetContext) -> str:
    if context.fleet.bucket is None:
        raise Invalid(
            "no bucket is set", hint="set `bucket` of [fleet] in bsd.toml: contrib/docs/fleet.md"
        )
    return context.fleet.bucket


def _note_failure(context: FleetContext, journal: UploadJournal, problem: str) -> None:
    with suppress(BsdError):
        journal.note_figures(
            last_error=problem,
            last_error_at=context.now(),
            errors=journal.figures().errors + 1,
        )


class _Push:
    """One push, with the lock of the push held."""

    def __init__(
        self,
        context: FleetContext,
        journal: UploadJournal,
        url: str,
        until: float,
        stopping: Callable[[], bool],
        after_step: Step,
    ) -> None:
        self._context = context
        self._journal = journal
        self._until = until
        self._stopping = stopping
        self._after_step = after_step
        self._bucket = open_bucket(context.fleet)
        self._sealing = sealing_of(context.fleet)
        self._pushed = Pushed("", url)
        self._figures_at = 0.0

    def run(self, prepared: Prepared) -> Pushed:
        """Do all steps; if another machine uses this root's directory, begin anew in another."""
        pushed = self._pushed
        pushed.copied = prepared.copied
        pushed.problems += prepared.problems
        while True:
            host = this_host(self._context.layout, self._context.fleet)
            remote = self._place(host)
            pushed.host = host.key
            try:
                self._run(remote)
            except PlaceTaken as taken:
                remote.place.give_up()
                take_new_id(self._context.layout, self._context.fleet, str(taken))
                continue
            pushed.generation = remote.place.state().generation
            return pushed

    def _place(self, host: HostDirectory) -> RemotePlace:
        """Return this root's directory; if its journal was lost, read it from the bucket."""
        url = self._pushed.bucket
        place = current_place(
            self._journal, BucketPlace(url, self._context.fleet.identity, host.key)
        )
        remote = RemotePlace(self._bucket, host, self._sealing, place, self._after_step)
        if place.is_new():
            try:
                archive = read_host(self._bucket, host, self._sealing)
            except CannotDecrypt as problem:
                why = f"the manifests of {host} cannot be read ({problem.message})"
                place.give_up()
                return self._place(take_new_id(self._context.layout, self._context.fleet, why))
            self._pushed.problems += archive.broken
            if archive.generation:
                _log.info(f"The journal of uploads was made from the manifests of {host}")
                uploads = (
                    Upload(each.file, NO_STAMP, copy_facts(each.copy) if each.copy else None)
                    for each in archive.files.values()
                )
                place.adopt(archive.generation, archive.previous, uploads, whole=not archive.broken)
        return remote

    def _run(self, remote: RemotePlace) -> None:
        context, pushed, place = self._context, self._pushed, remote.place
        remote.finish_manifest()
        remote.refuse_other_manifests()
        obeyed = obey(context, self._bucket, self._journal)
        pushed.forgotten += len(obeyed.sessions)
        pushed.problems += obeyed.problems
        self._after_step("obeyed")
        uploader = Uploader(
            context.layout,
            self._bucket,
            remote.directory,
            self._sealing,
            place,
            open_stored=self._open_stored,
            stopping=self._stopping,
            at_once=context.fleet.uploads_at_once,
            after_step=self._after_step,
        )
        waiting = uploader.count()
        self._note_waiting(waiting, at_once=True)
        clean = not waiting.waiting_files
        if not clean:
            swept_before = place.state().sweeps
            place.set_sweeps(on=True)
        while waiting.waiting_files:
            until = min(self._until, time.monotonic() + _MANIFEST_SECONDS)
            done = uploader.run(until, self._note_waiting)
            pushed.files += done.files
            pushed.uploaded += done.bytes
            waiting = done
            if done.problems or time.monotonic() < until or until == self._until:
                break
            remote.write_manifest(context.now())
        if not clean and not (waiting.waiting_files or waiting.problems or swept_before):
            place.set_sweeps(on=False)
        pushed.problems += waiting.problems
        pushed.waiting = waiting.waiting_files
        self._note_waiting(waiting, at_once=True)
        self._after_step("all-uploaded")
        self._pass_on_deletions(remote)
        remote.write_manifest(context.now())
        remote.delete_unused()
        if not pushed.waiting:
            remote.sweep()
        publish_pending(self._bucket, self._journal, remote.directory.key, context.now())
        self._after_step("published")
        pushed.thinned += thin_packs(
            context, self._bucket, self._sealing, place, pushed.problems, self._stopping
        )

    def _pass_on_deletions(self, remote: RemotePlace) -> None:
        """Remove files that were deleted here from this root's directories in the bucket."""
        notes = deleted_files(self._journal)
        if not notes:
            return
        layout = self._context.layout
        gone, obsolete = sort_deletions(layout, remote.place, notes, self._context.now())
        if gone:
            self._pushed.removed += remote.place.remove(gone)
            for directory, place in former_places(self._journal, self._pushed.bucket):
                if place.remove(gone):
                    host = HostDirectory(*directory.split("/"))
                    former = RemotePlace(self._bucket, host, self._sealing, place, self._after_step)
                    try:
                        former.finish_manifest()
                        former.write_manifest(self._context.now())
                        former.delete_unused()
                    except PlaceTaken:
                        place.give_up()
        drop_notes(self._journal, [*gone, *obsolete])
        self._after_step("removed")

    def _open_stored(self, stored: Stored) -> tuple[Bucket, Sealing]:
        settings = replace(
            self._context.fleet, bucket=stored.place.url, identity=stored.place.identity
        )
        return open_bucket(settings), sealing_of(settings)

    def _note_waiting(self, totals: UploadTotals, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if not at_once and now < self._figures_at + _FIGURES_SECONDS:
            return
        self._figures_at = now
        since = self._journal.figures().waiting_since
        is_waiting = totals.waiting_files > 0
        self._journal.note_figures(
            waiting_files=totals.waiting_files,
            waiting_bytes=totals.waiting_bytes,
            waiting_since=(self._context.now() if since is None else since) if is_waiting else None,
        )
