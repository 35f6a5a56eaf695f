"""Watches the file that a commit displaced, carries late lines over, and removes it (DESIGN §4).

The rules:

(a) The inode at the in-flight name tells whether the exchange happened. The file there is the
watched one.

(b) Late bytes are noted in the record before they are carried. Lines that are already there are
skipped.

(c) Late bytes go to the recorded session or become an orphan.

(d) A short write is truncated again.

(e) A last line without its line end is carried with one if it is complete JSON. Otherwise it
becomes an orphan once no writer is left that could finish it.

(f) A record whose lock is held belongs to a running process.

`after_step` is called for each record with these steps: watched; then for late bytes noted, and
carried or orphaned (an insertion adds the steps of a commit in between), or swapped_back; at the
end unlinked.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from bsd.core import filesystem
from bsd.core.clock import steady
from bsd.core.errors import Busy, NotFound
from bsd.core.files import sync_dir
from bsd.core.filesystem import Strength
from bsd.core.layout import Layout, SessionName
from bsd.core.leases import (
    hash_under,
    open_plain,
    read_range,
    somebody_waits,
    swap_names,
    tail_hash,
    take_lease,
)
from bsd.core.locks import own_lock
from bsd.sessions.commit.exchange import Step
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.late import (
    Insert,
    NoPlace,
    Orphan,
    Target,
    begins_a_line,
    ends_in_zeros,
    is_json,
    keep_orphan,
    only_lacks,
    split_lines,
    without,
)
from bsd.sessions.commit.protocol import commit, header_hash
from bsd.sessions.commit.record import InFlightRecord, Mark, Note, add_note
from bsd.transcripts.agents.program import AgentProgram
from bsd.transcripts.agents.programs import in_use, program_of
from bsd.transcripts.change import Change, Edit

KEEP_NS = 60 * 10**9  # the displaced file is kept this long


class State(StrEnum):
    """The outcome of recovery for one record."""

    WATCHED = "watched"  # no late bytes; the displaced file is kept longer
    BUSY = "busy"  # a running process works on it
    WAITING = "waiting"  # late bytes cannot be carried now; the next recovery tries again
    CARRIED = "carried"  # late bytes are in their session; the file is still watched
    ORPHANED = "orphaned"  # late bytes became an orphan
    PUT_BACK = "put_back"  # the displaced file was rewritten and is at the path again
    FINISHED = "finished"  # no late bytes are left: the displaced file was removed
    ABANDONED = "abandoned"  # the commit ended before its exchange: files removed
    FAILED = "failed"  # left as it is; see `detail`


@dataclass(frozen=True, slots=True)
class Recovered:
    """The outcome of recovery for one record, and the amount carried by this run."""

    state: State
    record: Path
    session: SessionName | None = None
    detail: str = ""
    lines: int = 0
    bytes: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the API."""
        return {
            "state": str(self.state),
            "record": str(self.record),
            "session": str(self.session) if self.session else None,
            "detail": self.detail,
            "lines": self.lines,
            "bytes": self.bytes,
        }


@dataclass(frozen=True, slots=True)
class Access:
    """How recovery accesses a session. Each lock raises Busy at once if it is held."""

    own_lock: Callable[[SessionName], AbstractContextManager[object]]
    session_lock: Callable[[SessionName, Path], AbstractContextManager[object]]
    still_idle: Callable[[SessionName, Path], str | None]
    program: Callable[[SessionName], AgentProgram]

    @classmethod
    def to(cls, layout: Layout, *, held: Collection[SessionName] = ()) -> Access:
        """Return access by the usual locks, without waiting.

        `held`: sessions whose bsd lock the caller holds.
        """

        def lock(name: SessionName) -> AbstractContextManager[object]:
            return nullcontext() if name in held else own_lock(layout, name, 0.0)

        return cls(
            own_lock=lock,
            session_lock=lambda name, path: program_of(layout, name.agent).lock(name, path),
            still_idle=lambda name, _: in_use(layout, name),
            program=lambda name: program_of(layout, name.agent),
        )


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of `recover` that apply to each record."""

    inflight: InFlight
    access: Access
    now_ns: Callable[[], int]
    after_step: Step
    strength: Callable[[Path], Strength]
    keep_displaced: bool  # even if older than `KEEP_NS`


class _Late(Exception):
    """The watched file cannot be finished now; the message has the reason."""


class Displaced:
    """The file that one commit displaced. The caller holds bsd's lock of its session."""

    def __init__(self, record: InFlightRecord, given: Given) -> None:
        self.record = record
        self.given = given
        self.access = given.access
        self.after_step = given.after_step
        self.now_ns = given.now_ns
        self.fd = -1
        self.of = ""  # the watched file: "old", "new", or "" for another
        self.alone = False  # no other process has the watched file open
        self.lines = self.bytes = 0

    def run(self) -> Recovered:
        if not self.given.inflight.layout.holds(self.record.target.parent):
            return self.result(State.FAILED, f"{self.record.target} is outside the root")
        if self.record.old is None or self.record.new is None:
            return self.remove(State.ABANDONED)
        try:
            self.fd = open_plain(str(self.record.file), os.O_RDONLY)
        except FileNotFoundError:
            return self.remove(State.FINISHED)
        except BlockingIOError:
            return self.result(State.BUSY, "an exchange is going on")
        except OSError as error:
            if error.errno == errno.ELOOP:
                return self.result(State.FAILED, "a symbolic link was at the session's path")
            raise
        try:
            return self.look_after(self.record.old, self.record.new)
        except _Late as late:
            return self.result(State.WAITING, str(late))
        finally:
            os.close(self.fd)

    def look_after(self, old: Mark, new: Mark) -> Recovered:
        if not stat.S_ISREG(os.fstat(self.fd).st_mode):
            return self.result(State.FAILED, "a special file was at the session's path")
        self.of = self.which(old, new)
        # The next steps need the present names, also after a power cut.
        self.sync_names()
        self.alone = self.is_closed_elsewhere()
        self.after_step("watched")
        if not self.of:
            return self.replaced(new)
        watched, other = (old, new) if self.of == "old" else (new, old)
        if self.was_rewritten(watched):
            if not self.only_lacks():
                return self.rewritten(other)
            if not self.is_known_whole():
                return self.give_shelter("a program may have rewritten it before a power cut")
        state = self.carry_late(watched, other)
        if self.is_old_enough() and self.is_finished(watched):
            return self.remove(State.FINISHED)  # unlinked while leased
        return self.result(state)

    # Rule (a): identity and state of the watched file.

    def which(self, old: Mark, new: Mark) -> str:
        inode = os.fstat(self.fd).st_ino
        for name, mark in (("old", old), ("new", new)):
            if inode == mark.identity.ino:
                return name
        # Some file systems assign new inode numbers at every mount.
        for name, mark in (("old", old), ("new", new)):
            if not self.record.strong and not self.was_rewritten(mark):
                return name
        return ""

    def was_rewritten(self, mark: Mark) -> bool:
        """Return whether bytes that existed when the file was marked have changed since."""
        if self.record.is_blank:  # blanked by bsd; the bytes exist elsewhere
            return False
        now, known = os.fstat(self.fd), mark.identity
        if now.st_size < known.size or header_hash(self.fd) != mark.header:
            return True
        return tail_hash(self.fd, known.size) != mark.tail

    def is_closed_elsewhere(self) -> bool:
        if self.record.strong:
            return take_lease(self.fd)
        quiet = self.now_ns() - os.fstat(self.fd).st_mtime_ns >= KEEP_NS
        return quiet and set(filesystem.open_elsewhere(self.record.file)) <= {os.getpid()}

    def is_finished(self, watched: Mark) -> bool:
        """Return whether all bytes are accounted for and no process can add more."""
        if not self.alone or (self.record.strong and somebody_waits(self.fd)):
            return False
        # After a power cut, the file may be shorter than before.
        return self.record.accounted_for(self.of, watched) >= os.fstat(self.fd).st_size

    def is_old_enough(self) -> bool:
        return not self.given.keep_displaced and self.now_ns() - self.record.created_ns >= KEEP_NS

    # Damage from a power cut.

    def only_lacks(self) -> bool:
        """Return whether a power cut took bytes that its successor still has, and no byte changed.

        A file that a program shortened since does not count, unless the machine has restarted.
        """
        old, new, edits = self.record.old, self.record.new, self.record.edits
        if self.of != "old" or old is None or new is None or edits is None:
            return False
        if self.is_newer() and not self.has_restarted():
            return False
        return only_lacks(self.fd, edits.spans, old.identity.size, new, self.successors())

    def successors(self) -> Iterator[Path]:
        """Yield the possible paths of the new file, which another commit may have displaced."""
        yield self.record.target
        for each in self.given.inflight.readable():
            if each.session == self.record.session and each.path != self.record.path:
                yield each.file

    def is_known_whole(self) -> bool:
        """Return whether no program changed the bytes under the edits since."""
        edits = self.record.edits
        return not self.is_newer() or (
            edits is not None and hash_under(self.fd, edits.spans) == edits.sha256
        )

    def is_newer(self) -> bool:
        """Return whether a program wrote to the file after it was displaced."""
        return os.fstat(self.fd).st_mtime_ns > self.record.created_ns

    def has_restarted(self) -> bool:
        """Return whether the machine may have restarted since the commit."""
        return self.record.created_ns < self.now_ns() - int(steady() * 1e9)

    # Rules (b) to (e): lines that other programs wrote into the file since.

    def carry_late(self, watched: Mark, other: Mark) -> State:
        start = self.record.accounted_for(self.of, watched)
        raw = read_range(self.fd, start, os.fstat(self.fd).st_size)
        whole, rest = split_lines(self.without_returned(raw, other))
        state = State.WATCHED
        if rest and self.alone and is_json(rest):
            whole, rest, state = whole + rest + b"\n", b"", State.CARRIED
        length = len(raw) - len(rest)
        if length:
            state = self.carry(start, length, whole, other)
        if rest and self.alone and self.says_nothing(rest):
            self.note("carried", start + length, len(rest), b"")
        elif rest and self.alone:
            self.orphan("its last line was never finished", start + length, len(rest))
            state = State.ORPHANED
        return state

    def says_nothing(self, rest: bytes) -> bool:
        """Return whether the session already has all of an unfinished last line."""
        begun = rest.rstrip(b"\0")
        marks = filter(None, (self.record.old, self.record.new))
        return not begun or begins_a_line(begun, self.record.target, *marks)

    def without_returned(self, late: bytes, other: Mark) -> bytes:
        """Return the late bytes without those that an unfinished undo brought over."""
        known = {(n.offset, n.length) for n in self.record.notes if n.of != self.of and n.length}
        if not known or not late:
            return late
        with suppress(OSError):
            fd = open_plain(str(self.record.target), os.O_RDONLY)
            try:
                if os.fstat(fd).st_ino == other.identity.ino:
                    for offset, length in sorted(known):
                        late = without(late, read_range(fd, offset, offset + length))
            finally:
                os.close(fd)
        return late

    def carry(self, offset: int, length: int, lines: bytes, other: Mark) -> State:
        again = any(note.of == self.of and note.offset == offset for note in self.record.notes)
        self.note("carrying", offset, length, lines)
        self.after_step("noted")
        try:
            if lines:
                self.put(lines, other, again=again)
        except (NoPlace, NotFound) as error:
            self.orphan(str(error), offset, length)
            return State.ORPHANED
        except Busy as busy:
            raise _Late(busy.message) from busy
        self.after_step("carried")
        self.note("carried", offset, length, lines)
        self.lines += lines.count(b"\n")
        self.bytes += len(lines)
        return State.CARRIED

    def put(self, lines: bytes, other: Mark, *, again: bool) -> None:
        record = self.record
        carried = sum(note.written for note in record.done_with(self.of) if note.note == "carried")
        program = self.access.program(record.session)
        with self.access.session_lock(record.session, record.target):
            self.refuse_unless_idle()
            with Target(record.target, strong=record.strong) as target:
                target.check_header(*filter(None, (record.old, record.new)))
                insert = target.put(lines, other, carried, program, again=again)
                if insert is None and program.keeps_mtime:
                    target.date_back(os.fstat(self.fd).st_mtime_ns)
        if insert is not None:
            self.insert(insert)

    def insert(self, insert: Insert) -> None:
        """Insert late bytes before lines that were appended since: a commit like any other."""
        record = self.record
        outcome = commit(
            Change(
                record.target,
                insert.planned_on,
                (Edit(insert.offset, insert.length, insert.data),),
                record.session,
                self.now_ns(),
                carries_late=True,
                keeps_mtime=self.access.program(record.session).keeps_mtime,
            ),
            inflight=self.given.inflight,
            session_lock=self.access.session_lock(record.session, record.target),
            still_idle=lambda: self.access.still_idle(record.session, record.target),
            keep=lambda: None,
            after_step=self.after_step,
            now_ns=self.now_ns,
            strength=self.given.strength,
        )
        if not outcome.committed:
            raise _Late(outcome.detail)

    def refuse_unless_idle(self) -> None:
        if reason := self.access.still_idle(self.record.session, self.record.target):
            raise _Late(reason)

    # A displaced file that was rewritten as a whole, or is another program's.

    def rewritten(self, other: Mark) -> Recovered:
        """Put the file back if its successor is untouched; otherwise keep it as an orphan.

        A successor with late lines stays, since they came from yet another file.
        """
        # A power cut can damage a file too. Then the file is not newer, or it ends in zeros.
        newer = self.is_newer() and not ends_in_zeros(self.fd)
        loses = self.record.carries_late
        if self.alone and newer and not loses and self.swap_back(other):
            return self.result(State.PUT_BACK, "a program rewrote the displaced file")
        return self.give_shelter("a program rewrote it after it was displaced")

    def replaced(self, new: Mark) -> Recovered:
        """Put back a file that was put at the path just before the exchange, as an undo would."""
        if self.alone and self.swap_back(new):
            return self.result(State.PUT_BACK, "a program had replaced the session")
        return self.give_shelter("it is neither the planned file nor the new one")

    def swap_back(self, other: Mark) -> bool:
        """Exchange the two files if the one at the path is unchanged since it was marked."""
        file, target = self.record.file, self.record.target
        with suppress(NoPlace, NotFound):
            try:
                with self.access.session_lock(self.record.session, target):
                    self.refuse_unless_idle()
                    with Target(target, strong=self.record.strong) as opened:
                        if not opened.is_untouched(other):
                            return False
                        swap_names(str(file), str(target))
                        self.after_step("swapped_back")
                        if file.lstat().st_ino == other.identity.ino:
                            self.sync_names()
                            return True
                        swap_names(str(file), str(target))  # replaced meanwhile: keep it
            except Busy as busy:
                raise _Late(busy.message) from busy
        return False

    def sync_names(self) -> None:
        for directory in (self.record.target.parent, self.record.path.parent):
            with suppress(FileNotFoundError):  # the session's directory may be gone
                sync_dir(directory)

    def give_shelter(self, reason: str) -> Recovered:
        """Keep the whole file as an orphan once no process writes to it any more."""
        if not (self.alone and self.is_old_enough()):
            return self.result(State.WATCHED, reason)
        self.orphan(reason, 0, os.fstat(self.fd).st_size)
        return replace(self.remove(State.ORPHANED), detail=reason)

    # Single steps.

    def orphan(self, reason: str, offset: int, length: int) -> None:
        about = Orphan(
            file=self.record.file,
            session=str(self.record.session),
            target=str(self.record.target),
            reason=reason,
            size=length,
            found_at_ns=self.now_ns(),
        )
        name = f"{self.record.path.stem}-{self.of or 'stranger'}-{offset}"
        keep_orphan(self.given.inflight.layout, name, self.fd, offset, about)
        self.after_step("orphaned")
        if self.of:
            self.note("orphaned", offset, length, b"")

    def note(self, what: str, offset: int, length: int, data: bytes) -> None:
        digest = hashlib.sha256(data).hexdigest()
        note = Note(what, self.of, offset, length, len(data), digest)
        add_note(self.record.path, note)
        self.record = replace(self.record, notes=(*self.record.notes, note))

    def remove(self, state: State) -> Recovered:
        """Remove the watched file, then its record."""
        self.record.file.unlink(missing_ok=True)
        self.after_step("unlinked")
        self.record.path.unlink(missing_ok=True)
        return self.result(state)

    def result(self, state: State, detail: str = "") -> Recovered:
        return Recovered(
            state, self.record.path, self.record.session, detail, self.lines, self.bytes
        )
