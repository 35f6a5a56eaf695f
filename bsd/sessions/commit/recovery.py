"""Finishes or undoes commits in flight, at start and regularly afterwards (DESIGN §4).

`displaced` decides the outcome of each record. For actions that destroy content, this module also
blanks the files that commits displaced (SPEC §7a).
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
from bsd.sessions.commit.record import FILE, InFlightRecord, Note, add_note
from bsd.transcripts.agents.program import Stale

_log = structlog.stdlib.get_logger(module="recovery")

_BLOCK = 1 << 20


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
    """Process `records`, or all records under the root, as far as possible now.

    An error in one record does not stop the others. Call again for the unfinished ones. Without
    commits in flight, this costs one listing of the in-flight directories.

    Args:
        access: how sessions are locked; None: by the usual locks.
        keep_displaced: keep displaced files, even if they are old enough to be removed.
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
    """Finish due records that need no session: displaced files that no program wrote to in time.

    For commands that only read, or destroy content. Late lines wait for a command that may change
    sessions.
    """

    def refuse(_name: SessionName, _path: Path) -> AbstractContextManager[object]:
        raise Busy("late lines are put back by a command that changes sessions")

    due = []
    for path in inflight.records():
        with suppress(FileNotFoundError):
            if now_ns() - path.lstat().st_mtime_ns >= KEEP_NS:
                due.append(path)
    access = replace(Access.to(inflight.layout), session_lock=refuse, still_idle=lambda *_: None)
    done = recover(inflight, access, now_ns=now_ns, records=due) if due else []
    return [*done, *_remove_strays(inflight, now_ns)]


def _remove_strays(inflight: InFlight, now_ns: Callable[[], int]) -> list[Recovered]:
    """Remove files of commits that no record names, once they are old enough."""
    results = []
    for file in inflight.strays():
        try:
            if now_ns() - file.lstat().st_mtime_ns >= KEEP_NS:
                file.unlink()
                results.append(
                    Recovered(State.ABANDONED, file, detail="no record names it any more")
                )
        except FileNotFoundError:
            pass
        except OSError as error:  # it is a directory, or its directory is not writable
            problem = os_problem(error, f"removing {file}").message
            results.append(Recovered(State.FAILED, file, detail=problem))
    return results


def _recovered(path: Path, given: Given) -> Recovered | None:
    session: SessionName | None = None
    try:
        record = given.inflight.read(path)
        if record is None:
            return _remove_unwritten(path, given.now_ns())
        session = record.session
        with given.access.own_lock(session):
            record = given.inflight.read(path)  # its process may have changed it until now
            if record is None:
                return None
            record = _where_it_lies(record, given.inflight.layout)
            done = Displaced(record, given).run()
            program = given.access.program(session)
            if isinstance(program.lock_state(record.target), Stale):
                # A commit held it when its process died. Taking a stale lock removes it.
                with suppress(Busy), given.access.session_lock(session, record.target):
                    pass
            return done
    except FileNotFoundError:
        return None  # its process has finished it meanwhile
    except Busy as busy:
        return Recovered(State.BUSY, path, session, busy.message)
    except BsdError as error:
        return Recovered(State.FAILED, path, session, error.message)
    except OSError as error:
        at = f" ({error.filename})" if error.filename else ""
        message = os_problem(error, f"recovering {path}{at}").message
        return Recovered(State.FAILED, path, session, message)
    except Exception as error:  # noqa: BLE001 - an error in one record does not stop the others
        _log.exception("A record in flight cannot be dealt with", record=str(path))
        return Recovered(State.FAILED, path, session, f"{path} cannot be dealt with: {error!r}")


def _where_it_lies(record: InFlightRecord, layout: Layout) -> InFlightRecord:
    """Return the record with the session's present path, if its program has moved the file."""
    if os.path.lexists(record.target) or not layout.holds(record.target):
        return record
    with suppress(BsdError):
        moved = layout.transcript(record.session)
        if moved.name == record.target.name and os.path.lexists(moved):
            return replace(record, target=moved)
    return record


def _remove_unwritten(path: Path, now_ns: int) -> Recovered | None:
    """Remove a record without a first line: its process ended before it made any other file."""
    if now_ns - path.lstat().st_mtime_ns < KEEP_NS:
        return None  # its process may be about to write the first line
    path.with_suffix(FILE).unlink(missing_ok=True)
    path.unlink()
    return Recovered(State.ABANDONED, path)


def blank(record: InFlightRecord) -> None:
    """Overwrite the content of a displaced file, and the late lines carried from it, with zeros.

    A displaced file stays for a minute, since a program may be about to open it (DESIGN §4). The
    session, its store or its history has all its content, so only later bytes matter. Its bytes
    become zeros in place, durably, and later lines are still put back.

    The caller holds bsd's lock of the session, and has recovered the record.

    Raises:
        Busy: the file is open elsewhere, or is not the one that was displaced.
        OSError: the file cannot be overwritten.
    """
    in_use = Busy(
        f"session {record.session} was changed a moment ago, and a program still has the former"
        " file open",
        hint="again once it is closed, or in a minute",
    )
    try:
        fd = open_plain(str(record.file), os.O_RDWR)
    except FileNotFoundError:
        return
    except BlockingIOError as error:
        raise in_use from error
    try:
        was = os.fstat(fd)
        marks = {"old": record.old, "new": record.new}
        known = {of: mark for of, mark in marks.items() if mark and mark.identity.ino == was.st_ino}
        if not (stat.S_ISREG(was.st_mode) and known):
            raise in_use
        # A program that appends loses no bytes, so only readers matter, as far as bsd sees them.
        if record.strong:
            alone = take_lease(fd)
        else:
            alone = set(filesystem.open_elsewhere(record.file)) <= {os.getpid()}
        if not alone:
            raise in_use
        [(of, mark)] = known.items()
        # Note it first, or recovery would count the changed bytes as rewritten by a program.
        if not record.is_blank:
            add_note(record.path, Note("blanked", of, 0, 0, 0, ""))
        end = min(was.st_size, record.accounted_for(of, mark))
        for start in range(0, end, _BLOCK):
            done, length = 0, min(_BLOCK, end - start)
            while done < length:
                done += os.pwrite(fd, bytes(length - done), start + done)
        # Recovery tells by the modification time whether a program wrote to the file.
        os.utime(fd, ns=(was.st_atime_ns, was.st_mtime_ns))
        os.fsync(fd)
    finally:
        os.close(fd)
