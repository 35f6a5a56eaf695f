"""Packs: compressed files of lines that have left a store. Reading a line costs reading one block.

A pack is written once and never changed. The file is a sequence of zstd frames, and `zstd -dc`
prints the lines in order: all other data stands in frames that zstd skips. All numbers are
unsigned, little-endian.

    offset  bytes
    0       8      50 2A 4D 18 08 00 00 00: a skippable frame of 8 bytes
    8       8      "bsdpack" and the version of this format, 1
    16      …      blocks: zstd frames that state the size of their content. A block holds about
                   1 MiB of lines in order, each ended by a newline. A line that has no newline of
                   its own is ended by two (no entry is an empty line). A longer line has a block of
                   its own
    I - 8   8      51 2A 4D 18 and 4 bytes: a skippable frame with everything that follows
    I       R      records: one zstd frame; for each line, in order, a JSON object ended by a
                   newline: the line's record in the index of the store
    I+R     48·n   places, sorted by hash: SHA-256 of the line (32), number of its block (4), offset
                   in the block's content (4), size (4), number of the line (4)
            16·b   blocks: offset in the file (8), size there (4), size of the content (4)
    -88     88     the end: I (8), R (8), n (4), b (4), bytes of all lines (8), times at which the
                   first and the last line were packed (8 and 8, epoch milliseconds), SHA-256 (32)
                   of bytes 0–16 and of everything from I - 8 to here, "bsdpack" and the version

Numbers count from 0. `Pack` returns a line only if its hash is the requested hash. The hash at the
end distinguishes a torn index from an index without the line. If the index is damaged, the lines
can still be read from the blocks, which follow each other; after an unreadable block, the search
goes on at the next frame.

A thin pack (`thin_packs.py`) has no blocks: its index follows the head. All offsets are those of
the whole pack, which is in the bucket.

Packs have no dictionary. On recorded sessions of 0.2 to 2.8 MB, a trained dictionary of 16 or 64
KiB in the pack changed its size by -2 % to +28 %, since a block of 1 MiB is large enough without
it.
"""

from __future__ import annotations

import hashlib
import io
import os
import struct
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from bsd.core.errors import TemporaryFailure
from bsd.core.files import (
    LARGEST_LINE,
    create_private,
    make_durable_dir,
    open_ours,
    sync_dir,
    write_all,
)
from bsd.core.zstd import zstd

if TYPE_CHECKING:
    from bsd.store.thin_packs import RemoteBlocks

# Endings of the names of packs: finished packs, packs that are being written, and damaged packs
# whose lines are in a new pack.
PACK = ".zst"
UNFINISHED = ".tmp"
SET_ASIDE = f"{PACK}.damaged"

_BLOCK = 1 << 20
_LEVEL = 3
_MARK = b"bsdpack"
_STAMP = _MARK + b"\x01"
HEAD = struct.pack("<II", 0x184D2A50, 8) + _STAMP
SKIP = struct.Struct("<II")
_INDEX_FRAME = 0x184D2A51
INDEX_MAGIC = _INDEX_FRAME.to_bytes(4, "little")
# The window of a frame may be as large as the longest line.
ANY_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 31}
_PLACE = struct.Struct("<32s4I")
_BLOCK_PLACE = struct.Struct("<QII")
_END = struct.Struct("<QQIIQQQ")
_TAIL = _END.size + 32 + len(_STAMP)
_MOST_LINES = 1 << 24  # more lines would make the index too large for its frame
PIECE = 1 << 20
# A few bytes can inflate to a great many, so the records of a pack have a limit: a fixed size, and
# more for each line.
_MOST_RECORDS, _MOST_A_RECORD = 16 << 20, 64 << 10
_LATEST_MS = 253402300800 * 1000  # year 10000, beyond the range of datetime
_SHOWN = 10


def root_of(path: Path) -> Path:
    """Return the root that contains the pack of a session's archive, or of a snapshot there."""
    depth = 3 if path.parent.name.startswith("session-") else 2
    return path.parents[depth] if len(path.parents) > depth else path.parent


def _most_of_records(lines: int) -> int:
    return _MOST_RECORDS + _MOST_A_RECORD * lines


class PackDamaged(Exception):
    """A pack, or part of it, is not as it was written."""

    def __init__(self, path: Path, why: str, *, only_lines: bool = False) -> None:
        super().__init__(f"{path} is damaged: {why}")
        self.path = path
        self.why = why
        self.only_lines = only_lines  # the index and other lines are sound


class OnlyInBucket(TemporaryFailure, OSError):
    """The blocks of a thin pack are only in the bucket, which cannot, or must not, be read now.

    An OSError, since the pack is neither damaged nor missing, and a later attempt may succeed.
    """


_local_only: ContextVar[bool] = ContextVar("_local_only", default=False)


@contextmanager
def local_only() -> Iterator[None]:
    """Do not read from the bucket within the block: such lines raise OnlyInBucket."""
    token = _local_only.set(True)
    try:
        yield
    finally:
        _local_only.reset(token)


class PackFull(Exception):
    """A line does not fit into the pack."""


@dataclass(frozen=True, slots=True)
class PackSummary:
    """The figures at the end of a pack. Sizes are bytes, times epoch seconds."""

    lines: int
    blocks: int
    content: int  # of all lines
    packed: int  # of the file
    oldest: float  # time at which the first line was packed
    newest: float
    is_thin: bool = False  # the blocks are only in the bucket


class PackPlace(NamedTuple):
    """The place of a line in a pack."""

    hash: bytes
    block: int
    start: int  # in the block's content
    size: int
    number: int


class Packed(NamedTuple):
    """A line of a pack, and its record in the index of the store."""

    hash: bytes
    line: bytes
    record: Mapping[str, Any]


class Pack:
    """A pack, open for reading; use it in a `with`.

    Raises:
        PackDamaged: the file is torn, or is not a pack of this version.
        UntrustedFile: another user made the file, or may change it.
        OSError: it cannot be read, or does not exist (FileNotFoundError).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._shift = 0  # bytes of blocks that the file does not have
        self._remote: RemoteBlocks | None = None
        self._file = open_ours(path, root_of(path))
        try:
            self._size = os.fstat(self._file).st_size
            self._read_end()
        except BaseException:  # the caller gets no object to close
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def _read_end(self) -> None:
        head = self._read(0, len(HEAD))
        tail = self._read(self._size - _TAIL, _TAIL) if self._size > len(HEAD) + _TAIL else b""
        if not tail.endswith(_STAMP) or head != HEAD:
            newer = tail[-8:-1] == _MARK and head[8:15] == _MARK
            why = "another version of bsd wrote it" if newer else "its beginning or end is missing"
            raise PackDamaged(self.path, why)
        numbers = _END.unpack(tail[: _END.size])
        self._index, self._records, lines, blocks, content, oldest, newest = numbers
        if max(oldest, newest) >= _LATEST_MS:
            raise PackDamaged(self.path, "its times are not valid")
        self._hash = tail[_END.size : -len(_STAMP)]
        self._places = self._index + self._records
        self._blocks = self._places + _PLACE.size * lines
        missing = self._blocks + _BLOCK_PLACE.size * blocks + _TAIL - self._size
        if missing and missing != self._index - SKIP.size - len(HEAD):
            raise PackDamaged(self.path, "its size does not match its index")
        self._shift = missing
        times = oldest / 1e3, newest / 1e3
        self.summary = PackSummary(lines, blocks, content, self._size, *times, self.is_thin)

    @property
    def is_thin(self) -> bool:
        """Whether the blocks are only in the bucket."""
        return self._shift > 0

    def without_blocks(self) -> bytes:
        """Return the content of the thin pack; raises PackDamaged if the index is damaged."""
        self.check_index()
        start = self._index - SKIP.size
        return HEAD + self._read(start, self._size + self._shift - start)

    def check_index(self) -> None:
        """Raise PackDamaged unless the whole index is as it was written."""
        hasher = hashlib.sha256(HEAD)
        end = self._size + self._shift - len(_STAMP) - 32
        for start in range(self._index - SKIP.size, end, PIECE):
            hasher.update(self._read(start, min(PIECE, end - start)))
        if hasher.digest() != self._hash:
            raise PackDamaged(self.path, "its index has the wrong hash")

    # --- places, records, lines ---

    def find(self, hash: bytes) -> PackPlace | None:
        """Return the place of the line with this SHA-256; None if a whole pack lacks it."""
        low, high = 0, self.summary.lines
        while low < high:
            middle = (low + high) // 2
            data = self._read(self._places + middle * _PLACE.size, _PLACE.size)
            place = PackPlace._make(_PLACE.unpack(data))
            if place.hash == hash:
                return place
            low, high = (middle + 1, high) if place.hash < hash else (low, middle)
        self.check_index()
        return None

    def line(self, place: PackPlace) -> bytes:
        """Return a line after checking its hash; reads only its block."""
        return self._cut(self._content(place.block), place)

    def places(self) -> list[PackPlace]:
        """Return the places of all lines, sorted by hash."""
        self.check_index()
        table = self._read(self._places, self._blocks - self._places)
        return [PackPlace._make(each) for each in _PLACE.iter_unpack(table)]

    def in_order(self) -> list[PackPlace]:
        """Return the places of all lines, in the order of the lines."""
        return sorted(self.places(), key=lambda place: place.number)

    def record(self, place: PackPlace) -> Mapping[str, Any]:
        """Return the record of a line in the index of the store."""
        line = next(islice(self._record_lines(), place.number, None), None)
        if line is None:
            raise PackDamaged(self.path, "one of its lines has no record")
        return self._parsed(line)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """Yield the record of each line in the index of the store, in the order of the lines."""
        return map(self._parsed, self._record_lines())

    def __iter__(self) -> Iterator[Packed]:
        """Yield all lines in order, and check each hash."""
        return self.lines_from(0)

    def lines_from(self, first: int) -> Iterator[Packed]:
        """Yield the lines from line number `first` on; blocks before it are not read."""
        number, content = -1, b""
        for place, record in zip(self.in_order(), self.records(), strict=True):
            if place.number < first:
                continue
            if place.block != number:
                number, content = place.block, self._content(place.block)
            yield Packed(place.hash, self._cut(content, place), record)

    def check(self) -> None:
        """Read the whole pack; raises PackDamaged that names the entries of lost lines."""
        lost, number, content = [], -1, b""
        for place, record in zip(self.in_order(), self.records(), strict=True):
            try:
                if place.block != number:
                    number, content = place.block, b""
                    content = self._content(place.block)
                self._cut(content, place)
            except PackDamaged:
                lost.append(str(record.get("entry_id") or place.hash.hex()[:16]))
        if lost:
            shown = ", ".join(lost[:_SHOWN]) + ", …" * (len(lost) > _SHOWN)
            why = f"{len(lost)} of its lines cannot be read: {shown}"
            raise PackDamaged(self.path, why, only_lines=True)

    # --- reading ---

    def _record_lines(self) -> Iterator[bytes]:
        """Yield the records as JSON; raises PackDamaged at the end if their number is wrong."""
        self.check_index()
        left = _most_of_records(self.summary.lines)
        number, begun = 0, b""
        pieces = _inflate(self._read(self._index, self._records))
        while number <= self.summary.lines:
            try:
                piece = next(pieces, b"")
            except zstd.ZstdError as error:
                why = f"its records cannot be read ({error})"
                raise PackDamaged(self.path, why) from error
            if not piece:
                break
            left -= len(piece)
            if left < 0:
                raise PackDamaged(self.path, "its records are too large")
            *whole, begun = (begun + piece).split(b"\n")
            number += len(whole)
            if number <= self.summary.lines:
                yield from whole
        if number != self.summary.lines or begun:
            raise PackDamaged(self.path, "its records do not match its lines")

    def _parsed(self, line: bytes) -> Mapping[str, Any]:
        try:
            record = orjson.loads(line)
        except ValueError as error:
            raise PackDamaged(self.path, f"a record is not JSON ({error})") from error
        if not isinstance(record, dict):
            raise PackDamaged(self.path, "a record is not an object")
        return record

    def _content(self, block: int) -> bytes:
        """Return the content of a block."""
        offset, size, length = self._index, 1, 0
        if block < self.summary.blocks:
            place = self._read(self._blocks + block * _BLOCK_PLACE.size, _BLOCK_PLACE.size)
            offset, size, length = _BLOCK_PLACE.unpack(place)
        if offset + size > self._index or length > LARGEST_LINE + 2:
            raise PackDamaged(self.path, "its index names a block that does not exist")
        data = self._read_block(offset, size)
        content = io.BytesIO()  # getvalue() makes no second copy of a line of up to 1 GiB
        try:
            if zstd.get_frame_info(data).decompressed_size != length:
                raise PackDamaged(self.path, "a block has the wrong length")
            for piece in _inflate(data):
                content.write(piece)
                if content.tell() > length:  # the frame's header is wrong
                    break
        except zstd.ZstdError as error:
            raise PackDamaged(self.path, f"a block cannot be read ({error})") from error
        if content.tell() != length:
            raise PackDamaged(self.path, "a block is shorter or longer than its header says")
        return content.getvalue()

    def _cut(self, content: bytes, place: PackPlace) -> bytes:
        line = content[place.start : place.start + place.size]
        if hashlib.sha256(line).digest() != place.hash:
            raise PackDamaged(self.path, f"line {place.number} has the wrong hash")
        return line

    def _read_block(self, offset: int, length: int) -> bytes:
        if not self.is_thin:
            return self._read(offset, length)
        if _local_only.get():
            raise OnlyInBucket(f"{self.path}: its lines are only in the bucket")
        if self._remote is None:
            # Few packs are thin, and the module needs this one.
            from bsd.store.thin_packs import RemoteBlocks  # noqa: PLC0415

            self._remote = RemoteBlocks(self.path)
        return self._remote.read(offset, length)

    def _read(self, offset: int, length: int) -> bytes:
        """Return bytes of the head or from the index on, or of a block of a pack that has them."""
        if offset >= len(HEAD):
            offset -= self._shift
        data = os.pread(self._file, length, offset) if 0 <= offset <= self._size else b""
        while len(data) < length:
            piece = os.pread(self._file, length - len(data), offset + len(data))
            if not piece:
                raise PackDamaged(self.path, "it is cut short")
            data += piece
        return data


def _inflate(frame: bytes) -> Iterator[bytes]:
    """Yield the content of the first frame, in pieces of at most 1 MiB.

    A frame that is cut off ends early. Bytes after the frame are ignored.

    Raises:
        zstd.ZstdError: the frame is damaged.
    """
    unpacker = zstd.ZstdDecompressor(options=ANY_WINDOW)
    data = frame
    while not unpacker.eof:
        piece = unpacker.decompress(data, PIECE)
        data = b""
        if piece:
            yield piece
        elif unpacker.needs_input:
            return


def why_damaged(path: Path) -> PackDamaged | None:
    """Read the whole pack and return its damage, or None; raises OSError.

    Of a thin pack, only what is here is read.
    """
    try:
        with Pack(path) as pack:
            if pack.is_thin:
                deque(pack.records(), maxlen=0)
            else:
                pack.check()
    except PackDamaged as problem:
        return problem
    return None


# --- writing ---


class PackWriter:
    """Writes a pack under a temporary name. Use it in a `with`, which removes an unfinished file.

    The directory is created if necessary. Raises OSError.
    """

    def __init__(self, directory: Path) -> None:
        make_durable_dir(directory)
        self._directory = directory
        self._path = directory / f".{os.urandom(8).hex()}{UNFINISHED}"
        self._packer = zstd.ZstdCompressor(level=_LEVEL)
        self._records = zstd.ZstdCompressor(level=_LEVEL)
        self._record_frame = bytearray()
        self._places: dict[bytes, bytes] = {}  # by hash, encoded
        self._blocks: list[bytes] = []
        self._block: list[bytes] = []
        self._length = self._content = self._record_bytes = 0
        self._file = create_private(self._path)
        self._offset = len(HEAD)  # the header is written with the first block

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
        with suppress(OSError):  # the pack was renamed, or a sweep removes the leftover later
            self._path.unlink(missing_ok=True)

    def __contains__(self, hash: bytes) -> bool:
        """Return whether a line with this SHA-256 has been added."""
        return hash in self._places

    @property
    def lines(self) -> int:
        """The number of added lines."""
        return len(self._places)

    @property
    def content(self) -> int:
        """The bytes of the added lines."""
        return self._content

    def add(self, line: bytes, record: Mapping[str, Any], sha256: bytes | None = None) -> None:
        """Add a line; a line that is already in the pack is not added again.

        Args:
            line: the line.
            record: its record in the index of the store; JSON values.
            sha256: the hash of the line, if known.

        Raises:
            PackFull: the line is too long, or the pack has too many lines or records.
        """
        hash_ = sha256 or hashlib.sha256(line).digest()
        if hash_ in self._places:
            return
        if len(line) > LARGEST_LINE or self.lines >= _MOST_LINES:
            raise PackFull
        if self._block and self._length + len(line) >= _BLOCK:
            self._end_block()
        line_of_record = orjson.dumps(record) + b"\n"
        if self._record_bytes + len(line_of_record) > _most_of_records(self.lines + 1):
            raise PackFull
        self._record_bytes += len(line_of_record)
        place = (len(self._blocks), self._length, len(line), self.lines)
        self._places[hash_] = _PLACE.pack(hash_, *place)
        self._record_frame += self._records.compress(line_of_record)
        self._block.append(line)
        if not line.endswith(b"\n"):
            self._block.append(b"\n\n")
        self._length += len(line) + 2 * (not line.endswith(b"\n"))
        self._content += len(line)

    def finish(self, oldest: float, newest: float) -> Path:
        """Finish the pack durably, read it back, and give it its name.

        Args:
            oldest: epoch seconds; when the first line was packed.
            newest: epoch seconds; when the last line was packed.

        Returns:
            The path of the pack.

        Raises:
            PackDamaged: the pack does not read back as it was written.
        """
        if self._block:
            self._end_block()
        self._record_frame += self._records.flush()
        # In whole milliseconds, as in the pack: a merged pack gets a name of the same second.
        first, last = (round(max(0.0, moment) * 1000) for moment in (oldest, newest))
        hash_ = self._write_index(first, last)
        os.fsync(self._file)
        if sys.platform == "linux":  # drop the cache, so that the pack is read back from the disk
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        with Pack(self._path) as pack:
            if sum(1 for _ in pack) != self.lines:
                raise PackDamaged(self._path, "some of its lines are missing")
        moment = datetime.fromtimestamp(last // 1000, UTC)
        path = self._directory / f"{moment:%Y%m%dT%H%M%SZ}-{hash_.hex()[:16]}{PACK}"
        os.rename(self._path, path)
        sync_dir(self._directory)
        return path

    def _end_block(self) -> None:
        # A frame that is written in one call says how long its content is.
        packed = self._packer.compress(b"".join(self._block), zstd.ZstdCompressor.FLUSH_FRAME)
        self._blocks.append(_BLOCK_PLACE.pack(self._offset, len(packed), self._length))
        self._write(packed)
        self._block, self._length = [], 0

    def _write_index(self, oldest: int, newest: int) -> bytes:
        index = self._offset + SKIP.size
        end = _END.pack(
            index,
            len(self._record_frame),
            len(self._places),
            len(self._blocks),
            self._content,
            oldest,
            newest,
        )
        parts = [bytes(self._record_frame), *sorted(self._places.values()), *self._blocks, end]
        length = sum(map(len, parts)) + 32 + len(_STAMP)
        frame = b"".join([SKIP.pack(_INDEX_FRAME, length), *parts])
        hash_ = hashlib.sha256(HEAD + frame).digest()
        self._write(frame + hash_ + _STAMP)
        return hash_

    def _write(self, data: bytes) -> None:
        write_all(self._file, HEAD + data if self._offset == len(HEAD) else data)
        self._offset += len(data)
