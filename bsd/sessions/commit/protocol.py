"""The one way a session file is changed: build the new file, exchange it in (DESIGN §4).

Steps, in the order in which `after_step` hears of them: checked, kept, begun, built, dressed,
synced, recorded, locked, idle; then those of exchange.py: opened, leased_old, leased_new,
verified, exchanged, recognised, draining, drained, (noted, carried,) released; then unlocked,
durable. Giving up ends with discarded, or after an exchange with (truncated, let_in,
carried_back,) put_back, undone, unlocked and durable.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import structlog

from bsd.core import filesystem
from bsd.core.errors import BsdError, Busy, Unavailable, os_problem
from bsd.core.files import UNCERTAIN_NS, sync_dir
from bsd.core.filesystem import MetadataNotKept, Strength, keep_metadata
from bsd.core.leases import open_plain, tail_hash
from bsd.core.logs import BoundLogger
from bsd.core.processes import described
from bsd.sessions.commit.exchange import Request, Result, Step, exchange, no_step
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.record import Draft, EditedSpan, Edits, Mark
from bsd.transcripts.change import Change, Edit, Identity

_log: BoundLogger = structlog.get_logger(module="commit")
# Less than this between two edits is cheaper to read and write with them than to copy apart.
_SMALL_GAP = 64 << 10
_GATHER = 2 << 20
_BLOCK = 1 << 20
_HEADER_LIMIT = 64 << 10
_NO_COPY_HERE = {
    errno.ENOSYS,
    errno.EXDEV,
    errno.EOPNOTSUPP,
    errno.EINVAL,
    errno.EPERM,
    errno.EBADF,
}


# --- the new file: untouched bytes copied in the kernel, edits spliced in ---


class FileChanged(Exception):
    """The planned file is not what it was: it ended too early."""


@dataclass(frozen=True, slots=True)
class Built:
    """What the exchange and the record need to know of a new file."""

    size: int
    edited_sha256: str  # of the hashes of the original bytes under each edit, in order


def splice(source: int, target: int, change: Change) -> Built:
    """Write the changed file to `target`, an empty file; raises FileChanged, OSError."""
    writer = _Writer(source, target)
    edited = hashlib.sha256()
    at = 0
    for edit in change.edits:
        writer.copy(at, edit.offset - at)
        edited.update((edit.was or _hash(source, edit)).encode())
        writer.write(edit.new)
        at = edit.offset + edit.length
    writer.copy(at, change.planned_on.size - at)
    writer.flush()
    return Built(writer.size, edited.hexdigest())


def _hash(source: int, edit: Edit) -> str:
    hashed, end = hashlib.sha256(), edit.offset + edit.length
    for start in range(edit.offset, end, _BLOCK):
        hashed.update(_read(source, start, min(_BLOCK, end - start)))
    return f"sha256:{hashed.hexdigest()}"


def _read(source: int, offset: int, length: int) -> bytes:
    data = os.pread(source, length, offset)
    if len(data) < length:
        raise FileChanged
    return data


class _Writer:
    """Writes a file front to back; gathers small pieces, copies large ones in the kernel."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.target = target
        self.size = 0
        self._gathered: list[bytes] = []
        self._pending = 0

    def copy(self, offset: int, length: int) -> None:
        if length < _SMALL_GAP:
            if length:
                self.write(_read(self.source, offset, length))
            return
        self.flush()
        copy_range(self.source, offset, self.target, length)
        self.size += length

    def write(self, data: bytes) -> None:
        self._gathered.append(data)
        self._pending += len(data)
        if self._pending >= _GATHER:
            self.flush()

    def flush(self) -> None:
        data = memoryview(b"".join(self._gathered))
        self._gathered.clear()
        self.size += self._pending
        self._pending = 0
        while data:
            data = data[os.write(self.target, data) :]


def copy_range(source: int, offset: int, target: int, length: int) -> None:
    """Append `length` bytes of `source` to `target` at its file position, as fast as it goes."""
    while length:
        done = _copy_some(source, offset, target, length)
        if done == 0:
            raise FileChanged
        offset += done
        length -= done


def _copy_some(source: int, offset: int, target: int, length: int) -> int:
    copy_file_range = getattr(os, "copy_file_range", None)  # Linux only
    if copy_file_range is not None:
        try:
            return int(copy_file_range(source, target, length, offset_src=offset))
        except OSError as error:
            if error.errno not in _NO_COPY_HERE:
                raise
    try:
        return os.sendfile(target, source, offset, length)
    except OSError as error:  # macOS sends to sockets only
        if error.errno not in _NO_COPY_HERE | {errno.ENOTSOCK}:
            raise
    data = os.pread(source, min(_BLOCK, length), offset)
    return os.write(target, data) if data else 0


def mark(fd: int, identity: Identity) -> Mark:
    """What recovery recognises an open file by."""
    return Mark(identity, header_hash(fd), tail_hash(fd, identity.size))


def header_hash(fd: int) -> str:
    """SHA-256 of the first line (of its first 64 KiB, should it be longer)."""
    start = os.pread(fd, _HEADER_LIMIT, 0)
    line, end, _ = start.partition(b"\n")
    return hashlib.sha256(line + end).hexdigest()


# --- the commit ---


class GiveUp(StrEnum):
    """Why a session was left as it was; trying again later may succeed."""

    TOO_YOUNG = "too_young"  # planned within 2 s of its last change; weak mount: within 30 s
    CHANGED = "changed"  # since it was planned, or rewritten in place meanwhile
    GONE = "gone"  # deleted or renamed
    REPLACED = "replaced"  # another file stands at the path
    NOT_REGULAR = "not_regular"
    IS_OPEN = "is_open"  # somebody has it open
    DRAIN_TIMEOUT = "drain_timeout"  # somebody opened it during the exchange and keeps it
    BUSY = "busy"  # its lock is held
    NOT_IDLE = "not_idle"  # in use in another way
    CANNOT_KEEP_METADATA = "cannot_keep_metadata"  # mode, owner, ACL or attributes
    FAILED = "failed"  # by an error, which is raised


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a commit ended: committed, or given up for a reason with the session as it was."""

    gave_up: GiveUp | None
    detail: str = ""
    identity: Identity | None = None  # of the file that we left at the path, if committed
    bytes_written: int = 0  # of the new file, drained growth included
    drained_bytes: int = 0  # others' growth that was carried over in order
    drained_lines: int = 0
    lease_held_s: float = 0.0  # longest pause that another opener may have felt
    in_flight: Path | None = None  # record that recovery will finish, if one is left
    indexed: bool = True  # what the store keeps of it; False: there was no room for that

    @property
    def committed(self) -> bool:
        return self.gave_up is None


class _Stop(Exception):
    def __init__(self, reason: GiveUp, detail: str) -> None:
        super().__init__(detail)
        self.outcome = Outcome(reason, detail)


def commit(  # noqa: PLR0913 (every party to the protocol, each by its name)
    change: Change,
    *,
    inflight: InFlight,
    session_lock: AbstractContextManager[object],
    still_idle: Callable[[], str | None],
    keep: Callable[[], None],
    after_step: Step = no_step,
    now_ns: Callable[[], int] = time.time_ns,
    strength: Callable[[Path], Strength] = filesystem.strength,
) -> Outcome:
    """Make `change`, or give up and leave everything as it was.

    The caller holds bsd's own lock of the session. `keep` makes durable what the new lines refer
    to; `still_idle` gives a reason if the session is in use, and is asked under `session_lock`
    (a Busy from that lock is a giving up). Raises a BsdError for what waiting does not cure (disk
    full, no permission); the session is as it was then, too.
    """
    _log.trace("A change is committed", path=str(change.path))
    work = _Commit(change, inflight, after_step, now_ns)
    try:
        with _os_errors(change.path):
            return work.run(session_lock, still_idle, keep, strength)
    except _Stop as stop:
        return stop.outcome


class _Commit:
    def __init__(
        self,
        change: Change,
        inflight: InFlight,
        after_step: Step,
        now_ns: Callable[[], int],
    ) -> None:
        self.change = change
        self.inflight = inflight
        self.after_step = after_step
        self.now_ns = now_ns
        self.strong = True
        self.quiet_ns = 0.0
        self.handed_over = False  # from then on only the record knows what happened

    def run(
        self,
        session_lock: AbstractContextManager[object],
        still_idle: Callable[[], str | None],
        keep: Callable[[], None],
        strength: Callable[[Path], Strength],
    ) -> Outcome:
        found = strength(self.change.path.parent)
        self.strong = found.level == "strong"
        self.quiet_ns = found.quiet_seconds * 1e9
        self.check()
        directory = self.inflight.directory_for(self.change.path)
        keep()
        self.after_step("kept")
        draft = Draft(directory)
        try:
            request = self.prepare(draft)
            result = self.exchange_locked(request, session_lock, still_idle)
        finally:
            if not self.handed_over:
                draft.discard()
                self.after_step("discarded")
        return self.conclude(draft, request, result)

    def check(self) -> None:
        """Refuse what is not worth preparing: another file, one too young, one in use."""
        found = _look(self.change.path)
        if found != self.change.planned_on:
            what = GiveUp.CHANGED
            if found.ino != self.change.planned_on.ino:
                what = GiveUp.REPLACED
            raise _Stop(what, "the session changed since it was planned")
        age = self.change.planned_at_ns - found.mtime_ns
        if abs(age) < UNCERTAIN_NS:
            raise _Stop(GiveUp.TOO_YOUNG, "it was planned within 2 s of its last change")
        if not self.strong:
            self.check_quiet()
        self.after_step("checked")

    def check_quiet(self) -> None:
        """What takes the place of leases where these prove nothing."""
        if self.now_ns() - self.change.planned_on.mtime_ns < self.quiet_ns:
            quiet = f"{self.quiet_ns / 1e9:.0f} s of quiet"
            raise _Stop(GiveUp.TOO_YOUNG, f"this file system needs {quiet}")
        # Who planned has it open yet, and only reads.
        if holders := set(filesystem.open_elsewhere(self.change.path)) - {os.getpid()}:
            raise _Stop(GiveUp.IS_OPEN, f"{described(min(holders))} has the session open")

    def prepare(self, draft: Draft) -> Request:
        """Step 0: the new file and its record, complete and durable."""
        change = self.change
        source = _open_planned(change)
        try:
            target = draft.begin(
                change.session, change.path, self.now_ns(), carries_late=change.carries_late
            )
            try:
                self.after_step("begun")
                return self.build(draft, source, target)
            finally:
                os.close(target)
        finally:
            os.close(source)  # our own reader would count as somebody who has it open

    def build(self, draft: Draft, source: int, target: int) -> Request:
        change = self.change
        try:
            built = splice(source, target, change)
            self.after_step("built")
            keep_metadata(source, target, mtime=change.keeps_mtime)
            self.after_step("dressed")
        except FileChanged:
            raise _Stop(GiveUp.CHANGED, "the session changed while it was copied") from None
        except MetadataNotKept as error:
            raise _Stop(GiveUp.CANNOT_KEEP_METADATA, str(error)) from error
        if Identity.of(os.fstat(source)) != change.planned_on:
            # It would be found out under the lease, but fsync is dear.
            raise _Stop(GiveUp.CHANGED, "the session changed while it was copied")
        os.fsync(target)
        self.after_step("synced")
        new = Identity.of(os.fstat(target))
        spans = [EditedSpan(edit.offset, edit.length, len(edit.new)) for edit in change.edits]
        edits = Edits(tuple(spans), built.edited_sha256)
        draft.complete(
            mark(source, change.planned_on), mark(target, new), edits, strong=self.strong
        )
        self.after_step("recorded")
        return {
            "path": str(change.path),
            "inflight": str(draft.file),
            "record": str(draft.record),
            "planned": _as_list(change.planned_on),
            "new": _as_list(new),
            "edits": [list(span) for span in spans],
            "edited_sha256": built.edited_sha256,
            "strong": self.strong,
        }

    def exchange_locked(
        self,
        request: Request,
        session_lock: AbstractContextManager[object],
        still_idle: Callable[[], str | None],
    ) -> Result:
        """Steps 1-6, up to the release of the session lock."""
        with _held(session_lock):
            self.after_step("locked")
            if reason := still_idle():
                raise _Stop(GiveUp.NOT_IDLE, reason)
            if not self.strong:
                self.check_quiet()
            self.after_step("idle")
            self.handed_over = True
            result = exchange(request, self.after_step)
            self.handed_over = result["exchanged"]
        self.after_step("unlocked")
        return result

    def conclude(self, draft: Draft, request: Request, result: Result) -> Outcome:
        """Make the names durable and say what happened."""
        if self.handed_over:
            self.inflight.own.remember(self.change.session, draft.record)
            sync_dir(self.change.path.parent)
            sync_dir(draft.record.parent)
            self.after_step("durable")
        if result["gave_up"] == "error":
            code = result["errno"]
            raise OSError(code, os.strerror(code), result["detail"])
        in_flight = draft.record if result["exchanged"] else None
        identity = result["identity"]
        return Outcome(
            gave_up=GiveUp(result["gave_up"]) if result["gave_up"] else None,
            detail=result["detail"],
            identity=Identity(*identity) if identity else None,
            bytes_written=request["new"][2] + result["drained_bytes"],
            drained_bytes=result["drained_bytes"],
            drained_lines=result["drained_lines"],
            lease_held_s=result["held_s"],
            in_flight=in_flight,
        )


def _as_list(identity: Identity) -> list[int]:
    return [identity.dev, identity.ino, identity.size, identity.mtime_ns, identity.ctime_ns]


def _look(path: Path) -> Identity:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        raise _Stop(GiveUp.GONE, f"{path} is no longer there") from None
    if not stat.S_ISREG(found.st_mode):
        raise _Stop(GiveUp.NOT_REGULAR, f"{path} is not a regular file")
    return Identity.of(found)


def _open_planned(change: Change) -> int:
    """Open the session for reading, if it is still what was planned on."""
    try:
        source = open_plain(str(change.path), os.O_RDONLY)
    except FileNotFoundError:
        raise _Stop(GiveUp.GONE, f"{change.path} is no longer there") from None
    except BlockingIOError:
        raise _Stop(GiveUp.IS_OPEN, "somebody else holds a lease on the session") from None
    if Identity.of(os.fstat(source)) != change.planned_on:
        os.close(source)
        raise _Stop(GiveUp.CHANGED, "the session changed since it was planned")
    return source


@contextmanager
def _held(session_lock: AbstractContextManager[object]) -> Iterator[None]:
    """Hold the session's lock; somebody else's is a giving up, what comes later is not."""
    try:
        session_lock.__enter__()
    except Busy as busy:
        raise _Stop(GiveUp.BUSY, busy.message) from busy
    try:
        yield
    finally:
        session_lock.__exit__(None, None, None)


@contextmanager
def _os_errors(path: Path) -> Iterator[None]:
    """Say what the operating system's refusal means for the session at `path`."""
    try:
        yield
    except OSError as error:
        raise _explained(path, error) from error


def _explained(path: Path, error: OSError) -> BsdError:
    if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.EBUSY):
        return Unavailable(
            f"{path} was left as it was: {error.strerror}",
            hint="its file system cannot exchange two names atomically, and bsd needs that: "
            "move the sessions to a local file system",
        )
    return os_problem(error, f"{path} was left as it was")
