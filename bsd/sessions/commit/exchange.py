"""Steps 2-6 of a commit (DESIGN §4): lease, exchange, drain, undo.

While the leases are held, every program that opens the session waits. So no step may wait for the
GIL, for memory or for a log, and the exchange runs only in processes with one thread.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import os
import signal
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from bsd.core.leases import (
    append,
    hash_under,
    is_same_beside,
    open_plain,
    read_range,
    release_lease,
    somebody_waits,
    swap_names,
    tail_hash,
    take_lease,
)
from bsd.sessions.commit.record import Draft, Edits, Note, note_line
from bsd.transcripts.change import Identity

Step = Callable[[str], None]

_DRAIN_SECONDS = 0.05
_PUT_BACK_SECONDS = 0.25
_POLL_SECONDS = 0.0001
# No signal of a terminal, service manager or timer may end the process between exchange and drain.
_HELD_BACK = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGALRM,
    signal.SIGTSTP,
    signal.SIGUSR1,
    signal.SIGUSR2,
}


class GiveUp(StrEnum):
    """Why a session was left as it was. A later attempt may succeed."""

    TOO_YOUNG = "too_young"  # planned within 2 s of its last change; on weak mounts 30 s
    CHANGED = "changed"  # changed since it was planned, or rewritten in place meanwhile
    GONE = "gone"  # deleted or renamed
    REPLACED = "replaced"  # another file is at the path
    NOT_REGULAR = "not_regular"
    IS_OPEN = "is_open"  # another process has it open
    DRAIN_TIMEOUT = "drain_timeout"  # a program opened it during the exchange and keeps it open
    BUSY = "busy"  # its lock is held
    NOT_IDLE = "not_idle"  # in use in another way
    CANNOT_KEEP_METADATA = "cannot_keep_metadata"  # mode, owner, ACL or attributes
    FAILED = "failed"  # an error, which is raised


class GivingUp(Exception):
    """The session cannot be committed now."""

    def __init__(self, reason: GiveUp, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Exchange:
    """The exchange of one session file and its successor.

    After `run`, the attributes without an underscore hold the result.
    """

    def __init__(
        self,
        path: Path,
        draft: Draft,
        planned: Identity,
        new: Identity,
        edits: Edits,
        *,
        strong: bool,
        after_step: Step,
    ) -> None:
        self.planned_new = new
        self.exchanged = False  # the new file was at the path, if only for a moment
        self.failure: GivingUp | OSError | None = None  # None: committed
        self.identity: Identity | None = None  # of the new file when its lease was released
        self.drained = b""  # bytes appended to the old file and carried to the new one
        self.held_s = 0.0  # longest time in seconds that a lease was held
        self._path = str(path)
        self._inflight = str(draft.file)
        self._record_path = str(draft.record)
        self._planned = planned
        self._edits = edits
        self._strong = strong
        self._after_step = after_step
        self._old = self._new = self._record = -1
        self._new_tail = ""
        self._old_leased = False
        # Bytes appended to the new file and carried to the returning one: (offset in new, bytes).
        self._returned: list[tuple[int, bytes]] = []
        self._leased_at = 0.0

    def run(self) -> None:
        """Do all steps. At the end, one whole session file is at the path in any case.

        Garbage collection and signals are off meanwhile. The process should have no other busy
        threads.
        """
        collecting = gc.isenabled()
        gc.disable()
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
        try:
            self._open_files()
            self._lease()
            self._verify()
            self._exchange()
            try:
                self._recognise()
                self._drain()
                self._carry_growth()
            except (GivingUp, OSError):
                self._put_back()
                raise
            self._release()
        except (GivingUp, OSError) as problem:
            self.failure = problem
        finally:
            for fd in (self._new, self._old, self._record):  # closing releases the leases
                if fd >= 0:
                    os.close(fd)
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
            if collecting:
                gc.enable()

    # Steps, in order.

    def _open_files(self) -> None:
        self._record = open_plain(self._record_path, os.O_WRONLY | os.O_APPEND)
        self._new = open_plain(self._inflight, os.O_RDWR | os.O_APPEND)
        self._new_tail = tail_hash(self._new, self.planned_new.size)
        if self._strong:
            self._open_old(self._path)
        self._after_step("opened")

    def _open_old(self, name: str) -> None:
        try:
            # For writing, so that a file that bsd may not write to is refused here. Also, on
            # overlayfs a file opened for reading can be the wrong one.
            self._old = open_plain(name, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            raise GivingUp(GiveUp.GONE, f"{name} is no longer there") from None
        except OSError as error:
            if error.errno == errno.EAGAIN:
                raise GivingUp(GiveUp.IS_OPEN, "another process holds a lease on it") from None
            if error.errno in (errno.ELOOP, errno.EISDIR):
                raise GivingUp(GiveUp.NOT_REGULAR, f"{name} is not a regular file") from None
            raise

    def _lease(self) -> None:
        if self._strong and not take_lease(self._old):
            raise GivingUp(GiveUp.IS_OPEN, "another process has the session open")
        self._old_leased = self._strong
        self._leased_at = time.monotonic()
        self._after_step("leased_old")
        if self._strong and not take_lease(self._new):
            raise GivingUp(GiveUp.IS_OPEN, "another process has the new file open")
        self._after_step("leased_new")

    def _verify(self) -> None:
        """Check that the planned file is at the path and no process waits for either file."""
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            raise GivingUp(GiveUp.GONE, f"{self._path} is no longer there") from None
        if not stat.S_ISREG(found.st_mode):
            raise GivingUp(GiveUp.NOT_REGULAR, f"{self._path} is not a regular file")
        if found.st_ino != self._planned.ino:
            raise GivingUp(GiveUp.REPLACED, "another file is at the session's path")
        if Identity.of(found) != self._planned:
            raise GivingUp(GiveUp.CHANGED, "the session changed since it was planned")
        if self._strong and (somebody_waits(self._old) or somebody_waits(self._new)):
            raise GivingUp(GiveUp.IS_OPEN, "another process is about to open the session")
        self._after_step("verified")

    def _exchange(self) -> None:
        try:
            swap_names(self._inflight, self._path)
        except FileNotFoundError:
            if not os.path.lexists(self._inflight):
                raise
            raise GivingUp(GiveUp.GONE, f"{self._path} was deleted or renamed") from None
        self.exchanged = True
        self._after_step("exchanged")

    def _recognise(self) -> None:
        """Check that the planned file came out of the exchange."""
        if os.lstat(self._inflight).st_ino != self._planned.ino:
            raise GivingUp(GiveUp.REPLACED, "another file was put at the session's path")
        if not self._strong:
            self._open_old(self._inflight)
        self._after_step("recognised")

    def _drain(self) -> None:
        """Let programs write that opened the path before the exchange; read their additions."""
        if self._strong:
            release_lease(self._old)
            self._old_leased = False
            self._after_step("draining")
            self._old_leased = _lease_until(self._old, time.monotonic() + _DRAIN_SECONDS)
            if not self._old_leased:
                raise GivingUp(GiveUp.DRAIN_TIMEOUT, "another process keeps the session open")
        now, size = os.fstat(self._old), self._planned.size
        # Unless its mtime is unchanged, compare its first bytes with the planned ones.
        if now.st_size < size or not (
            now.st_mtime_ns == self._planned.mtime_ns
            or (
                is_same_beside(self._old, self._new, self._edits.spans, size)
                and hash_under(self._old, self._edits.spans) == self._edits.sha256
            )
        ):
            raise GivingUp(GiveUp.CHANGED, "another program rewrote the session")
        if now.st_size > size and not self._strong:
            raise GivingUp(GiveUp.CHANGED, "another program appended to the session")
        self.drained = read_range(self._old, size, now.st_size)
        self._after_step("drained")

    def _carry_growth(self) -> None:
        """Append the growth to the new file, byte for byte.

        No other process could open that file yet.
        """
        if not self.drained:
            return
        if os.fstat(self._new).st_size != self.planned_new.size:
            # The process was suspended until the kernel broke the lease: recovery puts the growth
            # where it belongs.
            self.drained = b""
            return
        self._note("carrying", "old", self._planned.size, self.drained)
        self._after_step("noted")
        try:
            append(self._new, self.drained)
        except OSError:
            os.ftruncate(self._new, self.planned_new.size)
            # The recorded time, or recovery would count the file as rewritten.
            os.utime(self._new, ns=(self.planned_new.mtime_ns, self.planned_new.mtime_ns))
            self._after_step("truncated")
            raise
        self._after_step("carried")

    def _release(self) -> None:
        self.identity = Identity.of(os.fstat(self._new))
        if self._strong:
            release_lease(self._new)
        self._stop_watch()
        self._after_step("released")
        if self.drained:  # the old file has these bytes too, but will be unlinked
            os.fsync(self._new)
            self._note_carried("old", self._planned.size, self.drained)

    # Undo.

    def _put_back(self) -> None:
        """Exchange the names back, and carry lines written to the new file meanwhile back as well.

        A program that waits for the new file may write while that file is still at the path. The
        names change only in a moment in which no program waits, so that every writer's lines stay
        in order. If that moment does not come in time, recovery carries the lines (DESIGN §4, rules
        a-e).
        """
        back = self._open_returning()
        try:
            self._swap_back_in_order(back, time.monotonic() + _PUT_BACK_SECONDS)
            self._stop_watch()
            if self._returned:
                if self._strong:  # openers need not wait for the disk
                    for fd in {self._new, self._old} - {-1}:
                        release_lease(fd)
                os.fsync(back)
            for offset, data in self._returned:
                self._note_carried("new", offset, data)
        finally:
            if back not in (-1, self._old):
                os.close(back)
        self._after_step("undone")

    def _open_returning(self) -> int:
        """Return a descriptor of the file that returns to the path, or -1.

        It is the old file, or another program's file that came out of the exchange.
        """
        out = os.lstat(self._inflight)
        if self._old >= 0 and out.st_ino == os.fstat(self._old).st_ino:
            return self._old
        if stat.S_ISREG(out.st_mode):
            with suppress(OSError):  # bsd may not write to it: recovery decides about the lines
                return open_plain(self._inflight, os.O_RDWR | os.O_APPEND)
        return -1

    def _swap_back_in_order(self, back: int, deadline: float) -> None:
        while True:
            while self._is_awaited() and self._let_in(back, deadline):
                pass
            if self._new_was_rewritten():
                raise GivingUp(
                    GiveUp.CHANGED, "another program rewrote the session after the exchange"
                )
            if not self._swap_back():
                return
            self._after_step("put_back")
            if not self._is_awaited():
                return
            if back == self._old and self._old_leased:
                # A writer that is let in now will wait for the old file's lease with its next line.
                self._let_in(back, deadline)
                if self._new_was_rewritten():
                    swap_names(self._inflight, self._path)
                return
            if time.monotonic() >= deadline:
                return
            swap_names(self._inflight, self._path)

    def _is_awaited(self) -> bool:
        return self._strong and somebody_waits(self._new)

    def _swap_back(self) -> bool:
        """Exchange the names again. Return False if the new file is no longer at the path."""
        try:
            swap_names(self._inflight, self._path)
        except FileNotFoundError:
            return False  # deleted or renamed away: the old file stays in flight for recovery
        if os.lstat(self._inflight).st_ino == self.planned_new.ino:
            return True
        # A program replaced the new file, and its file is the latest.
        swap_names(self._inflight, self._path)
        return False

    def _let_in(self, back: int, deadline: float) -> bool:
        """Let programs write that wait for the new file, and carry their bytes.

        Return False if they do not close it in time.
        """
        release_lease(self._new)
        self._stop_watch()
        self._after_step("let_in")
        leased = _lease_until(self._new, deadline)
        self._leased_at = time.monotonic()
        if not leased or back < 0 or self._new_was_rewritten():
            return False
        seen = self.planned_new.size + sum(len(data) for _, data in self._returned)
        fresh = read_range(self._new, seen, os.fstat(self._new).st_size)
        if fresh:
            self._note("carrying", "new", seen, fresh)
            append(back, fresh)
            self._returned.append((seen, fresh))
            self._after_step("carried_back")
        return self._leased_at < deadline

    def _new_was_rewritten(self) -> bool:
        size = self.planned_new.size
        return os.fstat(self._new).st_size < size or tail_hash(self._new, size) != self._new_tail

    # Single steps.

    def _note(self, what: str, of: str, offset: int, data: bytes) -> None:
        """Record that bytes of a file are being carried, or have been."""
        digest = hashlib.sha256(data).hexdigest()
        note = Note(what, of, offset, len(data), len(data), digest)
        append(self._record, note_line(note))

    def _note_carried(self, of: str, offset: int, data: bytes) -> None:
        """Record that bytes were carried. Only for bytes that a power cut can no longer take."""
        with suppress(OSError):  # recovery finds the carried bytes without the note
            self._note("carried", of, offset, data)

    def _stop_watch(self) -> None:
        self.held_s = max(self.held_s, time.monotonic() - self._leased_at)


def _lease_until(fd: int, deadline: float) -> bool:
    while not take_lease(fd):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def no_step(step: str) -> None:
    """The default hook: do nothing."""
