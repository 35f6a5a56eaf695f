"""Gets files of the archive that were lost or damaged here back from the bucket (`[fleet]`).

The journal of uploads names the files that the bucket has, and where they are; no settings are
needed. A file that bsd has deleted was noted there before, and stays deleted. If the journal was
made anew from the bucket, it does not know what was deleted: a file that has not been seen here
since stays in the bucket.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import structlog

from bsd.bucket.objects import open_bucket
from bsd.bucket.sealing import Sealing
from bsd.bucket.transfers import download
from bsd.core.errors import BsdError, NotFound, Unavailable, os_problem
from bsd.core.files import create_private, is_there, make_durable_dir, open_ours, sync_dir
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout
from bsd.core.logs import BoundLogger
from bsd.maintenance.session_check import Finding
from bsd.maintenance.targets import lock_of, not_excluded
from bsd.store.pack import PACK, UNFINISHED, why_damaged
from bsd.store.snapshots import COPY_FILE
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
            known, deleted = journal.were_here(), _deleted(journal)
        os.scandir(archive).close()
    except NotFound:  # this host shares nothing
        return
    except BsdError as error:
        yield Finding("lost_file", str(archive), error.message, hint=error.hint)
        return
    except FileNotFoundError:
        if archive.is_symlink():
            message = f"it leads to {os.readlink(archive)}, which is not there"
            hint = "mount the disk, or remove the link"
            yield Finding("lost_file", str(archive), message, hint=hint)
            return
    except OSError:  # the check of packs names it
        return
    lost = _LostFiles(layout, wait)
    stores = [Path(store) for store in sorted({path.partition("/")[0] for path in known})]
    included = {place.name for place in not_excluded(layout, stores)}
    for store, group in groupby(known.items(), lambda each: each[0].partition("/")[0]):
        if store in included:
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

    def look_at(self, stored: Stored) -> Finding | None:
        """Return what is wrong with a file, or None."""
        local = self._layout.archive / stored.file.path
        try:
            why = self._why_lost(local, stored)
            if why is None:
                return None
            if self._wait is None:
                message = f"{why}; whole in the bucket {stored.place.url}"
                return Finding("lost_file", str(local), message, hint="bsd verify --repair")
            store = self._layout.archive / stored.file.path.partition("/")[0]
            with lock_of(self._layout, store, self._wait):
                # Anything may have happened before.
                why = self._why_lost(local, stored)
                if why is None:
                    return None
                self._layout.refuse_outside(local.parent)
                _fetch(local, stored)
        except (BsdError, OSError) as error:
            problem = os_problem(error, f"getting {local} back from the bucket")
            hint = problem.hint or "bsd archive verify --remote"
            return Finding("lost_file", str(local), problem.message, hint=hint)
        _log.info("A file of the archive came back from the bucket", path=str(local), problem=why)
        message = f"{why}; came back from the bucket {stored.place.url}"
        return Finding("lost_file", str(local), message, repaired=True)

    def _why_lost(self, local: Path, stored: Stored) -> str | None:
        """Return why a file is to come back from the bucket; None if it is not."""
        why = _what_is_wrong(self._layout.root, local, stored, whole=self._wait is not None)
        if why is None:
            return None
        # A file is noted before it is deleted, so the notes are read after the file was missed.
        path = stored.file.path
        with UploadJournal(self._layout) as journal:
            deleted = _deleted(journal)
            if path in deleted or journal.stored(path) != stored or self._is_in_trash(path):
                return None
        directory = path.rpartition("/")[0]
        if local.name == COPY_FILE and any(
            each.rpartition("/")[0] == directory for each in deleted
        ):
            # The copy was renewed since the last push: the one in the bucket needs files that have
            # been replaced here.
            host, name = stored.place.directory.partition("/")[0], path.partition("/")[0]
            session = self._layout.session_of_store(name) or "AGENT/SESSION"
            raise Unavailable(
                f"{local} is missing; the bucket {stored.place.url} has an older copy",
                hint=f"bsd archive bring-back {host}:{session}",
            )
        return why

    def _is_in_trash(self, path: str) -> bool:
        """Return whether a file lies in the trash, with its session; raises OSError."""
        store, _, rest = path.partition("/")
        try:
            with os.scandir(self._layout.trash_dir()) as entries:
                places = [Path(each.path) for each in entries if each.name.startswith(store)]
        except FileNotFoundError:
            if is_there(self._layout.trash):
                raise
            return False
        found = (each / rest for each in places)
        return any(
            archive_path(self._layout.root, each) == path and is_there(each) for each in found
        )


def _what_is_wrong(root: Path, local: Path, stored: Stored, *, whole: bool) -> str | None:
    """Return why a file cannot be used; None if it can. `whole`: read all of a pack.

    A damaged `copy.json` may be newer than the one in the bucket, and counts as usable.
    """
    try:
        if whole and local.name.endswith(PACK) and (damage := why_damaged(local)):
            with open(open_ours(local, root), "rb") as file:
                is_same = hashlib.file_digest(file, "sha256").hexdigest() == stored.file.hash
            return None if is_same else damage.why
        return None if is_there(local) else "missing"
    except (FileNotFoundError, NotADirectoryError):
        return "missing"


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
