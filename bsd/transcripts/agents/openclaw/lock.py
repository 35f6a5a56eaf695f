"""OpenClaw's lock of a session: reading it, removing a stale lock, and taking it.

The lock is the file `<session>.jsonl.lock` beside the session; it exists while the lock is held.
Versions of the gateway differ in how they judge another process's lock. bsd follows SPEC §2.6,
which is stricter than each of them. `with SessionLock(path): …` takes the lock, and the gateway
honours it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
import structlog

from bsd.core import processes
from bsd.core.clock import steady
from bsd.core.durations import spell_seconds
from bsd.core.errors import Busy, NotFound, os_problem
from bsd.core.files import open_plain, read_plain, write_all
from bsd.core.filesystem import strength
from bsd.core.formatting import iso_utc
from bsd.core.layout import SessionName
from bsd.core.leases import release_lease, take_lease
from bsd.core.locks import WaitingLock
from bsd.transcripts.agents.program import Free, HeldLock, LockState, Stale, Unreadable

UNUSABLE_AFTER_SECONDS: Final = 30 * 60.0
MAX_HOLD_MS: Final = 5 * 60 * 1000  # the gateway's own limit; bsd holds a lock for milliseconds
# Hidden, and neither `.jsonl` nor `.lock`: no gateway and no scan of bsd reads such files.
TEMPORARY_PREFIX: Final = ".bsd-lock-"

_LARGEST_PAYLOAD = 64 * 1024
_LARGEST_PID = 2**31 - 1
_LEFTOVER_AFTER_SECONDS = 60.0  # a temporary name is needed for microseconds
# Linux reports EPERM if a file system has no hard links; a refusal would be EACCES.
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}

_log = structlog.stdlib.get_logger(module="lock")


def lock_path(session_file: Path) -> Path:
    """Return the path of a session's lock file; links are resolved only in its directory."""
    return Path(os.path.realpath(session_file.parent)) / f"{session_file.name}.lock"


def inspect_lock(session_file: Path, *, now: float | None = None) -> LockState:
    """Return the state of a session file's lock at `now` (epoch seconds), without a change."""
    with look(lock_path(session_file)) as seen:
        return (
            seen.state(time.time() if now is None else now) if isinstance(seen, SeenLock) else seen
        )


def payload(now: float) -> bytes:
    """Return the content of a lock of bsd, in the form of the newest gateway with lock files."""
    pid = os.getpid()
    words: dict[str, int | str] = {"pid": pid, "createdAt": iso_utc(now)}
    if (start := processes.starttime(pid)) is not None:
        words["starttime"] = start
    words["maxHoldMs"] = MAX_HOLD_MS
    return orjson.dumps(words, option=orjson.OPT_INDENT_2)


def judge(content: bytes, age: float) -> HeldLock | Stale | Unreadable:
    """Return the state of a lock with this content, last written `age` seconds ago.

    Age alone never makes a lock of a living process stale, and neither does the kind of process.
    """
    words = _words(content)
    pid = words.get("pid")
    if type(pid) is not int or not 0 < pid <= _LARGEST_PID:
        what = "names no process" if content else "is empty"
        if age > UNUSABLE_AFTER_SECONDS:
            return Stale(f"it {what} and was written {age / 60:.0f} minutes ago")
        return Unreadable(f"it {what}; its owner may just be writing it")
    if not processes.alive(pid):
        return Stale(f"its process {pid} is gone")
    then, start = words.get("starttime"), processes.starttime(pid)
    if type(then) is int and start is not None and then != start:
        return Stale(f"its process is gone; {pid} is another one now")
    created = words.get("createdAt")
    since = created if isinstance(created, str) else None
    return HeldLock(pid, since, ours=pid == os.getpid(), seconds=max(0.0, age))


def _words(content: bytes) -> dict[str, object]:
    try:
        words = orjson.loads(content)
    except ValueError:  # empty, cut short, or not JSON: it names no holder
        return {}
    return words if isinstance(words, dict) else {}


@dataclass(frozen=True, slots=True)
class SeenLock:
    """One lock file as it was found.

    The file stays open while it is judged. Until it is closed, no other file gets its inode number,
    so device and inode distinguish it from any lock that takes its name meanwhile.
    """

    path: Path
    descriptor: int
    content: bytes
    modified: float
    changed: float  # kernel time, which does not depend on the mtime that a program sets

    def state(self, now: float) -> HeldLock | Stale | Unreadable:
        found = judge(self.content, now - self.modified)
        if isinstance(found, Unreadable) and self._is_of_an_earlier_start(now):
            return Stale(
                "it names no process, was written before this machine started, "
                "and no process has it open"
            )
        return found

    def _is_of_an_earlier_start(self, now: float) -> bool:
        """Return whether the lock was left by a power cut, which may have lost its content.

        Clocks alone do not prove this, since the clock may have been set forward since. But a
        process that has just created a lock and not yet written it has the file open, and taking a
        lease fails.
        """
        if max(self.modified, self.changed) >= now - steady():
            return False
        with suppress(OSError):
            if strength(self.path.parent).level == "strong" and take_lease(self.descriptor):
                release_lease(self.descriptor)
                return True
        return False

    def is_still(self, path: Path) -> bool:
        """Return whether `path` is this file, with the same content."""
        return is_at(self.descriptor, path) and read_all(self.descriptor) == self.content


@contextmanager
def look(path: Path) -> Iterator[SeenLock | Free | Unreadable]:
    """Open the lock file at `path`; yields its state instead if it is missing or unreadable."""
    found = _open(path)
    if not isinstance(found, int):
        yield found
        return
    try:
        status = os.fstat(found)
        yield SeenLock(path, found, read_all(found), status.st_mtime, status.st_ctime)
    finally:
        os.close(found)


def _open(path: Path) -> int | Free | Unreadable:
    try:
        return open_plain(path)
    except FileNotFoundError:
        return Free()
    except OSError as error:  # another user's file, a link, a socket: not bsd's to judge
        return Unreadable(f"{path}: {error.strerror}")


def bury(path: Path, seen: SeenLock, *, now: float) -> bool:
    """Remove the lock file that was judged stale, and no other; False if that is not certain.

    Between judging and removing, another process may remove the stale lock and put a fresh lock at
    the same path, which a plain unlink would destroy. Two measures prevent this:

    - Against other bsd processes: the process that removes the file holds the flock of the stale
      file, and compares again under it. So only one bsd removes this file, and a second bsd finds
      that the path names another file. (Holders in bsd keep the flock too: a living holder is never
      removed, not even from another PID namespace, in which its process is not visible.)
    - Against the gateway, which uses no flock, microseconds remain between this comparison and the
      removal. So the file is first renamed to a name of its own, which moves exactly one file, and
      is judged once more there. A fresh lock is put back with link(), which never overwrites; its
      holder does not notice the move.
    """
    try:
        fcntl.flock(seen.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # a network file system without flock: the second measure must suffice
        _log.debug("no flock on the lock file", path=str(path), error=str(error))
    if not seen.is_still(path):
        return False
    aside = temporary_name(path.parent)
    try:
        path.rename(aside)
    except FileNotFoundError:
        return True
    buried = seen.is_still(aside)
    if not buried:
        _put_back(aside, path)
    with suppress(FileNotFoundError):
        aside.unlink()
    _sweep(path.parent, now)
    return buried


def _put_back(aside: Path, path: Path) -> None:
    try:
        if not place(aside, path):
            os.close(write_exclusively(path, read_plain(aside, _LARGEST_PAYLOAD)))
    except FileExistsError:
        # Three programs within microseconds. The new lock must not be overwritten, so this lock is
        # lost; its holder finds out when it compares the file on release.
        _log.warning("A lock was taken while another one was moved aside", path=str(path))


def _sweep(directory: Path, now: float) -> None:
    """Remove the temporary files of killed processes."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(TEMPORARY_PREFIX):
                with suppress(FileNotFoundError):  # another process sweeps too
                    if now - entry.stat(follow_symlinks=False).st_ctime > _LEFTOVER_AFTER_SECONDS:
                        os.unlink(entry)


def temporary_name(directory: Path) -> Path:
    return directory / f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"


def place(prepared: Path, path: Path) -> bool:
    """Link a finished file to `path`; False if the file system has no hard links.

    Raises FileExistsError if `path` exists, and OSError.
    """
    try:
        os.link(prepared, path)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return False
    return True


def write_exclusively(path: Path, content: bytes) -> int:
    """Create a new private file and return its descriptor; raises OSError if it exists."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        write_all(descriptor, content)
    except BaseException:  # an interrupt, too, must leave no half-written file
        os.close(descriptor)
        with suppress(OSError):
            path.unlink()
        raise
    return descriptor


def read_all(descriptor: int) -> bytes:
    """Return the current content of an open lock file."""
    return os.pread(descriptor, _LARGEST_PAYLOAD, 0)


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether the open file is the file at `path`."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


# --- taking the lock ---


class SessionLock(WaitingLock):
    """OpenClaw's write lock of a session file.

    Nested `with` statements on the same object and thread are counted, as with every filelock lock.
    Another object, thread or process waits, also in the same process. A killed holder leaves the
    file behind, and the next process that takes the lock removes it.

    The gateway removes the lock of a process whose argv does not look like OpenClaw's. Therefore a
    process that uses this class must have passed `bsd.__main__.ensure_host_token`.
    """

    def __init__(
        self,
        session_file: Path,
        # filelock's metaclass passes -1 if no timeout is given, which here means 30 s.
        timeout: float = -1,
        *,
        name: SessionName | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = lock_path(Path(session_file))
        super().__init__(self._path, timeout)
        self._name = str(name) if name is not None else str(session_file)
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._last: LockState = Free()  # the obstacle at the last attempt

    def _prepare(self) -> None:
        if not self._path.parent.is_dir():
            raise NotFound(
                f"session {self._name}: there is no directory {self._path.parent}",
                hint="`bsd sessions` lists the sessions there are",
            )

    def _acquire(self) -> None:
        # Twice, because a stale lock may vanish or be replaced while the first look judges it.
        now = self._now()
        if self._is_free(now) or self._is_free(now):
            self._create(payload(now))

    def _is_free(self, now: float) -> bool:
        with look(self._path) as seen:
            if not isinstance(seen, SeenLock):
                self._last = seen
                return isinstance(seen, Free)
            self._last = seen.state(now)
            if not isinstance(self._last, Stale) or not bury(self._path, seen, now=now):
                return False
            _log.warning("Removed a stale lock", session=self._name, reason=self._last.reason)
            return True

    def _create(self, content: bytes) -> None:
        """Create the lock with its full content at once: write it elsewhere, then link it."""
        temporary = temporary_name(self._path.parent)
        descriptor = write_exclusively(temporary, content)
        # Before the link, so that filelock knows the descriptor if an exception interrupts.
        self._context.lock_file_fd = descriptor
        placed = False
        try:
            _keep_from_burial(descriptor)
            if not (placed := place(temporary, self._path)):
                placed = self._create_without_links(content)
        except FileExistsError:
            pass  # another process was quicker
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
            if not placed:
                self._let_go()

    def _create_without_links(self, content: bytes) -> bool:
        # As the gateway does. The lock is empty for a moment; every version but the oldest waits at
        # least five seconds before it judges an empty file.
        first = self._context.lock_file_fd
        self._context.lock_file_fd = write_exclusively(self._path, content)
        _keep_from_burial(self._context.lock_file_fd)
        if first is not None:
            os.close(first)
        return True

    def _release(self) -> None:
        # There is a gap between the check and unlink, but no program replaces the file in it: while
        # the file exists and the process lives, no bsd removes it, and the gateway removes only a
        # file that is 30 minutes old or whose holder lacks the token. If unlink fails, the lock is
        # still held.
        descriptor = self._context.lock_file_fd
        if descriptor is None:
            return
        try:
            if not self._still_ours(descriptor):
                raise FileNotFoundError  # noqa: TRY301
            self._path.unlink()
        except FileNotFoundError:
            _log.warning("Another program removed the lock while bsd held it", session=self._name)
        except OSError as error:
            raise os_problem(error, f"releasing the lock {self._path}") from error
        self._forget(descriptor)

    def _still_ours(self, descriptor: int) -> bool:
        state = judge(read_all(descriptor), age=0.0)
        return isinstance(state, HeldLock) and state.ours and is_at(descriptor, self._path)

    def _let_go(self) -> None:
        """Undo an attempt that failed or was interrupted just after the link."""
        descriptor = self._context.lock_file_fd
        if descriptor is None:
            return
        if is_at(descriptor, self._path):
            self._path.unlink()
        self._forget(descriptor)

    def _forget(self, descriptor: int) -> None:
        self._context.lock_file_fd = None
        os.close(descriptor)

    def _busy(self) -> Busy:
        hint = "again later"
        match self._last:
            case HeldLock(ours=True, created_at=since):
                why = f"is in use by this process itself{_since(since)}: {self._path}"
            case HeldLock(pid=pid, created_at=since, seconds=seconds):
                why = (
                    f"is in use by {processes.described(pid)}{_since(since)}: it wrote"
                    f" {self._path} {spell_seconds(seconds)} ago"
                )
                hint += f"; if process {pid} hangs, end it: its lock then no longer counts"
            case Unreadable(reason):
                why = f"is locked by an unknown process: {reason} ({self._path})"
            case _:
                why = f"is in use: other processes took {self._path} whenever it was free"
        return Busy(f"session {self._name} {why}", hint=hint)


def _keep_from_burial(descriptor: int) -> None:
    with suppress(OSError):  # without flock, the process's id and start time must suffice
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _since(created_at: str | None) -> str:
    return f" since {created_at}" if created_at else ""
