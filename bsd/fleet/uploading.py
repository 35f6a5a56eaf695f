"""Finds the files of the archive that are not in the bucket, and uploads them, several at once.

The unit of work is a directory: its packs are uploaded before its `copy.json`, and that counts only
if the bucket then has all packs that are in the directory. So whatever a manifest lists can be
brought back. The journal is used by one thread only, the caller's.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import structlog

from bsd.bucket.errors import BucketRefused, BucketUnreachable, NoBucket
from bsd.bucket.objects import Bucket, backoff
from bsd.bucket.sealing import Sealing
from bsd.bucket.transfers import download, upload
from bsd.core.errors import BsdError, Unavailable, os_problem
from bsd.core.files import FileStamp, open_ours, stamp_of
from bsd.core.layout import COPY, Layout
from bsd.fleet.host import HostDirectory
from bsd.fleet.manifest import CopyFacts, copy_facts
from bsd.maintenance.targets import not_excluded
from bsd.store.pack import PACK, SET_ASIDE, UNFINISHED, Pack, PackDamaged, why_damaged
from bsd.store.snapshots import COPY_FILE, read_snapshot
from bsd.store.upload_places import NO_STAMP, NotedFile, PlaceJournal, Upload
from bsd.store.uploads import Stored

_log = structlog.stdlib.get_logger(module="fleet")

_TRIES = 3  # of an upload, before the push ends and waits for the next one
_POLL_SECONDS = 1.0
_HANGS_SECONDS = 3600.0  # without an upload that ends, the push counts as hanging
_WAITING_PER_THREAD = 2
_BLOCK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
# Errors that concern the bucket, not one file: the push ends.
_OUTAGE = (BucketUnreachable, BucketRefused, NoBucket)


class LocalFile(NamedTuple):
    """A file of the archive. `path` is relative to `archive/`."""

    path: str
    stamp: FileStamp

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.stamp[1]


class _ToUpload(NamedTuple):
    file: LocalFile
    before: Stored | None  # what a bucket has under this path, if anything
    is_here: bool  # `before` is in the bucket's current directory


@dataclass(frozen=True, slots=True)
class _Work:
    """The files of a directory to upload, in order."""

    files: tuple[_ToUpload, ...]
    noted: frozenset[str]  # the paths in the directory that need no upload

    @property
    def size(self) -> int:
        return sum(each.file.size for each in self.files)


@dataclass(slots=True)
class _Answer:
    """The outcome of the uploads of a directory."""

    work: _Work
    uploads: list[Upload] = field(default_factory=list)
    same: list[tuple[str, FileStamp, bool]] = field(default_factory=list)  # path, stamp, is thin
    gone: int = 0  # files that were deleted meanwhile
    problems: list[str] = field(default_factory=list)
    outage: BsdError | None = None


@dataclass(slots=True)
class UploadTotals:
    """The sums of a push: uploaded files, and files that are left. Sizes are bytes."""

    files: int = 0
    bytes: int = 0
    waiting_files: int = 0
    waiting_bytes: int = 0
    problems: list[str] = field(default_factory=list)


def archive_files(layout: Layout, problems: list[str]) -> Iterator[tuple[str, list[LocalFile]]]:
    """Yield the directories of the archive with their files, `copy.json` last.

    Data of excluded sessions, temporary files and packs that were set aside are left out.

    Args:
        layout: the root.
        problems: why directories could not be read is added here.
    """
    top = layout.refuse_outside(layout.archive)
    for place in not_excluded(layout, (top / name for name in _names(top, problems))):
        yield from _below(str(top), place.name, problems)


def files_in(layout: Layout, directory: str) -> list[LocalFile]:
    """Return the files of one directory of the archive; raises OSError."""
    return _files(f"{layout.archive}/{directory}", directory)[0]


def _names(top: Path, problems: list[str]) -> list[str]:
    try:
        with os.scandir(top) as found:
            return sorted(each.name for each in found if each.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(os_problem(error, f"reading {top}").message)
        return []


def _below(top: str, place: str, problems: list[str]) -> Iterator[tuple[str, list[LocalFile]]]:
    left = [place]
    while left:
        place = left.pop()
        try:
            files, directories = _files(f"{top}/{place}", place)
        except FileNotFoundError:  # just deleted
            continue
        except OSError as error:
            problems.append(os_problem(error, f"reading {top}/{place}").message)
            continue
        left += [f"{place}/{name}" for name in sorted(directories, reverse=True)]
        if files:
            yield place, files


def _files(directory: str, place: str) -> tuple[list[LocalFile], list[str]]:
    files, directories = [], []
    with os.scandir(directory) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            elif entry.is_file(follow_symlinks=False) and not _is_passing(entry.name):
                with suppress(FileNotFoundError):
                    stamp = stamp_of(entry.stat(follow_symlinks=False))
                    files.append(LocalFile(f"{place}/{entry.name}", stamp))
    files.sort(key=lambda file: (file.path.endswith(f"/{COPY_FILE}"), file.path))
    return files, directories


def _is_passing(name: str) -> bool:
    return name.endswith(SET_ASIDE) or (name.startswith(".") and name.endswith(UNFINISHED))


def _is_thin(pack: Path) -> bool:
    with suppress(PackDamaged), Pack(pack) as opened:
        return opened.is_thin
    return False


def is_copy(path: str) -> bool:
    """Return whether a path of the archive is the `copy.json` of a session's copy."""
    directory, _, name = path.rpartition("/")
    return name == COPY_FILE and directory.rpartition("/")[2].startswith(COPY)


class Uploader:
    """Uploads the new files of the archive of a root.

    Args:
        layout: the root.
        bucket: the bucket.
        directory: of this host there.
        sealing: how files are encrypted.
        place: the journal of the directory.
        open_stored: returns the bucket of a file that another place has.
        stopping: called often; True ends the push. It also shows that the push is alive.
        at_once: the number of uploads at the same time.
        after_step: for tests.
    """

    def __init__(  # noqa: PLR0913 - the parts of a push
        self,
        layout: Layout,
        bucket: Bucket,
        directory: HostDirectory,
        sealing: Sealing,
        place: PlaceJournal,
        *,
        open_stored: Callable[[Stored], tuple[Bucket, Sealing]],
        stopping: Callable[[], bool],
        at_once: int,
        after_step: Callable[[str], None],
    ) -> None:
        self._layout = layout
        self._bucket = bucket
        self._directory = directory
        self._sealing = sealing
        self._place = place
        self._open_stored = open_stored
        self._stopping = stopping
        self._at_once = at_once
        self._after_step = after_step
        self._ends = threading.Event()  # threads begin no further upload

    def count(self) -> UploadTotals:
        """Return the sums of the files that are not uploaded; sends no request."""
        totals = UploadTotals()
        for work in self._work(totals.problems):
            totals.waiting_files += len(work.files)
            totals.waiting_bytes += work.size
        return totals

    def run(self, until: float, noted: Callable[[UploadTotals], None]) -> UploadTotals:
        """Upload until everything is in the bucket or the time is over.

        Args:
            until: monotonic seconds after which no further upload begins.
            noted: called after uploads were noted in the journal, with the totals so far.

        Raises:
            BucketUnreachable, BucketRefused, NoBucket: the bucket cannot be used; what was uploaded
                is noted.
        """
        totals = UploadTotals()
        pending: set[Future[_Answer]] = set()
        outage: BsdError | None = None
        self._ends.clear()
        with ThreadPoolExecutor(self._at_once, "bsd-upload") as threads:
            try:
                for work in self._work(totals.problems):
                    totals.waiting_files += len(work.files)
                    totals.waiting_bytes += work.size
                    if outage or time.monotonic() >= until or self._stopping():
                        continue  # it is only counted
                    while len(pending) >= _WAITING_PER_THREAD * self._at_once and not outage:
                        pending, outage = self._collect(pending, totals, noted)
                    if not outage:
                        pending.add(threads.submit(self._upload_directory, work))
                while pending:
                    pending, problem = self._collect(pending, totals, noted)
                    outage = outage or problem
            finally:
                self._ends.set()
        if outage is not None:
            raise outage
        return totals

    # --- the caller's thread ---

    def _work(self, problems: list[str]) -> Iterator[_Work]:
        """Yield the directories with files to upload."""
        store, noted = "", dict[str, NotedFile]()
        for directory, files in archive_files(self._layout, problems):
            if directory.partition("/")[0] != store:
                store = directory.partition("/")[0]
                noted = self._place.noted_in(store)
            new = [
                file
                for file in files
                if (known := noted.get(file.path)) is None or known.stamp != file.stamp
            ]
            if new:
                is_noted = {file.path for file in files} - {file.path for file in new}
                yield _Work(
                    tuple(
                        _ToUpload(file, self._place.stored(file.path), file.path in noted)
                        for file in new
                    ),
                    frozenset(is_noted),
                )

    def _collect(
        self,
        pending: set[Future[_Answer]],
        totals: UploadTotals,
        noted: Callable[[UploadTotals], None],
    ) -> tuple[set[Future[_Answer]], BsdError | None]:
        """Wait for an upload, and note what has ended; return what is pending, and an outage."""
        done: set[Future[_Answer]] = set()
        began = time.monotonic()
        while not done:
            done, pending = wait(pending, _POLL_SECONDS, FIRST_COMPLETED)
            # A push that hangs must not look alive: its process is killed then.
            if time.monotonic() - began < _HANGS_SECONDS and self._stopping():
                self._ends.set()
        answers = [each.result() for each in done]
        uploads = [upload for answer in answers for upload in answer.uploads]
        if uploads:
            self._after_step("uploaded")
            self._place.note_uploads(uploads)
            self._after_step("noted")
        for answer in answers:
            for path, stamp, is_thin_ in answer.same:
                self._place.note_stamp(path, stamp, is_thin=is_thin_)
            totals.problems += answer.problems
            ended = {each.file.path for each in answer.uploads} | {path for path, *_ in answer.same}
            totals.waiting_files -= len(ended) + answer.gone
        sizes = [upload.file.size for upload in uploads]
        totals.files += len(uploads)
        totals.bytes += sum(sizes)
        totals.waiting_bytes -= sum(upload.stamp[1] for upload in uploads)
        totals.waiting_bytes -= sum(stamp[1] for answer in answers for _, stamp, _ in answer.same)
        noted(totals)
        outages = (answer.outage for answer in answers if answer.outage is not None)
        if outage := next(outages, None):
            self._ends.set()
        return pending, outage

    # --- threads ---

    def _upload_directory(self, work: _Work) -> _Answer:
        answer = _Answer(work)
        done = set(work.noted)
        for each in work.files:
            if self._ends.is_set():
                break
            path = each.file.path
            if is_copy(path) and not self._has_all(path, done):
                continue  # its packs come first
            try:
                self._retrying(each, answer)
            except _OUTAGE as outage:
                answer.outage = outage
                break
            except FileNotFoundError:  # deleted, merged into another pack, or replaced
                answer.gone += not (self._layout.archive / path).exists()
                continue
            except (BsdError, OSError) as error:
                problem = os_problem(error, f"uploading {path}").message
                _log.warning("A file cannot be uploaded", path=path, problem=problem)
                answer.problems.append(problem)
                continue
            done.add(path)
        # If a session was copied meanwhile, its `copy.json` may name a pack that is not there yet.
        last = answer.uploads[-1].file.path if answer.uploads else ""
        if is_copy(last) and not self._has_all(last, done):
            answer.uploads.pop()
        return answer

    def _has_all(self, copy: str, done: set[str]) -> bool:
        """Return whether the bucket has all packs in the directory of a `copy.json`."""
        with suppress(OSError):
            found = files_in(self._layout, copy.rpartition("/")[0])
            return all(file.path in done for file in found if file.path.endswith(PACK))
        return False

    def _retrying(self, each: _ToUpload, answer: _Answer) -> None:
        for attempt in range(_TRIES):
            try:
                self._upload(each, answer)
            except BucketUnreachable:
                if attempt + 1 == _TRIES or self._ends.wait(backoff(attempt)):
                    raise
            else:
                return

    def _upload(self, each: _ToUpload, answer: _Answer) -> None:
        file, before = each.file, each.before
        local = self._layout.archive / file.path
        is_pack = file.path.endswith(PACK)
        is_thin = is_pack and _is_thin(local)
        if before is None:
            if is_thin:
                hint = "`bsd verify` names what is lost, if no other place has it"
                raise Unavailable(f"{local} is thin, and no bucket is known to have it", hint=hint)
        elif before.file.size == file.size and self._hash(local) == before.file.hash:
            if each.is_here:
                answer.same.append((file.path, file.stamp, False))
                return
        elif (damage := why_damaged(local) if is_pack else None) or is_thin:
            # A pack never changes, so what the bucket has is the whole pack.
            if not each.is_here:
                answer.uploads.append(self._copied(file, before))
            answer.same.append((file.path, file.stamp, is_thin))
            if damage:
                answer.problems.append(
                    f"{local}: {damage.why}; the bucket keeps the pack as it was, and"
                    " `bsd verify --repair` gets it back"
                )
            return
        elif is_copy(file.path):
            read_snapshot(local.parent)  # one that cannot be read does not replace another
        remote = upload(
            self._bucket,
            self._directory.objects,
            local,
            root=self._layout.root,
            path=file.path,
            sealing=self._sealing,
        )
        copy = self._facts(local, remote.hash) if is_copy(file.path) else None
        answer.uploads.append(Upload(remote, file.stamp, copy))

    def _copied(self, file: LocalFile, stored: Stored) -> Upload:
        """Copy a file whose content only another place has, such as one of a former name."""
        bucket, sealing = self._open_stored(stored)
        scratch = self._layout.fleet / f".{hashlib.sha256(file.path.encode()).hexdigest()}.tmp"
        try:
            with open(os.open(scratch, _NEW, 0o600), "wb") as to:
                download(bucket, stored.file, sealing, to)
            remote = upload(
                self._bucket,
                self._directory.objects,
                scratch,
                root=self._layout.root,
                path=file.path,
                sealing=self._sealing,
            )
        finally:
            scratch.unlink(missing_ok=True)
        return Upload(remote, NO_STAMP)

    def _facts(self, copy: Path, hash_: str) -> bytes | None:
        """Return the facts of a copy; None if it is damaged. Raises OSError if it has changed."""
        try:
            snapshot = read_snapshot(copy.parent)
        except Unavailable:
            return None
        if snapshot is None or self._hash(copy) != hash_:
            raise FileNotFoundError(copy)  # a later push uploads what replaced it
        return copy_facts(
            CopyFacts(
                snapshot.name,
                snapshot.transcript.was.mtime_ns / 1e9,
                snapshot.size,
                snapshot.gone_at,
            )
        )

    def _hash(self, path: Path) -> str:
        hasher = hashlib.sha256()
        with open(open_ours(path, self._layout.root), "rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                hasher.update(block)
        return hasher.hexdigest()
