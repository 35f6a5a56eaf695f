"""Manifests: what a host has in the bucket, a small object for each change, chained by hash.

A manifest is `HOST/ID/manifests/<generation>.json`: JSON, compressed with zstd, encrypted if the
settings say so. It is only ever created. Generations count from 1; each names the SHA-256 of the
object before it, and lists what was added and removed since. Every 50th lists all files (`full`),
and those before it are deleted then. Titles and other words of sessions are in no manifest, since
`forget` must be able to delete them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from bsd.bucket.remote_file import RemoteFile
from bsd.core.layout import SessionName
from bsd.fleet.host import HostDirectory

if TYPE_CHECKING:
    from bsd.bucket.objects import Bucket
    from bsd.bucket.sealing import Sealing

VERSION = 1
FULL_EVERY = 50  # generations


class FileKind(StrEnum):
    """What a file of the archive holds; its path tells."""

    COPY = "copy"  # `copy.json` of a session's copy
    PARTS = "parts"  # a pack of a session's copy
    VALUES = "values"  # a pack of values that left a session
    OTHER = "other"  # such as notes of a project


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """Facts about a copy of a session, so that lists need no other object. Times: epoch seconds.

    Attributes:
        session: its name.
        updated: the time of its transcript when it was copied.
        size: bytes of its files, without extracted values.
        gone_at: when it was found deleted on its host; None: it was not.
    """

    session: SessionName
    updated: float
    size: int
    gone_at: float | None = None


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A file of a host in the bucket; `copy` is given for a `copy.json`."""

    file: RemoteFile
    copy: CopyFacts | None = None

    @property
    def path(self) -> str:
        """The path relative to `archive/`."""
        return self.file.path

    @property
    def kind(self) -> FileKind:
        """What the file holds."""
        raise NotImplementedError

    @property
    def store(self) -> str:
        """The first directory of the path: the store name of the session."""
        return self.path.partition("/")[0]


@dataclass(frozen=True, slots=True)
class HostArchive:
    """The files of a host in the bucket, as its newest manifest says.

    Attributes:
        directory: of the host.
        generation: of the newest manifest; 0: there is none.
        previous: SHA-256 of the newest manifest's object, in hex; the next one names it.
        at: when it was written, by the host's clock; epoch seconds.
        version: of bsd that wrote it.
        files: all files by path.
        broken: what is wrong with the chain of manifests; empty: nothing.
    """

    directory: HostDirectory
    generation: int = 0
    previous: str | None = None
    at: float = 0.0
    version: str = ""
    files: dict[str, ManifestFile] = field(default_factory=dict)
    broken: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        """The host's name; two hosts may have the same."""
        return self.directory.host

    @property
    def id(self) -> str:
        """The id that distinguishes hosts of the same name."""
        return self.directory.id

    def copies(self) -> Iterator[tuple[ManifestFile, CopyFacts]]:
        """Yield the `copy.json` of each copy of a session, with its facts."""
        for each in self.files.values():
            if each.copy is not None:
                yield each, each.copy

    def below(self, directory: str) -> list[ManifestFile]:
        """Return the files in a directory of the archive and below it, by path."""
        start = f"{directory}/"
        return sorted(
            (each for path, each in self.files.items() if path.startswith(start)),
            key=lambda each: each.path,
        )


def host_directories(bucket: Bucket) -> list[HostDirectory]:
    """Return the directories of all hosts, sorted: hosts of one name stand beside each other.

    Raises the errors of `bsd/bucket/errors.py`.
    """
    raise NotImplementedError


def read_host(bucket: Bucket, directory: HostDirectory, sealing: Sealing) -> HostArchive:
    """Return the newest state of a host.

    A manifest that is missing or damaged is named in `broken`; what the others say is returned. If
    the host deletes old manifests meanwhile, they are read again.

    Raises:
        CannotDecrypt: the manifests are encrypted, and the identity is missing or another one.
        BucketUnreachable, BucketRefused, NoBucket: as of `Bucket`.
    """
    raise NotImplementedError


def newest_generation(bucket: Bucket, directory: HostDirectory) -> int:
    """Return the number of the newest manifest of a host, with one request; 0 if there is none."""
    raise NotImplementedError


def make_manifest(
    archive: HostArchive,
    added: Iterable[ManifestFile],
    removed: Iterable[str],
    *,
    at: float,
    full: bool,
) -> bytes:
    """Return the next manifest of a host as JSON, compressed, not encrypted.

    Args:
        archive: the state before; `files` is not read.
        added: the files that are new or changed; all files if `full`.
        removed: the paths that are no longer there; empty if `full`.
        at: epoch seconds.
        full: the manifest replaces all before.
    """
    raise NotImplementedError
