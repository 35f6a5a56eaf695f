"""The size of the archive, and the parts to delete so that it fits `archive_max_bytes`.

The limit covers packs and copies of sessions together. Copies of sessions whose transcripts still
exist are deleted first, because no content is lost with them; then the oldest parts. A copy is
deleted as a whole. The last copy of a deleted session is deleted together with the session's packs,
at the age of the youngest of these files, because the copy is useless without its values. Sizes
are bytes, times epoch seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsd.core.errors import NotFound, Unavailable
from bsd.core.formatting import NEVER, iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.deleted_sessions import deleted_sessions, is_deleted
from bsd.maintenance.expiry import (
    Cleaned,
    ExpirableFile,
    Expired,
    RetentionTarget,
    SessionFiles,
)
from bsd.maintenance.forget import Forget
from bsd.maintenance.targets import WAIT_SECONDS, ArchivePacks, lock_of
from bsd.store.archive import SessionArchive
from bsd.store.snapshots import (
    Snapshot,
    archive_directories,
    delete_snapshot,
    read_snapshot,
    sessions_needed_by_copies,
    snapshot_directories,
)

# Ratio of bytes in the store to bytes in the archive, assumed while the archive is empty. It was
# measured with the shortest of the recorded sessions.
USUAL_RATIO = 4.0
_NEARLY = 0.9  # share of the limit from which `bsd status` warns


@dataclass(frozen=True, slots=True)
class ArchiveUse:
    """The content of the archive, and the bytes that it saves."""

    packs: int = 0
    lines: int = 0
    content: int = 0  # bytes of the original lines
    kept: int = 0  # bytes of the packs
    oldest: float | None = None  # when the first line was archived
    newest: float | None = None

    @property
    def ratio(self) -> float | None:
        """Bytes of content per byte of the archive; None if the archive is empty."""
        return self.content / self.kept if self.kept else None

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the JSON answer."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        for name in ("oldest", "newest"):
            fields[name] = None if fields[name] is None else iso_utc(fields[name])
        return {**fields, "ratio": None if self.ratio is None else round(self.ratio, 2)}


def archive_use(layout: Layout) -> ArchiveUse:
    """Add up the summaries of all packs, damaged packs excepted. Raises BsdError."""
    summaries = [
        summary
        for directory in archive_directories(layout)
        for _, summary in SessionArchive(directory).summaries()
    ]
    if not summaries:
        return ArchiveUse()
    return ArchiveUse(
        packs=len(summaries),
        lines=sum(summary.lines for summary in summaries),
        content=sum(summary.content for summary in summaries),
        kept=sum(summary.packed for summary in summaries),
        oldest=min(summary.oldest for summary in summaries),
        newest=max(summary.newest for summary in summaries),
    )


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """Files of the archive that are deleted together.

    Attributes:
        place: the directory of a copy, or the path of a pack.
        age_from: time from which the age counts. Older parts are deleted first, after all parts
            that are `spare`.
        gone: the copy of a deleted session, which is then forgotten.
        spare: True for the copy of a session whose transcript still exists.
    """

    place: Path
    age_from: float
    files: tuple[ExpirableFile, ...]
    gone: Snapshot | None = None
    spare: bool = False

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class ArchiveOverLimit(RetentionTarget):
    """The parts to delete so that the archive takes no more than `limit` bytes.

    Attributes:
        used: bytes that the archive takes now.
        is_near: True if the archive takes at least 90 % of the limit.
        going: the parts to delete by their place, in the order of deletion.
        packs: the target that deletes packs without a copy of their session.

    Raises:
        BsdError, OSError: the archive cannot be read.
    """

    name = "archived"
    keep = NEVER  # the limit decides, not the age

    def __init__(
        self,
        layout: Layout,
        limit: int,
        forgetting: Forget | None = None,
        *,
        wait: float = WAIT_SECONDS,
    ) -> None:
        self.layout = layout
        self.packs = ArchivePacks(layout, NEVER, wait=wait)
        self._forgetting = forgetting or Forget(layout)
        parts = sorted(self._parts(), key=lambda part: (not part.spare, part.age_from))
        self.used = sum(part.size for part in parts)
        self.is_near = self.used >= _NEARLY * limit
        self.going: dict[Path, ArchivePart] = {}
        over = self.used - limit
        needed = sessions_needed_by_copies(layout)
        gone: set[SessionName] = set()
        while over > 0:
            # A session in whose file others begin goes after these.
            free = (part for part in parts if not _others(part, needed) - gone)
            part = next(free, None)
            if part is None:
                break
            parts.remove(part)
            self.going[part.place] = part
            gone |= {part.gone.name} if part.gone else set()
            over -= part.size

    def _parts(self) -> Iterator[ArchivePart]:
        layout = self.layout
        gone = {copy.directory: copy for copy in deleted_sessions(layout)}
        for archive in archive_directories(layout):
            copies = list(snapshot_directories(archive))
            packs = self.packs.look(archive).files
            for directory in copies:
                copy = gone.get(directory)
                file = ExpirableFile(directory, _size_of(directory), _copied_at(directory))
                if copy is None:
                    spare = _is_spare(layout, directory)
                    yield ArchivePart(directory, file.mtime, (file,), spare=spare)
                elif len(copies) > 1 or not is_deleted(layout, copy.name):
                    yield ArchivePart(directory, file.mtime, (file,), copy)
                else:
                    youngest = max(each.mtime for each in (file, *packs))
                    yield ArchivePart(directory, youngest, (file, *packs), copy)
                    packs = []
            yield from (ArchivePart(pack.path, pack.mtime, (pack,)) for pack in packs)

    def places(self) -> Iterator[Path]:
        yield from self.going

    def look(self, place: Path) -> SessionFiles:
        return SessionFiles(list(self.going[place].files))

    def delete(self, place: Path, expired: Expired) -> Cleaned:
        part = self.going[place]
        if not any(map(expired, part.files)):
            return Cleaned()
        if part.gone is not None:
            with suppress(NotFound):
                self._forgetting.session(part.gone.name, part.gone)
            return Cleaned(len(part.files), part.size)
        if not place.is_dir():
            return self.packs.delete(place.parent, lambda pack: pack.path == place)
        with lock_of(self.layout, place.parent, 0.0):
            if part.spare and not _is_spare(self.layout, place):
                return Cleaned()  # the session was deleted meanwhile
            delete_snapshot(place)
        return Cleaned(1, part.size)


def _others(part: ArchivePart, needed: Mapping[str, set[SessionName]]) -> set[SessionName]:
    """Return the sessions with copies that begin in the file of a deleted session."""
    return set() if part.gone is None else needed.get(str(part.gone.name), set())


def _is_spare(layout: Layout, directory: Path) -> bool:
    """Return True for the copy of a session whose transcript still exists."""
    with suppress(Unavailable):
        copy = read_snapshot(directory)
        return copy is not None and copy.gone_at is None and not is_deleted(layout, copy.name)
    return False


def _size_of(directory: Path) -> int:
    size = 0
    for path in directory.iterdir():
        with suppress(FileNotFoundError):
            size += path.lstat().st_size
    return size


def _copied_at(directory: Path) -> float:
    with suppress(Unavailable):
        if copy := read_snapshot(directory):
            return copy.kept_at
    with suppress(OSError):  # the time inside a damaged copy cannot be read
        return directory.stat().st_mtime
    return 0.0
