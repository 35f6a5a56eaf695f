"""Takes the words out of what a commit displaced, for whoever destroys content (SPEC §7a).

A displaced file stays for a minute, as somebody may be on the way to it (DESIGN §4). All that it
held when it was displaced stands in the session, its store or its history; only what comes after
that counts. So its bytes become zeros in place, and the file stays for whoever still appends to
it: late lines come home as ever.
"""

from __future__ import annotations

import os
import stat

from bsd.foundation import filesystem
from bsd.foundation.errors import Busy
from bsd.foundation.leases import open_plain, take_lease
from bsd.session.commit.inflight import InFlightRecord, Mark, Note, add_note

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
