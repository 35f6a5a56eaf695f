"""Gets files of the archive that were lost or damaged here back from the bucket (`[fleet]`).

The journal of uploads names the files that the bucket has, and where they are; no settings are
needed. A file that bsd has deleted was noted there before, and stays deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
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
    try:
        with UploadJournal(layout) as journal:
            known, deleted = journal.here(), {note.path for note in deleted_files(journal)}
    except NotFound:  # this host shares nothing
        return
    except BsdError as error:
        yield Finding("lost_file", str(layout.archive), error.message, hint=error.hint)
        return
    if is_there(layout.archive) and not layout.archive.is_dir():
        return  # its disk is not there; the check of packs names it
    exclusions, in_trash = layout.exclusions(), None
    for path, stored in known:
        name = layout.session_of_store(path.partition("/")[0])
        if path in deleted or (name and exclusions.session(name.agent, name.session)):
            continue
        local = layout.archive / path
        try:
            why = _why_lost(local, whole=wait is not None)
            if why is None:
                continue
            if in_trash is None:
                in_trash = set(_in_trash(layout))
            if path in in_trash:
                continue
            yield _get_back(layout, local, stored, why, wait)
        except OSError as error:
            problem = os_problem(error, f"reading {local}")
            yield Finding("lost_file", str(local), problem.message, hint=problem.hint)


def _why_lost(local: Path, *, whole: bool) -> str | None:
    """Return why a file cannot be used; None if it can. `whole`: read all of it."""
    if not is_there(local):
        return "it is not here any more"
    if whole and local.name.endswith(PACK) and (damage := why_damaged(local)):
        return damage.why
    if whole and local.name == COPY_FILE:
        try:
            read_snapshot(local.parent)
        except BsdError as error:
            return error.message
    return None


def _in_trash(layout: Layout) -> Iterator[str]:
    """Yield the files of archives in the trash, by the paths that they had."""
    for top, _, names in os.walk(layout.trash):
        for name in names:
            if path := archive_path(layout.root, Path(top, name)):
                yield path


def _get_back(layout: Layout, local: Path, stored: Stored, why: str, wait: float | None) -> Finding:
    message = f"{why}; the bucket {stored.place.url} has it"
    if wait is None:
        return Finding("lost_file", str(local), message, hint="bsd verify --repair")
    store = layout.archive / stored.file.path.partition("/")[0]
    try:
        with lock_of(layout, store, wait):
            _fetch(local, stored)
    except (BsdError, OSError) as error:
        problem = os_problem(error, f"writing {local}")
        return Finding("lost_file", str(local), f"{message}; {problem.message}", hint=problem.hint)
    _log.info("A file of the archive came back from the bucket", path=str(local), problem=why)
    message += ", and it came back from there"
    return Finding("lost_file", str(local), message, repaired=True)


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
