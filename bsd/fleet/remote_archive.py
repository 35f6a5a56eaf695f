"""Sessions in the archives of other hosts: lists, and taking one into the archive of this root.

A session is downloaded into a directory beside the archive, with all that belongs to it: packs of
values, the sessions that are its parts, those in whose files it begins, notes of its project. There
everything is checked, and what was forgotten is removed. Then its files are moved into the archive,
`copy.json` last, and `bring_back` does the rest. After a kill, files that were moved stay, and the
next call continues; `sweep_arriving` removes the directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bsd.bucket.objects import Bucket
from bsd.bucket.sealing import Sealing
from bsd.core.layout import Layout
from bsd.fleet.context import FleetContext
from bsd.fleet.manifest import CopyFacts, HostArchive, ManifestFile
from bsd.store.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class RemoteCopy:
    """A copy of a session in the archive of a host."""

    archive: HostArchive
    file: ManifestFile
    facts: CopyFacts
    origin: str

    @property
    def id(self) -> str:
        """The session's name with the origin, as of `Snapshot`."""
        return f"{self.facts.session}@{self.origin[:8]}"


@dataclass(frozen=True, slots=True)
class Adopted:
    """A session that was taken from another host into the archive. Sizes are bytes."""

    copy: Snapshot
    downloaded: Annotated[int, Field(description="Bytes read from the bucket")]
    stayed: Annotated[list[str], Field(description="Copies here that are newer, and stayed")]


def remote_copies(archive: HostArchive) -> list[RemoteCopy]:
    """Return the copies of sessions of a host, the last used first."""
    raise NotImplementedError


def find_copy(archive: HostArchive, text: str) -> RemoteCopy:
    """Return the copy with this name or id.

    Raises:
        NotFound: the host has no such session.
        Invalid: several copies have this name.
    """
    raise NotImplementedError


def titles_of(bucket: Bucket, sealing: Sealing, copies: list[RemoteCopy]) -> dict[str, str | None]:
    """Return the titles of copies by their path, read from their objects at the same time."""
    raise NotImplementedError


@contextmanager
def arrived(
    context: FleetContext, bucket: Bucket, sealing: Sealing, copy: RemoteCopy
) -> Iterator[Layout]:
    """Yield a root of its own that holds a session of another host, checked, without the forgotten.

    Raises:
        NotFound: all hosts have to forget the session.
        Unavailable: an object is missing or damaged.
    """
    raise NotImplementedError


def adopt(context: FleetContext, arrived: Layout, copy: RemoteCopy) -> Adopted:
    """Move a session that has arrived into the archive of this root.

    Raises:
        Conflict: this root has another version of the session that is not an earlier one.
        Busy: another process works on the session.
    """
    raise NotImplementedError


def sweep_arriving(layout: Layout) -> None:
    """Remove what killed calls of `arrived` have left."""
    raise NotImplementedError
