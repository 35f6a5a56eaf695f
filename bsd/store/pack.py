"""Packs: lines that have left a store, compressed, many to a file; one costs reading one block.

A pack is written once and never changed. Its file is a row of zstd frames, so that any `zstd -dc`
prints the lines in their order; what is not lines stands in frames that zstd skips. All numbers are
unsigned, the lowest byte first.

    offset  bytes
    0       8      50 2A 4D 18 08 00 00 00: a frame to be skipped, of 8 bytes
    8       8      "bsdpack" and the version of this format, 1
    16      …      blocks: zstd frames that say how long their content is. A block is about 1 MiB
                   of lines in their order, each ended by a newline; one that has none itself is
                   ended by two (no entry is an empty line). A longer line has a block of its own
    I - 8   8      51 2A 4D 18 and 4 bytes: a frame to be skipped, of all that follows
    I       R      records: one zstd frame; a JSON object for each line, in their order, each ended
                   by a newline: what the store's index said of it
    I+R     48·n   places, sorted by hash: SHA-256 of the line (32), number of its block (4), where
                   it begins in the block's content (4), its bytes (4), its number (4)
            16·b   blocks: offset in the file (8), bytes there (4), bytes of content (4)
    -88     88     the end: I (8), R (8), n (4), b (4), bytes of all lines (8), when its first and
                   its last line were packed (8 and 8, epoch milliseconds), SHA-256 (32) of bytes
                   0–16 and of all from I - 8 to here, "bsdpack" and the version

Numbers count from 0. No content is ever given out whose hash is not the one that was asked for; the
hash at the end tells a torn index from one that lacks the line. Lines whose index is damaged are
found again by reading all blocks, since they stand there one after the other; after one that cannot
be read, the next is where the next frame begins.

There is no dictionary: on recorded sessions of 0.2 to 2.8 MB a trained one of 16 or 64 KiB, kept in
the pack, changed its size by -2 % to +28 %, since a block of 1 MiB learns the same by itself.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

import orjson
import zstandard

from bsd.core.files import (
    LARGEST_LINE,
    create_private,
    make_durable_dir,
    open_ours,
    sync_dir,
    write_all,
)

PACK = ".zst"  # how a pack's name ends
UNFINISHED = ".tmp"  # and that of one that is being written
SET_ASIDE = f"{PACK}.damaged"  # and that of a damaged one whose lines are in a new one

_BLOCK = 1 << 20
_LEVEL = 3
_MARK = b"bsdpack"
_VERSION = 1
_STAMP = _MARK + bytes([_VERSION])
_HEAD = struct.pack("<II", 0x184D2A50, 8) + _STAMP
_SKIP = struct.Struct("<II")
_INDEX_FRAME = 0x184D2A51
_INDEX_MAGIC = _INDEX_FRAME.to_bytes(4, "little")
_PLACE = struct.Struct("<32s4I")
_BLOCK_PLACE = struct.Struct("<QII")
_END = struct.Struct("<QQIIQQQ")
_TAIL = _END.size + 32 + len(_STAMP)
_MOST_LINES = 1 << 24  # more would make the index too large for its frame
_PIECE = 1 << 20
# A few bytes inflate to very many, so no more of a frame whose length is not known is read at once.
_SMALL_PIECE = 1 << 10
# What the records of a pack may inflate to: so much in all, and more for each line.
_MOST_RECORDS, _MOST_A_RECORD = 16 << 20, 64 << 10
# What inflates to more than this, and by more than so many times, is no block of a damaged pack.
_MUCH, _RATIO = 64 << 20, 1000
_LATEST_MS = 253402300800 * 1000  # the year 10000, which no calendar here has
_SHOWN = 10
_LONGEST_FRAME_HEADER = 18  # bytes (RFC 8878, 3.1.1.1)


def root_of(path: Path) -> Path:
    """The root to which a file belongs that lies in a session's archive, or in a copy in one."""
    depth = 3 if path.parent.name.startswith("session-") else 2
    return path.parents[depth] if len(path.parents) > depth else path.parent


def _most_of_records(lines: int) -> int:
    return _MOST_RECORDS + _MOST_A_RECORD * lines


class PackDamaged(Exception):
    """A pack, or part of it, is not as it was written."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is damaged: {why}")
        self.path = path
        self.why = why


class LinesDamaged(PackDamaged):
    """Lines cannot be read, or are not as they were; the index is whole, and so are others."""


class PackFull(Exception):
    """A line, or one line more, does not fit into a pack."""


@dataclass(frozen=True, slots=True)
class PackSummary:
    """What the end of a pack says. Sizes are bytes, times epoch seconds."""

    lines: int
    blocks: int
    content: int  # of all lines
    packed: int  # of the file
    oldest: float  # when its first line was packed
    newest: float


class PackPlace(NamedTuple):
    """Where a line lies in a pack."""

    hash: bytes
    block: int
    start: int  # in the block's content
    size: int
    number: int


class Packed(NamedTuple):
    """A line of a pack, and what the store's index said of it."""

    hash: bytes
    line: bytes
    record: Mapping[str, Any]


class Pack:
    """One pack, open for reading; to be used in a `with`.

    Raises PackDamaged for what is torn or no pack, OSError, FileNotFoundError too, and
    UntrustedFile for one that others have made or may change.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_ours(path, root_of(path))
        try:
            self._size = os.fstat(self._file).st_size
            self._read_end()
        except BaseException:  # nobody else has it to close
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def _read_end(self) -> None:
        head = self._read(0, len(_HEAD))
        tail = self._read(self._size - _TAIL, _TAIL) if self._size > len(_HEAD) + _TAIL else b""
        if not tail.endswith(_STAMP) or head != _HEAD:
            newer = tail[-8:-1] == _MARK and head[8:15] == _MARK
            why = "it is of another version of bsd" if newer else "its beginning or end is missing"
            raise PackDamaged(self.path, why)
        numbers = _END.unpack(tail[: _END.size])
        self._index, self._records, lines, blocks, content, oldest, newest = numbers
        if max(oldest, newest) >= _LATEST_MS:
            raise PackDamaged(self.path, "its times are none")
        self._hash = tail[_END.size : -len(_STAMP)]
        self._places = self._index + self._records
        self._blocks = self._places + _PLACE.size * lines
        if self._blocks + _BLOCK_PLACE.size * blocks + _TAIL != self._size:
            raise PackDamaged(self.path, "its end does not fit its size")
        self.summary = PackSummary(lines, blocks, content, self._size, oldest / 1e3, newest / 1e3)

    def check_index(self) -> None:
        """Raise PackDamaged unless the whole index is as it was written."""
        hasher = hashlib.sha256(_HEAD)
        end = self._size - len(_STAMP) - 32
        for start in range(self._index - _SKIP.size, end, _PIECE):
            hasher.update(self._read(start, min(_PIECE, end - start)))
        if hasher.digest() != self._hash:
            raise PackDamaged(self.path, "its index has another hash")

    def find(self, hash: bytes) -> PackPlace | None:
        """Where the line with this SHA-256 lies; None if this is a whole pack that has it not."""
        low, high = 0, self.summary.lines
        while low < high:
            middle = (low + high) // 2
            place = self._place(middle)
            if place.hash == hash:
                return place
            low, high = (middle + 1, high) if place.hash < hash else (low, middle)
        self.check_index()
        return None

    def line(self, place: PackPlace) -> bytes:
        """A line, whose hash is right; only its block is read."""
        return _cut(self.path, self._content(place.block), place)

    def places(self) -> list[PackPlace]:
        """All lines, sorted by hash."""
        self.check_index()
        table = self._read(self._places, self._blocks - self._places)
        return [PackPlace._make(each) for each in _PLACE.iter_unpack(table)]

    def check(self) -> None:
        """Read all of it; raises LinesDamaged with the entries that are lost, or PackDamaged."""
        places = sorted(self.places(), key=lambda place: place.number)
        lost, number, content = [], -1, b""
        for place, record in zip(places, self.records(), strict=True):
            try:
                if place.block != number:
                    number, content = place.block, b""
                    content = self._content(place.block)
                _cut(self.path, content, place)
            except PackDamaged:
                lost.append(str(record.get("entry_id") or place.hash.hex()[:16]))
        if lost:
            shown = ", ".join(lost[:_SHOWN]) + ", …" * (len(lost) > _SHOWN)
            raise LinesDamaged(self.path, f"{len(lost)} of its lines cannot be read: {shown}")

    def records(self) -> Iterator[Mapping[str, Any]]:
        """What the index of the store said of each line, in their order."""
        return map(self._parsed, self._record_lines())

    def _record_lines(self) -> Iterator[bytes]:
        """The records as JSON, one after the other; raises PackDamaged at the end for too few."""
        self.check_index()
        left = _most_of_records(self.summary.lines)
        number, begun = 0, b""
        with zstandard.ZstdDecompressor().stream_reader(
            self._read(self._index, self._records)
        ) as text:
            while piece := self._next_piece(text):
                left -= len(piece)
                if left < 0:
                    raise PackDamaged(self.path, "its records are larger than any")
                *whole, begun = (begun + piece).split(b"\n")
                number += len(whole)
                if number > self.summary.lines:
                    break
                yield from whole
        if number != self.summary.lines or begun:
            raise PackDamaged(self.path, "its records do not fit its lines")

    def _next_piece(self, text: zstandard.ZstdDecompressionReader) -> bytes:
        try:
            return text.read(_PIECE)
        except zstandard.ZstdError as error:
            raise PackDamaged(self.path, f"its records cannot be read ({error})") from error

    def _parsed(self, line: bytes) -> Mapping[str, Any]:
        try:
            record = orjson.loads(line)
        except ValueError as error:
            raise PackDamaged(self.path, f"a record is not JSON ({error})") from error
        if not isinstance(record, dict):
            raise PackDamaged(self.path, "a record is none")
        return record

    def __iter__(self) -> Iterator[Packed]:
        """All lines, in their order; every hash is compared."""
        return self.some(lambda _: True)

    def some(self, wanted: Callable[[Mapping[str, Any]], bool]) -> Iterator[Packed]:
        """The same, of those lines whose record is `wanted`; other blocks are not read."""
        places = sorted(self.places(), key=lambda place: place.number)
        number, content = -1, b""
        for place, record in zip(places, self.records(), strict=True):
            if not wanted(record):
                continue
            if place.block != number:
                number, content = place.block, self._content(place.block)
            yield Packed(place.hash, _cut(self.path, content, place), record)

    def record(self, place: PackPlace) -> Mapping[str, Any]:
        """What the index of the store said of one line."""
        line = next(islice(self._record_lines(), place.number, None), None)
        if line is None:
            raise PackDamaged(self.path, "a line of it has no record")
        return self._parsed(line)

    def _place(self, number: int) -> PackPlace:
        return PackPlace._make(
            _PLACE.unpack(self._read(self._places + number * _PLACE.size, _PLACE.size))
        )

    def _content(self, block: int) -> bytes:
        if block >= self.summary.blocks:
            raise PackDamaged(self.path, "its index names a block that it has not")
        said = self._read(self._blocks + block * _BLOCK_PLACE.size, _BLOCK_PLACE.size)
        offset, size, length = _BLOCK_PLACE.unpack(said)
        if offset + size > self._index or length > LARGEST_LINE + 2:
            raise PackDamaged(self.path, "its index names a block that it has not")
        return _inflated(self.path, self._read(offset, size), length)

    def _read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._file, length, offset) if 0 <= offset <= self._size else b""
        while len(data) < length:
            piece = os.pread(self._file, length - len(data), offset + len(data))
            if not piece:
                raise PackDamaged(self.path, "it is shorter than it was")
            data += piece
        return data


def why_damaged(path: Path) -> PackDamaged | None:
    """What is wrong with a pack, all of which is read; LinesDamaged if its index is whole.

    Raises OSError.
    """
    try:
        with Pack(path) as pack:
            pack.check()
    except PackDamaged as problem:
        return problem
    return None


class Salvage:
    """What is left of a pack whose index is damaged: the lines of all blocks that can be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.whole = False  # all bytes from the first block to the index were read as blocks

    def lines(self) -> Iterator[bytes]:
        """All lines, in their order; blocks that cannot be read are left out.

        Nothing tells whether a line is as it was but its hash, for callers who know it. Raises
        OSError.
        """
        gaps = False
        with open(open_ours(self.path, root_of(self.path)), "rb", closefd=True) as file:
            start: int | None = len(_HEAD)
            while start is not None:
                file.seek(start)
                if file.read(_SKIP.size)[:4] == _INDEX_MAGIC:
                    self.whole = not gaps
                    return
                content = _block_at(file, start)
                if content is None:
                    gaps = True
                    start = _next_frame(file, start + 1)
                else:
                    start = file.tell()
                    yield from _lines(content)


def salvaged(path: Path) -> Iterator[bytes]:
    """All lines of a pack whose index is damaged, as `Salvage.lines` gives them."""
    return Salvage(path).lines()


def _block_at(file: BinaryIO, start: int) -> bytes | None:
    """Return the content of the block that begins there, and seek to its end; None: no block.

    A block says how long its content is; the frame of the records does not.
    """
    file.seek(start)
    head = file.read(_LONGEST_FRAME_HEADER)
    content, length = [], 0
    with suppress(zstandard.ZstdError):
        wanted = zstandard.frame_content_size(head)
        if not head.startswith(zstandard.FRAME_HEADER) or not 0 < wanted <= LARGEST_LINE + 2:
            return None
        unpacker = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
        file.seek(start)
        while not unpacker.eof and (piece := file.read(_SMALL_PIECE)):
            content.append(unpacker.decompress(piece))
            length += len(content[-1])
            if length > min(wanted, max(_MUCH, _RATIO * (file.tell() - start))):
                return None
        if unpacker.eof and length == wanted:
            file.seek(file.tell() - len(unpacker.unused_data))
            return b"".join(content)
    return None


def _next_frame(file: BinaryIO, start: int) -> int | None:
    """Where the next zstd frame, or the index, may begin; None if nothing more looks like one."""
    overlap = len(zstandard.FRAME_HEADER) - 1
    while True:
        file.seek(start)
        piece = file.read(_PIECE)
        found = [piece.find(magic) for magic in (zstandard.FRAME_HEADER, _INDEX_MAGIC)]
        if places := [place for place in found if place >= 0]:
            return start + min(places)
        if len(piece) <= overlap:
            return None
        start += len(piece) - overlap


def _lines(content: bytes) -> Iterator[bytes]:
    start, line = 0, b""
    while (end := content.find(b"\n", start) + 1) > 0:
        if line and end == start + 1:
            yield line[:-1]
            line = b""
        else:
            if line:
                yield line
            line = content[start:end]
        start = end
    if line:
        yield line


def _cut(path: Path, content: bytes, place: PackPlace) -> bytes:
    line = content[place.start : place.start + place.size]
    if hashlib.sha256(line).digest() != place.hash:
        raise PackDamaged(path, f"line {place.number} has another hash")
    return line


def _inflated(path: Path, data: bytes, length: int) -> bytes:
    try:
        # What a frame says of itself would be believed, and that much memory be taken.
        if zstandard.frame_content_size(data) != length:
            raise PackDamaged(path, "a block has another length than it had")
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise PackDamaged(path, f"a block cannot be read ({error})") from error


class PackWriter:
    """Writes one pack beside its place; to be used in a `with`, out of which nothing is left.

    `directory` is made if it is not there. Raises OSError.
    """

    def __init__(self, directory: Path) -> None:
        make_durable_dir(directory)
        self._directory = directory
        self._path = directory / f".{os.urandom(8).hex()}{UNFINISHED}"
        self._packer = zstandard.ZstdCompressor(level=_LEVEL)
        self._records = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
        self._record_frame = bytearray()
        self._places: dict[bytes, bytes] = {}  # by hash
        self._blocks: list[bytes] = []
        self._block: list[bytes] = []
        self._length = self._content = self._said = 0
        self._file = create_private(self._path)
        self._offset = len(_HEAD)  # which is written with the first block

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)
        with suppress(OSError):  # it has its name, or what is left of it is swept away later
            self._path.unlink(missing_ok=True)

    def __contains__(self, hash: bytes) -> bool:
        """Whether a line with this SHA-256 has been added."""
        return hash in self._places

    @property
    def lines(self) -> int:
        """How many have been added."""
        return len(self._places)

    @property
    def content(self) -> int:
        """Bytes of the lines that have been added."""
        return self._content

    def add(self, line: bytes, record: Mapping[str, Any], sha256: bytes | None = None) -> None:
        """Add a line, what is known of it (JSON), and its SHA-256, if known; raises PackFull.

        A line that it has already is not added again.
        """
        hash_ = sha256 or hashlib.sha256(line).digest()
        if hash_ in self._places:
            return
        if len(line) > LARGEST_LINE or self.lines >= _MOST_LINES:
            raise PackFull
        if self._block and self._length + len(line) >= _BLOCK:
            self._end_block()
        said = orjson.dumps(record) + b"\n"
        if self._said + len(said) > _most_of_records(self.lines + 1):
            raise PackFull
        self._said += len(said)
        place = (len(self._blocks), self._length, len(line), self.lines)
        self._places[hash_] = _PLACE.pack(hash_, *place)
        self._record_frame += self._records.compress(said)
        self._block.append(line)
        if not line.endswith(b"\n"):
            self._block.append(b"\n\n")
        self._length += len(line) + 2 * (not line.endswith(b"\n"))
        self._content += len(line)

    def finish(self, oldest: float, newest: float) -> Path:
        """End the pack, durably, compare all that can be read of it, and give it its name.

        The times (epoch seconds) are those when its first and last line were packed. Raises
        PackDamaged if it does not read as it was written.
        """
        if self._block:
            self._end_block()
        self._record_frame += self._records.flush()
        # By whole milliseconds, as the pack tells them: who merges gives the same second as a name.
        first, last = (round(max(0.0, moment) * 1000) for moment in (oldest, newest))
        hash_ = self._write_index(first, last)
        os.fsync(self._file)
        if sys.platform == "linux":  # what is read back shall come from the disk
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        with Pack(self._path) as pack:
            if sum(1 for _ in pack) != self.lines:
                raise PackDamaged(self._path, "it has not all of its lines")
        moment = datetime.fromtimestamp(last // 1000, UTC)
        path = self._directory / f"{moment:%Y%m%dT%H%M%SZ}-{hash_.hex()[:16]}{PACK}"
        os.rename(self._path, path)
        sync_dir(self._directory)
        return path

    def _end_block(self) -> None:
        packed = self._packer.compress(b"".join(self._block))
        self._blocks.append(_BLOCK_PLACE.pack(self._offset, len(packed), self._length))
        self._write(packed)
        self._block, self._length = [], 0

    def _write_index(self, oldest: int, newest: int) -> bytes:
        index = self._offset + _SKIP.size
        end = _END.pack(
            index,
            len(self._record_frame),
            len(self._places),
            len(self._blocks),
            self._content,
            oldest,
            newest,
        )
        parts: list[bytes] = [
            bytes(self._record_frame),
            *sorted(self._places.values()),
            *self._blocks,
            end,
        ]
        length = sum(map(len, parts)) + 32 + len(_STAMP)
        frame = b"".join([_SKIP.pack(_INDEX_FRAME, length), *parts])
        hash_ = hashlib.sha256(_HEAD + frame).digest()
        self._write(frame + hash_ + _STAMP)
        return hash_

    def _write(self, data: bytes) -> None:
        write_all(self._file, _HEAD + data if self._offset == len(_HEAD) else data)
        self._offset += len(data)
