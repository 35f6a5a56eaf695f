"""Steps 2-6 of a commit (DESIGN §4): lease, exchange, drain, undo.

While the leases are held everybody who opens the session waits, so nothing here may wait for the
GIL, for memory or for a log: it runs in processes of one thread, and stands alone.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import os
import signal
import stat
import time
from collections.abc import Callable
from typing import TypedDict

from bsd.core.leases import (
    append,
    is_spliced,
    open_plain,
    read_range,
    release_lease,
    somebody_waits,
    swap_names,
    tail_hash,
    take_lease,
)


class Request(TypedDict):
    """Everything steps 2-6 need to know; plain JSON."""

    path: str  # the session
    inflight: str  # the new file's name in the in-flight directory
    record: str  # notes are appended to it before bytes are carried over
    planned: list[int]  # dev, ino, size, mtime_ns, ctime_ns of the session as planned
    new: list[int]  # the same of the new file
    edits: list[list[int]]  # offset, length, new length, ascending
    edited_sha256: str  # of the hashes of the planned file's bytes under each edit, in order
    strong: bool  # leases prove something here


class Result(TypedDict):
    """How steps 2-6 ended; plain JSON."""

    gave_up: str | None  # a GiveUp value, or "error"; None: committed
    detail: str
    errno: int  # of an "error", else 0
    exchanged: bool  # the new file was at the path at some time
    drained_bytes: int
    drained_lines: int
    held_s: float  # longest time a lease was held without a pause
    identity: list[int] | None  # of the new file when it was released


Step = Callable[[str], None]

_DRAIN_SECONDS = 0.05
_PUT_BACK_SECONDS = 0.25
_POLL_SECONDS = 0.0001
# Ctrl-C, a service manager or a timer must not end the process between exchange and drain.
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


class GivingUp(Exception):
    """The session cannot be committed now; `reason` is a GiveUp value or "error"."""

    def __init__(self, reason: str, detail: str, code: int = 0) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.code = code


def _identity(status: os.stat_result) -> list[int]:
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


class Exchange:
    """One session file and its successor on their way past each other."""

    def __init__(self, request: Request, after_step: Step) -> None:
        self.request = request
        self.after_step = after_step
        self.path = request["path"]
        self.inflight = request["inflight"]
        self.strong = request["strong"]
        self.old_size = request["planned"][2]
        self.new_size = request["new"][2]
        self.old = self.new = self.record = -1
        self.new_tail = ""
        self.old_leased = False
        self.exchanged = False
        # What new grew by and the returning file got: offset in new, bytes.
        self.returned: list[tuple[int, bytes]] = []
        self.drained = b""
        self.leased_at = 0.0
        self.held_s = 0.0
        self.identity: list[int] | None = None

    def run(self) -> Result:
        """Do the steps; whatever happens, end with one whole session file at the path."""
        reason, detail, code = None, "", 0
        try:
            self._forward()
        except GivingUp as stop:
            reason, detail, code = stop.reason, stop.detail, stop.code
        except OSError as error:
            reason, detail, code = "error", str(error), error.errno or errno.EIO
        finally:
            self._close()
        return {
            "gave_up": reason,
            "detail": detail,
            "errno": code,
            "exchanged": self.exchanged,
            "drained_bytes": len(self.drained) if reason is None else 0,
            "drained_lines": _lines(self.drained) if reason is None else 0,
            "held_s": self.held_s,
            "identity": self.identity if reason is None else None,
        }

    def _forward(self) -> None:
        self.open_files()
        self.lease_old()
        self.lease_new()
        self.verify()
        self.exchange()
        try:
            self.recognise()
            self.drain()
            self.carry_growth()
        except GivingUp:
            self.put_back()
            raise
        except OSError:
            self.put_back()
            raise
        self.release()
        self.sync_growth()

    # Steps, in their order.

    def open_files(self) -> None:
        self.record = open_plain(self.request["record"], os.O_WRONLY | os.O_APPEND)
        self.new = open_plain(self.inflight, os.O_RDWR | os.O_APPEND)
        self.new_tail = tail_hash(self.new, self.new_size)
        if self.strong:
            self.open_old(self.path)
        self.after_step("opened")

    def open_old(self, name: str) -> None:
        try:
            # For writing, so that what is nobody's to write to is refused here; and on overlayfs
            # a file opened for reading can be the wrong one.
            self.old = open_plain(name, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            raise GivingUp("gone", f"{name} is no longer there") from None
        except OSError as error:
            if error.errno == errno.EAGAIN:
                raise GivingUp("is_open", "somebody else holds a lease on it") from None
            if error.errno in (errno.ELOOP, errno.EISDIR):
                raise GivingUp("not_regular", f"{name} is not a regular file") from None
            raise

    def lease_old(self) -> None:
        if self.strong and not take_lease(self.old):
            raise GivingUp("is_open", "somebody has the session open")
        self.old_leased = self.strong
        self.leased_at = time.monotonic()
        self.after_step("leased_old")

    def lease_new(self) -> None:
        if self.strong and not take_lease(self.new):
            raise GivingUp("is_open", "somebody has the new file open")
        self.after_step("leased_new")

    def verify(self) -> None:
        """The path still holds the planned file, and nobody waits for either of the two."""
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            raise GivingUp("gone", f"{self.path} is no longer there") from None
        if not stat.S_ISREG(found.st_mode):
            raise GivingUp("not_regular", f"{self.path} is not a regular file")
        if found.st_ino != self.request["planned"][1]:
            raise GivingUp("replaced", "another file stands at the session's path")
        if _identity(found) != self.request["planned"]:
            raise GivingUp("changed", "the session changed since it was planned")
        if self.strong and (somebody_waits(self.old) or somebody_waits(self.new)):
            raise GivingUp("is_open", "somebody is about to open the session")
        self.after_step("verified")

    def exchange(self) -> None:
        try:
            swap_names(self.inflight, self.path)
        except FileNotFoundError:
            if not os.path.lexists(self.inflight):
                raise
            raise GivingUp("gone", f"{self.path} was deleted or renamed") from None
        self.exchanged = True
        self.after_step("exchanged")

    def recognise(self) -> None:
        """What came out is the planned file."""
        if os.lstat(self.inflight).st_ino != self.request["planned"][1]:
            raise GivingUp("replaced", "another file was put at the session's path")
        if not self.strong:
            self.open_old(self.inflight)
        self.after_step("recognised")

    def drain(self) -> None:
        """Let those write who opened the path before the exchange; see what they added."""
        if self.strong:
            release_lease(self.old)
            self.old_leased = False
            self.after_step("draining")
            self.old_leased = self._lease_within(self.old, time.monotonic() + _DRAIN_SECONDS)
            if not self.old_leased:
                raise GivingUp("drain_timeout", "somebody keeps the session open")
        now = os.fstat(self.old)
        if now.st_size < self.old_size or not self._prefix_is_as_planned(now.st_mtime_ns):
            raise GivingUp("changed", "somebody rewrote the session")
        if now.st_size > self.old_size and not self.strong:
            raise GivingUp("changed", "somebody appended to the session")
        self.drained = read_range(self.old, self.old_size, now.st_size)
        self.after_step("drained")

    def carry_growth(self) -> None:
        """Append the growth, byte for byte, to the new file, which nobody else could open."""
        if not self.drained:
            return
        if os.fstat(self.new).st_size != self.new_size:
            # We were stopped for so long that the kernel broke the lease: recovery puts the
            # growth where it belongs.
            self.drained = b""
            return
        self.note("carrying", "old", self.old_size, self.drained)
        self.after_step("noted")
        try:
            append(self.new, self.drained)
        except OSError:
            os.ftruncate(self.new, self.new_size)
            # As recorded, or recovery would take it for rewritten.
            mtime_ns = self.request["new"][3]
            os.utime(self.new, ns=(mtime_ns, mtime_ns))
            self.after_step("truncated")
            raise
        self.after_step("carried")

    def release(self) -> None:
        self.identity = _identity(os.fstat(self.new))
        if self.strong:
            release_lease(self.new)
        self._stop_watch()
        self.after_step("released")

    def sync_growth(self) -> None:
        """Make durable what is in the old file too, but that one will be unlinked."""
        if self.drained:
            os.fsync(self.new)
            self._note_carried("old", self.old_size, self.drained)

    # The way back.

    def put_back(self) -> None:
        """Exchange back; the lines of those who opened the new file meanwhile go back with it.

        Whoever waits for the new file is let in while it is still at the path, and the names
        change only in a moment in which nobody waits: so every writer's lines stay in order.
        If that moment does not come, recovery carries the lines (DESIGN §4, rules a-e).
        """
        back = self._open_returning()
        try:
            self._put_back(back, time.monotonic() + _PUT_BACK_SECONDS)
            self._stop_watch()
            self._sync_carried_back(back)
        finally:
            if back not in (-1, self.old):
                os.close(back)
        self.after_step("undone")

    def _sync_carried_back(self, back: int) -> None:
        if self.returned:
            for fd in {self.new, self.old} - {-1} if self.strong else ():
                release_lease(fd)  # nobody need wait for the disk
            os.fsync(back)
        for offset, data in self.returned:
            self._note_carried("new", offset, data)

    def _put_back(self, back: int, deadline: float) -> None:
        while True:
            while self._is_awaited() and self._let_in(back, deadline):
                pass
            if self._new_was_rewritten():
                raise GivingUp("changed", "somebody rewrote the session after the exchange")
            if not self._swap_back():
                return
            self.after_step("put_back")
            if not self._is_awaited():
                return
            if (
                back == self.old and self.old_leased
            ):  # the next line of whoever is let in now waits for us
                self._let_in(back, deadline)
                if self._new_was_rewritten():
                    swap_names(self.inflight, self.path)
                return
            if time.monotonic() >= deadline:
                return
            swap_names(self.inflight, self.path)

    def _is_awaited(self) -> bool:
        return self.strong and somebody_waits(self.new)

    def _open_returning(self) -> int:
        """The file that returns to the path: the old one, or a stranger's that came out."""
        out = os.lstat(self.inflight)
        if self.old >= 0 and out.st_ino == os.fstat(self.old).st_ino:
            return self.old
        if not stat.S_ISREG(out.st_mode):
            return -1
        try:
            return open_plain(self.inflight, os.O_RDWR | os.O_APPEND)
        except OSError:  # not ours to write to: recovery will say what becomes of the lines
            return -1

    def _swap_back(self) -> bool:
        """Exchange the names again; False if the new file is no longer at the path."""
        try:
            swap_names(self.inflight, self.path)
        except FileNotFoundError:
            return False  # deleted or renamed away: the old file stays in flight for recovery
        if os.lstat(self.inflight).st_ino == self.request["new"][1]:
            return True
        # Somebody replaced the new file: theirs is the latest word.
        swap_names(self.inflight, self.path)
        return False

    def _let_in(self, back: int, deadline: float) -> bool:
        """Let those write who wait for the new file, and carry it; False if they do not leave."""
        release_lease(self.new)
        self._stop_watch()
        self.after_step("let_in")
        leased = self._lease_within(self.new, deadline)
        self.leased_at = time.monotonic()
        if not leased or back < 0 or self._new_was_rewritten():
            return False
        seen = self.new_size + sum(len(data) for _, data in self.returned)
        fresh = read_range(self.new, seen, os.fstat(self.new).st_size)
        if fresh:
            self.note("carrying", "new", seen, fresh)
            append(back, fresh)
            self.returned.append((seen, fresh))
            self.after_step("carried_back")
        return self.leased_at < deadline

    def _new_was_rewritten(self) -> bool:
        if os.fstat(self.new).st_size < self.new_size:
            return True
        return tail_hash(self.new, self.new_size) != self.new_tail

    # What the steps are made of.

    def _lease_within(self, fd: int, deadline: float) -> bool:
        while not take_lease(fd):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _prefix_is_as_planned(self, mtime_ns: int) -> bool:
        """Compare old's first bytes with what was planned; costs nothing if mtime stood still."""
        request = self.request
        if mtime_ns == request["planned"][3]:
            return True
        edited = is_spliced(self.old, self.new, request["edits"], self.old_size)
        return edited == request["edited_sha256"]

    def note(self, what: str, of: str, offset: int, data: bytes) -> None:
        """Say in the record which bytes of which file are being carried, or have been."""
        note = {
            "note": what,
            "of": of,
            "offset": offset,
            "length": len(data),
            "written": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        # A line break first: a note cut short by a full disk must not spoil the next one.
        append(self.record, b"\n" + json.dumps(note).encode() + b"\n")

    def _note_carried(self, of: str, offset: int, data: bytes) -> None:
        """Only for bytes that a power cut cannot take any more."""
        try:
            self.note("carried", of, offset, data)
        except OSError:
            pass  # the bytes are there, and recovery will find them there without the note

    def _stop_watch(self) -> None:
        self.held_s = max(self.held_s, time.monotonic() - self.leased_at)

    def _close(self) -> None:
        for fd in (self.new, self.old, self.record):  # closing gives the leases back
            if fd >= 0:
                os.close(fd)


def _lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") if data else 0)


def no_step(step: str) -> None:
    """The hook of a commit that nobody watches."""


def exchange(request: Request, after_step: Step) -> Result:
    """Do steps 2-6 in this thread; the caller's process should have no other busy threads."""
    collecting = gc.isenabled()
    gc.disable()
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    try:
        return Exchange(request, after_step).run()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        if collecting:
            gc.enable()
