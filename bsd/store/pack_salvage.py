"""Reading the lines of a pack whose index is damaged (`pack.py` describes the format)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from bsd.core.files import LARGEST_LINE, open_ours
from bsd.core.zstd import zstd
from bsd.store.pack import ANY_WINDOW, HEAD, INDEX_MAGIC, PIECE, SKIP, root_of

_ZSTD_MAGIC = bytes.fromhex("28B52FFD")
# A frame that inflates to more than this size, and by more than this ratio, is not a block.
_MUCH, _RATIO, _SMALL_PIECE = 64 << 20, 1000, 1 << 10
_LONGEST_FRAME_HEADER = 18  # bytes (RFC 8878, 3.1.1.1)


def salvaged(path: Path, gaps: list[int] | None = None) -> Iterator[bytes]:
    """Yield the lines of all readable blocks, in order.

    The lines are not verified: only a caller that knows a line's hash can tell that it is intact.

    Args:
        path: a pack; its index is not used.
        gaps: receives the offsets at which a block is unreadable; it stays empty if all blocks up
            to the index were read.

    Raises:
        OSError: the file cannot be read.
    """
    gaps = [] if gaps is None else gaps
    with open(open_ours(path, root_of(path)), "rb", closefd=True) as file:
        start: int | None = len(HEAD)
        while start is not None:
            file.seek(start)
            if file.read(SKIP.size)[:4] == INDEX_MAGIC:
                return
            content = _block_at(file, start)
            if content is None:
                gaps.append(start)
                start = _next_frame(file, start + 1)
            else:
                start = file.tell()
                yield from _lines(content)


def _block_at(file: BinaryIO, start: int) -> bytes | None:
    """Return the content of the block at `start`, and seek to its end; None if there is no block.

    Blocks state the size of their content; the frame of the records does not.
    """
    file.seek(start)
    head = file.read(_LONGEST_FRAME_HEADER)
    content, length = [], 0
    with suppress(zstd.ZstdError):
        wanted = zstd.get_frame_info(head).decompressed_size or 0  # None: it does not say
        if not head.startswith(_ZSTD_MAGIC) or not 0 < wanted <= LARGEST_LINE + 2:
            return None
        unpacker = zstd.ZstdDecompressor(options=ANY_WINDOW)
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
    """Return the offset at which the next zstd frame or the index may begin, or None."""
    overlap = len(_ZSTD_MAGIC) - 1
    while True:
        file.seek(start)
        piece = file.read(PIECE)
        found = [piece.find(magic) for magic in (_ZSTD_MAGIC, INDEX_MAGIC)]
        if places := [place for place in found if place >= 0]:
            return start + min(places)
        if len(piece) <= overlap:
            return None
        start += len(piece) - overlap


def _lines(content: bytes) -> Iterator[bytes]:
    """Split the content of a block; a line before an empty line had no newline of its own."""
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
