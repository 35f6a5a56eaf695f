"""Finds the place of late bytes in a session and appends them there (DESIGN §4, b-e).

Late bytes are lines that a program wrote into the displaced file. The program had opened the file
before the exchange, so they come before all lines appended to its successor since.

A power cut may damage a displaced file. Its size may have reached the disk while blocks did not,
which then read as zeros; or neither did, and the file ends early. Neither is a loss as long as the
successor has the lost bytes.

Late bytes that have no session to go back to become orphans.
"""

from __future__ import annotations

import errno
import filecmp
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from bsd.core import files
from bsd.core.errors import Busy, Forbidden, os_problem
from bsd.core.files import (
    LARGEST_NOTE,
    make_private_dir,
    read_plain,
    sync_dir,
    write_all,
    write_private,
)
from bsd.core.layout import Layout
from bsd.core.leases import open_plain, read_range, tail_hash, take_lease
from bsd.sessions.commit.protocol import copy_range, header_hash
from bsd.sessions.commit.record import EditedSpan, Mark
from bsd.transcripts.agents.entry import Entry
from bsd.transcripts.agents.program import AgentProgram
from bsd.transcripts.change import Identity
from bsd.transcripts.reader import is_too_large

_BLOCK = 1 << 20
_PIECE = 4 << 10
IsNamed = Callable[[Entry], bool]  # `AgentProgram.is_named`


class NoPlace(Exception):
    """The session of the late bytes no longer exists."""


@dataclass(frozen=True, slots=True)
class Insert:
    """Late bytes that belong before lines appended since."""

    planned_on: Identity
    offset: int
    length: int  # zero bytes in their place, left by a power cut
    data: bytes


def split_lines(data: bytes) -> tuple[bytes, bytes]:
    """Split late bytes into whole lines and the bytes after the last line end."""
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


def is_json(line: bytes) -> bool:
    """Return whether a line without its line end is complete JSON."""
    if is_too_large(line):
        return False
    try:
        json.loads(line)
    except ValueError:
        return False
    except RecursionError:  # complete up to that depth, and no crash cuts it there
        return True
    return True


def missing(late: bytes, after: bytes, is_named: IsNamed) -> tuple[int, int, bytes]:
    """Return the part of `late` that `after` lacks, and where it goes.

    Args:
        after: all bytes after the place of the late bytes: lines of other writers and, if they were
            carried before, the late bytes themselves, complete or cut off anywhere.

    Returns:
        The offset in `after`, the number of bytes to replace there, and the bytes to put there.
    """
    start, there = _arrived(late, after)
    offset = start + there if there else max(0, _zeros_begin(after))
    rest = late[there:]
    # Bytes that were being written when the power was cut may be zeros now.
    place = after[offset : offset + len(rest)]
    zeros = len(place) - len(place.lstrip(b"\0"))
    # After a crash, the note of lines that an undo carried the other way may be missing.
    known = {line for line in _lines(after) if _has_id(line, is_named)}
    return offset, zeros, b"".join(line for line in _lines(rest) if line not in known)


def without(late: bytes, carried: bytes) -> bytes:
    """Return `late` without the bytes that were carried into it, as far as they arrived."""
    start, there = _arrived(carried, late)
    return late[:start] + late[start + there :]


def _arrived(lines: bytes, among: bytes) -> tuple[int, int]:
    """Return where in `among` the first of `lines` begin, and how many of their bytes are there."""
    start = 0
    while start < len(among):
        if there := _arrived_at(start, lines, among):
            return start, there
        start = among.find(b"\n", start) + 1 or len(among)
    return 0, 0


def _arrived_at(start: int, lines: bytes, among: bytes) -> int:
    same = _common(lines, among[start : start + len(lines)])
    if same in (len(lines), len(among) - start):
        return same
    line = lines.rfind(b"\n", 0, same) + 1
    end = among.find(b"\n", start + line)
    glued = among[start + line : end if end >= 0 else len(among)]
    # A torn line and a line of another writer after it are no JSON together. Where the other line
    # begins, there is a whole object, or the zeros of a power cut. (Two lines may begin alike, so
    # common bytes alone prove no tear.)
    if not is_json(glued):
        for torn in range(same - line, 0, -1):
            rest = glued[torn:]
            if rest.startswith(b"\0") or (rest.startswith(b"{") and is_json(rest)):
                return line + torn
    return line


def _zeros_begin(data: bytes) -> int:
    """Return the offset of the first line that begins with zeros, or -1."""
    if data.startswith(b"\0"):
        return 0
    return data.find(b"\n\0") + 1 or -1


def _common(one: bytes, other: bytes) -> int:
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    low, high = 0, length  # they agree up to low, and not up to high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


class Target:
    """The session that receives late bytes: open and leased, so no other process has it open.

    Raises NoPlace if it is gone or not a regular file, Busy if another process has it open.
    """

    def __init__(self, path: Path, *, strong: bool) -> None:
        self.strong = strong
        self.path = path
        try:
            self.fd = open_plain(str(path), os.O_RDWR | os.O_APPEND)
        except (FileNotFoundError, NotADirectoryError):
            raise NoPlace(f"{path} is no longer there") from None
        except BlockingIOError:
            raise Busy(f"another process is working on {path}", hint="again later") from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR):
                raise NoPlace(f"{path} is not a regular file") from None
            raise
        try:
            self._claim()
            self.mtime_ns = os.fstat(self.fd).st_mtime_ns
        except BaseException:  # leave no file open after an error
            os.close(self.fd)
            raise

    def _claim(self) -> None:
        if not stat.S_ISREG(os.fstat(self.fd).st_mode):
            raise NoPlace(f"{self.path} is not a regular file")
        if self.strong and not take_lease(self.fd):
            raise Busy(f"another process has {self.path} open", hint="again later")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def check_header(self, *marks: Mark) -> None:
        """Raise NoPlace if the file's first line is not one of the recorded ones."""
        if header_hash(self.fd) not in {mark.header for mark in marks}:
            raise NoPlace(f"another session is now at {self.path}")

    def is_untouched(self, mark: Mark) -> bool:
        """Return whether this is the marked file, unchanged since it was marked."""
        now = os.fstat(self.fd)
        known = mark.identity
        return (now.st_ino, now.st_size, now.st_mtime_ns) == (
            known.ino,
            known.size,
            known.mtime_ns,
        )

    def put(
        self, late: bytes, successor: Mark, carried: int, program: AgentProgram, *, again: bool
    ) -> Insert | None:
        """Append the missing part of `late`, or return where it must be inserted.

        If the program keeps byte offsets, it is appended even after lines that are younger.

        Args:
            carried: bytes appended for earlier late bytes, directly after the marked size.
            again: these bytes may have been carried before.
        """
        now = os.fstat(self.fd)
        end = successor.identity.size + carried
        is_last = False
        if self._continues(successor, now) and now.st_size >= end:
            since = read_range(self.fd, end, now.st_size)
            offset, zeros, rest = missing(late, since, program.is_named)
            is_last = not rest or end + offset >= now.st_size
            if not (is_last or program.keeps_offsets(self._first_lines())):
                return Insert(Identity.of(now), end + offset, zeros, rest)
        if not is_last:
            rest = self._not_here(late, program.is_named, again=again)
            if not self._ends_a_line(now.st_size):
                rest = b"\n" + rest
        self._append(rest)
        return None

    def date_back(self, written_ns: int) -> None:
        """Set the file's modification time to the time of its last line.

        `written_ns`: when the late lines were written (epoch nanoseconds).
        """
        os.utime(self.fd, ns=(os.fstat(self.fd).st_atime_ns, max(self.mtime_ns, written_ns)))

    def _continues(self, mark: Mark, now: os.stat_result) -> bool:
        """Return whether the file begins with the marked file, or with a copy of it."""
        size = mark.identity.size
        return now.st_size >= size and tail_hash(self.fd, size) == mark.tail

    def _first_lines(self) -> Iterator[bytes]:
        with open(self.fd, "rb", buffering=_BLOCK, closefd=False) as file:
            file.seek(0)
            yield from file

    def _not_here(self, late: bytes, is_named: IsNamed, *, again: bool) -> bytes:
        """Return the lines of `late` that the file does not have.

        A line without an id may equal another line of the file, so it is compared only if `again`.
        """
        lines = _lines(late)
        wanted = {line for line in lines if again or _has_id(line, is_named)}
        found: Counter[bytes] = Counter()
        with open(self.fd, "rb", buffering=_BLOCK, closefd=False) as file:
            file.seek(0)
            for line in file:
                if line in wanted:
                    found[line] += 1
        rest = []
        for line in lines:
            if found[line]:
                found[line] -= 1
            else:
                rest.append(line)
        return b"".join(rest)

    def _ends_a_line(self, size: int) -> bool:
        return size == 0 or os.pread(self.fd, 1, size - 1) == b"\n"

    def _append(self, data: bytes) -> None:
        before = os.fstat(self.fd).st_size
        try:
            write_all(self.fd, data)
        except OSError:
            if self.strong:  # no other process can have appended meanwhile
                os.ftruncate(self.fd, before)
            raise
        os.fsync(self.fd)


def _has_id(line: bytes, is_named: IsNamed) -> bool:
    if is_too_large(line):
        return False
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(entry, dict) and is_named(entry)


def _lines(data: bytes) -> list[bytes]:
    # Never splitlines: it splits at more than line feeds.
    return [line + b"\n" for line in data.split(b"\n")[:-1]]


# --- damage of a displaced file by a power cut ---


def only_lacks(
    displaced: int,
    edits: tuple[EditedSpan, ...],
    size: int,
    successor: Mark,
    places: Iterable[Path],
) -> bool:
    """Return whether a displaced file has only bytes that its successor has too, and zeros.

    The bytes under the edits are not compared: they were durable elsewhere before the file was
    displaced.

    Args:
        displaced: descriptor of the displaced file.
        size: its size before the edits, in bytes.
        places: possible paths of the successor, which may have been displaced in turn.
    """
    known = successor.identity.size
    return any(
        os.fstat(fd).st_size >= known
        and header_hash(fd) == successor.header
        and tail_hash(fd, known) == successor.tail
        and _all_stands_there(displaced, fd, edits, size)
        for place in places
        for fd in _opened(place)
    )


def begins_a_line(piece: bytes, session: Path, *marks: Mark) -> bool:
    """Return whether a line of the session begins with `piece`."""
    for fd in _opened(session):
        if header_hash(fd) in {mark.header for mark in marks}:
            with open(fd, "rb", buffering=_BLOCK, closefd=False) as file:
                return any(line.startswith(piece) for line in file)
    return False


def ends_in_zeros(fd: int) -> bool:
    """Return whether a file ends in a zero byte, which no complete file does."""
    size = os.fstat(fd).st_size
    return size > 0 and os.pread(fd, 1, size - 1) == b"\0"


def _opened(path: Path) -> Iterator[int]:
    """Yield a descriptor of the file, if it is a plain file that can be read."""
    with suppress(OSError):
        fd = files.open_plain(path)
        try:
            yield fd
        finally:
            os.close(fd)


def _all_stands_there(
    displaced: int, successor: int, edits: tuple[EditedSpan, ...], size: int
) -> bool:
    at = there = 0
    for edit in edits:
        if not _same_or_zeros(displaced, at, successor, there, edit.offset - at):
            return False
        there += edit.offset - at + edit.new_length
        at = edit.offset + edit.length
    return _same_or_zeros(displaced, at, successor, there, size - at)


def _same_or_zeros(displaced: int, at: int, successor: int, there: int, length: int) -> bool:
    for start in range(0, length, _BLOCK):
        count = min(_BLOCK, length - start)
        left = os.pread(displaced, count, at + start)
        had = os.pread(successor, count, there + start)
        if left != had[: len(left)]:
            for piece in range(0, len(left), _PIECE):
                one, other = left[piece : piece + _PIECE], had[piece : piece + _PIECE]
                if one == other or one.count(0) == len(one):
                    continue
                if not all(a in (0, b) for a, b in zip(one, other, strict=False)):
                    return False
        if len(left) < count:
            break  # the displaced file ends here
    return True


# --- orphans: late bytes without a session, kept until a person decides about them ---

_BYTES = ".late"
_ABOUT = ".json"
_BROKEN = (OSError, LookupError, TypeError, ValueError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Orphan:
    """Bytes that a program wrote for a session and that could not be put into it."""

    file: Path  # holds the bytes as they were written
    session: str
    target: str  # path of the session file that they belong to
    reason: str
    size: int  # bytes
    found_at_ns: int  # epoch

    @property
    def files(self) -> tuple[Path, ...]:
        """The file with the bytes and the file that describes them."""
        return tuple(dict.fromkeys((self.file, self.file.with_suffix(_ABOUT))))

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the API."""
        return {**asdict(self), "file": str(self.file)}


def list_orphans(layout: Layout) -> list[Orphan]:
    """Return all orphans under the root, oldest first; raises BsdError if they cannot be listed."""
    try:
        found = list(_orphans(layout.orphans))
    except OSError as error:
        raise os_problem(error, f"reading {layout.orphans}") from error
    return sorted(found, key=lambda orphan: (orphan.found_at_ns, orphan.file))


def forget_orphan(orphan: Orphan) -> None:
    """Delete an orphan; raises OSError."""
    for path in orphan.files:  # the description goes last: until then, the orphan is listed
        path.unlink(missing_ok=True)


def _orphans(directory: Path) -> Iterator[Orphan]:
    for about in directory.glob(f"*{_ABOUT}"):
        with suppress(FileNotFoundError):  # it was just removed
            try:
                told = json.loads(read_plain(about, LARGEST_NOTE))
                yield Orphan(
                    about.with_suffix(_BYTES),
                    session=str(told["session"]),
                    target=str(told["target"]),
                    reason=str(told["reason"]),
                    size=int(told["size"]),
                    found_at_ns=int(told["found_at_ns"]),
                )
            except _BROKEN as error:
                reason = f"their description cannot be read: {error}"
                yield Orphan(about, "(unknown)", "", reason, 0, about.lstat().st_mtime_ns)


def keep_orphan(layout: Layout, name: str, source: int, start: int, about: Orphan) -> Orphan:
    """Copy `about.size` bytes of an open file, from `start`, into an orphan. Durable on return.

    Args:
        name: identifies the bytes: storing them twice makes one orphan. Equal bytes of one session
            also make only one.
        source: descriptor of the open file.

    Raises:
        OSError: the copy failed, or the directory leads out of the root.
    """
    try:
        layout.refuse_outside(layout.orphans)
    except Forbidden as error:
        raise OSError(errno.EXDEV, f"{layout.orphans} leads out of the root") from error
    directory = make_private_dir(layout.orphans)
    file = directory / f"{name}{_BYTES}"
    half = directory / f"{name}.half"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    target = os.open(half, flags, 0o600)
    try:
        copy_range(source, start, target, about.size)
        os.fsync(target)
    finally:
        os.close(target)
    for other in _orphans(directory):
        if (other.session, other.target, other.size) == (about.session, about.target, about.size):
            with suppress(OSError):
                if filecmp.cmp(half, other.file, shallow=False):
                    half.unlink()
                    return other
    os.rename(half, file)
    sync_dir(directory)
    told = asdict(about)
    del told["file"]
    write_private(file.with_suffix(_ABOUT), json.dumps(told, indent=2).encode() + b"\n")
    return Orphan(file=file, **told)
