"""Reads the lines of a transcript and their entries, without loading the whole file.

A line ends only at the byte 0x0A: CR, NUL and U+2028 stay inside lines, as in the programs that
write these files. The raw lines joined equal the file, byte for byte.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, Self

import orjson

from bsd.core.errors import BsdError, Busy, Forbidden, LeftAlone, NotFound, os_problem
from bsd.core.files import LARGEST_LINE, NotPlain, open_plain
from bsd.transcripts.change import Identity

BLOCK = 1 << 20  # bytes; faster than mmap, where a shrinking file kills the process
_FIRST_BLOCK = 32 << 10  # often only the first lines are needed
# The kernel gives the holder of a lease 45 s, unless the system is configured otherwise.
_LEASED_SECONDS, _PAUSE_SECONDS = 60.0, 0.001


@dataclass(frozen=True, slots=True)
class Line:
    """One line as it stands in the file."""

    index: int  # 0-based line number, all lines counted
    offset: int  # bytes from the start of the file
    raw: bytes  # including its line end, if it has one


class ChangedWhileReading(Busy):
    """The file is shorter than it was when it was opened."""


class Transcript(Protocol):
    """The lines of a session as they were when it was opened, or as a plan changes them."""

    identity: Identity
    size: int  # bytes of the lines; `identity.size` is that of the file on disk

    def lines(self, start: int = 0, first_index: int = 0) -> Iterator[Line]:
        """Yield the lines from byte `start` on; `first_index` is the number of the first of them.

        Raises ChangedWhileReading, and LeftAlone for a line that does not fit into memory.
        """
        ...

    def lines_holding(self, needle: bytes) -> Iterator[Line]:
        """Yield the lines that contain `needle`; raises ChangedWhileReading."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly these bytes; raises ChangedWhileReading if the file is shorter now."""
        ...


class InBlocks(ABC):
    """A session that is read in blocks; lines that are appended later are not seen."""

    identity: Identity
    size: int

    def __init__(self, identity: Identity, block: int = BLOCK, size: int | None = None) -> None:
        """Begin to read.

        Args:
            identity: of the file.
            block: bytes that are read at once.
            size: bytes of the lines; None: the size of the file.
        """
        self.identity = identity
        self.size = identity.size if size is None else size
        self._block = block

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    def lines(self, start: int = 0, first_index: int = 0) -> Iterator[Line]:
        """As `Transcript.lines`."""
        end = self.size
        index, line_start, block_start = first_index, start, start
        buffer = bytearray(min(_FIRST_BLOCK, self._block))
        view = memoryview(buffer)
        while block_start < end:
            got = min(len(buffer), end - block_start)
            self._fill(view[:got], block_start)
            done = 0
            while (newline := buffer.find(b"\n", done, got)) >= 0:
                line_end = block_start + newline + 1
                if line_start < block_start:  # the line began in an earlier block: read it whole
                    raw = self.read(line_start, line_end - line_start)
                else:
                    raw = view[done : newline + 1].tobytes()
                yield Line(index, line_start, raw)
                index, line_start, done = index + 1, line_end, newline + 1
            block_start += got
            self._refuse_endless(block_start - line_start)
            if len(buffer) < self._block and block_start < end:
                buffer = bytearray(min(self._block, end - block_start))
                view = memoryview(buffer)
        if line_start < end:
            yield Line(index, line_start, self.read(line_start, end - line_start))

    def lines_holding(self, needle: bytes) -> Iterator[Line]:
        """As `Transcript.lines_holding`; searches whole blocks instead of single lines."""
        if not needle or b"\n" in needle:
            yield from (line for line in self.lines() if needle in line.raw)
            return
        end, offset, index, length = self.size, 0, 0, self._block
        while offset < end:
            piece = self.read(offset, min(length, end - offset))
            is_last = offset + len(piece) == end
            whole = len(piece) if is_last else piece.rfind(b"\n") + 1
            length = self._block if whole else 2 * length  # without a line end, the block must grow
            counted = start = 0
            while (found := piece.find(needle, start, whole)) >= 0:
                start = piece.rfind(b"\n", start, found) + 1 or start
                index += piece.count(b"\n", counted, start)
                counted, line_end = start, piece.find(b"\n", found, whole) + 1 or whole
                yield Line(index, offset + start, piece[start:line_end])
                start = line_end
            index += piece.count(b"\n", counted, whole)
            offset += whole

    def whole_lines(self, start: int = 0) -> Iterator[bytes]:
        """Yield everything from byte `start` on, in pieces of whole lines; raises as `lines`."""
        end, offset, length = self.size, start, self._block
        while offset < end:
            piece = self.read(offset, min(length, end - offset))
            if offset + len(piece) < end:
                piece = piece[: piece.rfind(b"\n") + 1]
            if piece:
                yield piece
                offset, length = offset + len(piece), self._block
            else:  # a line is longer than the piece
                length *= 2
                self._refuse_endless(length // 2)

    def _refuse_endless(self, length: int) -> None:
        if length > LARGEST_LINE:
            raise LeftAlone(
                f"one of its lines is longer than {LARGEST_LINE} bytes",
                hint="read it with its program; bsd does not change it",
            )

    @abstractmethod
    def read(self, offset: int, length: int) -> bytes:
        """As `Transcript.read`."""

    @abstractmethod
    def _fill(self, view: memoryview, offset: int) -> None:
        """Fill `view` with the bytes from `offset`; raises ChangedWhileReading."""


class _Descriptor(InBlocks):
    """A session that is read through an open descriptor; `called` names it in messages."""

    def __init__(
        self,
        descriptor: int,
        identity: Identity,
        called: str,
        block: int,
        size: int | None = None,
    ) -> None:
        super().__init__(identity, block, size)
        self._fd = descriptor
        self._called = called

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def read(self, offset: int, length: int) -> bytes:
        if offset + length > self.size:
            raise self._changed()
        try:
            whole = os.pread(self._fd, length, offset)
            while len(whole) < length:  # the kernel returns at most 2 GiB at once
                piece = os.pread(self._fd, length - len(whole), offset + len(whole))
                if not piece:
                    raise self._changed()
                whole += piece
        except OSError as error:
            raise self._unreadable(error) from error
        return whole

    def _fill(self, view: memoryview, offset: int) -> None:
        done = 0
        try:
            while done < len(view):
                got = os.preadv(self._fd, [view[done:]], offset + done)
                if not got:
                    raise self._changed()
                done += got
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> BsdError:
        return os_problem(error, f"reading {self._called}")

    def _changed(self) -> ChangedWhileReading:
        return ChangedWhileReading(
            f"{self._called} changed while it was read: it is shorter than before",
            hint="run the same command again when no other program rewrites the session",
        )


class TranscriptFile(_Descriptor):
    """An open session file; symbolic links and special files are refused.

    Several iterators may be in use at once. Raises NotFound, Forbidden, BsdError.
    """

    def __init__(self, path: Path, *, block: int = BLOCK) -> None:
        self._fd = -1
        try:
            self._fd = _opened(path)
            state = os.fstat(self._fd)
        except OSError as error:
            self.close()
            _raise_cannot_open(path, error)
        super().__init__(self._fd, Identity.of(state), str(path), block)


class TranscriptCopy(_Descriptor):
    """The lines of a session that its program keeps in another form, written to a temporary file.

    Args:
        descriptor: the temporary file, which `close` closes.
        state: the state of the session (`stat_transcript`).
        called: the name of the session's file or database in messages.
        size: bytes of the copy; None: the size in `state`.
    """

    def __init__(
        self, descriptor: int, state: os.stat_result, called: str, size: int | None = None
    ) -> None:
        super().__init__(descriptor, Identity.of(state), called, BLOCK, size)


class BytesTranscript(InBlocks):
    """A session held in memory, for planning without a file."""

    def __init__(self, data: bytes, *, block: int = BLOCK) -> None:
        super().__init__(Identity(0, 0, len(data), 0, 0), block)
        self._data = data

    def close(self) -> None:
        """Return at once, since there is no file."""

    def read(self, offset: int, length: int) -> bytes:
        piece = self._data[offset : offset + length]
        if len(piece) != length:
            raise ChangedWhileReading(f"there are no {length} bytes at {offset}")
        return piece

    def _fill(self, view: memoryview, offset: int) -> None:
        view[:] = self.read(offset, len(view))


def open_descriptor(path: Path) -> int:
    """Open a regular file for reading; if it is leased, as during a commit, wait for its end.

    Raises NotFound, Forbidden, BsdError.
    """
    try:
        return _opened(path)
    except OSError as error:
        _raise_cannot_open(path, error)


def _opened(path: Path) -> int:
    """Open a regular file; if it is leased, as during a commit, wait for the end of the lease."""
    deadline = time.monotonic() + _LEASED_SECONDS
    while True:
        try:
            return open_plain(path)
        except BlockingIOError:  # the kernel has notified the holder
            if time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE_SECONDS)


def _raise_cannot_open(path: Path, error: OSError) -> NoReturn:
    if isinstance(error, NotPlain):
        raise Forbidden(
            f"{path} is {_what(path)}", hint="bsd reads and edits plain files only"
        ) from None
    match error.errno:
        case errno.EWOULDBLOCK:
            raise Busy(f"another program holds {path} under a lease", hint="again later")
        case errno.ENOENT | errno.ENOTDIR:
            raise NotFound(f"there is no file {path}", hint="`bsd sessions` lists sessions")
        case errno.EACCES | errno.EPERM:
            raise Forbidden(
                f"{path} cannot be read: {error.strerror}",
                hint="run bsd as the user who owns the session",
            )
        case _:
            raise os_problem(error, f"opening {path}") from error


def _what(path: Path) -> str:
    return "a symbolic link" if path.is_symlink() else "not a regular file"


# --- entries of lines ---


def parse_entry(raw: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line; None if the line is not exactly one object.

    Also returns None if the object would take too much memory (`is_too_large`). Numbers may lose
    precision, so entries are only for reading; edits are made on the raw bytes.
    """
    if len(raw) > _HARMLESS and is_too_large(raw):
        return None
    return parse_kept(raw)


def parse_kept(raw: bytes) -> dict[str, Any] | None:
    """Parse a line that bsd stored as `parse_entry`, but without a limit of memory."""
    try:
        entry = orjson.loads(raw)
    except orjson.JSONDecodeError:
        entry = _parse_like_javascript(raw)
    return entry if isinstance(entry, dict) else None


def _parse_like_javascript(raw: bytes) -> object:
    """Parse JSON with lone surrogate escapes, which orjson refuses and agent programs write."""
    try:
        return json.loads(raw.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):  # ValueError: JSON, UTF-8, or a number of > 4300 digits
        return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# --- memory of a parsed JSON text of another program, estimated before parsing ---
#
# A text of brackets and commas takes thirty to fifty times its size, and one character beyond the
# basic plane makes each character of its string take four bytes. Code that parses files of other
# programs checks `is_too_large` first; otherwise sixty megabytes of `[],` end the process.

# Limit of the bytes that a parsed text takes in addition to a plain string of its size.
MOST_EXTRA = 48 << 20
# The limit for a line that bsd changes, so that it can still be read with the additions.
MOST_EXTRA_EDITED = MOST_EXTRA - (1 << 20)

# Texts up to this size are harmless regardless of their content, and are not examined.
_HARMLESS = 1 << 20
_PIECE = 256 << 10

# Measured bytes per character of syntax, rounded up; they include the memory of the parser and the
# record of a value.
_COSTS = ((b"[", 110), (b"{", 270), (b":", 140), (b",", 90))
_STRING_COST = 200

# Escapes of characters beyond Latin-1, and of surrogates.
_WIDE_ESCAPE = re.compile(rb"\\u(?!00)")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# The first UTF-8 bytes of characters beyond the basic plane.
_FOUR_BYTES = tuple(bytes([lead]) for lead in range(0xF0, 0xF5))


def is_too_large(text: bytes, most: int = MOST_EXTRA) -> bool:
    """Return whether a JSON text would take more than `most` bytes in addition to its size."""
    if len(text) <= _HARMLESS:
        return False
    # The parser that reads lone surrogates first makes one string of the whole text.
    alone = b"\\u" in text and _SURROGATE.search(text)
    if alone and (_width(text, escapes=False) - 1) * len(text) > most:
        return True
    return _extra(text, most) > most


def _cost(text: bytes) -> int:
    return sum(text.count(mark) * cost for mark, cost in _COSTS)


def _width(text: bytes, *, escapes: bool = True) -> int:
    """Return the most bytes that a character takes in a string of this text."""
    plain = text.isascii()
    escapes = escapes and b"\\u" in text
    if not plain and any(lead in text for lead in _FOUR_BYTES):
        return 4
    if escapes and _SURROGATE.search(text):
        return 4
    return 2 if not plain or (escapes and _WIDE_ESCAPE.search(text)) else 1


def _extra(text: bytes, most: int) -> int:
    """Return the bytes in addition to a text's size; stops as soon as they exceed `most`."""
    found = _Extra()
    at = 0
    while at < len(text) and found.bytes <= most:
        piece = text[at : at + _PIECE]
        if piece.endswith(b"\\"):  # keep escapes whole; backslashes alone are pairs
            piece = piece.rstrip(b"\\") or piece
        found.add(piece)
        at += len(piece)
    return found.end()


class _Extra:
    """Estimates the memory of a text piece by piece, and tracks whether it is inside a string."""

    def __init__(self) -> None:
        self.bytes = 0
        self._inside = False
        # The string that is still open at the end of a piece.
        self._size, self._characters, self._wide = 0, 0.0, 1

    def add(self, piece: bytes) -> None:
        width, share = _width(piece), _characters_a_byte(piece)
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        self.bytes += len(parts) // 2 * _STRING_COST
        self.bytes += _cost(b"".join(parts[self._inside :: 2]))
        if self._inside:
            self._go_on(parts[0])
        if len(parts) == 1:
            return
        self.end()
        self._inside ^= len(parts) % 2 == 0
        last = parts[-1] if self._inside else b""
        within = len(piece) - len(parts[0]) - len(last)
        self.bytes += max(0, int(within * (width * share - 1)))
        self._go_on(last)

    def _go_on(self, part: bytes) -> None:
        self._size += len(part)
        self._characters += len(part) * _characters_a_byte(part)
        self._wide = max(self._wide, _width(part))

    def end(self) -> int:
        """Count the string that has ended, if any; return the sum so far."""
        self.bytes += max(0, int(self._characters * self._wide) - self._size)
        self._size, self._characters, self._wide = 0, 0.0, 1
        return self.bytes


def _characters_a_byte(text: bytes) -> float:
    """Return the average number of characters per byte."""
    return 1.0 if text.isascii() else len(text.decode("utf-8", "ignore")) / len(text)
