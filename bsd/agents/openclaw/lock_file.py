"""OpenClaw's lock files: what one says, whether it still counts, and burying one that does not.

A session's lock is the file `<session>.jsonl.lock` beside it; it exists as long as the lock is
held. Versions of the gateway differ in how they judge somebody else's lock; SPEC §2.6 is our rule,
and stricter than each of theirs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import orjson

from bsd.agents.owner import Free, HeldLock, LockState, Stale, Unreadable
from bsd.foundation import processes
from bsd.foundation.ages import steady
from bsd.foundation.files import open_plain, read_plain, write_all
from bsd.foundation.filesystem import strength
from bsd.foundation.immutable import immutable
from bsd.foundation.leases import release_lease, take_lease
from bsd.foundation.logs import get_logger
from bsd.foundation.spelling import iso_utc

UNUSABLE_AFTER_SECONDS: Final = 30 * 60.0
MAX_HOLD_MS: Final = 5 * 60 * 1000  # what the gateway grants itself; our holds take milliseconds
# Not `.jsonl`, not `.lock`, hidden: no version of the gateway, and none of our scans, looks at it.
TEMPORARY_PREFIX: Final = ".bsd-lock-"

_LARGEST_PAYLOAD = 64 * 1024
_LARGEST_PID = 2**31 - 1
_LEFTOVER_AFTER_SECONDS = 60.0  # a temporary name is needed for microseconds
# EPERM is how Linux says that a file system knows no hard links; a refusal would be EACCES.
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}

_log = get_logger("lock")


def lock_path(session_file: Path) -> Path:
    """Where the lock of a session file lies: links are resolved in its directory only."""
    return Path(os.path.realpath(session_file.parent)) / f"{session_file.name}.lock"


def inspect_lock(session_file: Path, *, now: float | None = None) -> LockState:
    """Who holds the lock of a session file, at `now` (seconds of the epoch); changes nothing."""
    with look(lock_path(session_file)) as seen:
        return (
            seen.state(time.time() if now is None else now) if isinstance(seen, SeenLock) else seen
        )


def payload(now: float) -> bytes:
    """What a lock of ours says, in the words of the newest gateway that uses lock files."""
    pid = os.getpid()
    words: dict[str, int | str] = {"pid": pid, "createdAt": iso_utc(now)}
    if (start := processes.starttime(pid)) is not None:
        words["starttime"] = start
    words["maxHoldMs"] = MAX_HOLD_MS
    return orjson.dumps(words, option=orjson.OPT_INDENT_2)


def judge(content: bytes, age: float) -> HeldLock | Stale | Unreadable:
    """Whether a lock that says `content`, last written `age` seconds ago, still counts.

    Age alone never ends a lock whose owner lives, nor does what the owner looks like.
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
    return HeldLock(pid, created if isinstance(created, str) else None, ours=pid == os.getpid())


def _words(content: bytes) -> dict[str, object]:
    try:
        words = orjson.loads(content)
    except ValueError:  # empty, cut short, or no JSON at all: it says nothing
        return {}
    return words if isinstance(words, dict) else {}


@immutable
class SeenLock:
    """One lock file as it was found.

    It is kept open while it is judged: until then its inode number is given to no other file, so
    device and inode tell it from any lock that takes its name meanwhile.
    """

    path: Path
    descriptor: int
    content: bytes
    modified: float
    changed: float  # by the kernel's clock, whatever somebody has set `modified` to

    def state(self, now: float) -> HeldLock | Stale | Unreadable:
        found = judge(self.content, now - self.modified)
        if isinstance(found, Unreadable) and self._is_of_an_earlier_start(now):
            return Stale(
                "it says of no process that it holds it, was written before this machine started, "
                "and nobody has it open"
            )
        return found

    def _is_of_an_earlier_start(self, now: float) -> bool:
        """Whether it was left by a power cut, which may have taken what it said.

        Clocks alone would not prove it: they may have been put forward since. But whoever has just
        made a lock and not yet written it has it open; and that a lease tells.
        """
        if max(self.modified, self.changed) >= now - steady():
            return False
        with suppress(OSError):
            if strength(self.path.parent).level == "strong" and take_lease(self.descriptor):
                release_lease(self.descriptor)
                return True
        return False

    def is_still(self, path: Path) -> bool:
        """Whether `path` is this file, and says what it said."""
        return is_at(self.descriptor, path) and read_all(self.descriptor) == self.content


@contextmanager
def look(path: Path) -> Iterator[SeenLock | Free | Unreadable]:
    """Open the lock file at `path`, if there is one that can be read."""
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
    except OSError as error:  # another user's, a symbolic link, a socket: not for us to judge
        return Unreadable(f"{path}: {error.strerror}")


def bury(path: Path, seen: SeenLock, *, now: float) -> bool:
    """Remove the lock file that was judged stale, and no other; False if that is not certain.

    Between judging and removing, the name may come to mean another file: somebody else buries
    the stale lock too and puts a fresh one there, which a plain unlink would destroy. Therefore:

    - Among ourselves: whoever buries holds the flock of the stale file itself, and looks again
      under it. So only one bsd removes this file, and the second finds that the name has moved
      on. (A holder of ours keeps the flock too: a living one is never buried, not even from
      another PID namespace, where its process cannot be seen.)
    - Against the gateway, which knows no flock, there remain the microseconds between that look
      and the removal. So the file is first renamed to a name of its own, which takes exactly one
      file, whichever it is, and judged once more there. A fresh lock goes back by link(), which
      never overwrites; its owner has noticed nothing.
    """
    try:
        fcntl.flock(seen.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # a network file system without flock: the second half must do
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
        # Three programs within microseconds. Nothing may be overwritten, so this lock is lost;
        # its owner sees it when it compares the file at the time of release.
        _log.warning("A lock was taken while another one was moved aside", path=str(path))


def _sweep(directory: Path, now: float) -> None:
    """Remove temporary names that killed processes left behind."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(TEMPORARY_PREFIX):
                with suppress(FileNotFoundError):  # somebody else sweeps too
                    if now - entry.stat(follow_symlinks=False).st_ctime > _LEFTOVER_AFTER_SECONDS:
                        os.unlink(entry)


def temporary_name(directory: Path) -> Path:
    return directory / f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"


def place(prepared: Path, path: Path) -> bool:
    """Give a finished file the name `path` too; False where the file system has no hard links.

    Raises FileExistsError if the name is taken, and OSError.
    """
    try:
        os.link(prepared, path)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return False
    return True


def write_exclusively(path: Path, content: bytes) -> int:
    """Create a private file that did not exist and return its descriptor; raises OSError."""
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
    """What an open lock file says now."""
    return os.pread(descriptor, _LARGEST_PAYLOAD, 0)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that `path` names."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)
