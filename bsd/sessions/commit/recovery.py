"""Finishes or undoes what is in flight: at start, and regularly after that (DESIGN §4).

What becomes of each record is told in displaced.py. Whoever destroys content has the words taken
out of what a commit displaced (SPEC §7a).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

import structlog

from bsd.core import filesystem
from bsd.core.errors import BsdError, Busy, os_problem
from bsd.core.filesystem import Strength
from bsd.core.layout import Layout, SessionName
from bsd.core.leases import open_plain, take_lease
from bsd.sessions.commit.displaced import KEEP_NS, Access, Displaced, Given, Recovered, State
from bsd.sessions.commit.exchange import Step, no_step
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.record import InFlightRecord, Mark, Note, add_note
from bsd.transcripts.agents.program import Stale

_log = structlog.stdlib.get_logger(module="recovery")


def recover(
    inflight: InFlight,
    access: Access | None = None,
    *,
    now_ns: Callable[[], int] = time.time_ns,
    after_step: Step = no_step,
    strength: Callable[[Path], Strength] = filesystem.strength,
    records: Iterable[Path] | None = None,
    keep_displaced: bool = False,
) -> list[Recovered]:
    """Deal with `records`, or with every record under the root, as far as that is possible now.

    With `keep_displaced` displaced files stay, however old. One that fails stops no other; call
    it again for what is not finished. Costs one listing of the in-flight directories if there is
    nothing.
    """
    access = access or Access.to(inflight.layout)
    given = Given(inflight, access, now_ns, after_step, strength, keep_displaced)
    results = [
        _recovered(path, given) for path in (inflight.records() if records is None else records)
    ]
    if records is None:
        results += _remove_strays(inflight, now_ns)
    return [result for result in results if result is not None]


def retire(inflight: InFlight, *, now_ns: Callable[[], int] = time.time_ns) -> list[Recovered]:
    """Finish what is due and needs no session: displaced files that nobody wrote to in time.

    For whoever only looks, or destroys: late lines wait for somebody who may change sessions.
    """

    def nobody(_name: SessionName, _path: Path) -> AbstractContextManager[object]:
        raise Busy("late lines are put back by whoever changes sessions")

    due = [path for path in inflight.records() if _is_due(path, now_ns())]
    access = replace(
        Access.to(inflight.layout), session_lock=nobody, still_idle=lambda *_: None
    )
    done = recover(inflight, access, now_ns=now_ns, records=due) if due else []
    return [*done, *_remove_strays(inflight, now_ns)]


def _is_due(record: Path, now_ns: int) -> bool:
    with suppress(FileNotFoundError):
        return now_ns - record.lstat().st_mtime_ns >= KEEP_NS
    return False


def _remove_strays(inflight: InFlight, now_ns: Callable[[], int]) -> list[Recovered]:
    """Remove files of commits that no record names any more, once they are old enough."""
    results = [_remove_stray(file, now_ns()) for file in inflight.strays()]
    return [result for result in results if result is not None]


def _remove_stray(file: Path, now_ns: int) -> Recovered | None:
    try:
        if now_ns - file.lstat().st_mtime_ns < KEEP_NS:
            return None
        file.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:  # a directory, or in one that is closed to us
        return Recovered(State.FAILED, file, detail=os_problem(error, f"removing {file}").message)
    return Recovered(State.ABANDONED, file, detail="nobody's any more")


def _recovered(path: Path, given: Given) -> Recovered | None:
    session: SessionName | None = None
    try:
        record = given.inflight.read(path)
        if record is None:
            return _forget_unwritten(path, given.now_ns())
        session = record.session
        with given.access.own_lock(record.session):
            record = given.inflight.read(path)  # its owner may have gone on until just now
            if record is None:
                return None
            record = _where_it_lies(record, given.inflight.layout)
            done = Displaced(record, given).run()
            _bury_its_lock(record, given)
            return done
    except FileNotFoundError:
        return None  # finished by its owner meanwhile
    except Busy as busy:
        return Recovered(State.BUSY, path, session, busy.message)
    except BsdError as error:
        return Recovered(State.FAILED, path, session, error.message)
    except OSError as error:
        message = os_problem(error, f"recovering {path}").message
        return Recovered(State.FAILED, path, session, message)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one, the others go on
        _log.exception("A record in flight cannot be dealt with", record=str(path))
        return Recovered(State.FAILED, path, session, f"{path} cannot be dealt with: {error!r}")


def _bury_its_lock(record: InFlightRecord, given: Given) -> None:
    """Take away the owner's lock that a commit held when its process died, and nobody needs."""
    program = given.access.program(record.session)
    if isinstance(program.lock_state(record.target), Stale):
        with suppress(Busy), given.access.session_lock(record.session, record.target):
            pass  # to take it is to bury the dead one


def _where_it_lies(record: InFlightRecord, layout: Layout) -> InFlightRecord:
    """The record of a session that its program has moved since, into its archive or out of it."""
    if os.path.lexists(record.target) or not layout.holds(record.target):
        return record
    with suppress(BsdError):
        moved = layout.transcript(record.session)
        if moved.name == record.target.name and os.path.lexists(moved):
            return replace(record, target=moved)
    return record


def _forget_unwritten(path: Path, now_ns: int) -> Recovered | None:
    """Remove a record without a first line: its process ended before it made anything else."""
    if now_ns - path.lstat().st_mtime_ns < KEEP_NS:
        return None  # its process may be about to write it
    path.with_suffix(".file").unlink(missing_ok=True)
    path.unlink()
    return Recovered(State.ABANDONED, path)


# --- the words are taken out of what a commit displaced ---

# A displaced file stays for a minute, as somebody may be on the way to it (DESIGN §4). All that it
# held when it was displaced stands in the session, its store or its history; only what comes after
# that counts. So its bytes become zeros in place, and the file stays for whoever still appends to
# it: late lines come home as ever.
_BLOCK = 1 << 20


def blank(record: InFlightRecord) -> None:
    """Overwrite what a displaced file held and what came home from it, durably.

    The caller holds bsd's own lock of the session, and has recovered the record. Raises Busy if
    somebody has the file open, or it is not the one that was displaced; OSError.
    """
    try:
        fd = open_plain(str(record.file), os.O_RDWR)
    except FileNotFoundError:
        return
    except BlockingIOError as error:
        raise _in_use(record) from error
    try:
        known = _known(record, os.fstat(fd))
        if known is None or not _is_alone(record, fd):
            raise _in_use(record)
        of, mark = known
        # Told before: recovery would take a file with other bytes for one that somebody rewrote.
        if not record.is_blank:
            add_note(record.path, Note("blanked", of, 0, 0, 0, ""))
        _fill(fd, max([mark.identity.size, *_ends(record, of)]))
    finally:
        os.close(fd)


def _known(record: InFlightRecord, found: os.stat_result) -> tuple[str, Mark] | None:
    """Which of the two files of a commit it is."""
    if not stat.S_ISREG(found.st_mode):
        return None
    marks = (("old", record.old), ("new", record.new))
    return next(
        ((of, mark) for of, mark in marks if mark and mark.identity.ino == found.st_ino), None
    )


def _is_alone(record: InFlightRecord, fd: int) -> bool:
    """Whether nobody reads there, as far as that can be told; who appends loses nothing anyway."""
    if record.strong:
        return take_lease(fd)
    return set(filesystem.open_elsewhere(record.file)) <= {os.getpid()}


def _ends(record: InFlightRecord, of: str) -> list[int]:
    done = (note for note in record.notes if note.of == of and note.note in ("carried", "orphaned"))
    return [note.offset + note.length for note in done]


def _fill(fd: int, end: int) -> None:
    """Zeros up to `end`; the times stay, by which recovery tells whether somebody wrote to it."""
    was = os.fstat(fd)
    for start in range(0, min(end, was.st_size), _BLOCK):
        length = min(_BLOCK, min(end, was.st_size) - start)
        done = 0
        while done < length:
            done += os.pwrite(fd, bytes(length - done), start + done)
    os.utime(fd, ns=(was.st_atime_ns, was.st_mtime_ns))
    os.fsync(fd)


def _in_use(record: InFlightRecord) -> Busy:
    return Busy(
        f"session {record.session} was changed a moment ago, and somebody still has the file open"
        " as it was before",
        hint="again once it is closed, or in a minute",
    )
