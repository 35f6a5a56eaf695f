"""The one way in which a session file is changed: build the new file, exchange it in (DESIGN §4).

`after_step` is called with these steps, in order: checked, kept, begun, built, dressed, synced,
recorded, locked, idle; then those of `exchange`: opened, leased_old, leased_new, verified,
exchanged, recognised, draining, drained, (noted, carried,) released; then unlocked, durable. A
commit that gives up ends with discarded or, after an exchange, with (truncated, let_in,
carried_back,) put_back, undone, unlocked and durable.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import structlog

from bsd.core import filesystem
from bsd.core.errors import BsdError, Busy, Unavailable, os_problem
from bsd.core.files import UNCERTAIN_NS, sync_dir, write_all
from bsd.core.filesystem import MetadataNotKept, Strength, keep_metadata
from bsd.core.leases import open_plain, tail_hash
from bsd.core.logs import BoundLogger
from bsd.core.processes import described
from bsd.sessions.commit.exchange import Exchange, GiveUp, GivingUp, Step, no_step
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.record import Draft, EditedSpan, Edits, Mark
from bsd.transcripts.change import Change, Identity

_log: BoundLogger = structlog.get_logger(module="commit")
# A shorter gap between two edits is read and written with them, which costs less than a copy.
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
_NO_EXCHANGE_HERE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.EBUSY}


# --- the new file: the kernel copies unchanged bytes, edits are spliced in ---


class FileChanged(Exception):
    """The planned file has changed: it ended too early."""


def splice(source: int, target: int, change: Change) -> Edits:
    """Write the changed file to `target`, which is empty; raises FileChanged, OSError."""
    gathered: list[bytes] = []
    pending, hashes, spans, at = 0, hashlib.sha256(), [], 0

    def write(data: bytes) -> None:
        nonlocal pending
        gathered.append(data)
        pending += len(data)
        if pending >= _GATHER:
            flush()

    def flush() -> None:
        nonlocal pending
        write_all(target, b"".join(gathered))
        gathered.clear()
        pending = 0

    def copy(start: int, length: int) -> None:
        if length >= _SMALL_GAP:
            flush()
            copy_range(source, start, target, length)
        elif length:
            write(_read(source, start, length))

    for edit in change.edits:
        copy(at, edit.offset - at)
        at = edit.offset + edit.length
        hashes.update((edit.was or _hash(source, edit.offset, at)).encode())
        write(edit.new)
        spans.append(EditedSpan(edit.offset, edit.length, len(edit.new)))
    copy(at, change.planned_on.size - at)
    flush()
    return Edits(tuple(spans), hashes.hexdigest())


def _hash(source: int, start: int, end: int) -> str:
    hashed = hashlib.sha256()
    for at in range(start, end, _BLOCK):
        hashed.update(_read(source, at, min(_BLOCK, end - at)))
    return f"sha256:{hashed.hexdigest()}"


def _read(source: int, offset: int, length: int) -> bytes:
    data = os.pread(source, length, offset)
    if len(data) < length:
        raise FileChanged
    return data


def copy_range(source: int, offset: int, target: int, length: int) -> None:
    """Append `length` bytes of `source` to `target` at its file position.

    The kernel copies them if it can.
    """
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
    """Return the mark by which recovery recognises an open file."""
    return Mark(identity, header_hash(fd), tail_hash(fd, identity.size))


def header_hash(fd: int) -> str:
    """Return the SHA-256 of the first line, or of its first 64 KiB if it is longer."""
    start = os.pread(fd, _HEADER_LIMIT, 0)
    line, end, _ = start.partition(b"\n")
    return hashlib.sha256(line + end).hexdigest()


# --- the commit ---


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """The outcome of a commit: committed, or given up for a reason with the session as it was."""

    gave_up: GiveUp | None
    detail: str = ""
    identity: Identity | None = None  # of the file at the path, if committed
    bytes_written: int = 0  # size of the new file, drained growth included
    drained_bytes: int = 0  # appended by other programs and carried over
    drained_lines: int = 0
    lease_held_s: float = 0.0  # longest time that another opener had to wait
    in_flight: Path | None = None  # record left for recovery, if any
    indexed: bool = True  # False: no room for the originals in the store's index
    operation: int | None = None  # number in the session's history, if committed

    @property
    def committed(self) -> bool:
        return self.gave_up is None


def commit(  # noqa: PLR0913 - every party to the protocol, each by name
    change: Change,
    *,
    inflight: InFlight,
    session_lock: AbstractContextManager[object],
    still_idle: Callable[[], str | None],
    keep: Callable[[], None],
    after_step: Step = no_step,
    now_ns: Callable[[], int] = time.time_ns,
    strength: Callable[[Path], Strength] = filesystem.strength,
) -> CommitOutcome:
    """Make `change`, or give up and leave the session as it was.

    The caller holds bsd's lock of the session.

    Args:
        session_lock: the lock of the session's program. A Busy from it gives up.
        still_idle: called under `session_lock`; returns a reason if the session is in use.
        keep: stores the originals to which the new lines refer, durably.
        after_step: called after each step, for tests.
        now_ns: returns the time in epoch nanoseconds.
        strength: returns how far leases can be trusted in a directory.

    Raises:
        BsdError: an error that waiting does not cure (disk full, no permission). The session is as
            it was then, too.
    """
    _log.trace("A change is committed", path=str(change.path))
    try:
        work = _Commit(change, after_step, now_ns, strength(change.path.parent))
        work.check()
        directory = inflight.directory_for(change.path)
        keep()
        after_step("kept")
        draft = Draft(directory)
        try:
            exchange = work.prepare(draft)
            work.run_locked(exchange, session_lock, still_idle)
        finally:
            if not work.handed_over:
                draft.discard()
                after_step("discarded")
        if exchange.exchanged:  # make the names durable
            inflight.own.remember(change.session, draft.record)
            sync_dir(change.path.parent)
            sync_dir(draft.record.parent)
            after_step("durable")
        if isinstance(exchange.failure, OSError):
            raise exchange.failure
    except GivingUp as stop:
        return CommitOutcome(stop.reason, stop.detail)
    except OSError as error:
        raise _explained(change.path, error) from error
    failure = exchange.failure
    drained = b"" if failure else exchange.drained
    return CommitOutcome(
        gave_up=failure.reason if failure else None,
        detail=failure.detail if failure else "",
        identity=exchange.identity,
        bytes_written=exchange.planned_new.size + len(drained),
        drained_bytes=len(drained),
        drained_lines=drained.count(b"\n") + (not drained.endswith(b"\n") if drained else 0),
        lease_held_s=exchange.held_s,
        in_flight=draft.record if exchange.exchanged else None,
    )


class _Commit:
    """Steps 0 and 1, and the session lock around the others."""

    def __init__(
        self, change: Change, after_step: Step, now_ns: Callable[[], int], strength: Strength
    ) -> None:
        self.change = change
        self.after_step = after_step
        self.now_ns = now_ns
        self.strong = strength.level == "strong"
        self.quiet_ns = strength.quiet_seconds * 1e9
        self.handed_over = False  # True: only the record tells the state

    def check(self) -> None:
        """Raise GivingUp for a session not worth preparing: another file, too young, or in use."""
        path, planned = self.change.path, self.change.planned_on
        try:
            found = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            raise GivingUp(GiveUp.GONE, f"{path} is no longer there") from None
        if not stat.S_ISREG(found.st_mode):
            raise GivingUp(GiveUp.NOT_REGULAR, f"{path} is not a regular file")
        if Identity.of(found) != planned:
            reason = GiveUp.CHANGED if found.st_ino == planned.ino else GiveUp.REPLACED
            raise GivingUp(reason, "the session changed since it was planned")
        if abs(self.change.planned_at_ns - found.st_mtime_ns) < UNCERTAIN_NS:
            raise GivingUp(GiveUp.TOO_YOUNG, "it was planned within 2 s of its last change")
        if not self.strong:
            self.check_quiet()
        self.after_step("checked")

    def check_quiet(self) -> None:
        """Make the checks that replace leases where these prove nothing; raises GivingUp."""
        if self.now_ns() - self.change.planned_on.mtime_ns < self.quiet_ns:
            quiet = f"{self.quiet_ns / 1e9:.0f} s of quiet"
            raise GivingUp(GiveUp.TOO_YOUNG, f"this file system needs {quiet}")
        # The planner still has it open, for reading only.
        if holders := set(filesystem.open_elsewhere(self.change.path)) - {os.getpid()}:
            raise GivingUp(GiveUp.IS_OPEN, f"{described(min(holders))} has the session open")

    def prepare(self, draft: Draft) -> Exchange:
        """Do step 0: make the new file and its record, complete and durable."""
        change, changed = self.change, "the session changed while it was copied"
        # Both are closed before the exchange: our own reader would count as an opener.
        with ExitStack() as opened:
            source = _open_planned(change)
            opened.callback(os.close, source)
            target = draft.begin(
                change.session, change.path, self.now_ns(), carries_late=change.carries_late
            )
            opened.callback(os.close, target)
            self.after_step("begun")
            try:
                edits = splice(source, target, change)
                self.after_step("built")
                keep_metadata(source, target, mtime=change.keeps_mtime)
                self.after_step("dressed")
            except FileChanged:
                raise GivingUp(GiveUp.CHANGED, changed) from None
            except MetadataNotKept as error:
                raise GivingUp(GiveUp.CANNOT_KEEP_METADATA, str(error)) from error
            if Identity.of(os.fstat(source)) != change.planned_on:
                # The check under the lease would find this too, but fsync is expensive.
                raise GivingUp(GiveUp.CHANGED, changed)
            os.fsync(target)
            self.after_step("synced")
            new = Identity.of(os.fstat(target))
            old_mark, new_mark = mark(source, change.planned_on), mark(target, new)
            draft.complete(old_mark, new_mark, edits, strong=self.strong)
            self.after_step("recorded")
        return Exchange(
            change.path,
            draft,
            change.planned_on,
            new,
            edits,
            strong=self.strong,
            after_step=self.after_step,
        )

    def run_locked(
        self,
        exchange: Exchange,
        session_lock: AbstractContextManager[object],
        still_idle: Callable[[], str | None],
    ) -> None:
        """Do steps 1-6, up to the release of the session lock."""
        with ExitStack() as held:
            try:
                held.enter_context(session_lock)
            except Busy as busy:  # the program's lock is held; a Busy from later steps is an error
                raise GivingUp(GiveUp.BUSY, busy.message) from busy
            self.after_step("locked")
            if reason := still_idle():
                raise GivingUp(GiveUp.NOT_IDLE, reason)
            if not self.strong:
                self.check_quiet()
            self.after_step("idle")
            self.handed_over = True
            exchange.run()
            self.handed_over = exchange.exchanged
        self.after_step("unlocked")


def _open_planned(change: Change) -> int:
    """Open the session for reading if it is still the planned file; raises GivingUp."""
    try:
        source = open_plain(str(change.path), os.O_RDONLY)
    except FileNotFoundError:
        raise GivingUp(GiveUp.GONE, f"{change.path} is no longer there") from None
    except BlockingIOError:
        raise GivingUp(GiveUp.IS_OPEN, "another process holds a lease on the session") from None
    if Identity.of(os.fstat(source)) != change.planned_on:
        os.close(source)
        raise GivingUp(GiveUp.CHANGED, "the session changed since it was planned")
    return source


def _explained(path: Path, error: OSError) -> BsdError:
    """Translate an error of the operating system for the session at `path`."""
    if error.errno in _NO_EXCHANGE_HERE:
        return Unavailable(
            f"{path} was left as it was: {error.strerror}",
            hint="its file system cannot exchange two names atomically, and bsd needs that: "
            "move the sessions to a local file system",
        )
    return os_problem(error, f"{path} was left as it was")
