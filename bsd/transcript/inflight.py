"""The in-flight directory: new and displaced files under names of their own, and their records.

A commit in flight is two files, `<id>.record` and `<id>.file`. The record is a journal of JSON
lines: first what is intended, then, once the new file is complete and durable, everything that
recovery needs, then a note before and after bytes are carried from one file to the other.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bsd.foundation.atomic import sync_dir, write_all
from bsd.foundation.errors import BsdError, Conflict, Forbidden, Unavailable, os_problem
from bsd.foundation.layout import Layout, SessionName, make_private_dir, plain_directories
from bsd.foundation.plain import LARGEST_RECORD, open_plain, read_plain
from bsd.transcript import mount
from bsd.transcript.change import Identity

_FORMAT = 1
_RECORD = ".record"
_BEGINNING = b'{"record": '
_FILE = ".file"
_PROBE = ".probe"
# What older versions put into session directories, and a crash may have left there.
_PROBE_THERE = ".brainsurgeon-probe"
_OWN = Path(".brainsurgeon") / "inflight"


@dataclass(frozen=True, slots=True)
class Mark:
    """What tells a file of the session from its successor and from a stranger."""

    identity: Identity
    header: str  # SHA-256 of its first line
    tail: str  # SHA-256 of the last 4 KiB before `identity.size`


@dataclass(frozen=True, slots=True)
class Note:
    """Bytes that are being carried, or have been, from one of the two files elsewhere."""

    note: str  # carrying | carried (to the other file) | orphaned
    of: str  # old | new: the file they were read from
    offset: int
    length: int
    written: int  # bytes put into the other file for them; a missing line end may come on top
    sha256: str


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of one commit in flight, as read from its journal."""

    path: Path  # of the record itself
    session: SessionName
    target: Path  # the session file
    created_ns: int
    carries_late: bool = False  # what the new file has more than the old stands nowhere else
    strong: bool = False
    old: Mark | None = None  # None: the new file was never complete, nothing was exchanged
    new: Mark | None = None
    notes: tuple[Note, ...] = ()

    @property
    def file(self) -> Path:
        """The in-flight name: the new file before the exchange, the old one after it."""
        return self.path.with_suffix(_FILE)


class Draft:
    """A commit in flight in the hands of the process that makes it."""

    def __init__(self, directory: Path) -> None:
        name = secrets.token_hex(8)
        self.record = directory / f"{name}{_RECORD}"
        self.file = directory / f"{name}{_FILE}"

    def begin(
        self, session: SessionName, target: Path, now_ns: int, *, carries_late: bool = False
    ) -> int:
        """Write the record's first line, create the new file; return its descriptor."""
        intent = {
            "record": _FORMAT,
            "session": str(session),
            "path": str(target),
            "created_ns": now_ns,
            "carries_late": carries_late,
        }
        _append(self.record, intent, os.O_CREAT | os.O_EXCL)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self.file, flags, 0o600)

    def complete(self, old: Mark, new: Mark, *, strong: bool) -> None:
        """Make the record durable, and both names with it: from here on recovery can tell."""
        ready = {"ready": True, "strong": strong, "old": asdict(old), "new": asdict(new)}
        _append(self.record, ready, sync=True)
        sync_dir(self.record.parent)

    def discard(self) -> None:
        """Remove both, of a commit that exchanged nothing; the record goes last."""
        for path in (self.file, self.record):
            with suppress(FileNotFoundError):
                path.unlink()


def add_note(record: Path, note: Note) -> None:
    """Append a note to a record, durably."""
    _append(record, asdict(note), sync=True)


def _append(path: Path, line: dict[str, Any], flags: int = 0, *, sync: bool = False) -> None:
    # Line breaks on both sides: a line cut short by a crash must not spoil the next one.
    data = b"\n" + json.dumps(line).encode() + b"\n"
    fd = open_plain(path, flags | os.O_WRONLY | os.O_APPEND)
    try:
        write_all(fd, data)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def read_record(path: Path) -> Record | None:
    """Read a journal; None if not even its first line came to be.

    Raises OSError, and Conflict for a journal that this bsd cannot read.
    """
    raw = read_plain(path, LARGEST_RECORD)
    lines = [line for line in map(_parsed, raw.split(b"\n")) if line is not None]
    if not lines and _is_begun(raw):
        return None
    try:
        return _record(path, lines)
    except (LookupError, TypeError, ValueError, OverflowError, BsdError) as error:
        raise Conflict(
            f"the record {path} cannot be read: {error!r}",
            hint="was it written by a newer bsd? its files are left as they are",
        ) from error


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except RecursionError:
        return {}  # whole, and nothing that we write
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _is_begun(raw: bytes) -> bool:
    """Whether these bytes are what a crash leaves of a first line: nothing, zeros, or a part."""
    begun = raw.strip(b"\n\0")
    return _BEGINNING.startswith(begun[: len(_BEGINNING)])


def _record(path: Path, lines: list[dict[str, Any]]) -> Record:
    intent = lines[0]
    if intent["record"] != _FORMAT:
        raise ValueError(f"format {intent['record']}")
    ready = next((line for line in lines if line.get("ready") is True), None)
    return Record(
        path=path,
        session=SessionName.parse(intent["session"]),
        target=_absolute(intent["path"]),
        created_ns=_whole(intent["created_ns"]),
        carries_late=bool(intent.get("carries_late")),
        strong=bool(ready and ready["strong"]),
        old=_mark(ready["old"]) if ready else None,
        new=_mark(ready["new"]) if ready else None,
        notes=tuple(_note(line) for line in lines if "note" in line),
    )


def _mark(value: dict[str, Any]) -> Mark:
    identity = {name: _whole(number) for name, number in value["identity"].items()}
    return Mark(Identity(**identity), str(value["header"]), str(value["tail"]))


def _note(line: dict[str, Any]) -> Note:
    numbers = {name: _whole(line[name]) for name in ("offset", "length", "written")}
    return Note(**{**line, **numbers})


def _whole(number: object) -> int:
    if type(number) is not int or not 0 <= number < 1 << 64:
        raise ValueError(f"{number!r} is not a number of bytes, a time or an inode")
    return number


def _absolute(text: object) -> Path:
    if not isinstance(text, str) or "\0" in text or not text.startswith("/"):
        raise ValueError(f"{text!r} is not the path of a session file")
    os.fsencode(text)
    return Path(text)


class InFlight:
    """Finds, for each session directory, an in-flight directory that renames can reach."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._found: dict[Path, Path] = {}
        self._exchanged: dict[SessionName, list[Path]] = {}

    def remember(self, session: SessionName, record: Path) -> None:
        """Note that a commit by this process has left a record."""
        self._exchanged.setdefault(session, []).append(record)

    def remembered(self, session: SessionName) -> list[Path]:
        """Records that commits by this process have left for a session, the oldest first."""
        if session not in self._exchanged:
            return []
        left = [record for record in self._exchanged[session] if _is_there(record)]
        if left:
            self._exchanged[session] = left
        else:
            del self._exchanged[session]
        return left

    def directory_for(self, session: Path) -> Path:
        """The in-flight directory on the mount of `session`; raises Unavailable, Forbidden.

        Only the kernel tells: bind mounts show the same device number and refuse all the same.
        """
        sessions = session.parent
        if sessions in self._found and self._found[sessions].is_dir():
            return self._found[sessions]
        refused = []
        for candidate in self._candidates(sessions):
            try:
                self._refuse_outside(candidate)
                _prove(_make_durable(candidate), sessions)
            except OSError as error:
                refused.append(error)
                continue
            self._found[sessions] = candidate
            return candidate
        raise _nowhere(sessions, refused, ours=self.is_inside(sessions))

    def directories(self) -> Iterator[Path]:
        """Every in-flight directory that exists under the root."""
        places = {str(self.layout.inflight)}
        for sessions in self._session_directories():
            places.update((f"{sessions.parent}/{_OWN}", f"{sessions}/{_OWN}"))
        # Hardly any of them exists; so only those that do become paths.
        for directory in sorted(map(Path, filter(os.path.isdir, places))):
            if self.is_inside(directory):
                yield directory

    def records(self) -> Iterator[Path]:
        """Every record of a commit in flight under the root, the oldest first per directory."""
        for directory in self.directories():
            yield from sorted(directory.glob(f"*{_RECORD}"), key=_age)

    def readable(self) -> Iterator[Record]:
        """The same, of those that say what they are about; `verify` names the others."""
        for path in self.records():
            with suppress(OSError, BsdError):
                if (record := read_record(path)) is not None:
                    yield record

    def strays(self) -> Iterator[Path]:
        """In-flight files without a record, and probes: garbage once they are not brand-new.

        A record is the first to come and the last to go; only a power cut, which takes names that
        had not reached the disk, can leave a file without one.
        """
        for directory in self.directories():
            yield from directory.glob(f"*{_PROBE}")
            for file in directory.glob(f"*{_FILE}"):
                if not file.with_suffix(_RECORD).exists():
                    yield file
        in_sources = (directory for _, directory in self.layout.session_dirs())
        away = self.layout.put_away_dirs()
        for sessions in (*self._session_directories(), *in_sources, *away):
            if (sessions / _PROBE_THERE).exists():
                yield sessions / _PROBE_THERE

    def _session_directories(self) -> Iterator[Path]:
        agents = Path(os.path.realpath(self.layout.agents))
        inside = self.is_inside(agents)
        for agent in sorted(_subdirectories(self.layout.agents)):
            if self.layout.source_of(agent) is not None:
                continue
            if inside and (plain := plain_directories(agents, agent)):
                yield plain[1]
                continue
            with suppress(BsdError):  # a link that leaves the root, or a name that is none
                yield self.layout.sessions_dir(agent)

    def is_inside(self, directory: Path) -> bool:
        """Tell whether a directory lies under the root, links resolved."""
        real = Path(os.path.realpath(directory))
        return real.is_relative_to(os.path.realpath(self.layout.root))

    def _refuse_outside(self, directory: Path) -> None:
        if not self.is_inside(directory):
            raise OSError(errno.EXDEV, "a symbolic link leads out of the root")

    def _candidates(self, sessions: Path) -> Iterator[Path]:
        yield self.layout.inflight
        if self.is_inside(sessions):  # nothing of ours lies in another program's directories
            yield sessions.parent / _OWN
            yield sessions / _OWN


def _is_there(record: Path) -> bool:
    try:
        record.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise os_problem(error, f"looking for {record}") from error
    return True


def _age(path: Path) -> tuple[int, str]:
    try:
        return path.lstat().st_mtime_ns, path.name
    except FileNotFoundError:  # its owner has just finished
        return 0, path.name


def _subdirectories(path: Path) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
        return [entry.name for entry in entries if os.path.isdir(entry)]
    return []


def _make_durable(directory: Path) -> Path:
    """Create it so that a power cut cannot take it, and with it what is displaced into it."""
    if not directory.is_dir():
        make_private_dir(directory)
        for above in (directory.parent, directory.parent.parent):
            sync_dir(above)
    return directory


def _prove(candidate: Path, sessions: Path) -> None:
    """See that files can be made here and renamed there; raises OSError if the kernel refuses.

    Nothing is made in the session directory: it is its owner's.
    """
    here = candidate / f"{secrets.token_hex(8)}{_PROBE}"
    os.close(os.open(here, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        mount.refuse_unless_reached(here, sessions)
    finally:
        here.unlink()


def _nowhere(sessions: Path, refused: list[OSError], *, ours: bool) -> BsdError:
    reasons = "; ".join(sorted({str(error.strerror) for error in refused}))
    message = f"no directory for files in flight can be used for {sessions}: {reasons}"
    if any(error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) for error in refused):
        return Forbidden(message, hint=f"make {sessions} writable for the user who runs bsd")
    if any(error.errno in (errno.ENOSPC, errno.EDQUOT) for error in refused):
        return Unavailable(message, hint="free some space on that file system")
    hint = f"bsd needs a directory on the mount of {sessions}, e.g. {sessions.parent / _OWN}"
    if not ours:
        hint = "bsd's root and this source must lie on the same mount"
    return Unavailable(message, hint=hint)
