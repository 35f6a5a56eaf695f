"""The parts of snapshots: reading them from packs, writing them to new packs, removing old packs.

A part is a sequence of whole lines. The content of the lines decides where a part ends, so a change
in one place leaves most other parts as they were, and an update of a snapshot writes only the new
parts. New parts are durable before `copy.json` refers to them, and a pack is removed only when
`copy.json` no longer refers to any part in it.
"""

from __future__ import annotations

import hashlib
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from bsd.core.errors import Unavailable
from bsd.core.files import Closing, sync_dir
from bsd.store.pack import (
    PACK,
    UNFINISHED,
    OnlyInBucket,
    Pack,
    PackDamaged,
    PackWriter,
    root_of,
    why_damaged,
)
from bsd.store.snapshots import (
    Part,
    Snapshot,
    SnapshotFile,
    packs_in,
    read_snapshot,
    snapshot_directories,
    write_snapshot,
)
from bsd.store.uploads import note_deleted
from bsd.transcripts.reader import ChangedWhileReading, InBlocks, Line, Transcript

# Bytes. A part ends after the smaller size if its last line's checksum says so, and after the
# larger size in any case.
_SMALLEST_PART, _LARGEST_PART = 128 << 10, 1 << 20
_ONE_OF = 8
# Packs are merged if there are more than this, or if over half of their bytes are unused.
_MOST_PACKS = 6
_SMALL_BYTES = 2 << 20  # a smaller snapshot has one pack


class SnapshotReader(InBlocks):
    """Reads a file of a snapshot as a transcript is read; call `close` after use.

    Reading a damaged or missing part raises Unavailable.
    """

    def __init__(self, snapshot: Snapshot, file: SnapshotFile | None = None) -> None:
        self.snapshot = snapshot
        self._file = file or snapshot.transcript
        self._ends = list(accumulate(part.size for part in self._file.parts))
        # The copy of a compressed file holds its lines.
        super().__init__(self._file.was, _LARGEST_PART, self._ends[-1] if self._ends else 0)
        self._packs: list[Pack] | None = None  # opened at the first read
        self._problem: Exception | None = None  # why a pack could not be opened
        self._opened = ExitStack()
        self._last: tuple[int, bytes] = (-1, b"")  # number and content of the part read last

    def close(self) -> None:
        self._opened.close()
        self._packs = None

    def read(self, offset: int, length: int) -> bytes:
        if offset + length > self.size:
            raise ChangedWhileReading(f"there are no {length} bytes at {offset}")
        pieces = []
        number = bisect_right(self._ends, offset)
        while length > 0:
            content = self._part(number)
            start = offset - (self._ends[number] - len(content))
            pieces.append(content[start : start + length])
            offset, length, number = offset + len(pieces[-1]), length - len(pieces[-1]), number + 1
        return b"".join(pieces)

    def whole(self) -> Iterator[bytes]:
        """Yield the content, part by part."""
        return map(self._part, range(len(self._file.parts)))

    def check(self) -> None:
        """Read everything that is on this disk; raises Unavailable if a part is missing."""
        if self._packs is None:
            self._packs = sorted(self._open_packs(), key=lambda pack: pack.is_thin)
        thin = [pack for pack in self._packs if pack.is_thin]
        for part in self._file.parts:
            if not any(pack.find(part.hash) for pack in thin):
                self._read_part(part)

    def _fill(self, view: memoryview, offset: int) -> None:
        view[:] = self.read(offset, len(view))

    def _part(self, number: int) -> bytes:
        if self._last[0] != number:
            self._last = (number, self._read_part(self._file.parts[number]))
        return self._last[1]

    def _read_part(self, part: Part) -> bytes:
        if self._packs is None:
            self._packs = sorted(self._open_packs(), key=lambda pack: pack.is_thin)
        problem = self._problem
        for pack in self._packs:
            try:
                if (place := pack.find(part.hash)) is not None:
                    content = pack.line(place)  # the hash is checked
                    if len(content) == part.size:
                        return content
            except (PackDamaged, OSError) as error:
                problem = error
        if isinstance(problem, OnlyInBucket):
            raise problem
        raise Unavailable(
            f"the copy of {self.snapshot.name} in {self.snapshot.directory} is incomplete"
            f" ({problem or 'one of its packs is gone'})",
            hint="restore that directory from a backup",
        )

    def _open_packs(self) -> Iterator[Pack]:
        for path in packs_in(self.snapshot.directory):
            try:
                yield self._opened.enter_context(Pack(path))
            except (PackDamaged, OSError) as error:  # its parts will be missing
                self._problem = error


def damaged_snapshots(archive: Path) -> Iterator[tuple[Path, Unavailable]]:
    """Read all snapshots of a session, and yield those that cannot be read whole."""
    for directory in snapshot_directories(archive):
        try:
            if snapshot := read_snapshot(directory):
                for file in snapshot.files:
                    with SnapshotReader(snapshot, file) as source:
                        source.check()
        except Unavailable as problem:
            yield directory, problem


def split_into_parts(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to parts; the first line begins a part."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if size >= _SMALLEST_PART and (size >= _LARGEST_PART or zlib.crc32(line) % _ONE_OF == 0):
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)


def unchanged_parts(source: Transcript, before: SnapshotFile) -> tuple[Part, ...]:
    """Return the leading parts that an appended file still has; never the last part.

    The first part and the last two are compared, since programs that rewrite change these.
    """
    kept = before.parts[:-1]
    now, was = source.identity, before.was
    appended = (now.dev, now.ino) == (was.dev, was.ino) and now.size >= was.size
    if not appended or not kept or source.size < sum(part.size for part in before.parts):
        return ()
    end = sum(part.size for part in kept)
    compared = {0: kept[0], end - kept[-1].size: kept[-1], end: before.parts[-1]}
    same = all(_digest(source.read(at, part.size)) == part.hash for at, part in compared.items())
    return kept if same else ()


class PartWriter(Closing):
    """Packs parts that a snapshot does not have yet into one new pack; use it in a `with`."""

    def __init__(self, directory: Path, now: float, *, check: bool = False) -> None:
        """Open a snapshot directory, which need not exist, for new parts.

        Args:
            directory: of the snapshot.
            now: epoch seconds.
            check: read the existing packs, and do not rely on damaged packs.
        """
        self._directory = directory
        # Parts of an existing session must be on this disk.
        packs = [path for path in packs_in(directory) if not _is_thin(path)]
        self._damaged = list(filter(why_damaged, packs)) if check else []
        self._known = {
            hash_ for path in packs if path not in self._damaged for hash_ in _sizes(path)
        }
        self._now = now
        self._writer: PackWriter | None = None
        self._unfinished = ExitStack()
        self._made: Path | None = None
        self.taken = 0  # bytes that were packed

    def close(self) -> None:
        self._unfinished.close()

    def has(self, parts: Iterable[Part]) -> bool:
        """Return whether the snapshot has all these parts, or they were added."""
        return all(part.hash in self._known for part in parts)

    def add(self, content: bytes) -> Part:
        """Pack a part, unless the snapshot has it; return its hash and size."""
        part = Part(_digest(content), len(content))
        if part.hash not in self._known:
            if self._writer is None:
                self._writer = self._unfinished.enter_context(PackWriter(self._directory))
            self._writer.add(content, {})
            self._known.add(part.hash)
            self.taken += len(content)
        return part

    def finish(self) -> None:
        """Make the new parts durable; raises Unavailable, OSError."""
        if self._writer is not None:
            self._made = _finished(self._writer, self._now)

    def drop_damaged(self) -> None:
        """Remove the damaged packs; call this when `copy.json` no longer refers to them."""
        useless = [path for path in self._damaged if path != self._made]
        note_deleted(root_of(self._directory / PACK), useless)
        for path in useless:
            path.unlink(missing_ok=True)


def tidy_snapshot(snapshot: Snapshot, now: float, *, strictly: bool = False) -> None:
    """Remove unneeded packs, and merge packs that are many or half empty.

    The caller holds the session's lock. No part that the snapshot needs is removed before it is
    durable in another pack; a damaged snapshot is left unchanged.

    Args:
        snapshot: as it was last written.
        now: epoch seconds.
        strictly: keep no part that the snapshot does not need.

    Raises:
        OSError, Unavailable: for example, the disk is full.
    """
    for path in snapshot.directory.glob(f".*{UNFINISHED}"):
        path.unlink(missing_ok=True)
    needed = {part.hash: part for file in snapshot.files for part in file.parts}
    packs = {path: _sizes(path) for path in packs_in(snapshot.directory)}
    if needed.keys() - set().union(*packs.values()):
        return
    useful = sum(part.size for part in needed.values())
    content = sum(sum(sizes.values()) for sizes in packs.values())
    many = len(packs) > (1 if content <= _SMALL_BYTES else _MOST_PACKS)
    if many or content > 2 * useful or (strictly and content > useful):
        stay = {_merge(snapshot, now)}
    else:
        stay = {path for path, sizes in packs.items() if not sizes.keys().isdisjoint(needed)}
    if useless := packs.keys() - stay:
        note_deleted(root_of(snapshot.directory / PACK), useless, must=strictly)
        for path in useless:
            path.unlink(missing_ok=True)
        sync_dir(snapshot.directory)


def rewrite_snapshot(snapshot: Snapshot, change: Callable[[Line], bytes], now: float) -> int:
    """Rewrite a snapshot, each line as `change` returns it; return how many lines changed.

    `change` is called twice for each line, and must return the same bytes both times.
    """
    with closing(SnapshotReader(snapshot)) as source:
        changed = sum(change(line) != line.raw for line in source.lines())
        if not changed:
            return 0
        with PartWriter(snapshot.directory, now) as writer:
            lines = (change(line) for line in source.lines())
            parts = tuple(map(writer.add, split_into_parts(lines)))
            writer.finish()
    was = replace(snapshot.transcript.was, size=sum(part.size for part in parts))
    files = (replace(snapshot.transcript, was=was, parts=parts), *snapshot.files[1:])
    new = replace(snapshot, files=files, title=None)  # a changed line may have given the title
    write_snapshot(new)
    tidy_snapshot(new, now, strictly=True)
    return changed


def _merge(snapshot: Snapshot, now: float) -> Path:
    """Pack all parts anew, durably; return the pack."""
    packed: set[bytes] = set()
    with PackWriter(snapshot.directory) as writer:
        for file in snapshot.files:
            with SnapshotReader(snapshot, file) as source:
                for part, content in zip(file.parts, source.whole(), strict=True):
                    if part.hash not in packed:
                        writer.add(content, {})
                        packed.add(part.hash)
        return _finished(writer, now)


def _finished(writer: PackWriter, now: float) -> Path:
    try:
        return writer.finish(now, now)
    except PackDamaged as damaged:
        raise Unavailable(str(damaged), hint="check this disk") from damaged


def _is_thin(path: Path) -> bool:
    with suppress(PackDamaged, OSError), Pack(path) as pack:
        return pack.is_thin
    return False


def _sizes(path: Path) -> dict[bytes, int]:
    """Return the sizes of a pack's parts by hash; empty for a damaged pack."""
    with suppress(PackDamaged, OSError), Pack(path) as pack:
        return {place.hash: place.size for place in pack.places()}
    return {}


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
