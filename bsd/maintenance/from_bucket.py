"""Gets files of the archive that were lost or damaged here back from the bucket (`[fleet]`).

The journal of uploads names the files that the bucket has, and where they are; no settings are
needed. A file that bsd has deleted was noted there before, and stays deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

import structlog

from bsd.bucket.objects import open_bucket
from bsd.bucket.sealing import Sealing
from bsd.bucket.transfers import download
from bsd.core.errors import BsdError, NotFound, os_problem
from bsd.core.files import create_private, is_there, make_durable_dir, sync_dir
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout
from bsd.core.logs import BoundLogger
from bsd.maintenance.session_check import Finding
from bsd.maintenance.targets import lock_of
from bsd.store.pack import PACK, UNFINISHED, why_damaged
from bsd.store.snapshots import COPY_FILE, read_snapshot
from bsd.store.upload_places import deleted_files
from bsd.store.uploads import Stored, UploadJournal, archive_path

_log: BoundLogger = structlog.get_logger(module="verify")


def lost_files(layout: Layout, wait: float | None) -> Iterator[Finding]:
    """Yield a finding for each file of the archive that is not here as the bucket has it.

    Args:
        layout: the root.
        wait: seconds to wait for the lock of each session, whose files are then got back; None:
            nothing is got back, and only missing files are looked for.
    """
    archive = layout.archive
    try:
        with UploadJournal(layout) as journal:
            known, deleted = journal.here(), _deleted(journal)
        os.scandir(archive).close()
    except NotFound:  # this host shares nothing
        return
    except BsdError as error:
        yield Finding("lost_file", str(archive), error.message, hint=error.hint)
        return
    except FileNotFoundError:
        if archive.is_symlink():
            message = f"it leads to {os.readlink(archive)}, which is not there"
            yield Finding("lost_file", str(archive), message, hint="mount its disk")
            return
    except OSError:  # the check of packs names it
        return
    exclusions, lost = layout.exclusions(), _LostFiles(layout, wait)
    for store, group in groupby(known, lambda each: each[0].partition("/")[0]):
        name = layout.session_of_store(store)
        if name is None or not exclusions.session(name.agent, name.session):
            files = (stored for path, stored in group if path not in deleted)
            found = [finding for file in files if (finding := lost.look_at(file))]
            yield from _merged(found, archive / store)


def _merged(findings: list[Finding], store: Path) -> Iterator[Finding]:
    """Yield one finding in place of those that say the same of several files of a store."""
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for each in findings:
        alike.setdefault((each.message, each.hint, each.repaired), []).append(each)
    for first, *others in alike.values():
        if others:
            message = f"{len(others) + 1} files: {first.message}"
            yield replace(first, where=str(store), message=message)
        else:
            yield first


def _deleted(journal: UploadJournal) -> set[str]:
    return {note.path for note in deleted_files(journal)}


class _LostFiles:
    """Finds lost and damaged files, and gets them back unless `wait` is None."""

    def __init__(self, layout: Layout, wait: float | None) -> None:
        self._layout = layout
        self._wait = wait

    @cached_property
    def _in_trash(self) -> set[str]:
        """The files of archives in the trash, by the paths that they had."""
        return {
            path
            for top, _, names in os.walk(self._layout.trash)
            for name in names
            if (path := archive_path(self._layout.root, Path(top, name)))
        }

    def look_at(self, stored: Stored) -> Finding | None:
        """Return what is wrong with a file, or None."""
        local = self._layout.archive / stored.file.path
        try:
            why = _why_lost(local, whole=self._wait is not None)
        except OSError as error:
            problem = os_problem(error, f"reading {local}")
            return Finding("lost_file", str(local), problem.message, hint=problem.hint)
        if why is None or stored.file.path in self._in_trash:
            return None
        message = f"{why}; whole in the bucket {stored.place.url}"
        if self._wait is None:
            return Finding("lost_file", str(local), message, hint="bsd verify --repair")
        try:
            if not self._get_back(local, stored, self._wait):
                return None
        except (BsdError, OSError) as error:
            problem = os_problem(error, f"writing {local}")
            message = f"{message}; {problem.message}"
            return Finding("lost_file", str(local), message, hint=problem.hint)
        _log.info("A file of the archive came back from the bucket", path=str(local), problem=why)
        message = f"{why}; came back from the bucket {stored.place.url}"
        return Finding("lost_file", str(local), message, repaired=True)

    def _get_back(self, local: Path, stored: Stored, wait: float) -> bool:
        """Get a file back; return False if it was deleted here meanwhile."""
        path = stored.file.path
        with lock_of(self._layout, self._layout.archive / path.partition("/")[0], wait):
            with UploadJournal(self._layout) as journal:
                if path in _deleted(journal) or journal.stored(path) != stored:
                    return False
            _fetch(local, stored)
        return True


def _why_lost(local: Path, *, whole: bool) -> str | None:
    """Return why a file cannot be used; None if it can. `whole`: read all of it."""
    if not is_there(local):
        return "missing"
    if whole and local.name.endswith(PACK) and (damage := why_damaged(local)):
        return damage.why
    if whole and local.name == COPY_FILE:
        try:
            read_snapshot(local.parent)
        except BsdError as error:
            return error.message
    return None


def _fetch(local: Path, stored: Stored) -> None:
    """Replace a file by what the bucket has, durably."""
    place = stored.place
    bucket = open_bucket(FleetSettings(bucket=place.url, identity=place.identity))
    make_durable_dir(local.parent)
    temporary = local.with_name(f".{os.urandom(8).hex()}{UNFINISHED}")
    try:
        with open(create_private(temporary), "wb") as to:
            download(bucket, stored.file, Sealing(identity=place.identity), to)
            to.flush()
            os.fsync(to.fileno())
        os.replace(temporary, local)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    sync_dir(local.parent)
