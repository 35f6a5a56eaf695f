"""The journal of uploads: what of this root's archive is in the bucket, and what was deleted here.

The file `.brainsurgeon/fleet/uploads.db` exists only if this host shares its archive (`[fleet]`).
It holds what a push needs to continue after any interruption, what reading a thin pack needs, and
documents that wait for the bucket. Files are named by their path relative to `archive/`.

Each change is durable when its function returns. If the journal is lost or damaged, the next push
rebuilds it from the bucket's manifests (`bsd/fleet/push.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from bsd.bucket.remote_file import RemoteFile
from bsd.core.files import Closing, FileStamp
from bsd.core.layout import Layout

_log = structlog.stdlib.get_logger(module="fleet")

_VERSION = 1
_WAIT_SECONDS = 10.0
_CACHE_KIB = 2048
NO_STAMP: FileStamp = (0, 0, 0)  # of a file that is in the bucket, but was not compared yet
# The archive of a session in the trash: `<store>_archive_<time>`.
_IN_TRASH = re.compile(r"(?P<store>.+)_archive_[^_]+")


# --- for code that does not know of buckets ---


def note_deleted(root: Path, paths: Iterable[Path], *, must: bool = False) -> None:
    """Record that files of the archive are about to be deleted here for good.

    Call it before the deletion: the next push then removes them from the bucket, too. A file that
    is missing without such a note stays in the bucket, since a disk may have failed. Without a
    journal (this host shares nothing), this costs one stat.

    Args:
        root: bsd's root.
        paths: files below `archive/`, or below the archive of a session in the trash, which count
            with the path that they had in `archive/`. Others are ignored.
        must: the deletion must not go on if the note cannot be written: a user deletes content.
            Otherwise the problem is logged, and the files stay in the bucket.

    Raises:
        Unavailable, TemporaryFailure: the note cannot be written (only with `must`).
    """
    raise NotImplementedError


def note_directory_deleted(root: Path, directory: Path, *, must: bool = False) -> None:
    """Record that a directory is about to be deleted with all files in it; as `note_deleted`."""
    raise NotImplementedError


def archive_path(root: Path, path: Path) -> str | None:
    """Return a file's path relative to `archive/`, as journal and manifests name it.

    A file in the archive of a session in the trash has the path that it had before. None: the file
    lies elsewhere.
    """
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """A directory of a bucket, and what is needed to read it without settings.

    Attributes:
        url: of the bucket, as in the settings (without credentials).
        identity: the file with the keys that decrypt; None: not encrypted.
        directory: this root's directory there: `HOST/ID`.
    """

    url: str
    identity: Path | None
    directory: str


class Stored(NamedTuple):
    """A file of the archive in a bucket."""

    file: RemoteFile
    place: BucketPlace


def stored_in_bucket(root: Path, path: Path) -> Stored | None:
    """Return where the bucket has a file of the archive, as listed in a durable manifest.

    Args:
        root: bsd's root.
        path: the file, such as a thin pack, also if it lies in the trash.

    Returns:
        None: there is no journal, or it does not know the file.

    Raises:
        TemporaryFailure, Unavailable: the journal cannot be read.
    """
    raise NotImplementedError


# --- the journal ---


@dataclass(frozen=True, slots=True)
class UploadFigures:
    """The state of the uploads, as `bsd fleet status` and `/api/status` show it. Times: epoch.

    Attributes:
        last_success: when a push last ended with everything uploaded.
        last_error: the message of the last failed push; None after a success.
        errors: how many pushes failed, ever.
        waiting_files: files that are not in the bucket yet, as the last push left them.
        waiting_bytes: their size.
        waiting_since: since when files have been waiting without a break; None: none waits.
        files: files in the bucket.
        bytes: their size.
        generation: of the newest manifest; 0: none.
    """

    last_success: float | None = None
    last_error: str | None = None
    last_error_at: float | None = None
    errors: int = 0
    waiting_files: int = 0
    waiting_bytes: int = 0
    waiting_since: float | None = None
    files: int = 0
    bytes: int = 0
    generation: int = 0


class UploadJournal(Closing):
    """The journal, open; usable by one thread. Raises TemporaryFailure and Unavailable.

    Args:
        layout: of the root.
        create: make the journal if it is missing; otherwise a missing one is NotFound.
    """

    def __init__(self, layout: Layout, *, create: bool = False) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def figures(self) -> UploadFigures:
        """Return the state of the uploads to the newest place."""
        raise NotImplementedError

    # Tombstones: documents that tell all hosts what was forgotten.

    def add_tombstone(self, id: str, document: Mapping[str, Any]) -> None:
        """Keep a tombstone until the bucket has it.

        Args:
            id: its key below `tombstones/`, without `.json`.
            document: as it is uploaded.
        """
        raise NotImplementedError

    def pending_tombstones(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the tombstones that the bucket does not have yet, with their ids, by id."""
        raise NotImplementedError

    def tombstone_sent(self, id: str) -> None:
        """Record that the bucket has a tombstone, and that this host has obeyed it."""
        raise NotImplementedError

    def applied_tombstones(self) -> set[str]:
        """Return the ids of the tombstones that this host has obeyed, including its own."""
        raise NotImplementedError

    def note_applied(self, ids: Iterable[str]) -> None:
        """Record that this host has obeyed tombstones."""
        raise NotImplementedError
