"""The in-flight directory: new and displaced files under names of their own, and their records.

A commit in flight is two files, `<id>.record` and `<id>.file`. The record is a journal of JSON
lines: first what is intended, then, once the new file is complete and durable, everything that
recovery needs, then a note before and after bytes are carried from one file to the other.

Some of these directories lie where agents may write, and bsd may be root. What it has not made
itself, or others could have changed, is no record; and no record speaks of a session that lies
elsewhere than itself.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from bsd.foundation import filesystem
from bsd.foundation.errors import (
    BsdError,
    Conflict,
    Forbidden,
    LeftAlone,
    Unavailable,
)
from bsd.foundation.files import (
    LARGEST_RECORD,
    make_private_dir,
    makers,
    open_plain,
    read_plain,
    sync_dir,
    why_not_our_directory,
    why_not_our_file,
    write_all,
)
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import Layout, SessionName, plain_directories
from bsd.session.commit.own_commits import OwnCommits
from bsd.session.commit.reach import remedy, source_around
from bsd.text.change import Identity

_FORMAT = 1
_RECORD = ".record"
_BEGINNING = b'{"record": '
_FILE = ".file"
_PROBE = ".probe"
# What older versions put into session directories, and a crash may have left there.
_PROBE_THERE = ".brainsurgeon-probe"
_OWN = Path(".brainsurgeon") / "inflight"
MEND_PLANTED = (
    "`ls -la {0}`: if nobody but bsd put it there, `chmod go-w {0}` (where modes cannot be set: "
    "mount with umask=077); else move it away"
)


@immutable
class Mark:
    """What tells a file of the session from its successor and from a stranger."""

    identity: Identity
    header: str  # SHA-256 of its first line
    tail: str  # SHA-256 of the last 4 KiB before `identity.size`


@immutable
class Note:
    """Bytes that are being carried, or have been, from one of the two files elsewhere.

    Or that what it held when it was displaced is zeros by now; then the numbers are, too.
    """

    note: str  # carrying | carried (to the other file) | orphaned | blanked
    of: str  # old | new: the file they were read from
    offset: int
    length: int
    written: int  # bytes put into the other file for them; a missing line end may come on top
    sha256: str


class EditedSpan(NamedTuple):
    """Bytes of the old file that a commit replaces, and how many come in their place."""

    offset: int
    length: int
    new_length: int


@immutable
class Edits:
    """How the new file was made of the old one."""

    spans: tuple[EditedSpan, ...]
    sha256: str  # of the hashes of the old file's bytes under each span, in order


@immutable
class InFlightRecord:
    """What is known of one commit in flight, as read from its journal."""

    path: Path  # of the record itself
    session: SessionName
    target: Path  # the session file
    created_ns: int
    carries_late: bool = False  # what the new file has more than the old stands nowhere else
    strong: bool = False
    old: Mark | None = None  # None: the new file was never complete, nothing was exchanged
    new: Mark | None = None
    edits: Edits | None = None  # older versions did not tell
    notes: tuple[Note, ...] = ()

    @property
    def file(self) -> Path:
        """The in-flight name: the new file before the exchange, the old one after it."""
        return self.path.with_suffix(_FILE)

    @property
    def is_blank(self) -> bool:
        """Whether what the displaced file held is zeros, or was about to become them."""
        return any(note.note == "blanked" for note in self.notes)


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

    def complete(self, old: Mark, new: Mark, edits: Edits, *, strong: bool) -> None:
        """Make the record durable, and both names with it: from here on recovery can tell."""
        marks = {"old": asdict(old), "new": asdict(new)}
        told = {"edits": edits.spans, "edited": edits.sha256}
        _append(self.record, {"ready": True, "strong": strong, **marks, **told}, sync=True)
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


def read_record(path: Path) -> InFlightRecord | None:
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


def _record(path: Path, lines: list[dict[str, Any]]) -> InFlightRecord:
    intent = lines[0]
    if intent["record"] != _FORMAT:
        raise ValueError(f"format {intent['record']}")
    ready = next((line for line in lines if line.get("ready") is True), None)
    return InFlightRecord(
        path=path,
        session=SessionName.parse(_text(intent["session"])),
        target=_absolute(intent["path"]),
        created_ns=_whole(intent["created_ns"]),
        carries_late=bool(intent.get("carries_late")),
        strong=bool(ready and ready["strong"]),
        old=_mark(ready["old"]) if ready else None,
        new=_mark(ready["new"]) if ready else None,
        edits=_edits(ready) if ready and "edits" in ready else None,
        notes=tuple(_note(line) for line in lines if "note" in line),
    )


def _mark(value: dict[str, Any]) -> Mark:
    told = value["identity"]
    identity = {name: _whole(told[name], 1 << 64) for name in ("dev", "ino")}
    identity["size"] = _whole(told["size"])
    identity |= {name: _whole(told[name], least=-1 << 63) for name in ("mtime_ns", "ctime_ns")}
    return Mark(Identity(**identity), str(value["header"]), str(value["tail"]))


def _edits(ready: dict[str, Any]) -> Edits:
    spans = tuple(EditedSpan(*span) for span in ready["edits"])
    if not {type(number) for span in spans for number in span} <= {int}:
        raise TypeError("offsets and lengths are whole numbers")
    end, last = 0, ready["old"]["identity"]["size"]
    for span in spans:
        if not end <= span.offset <= span.offset + span.length <= last or span.new_length < 0:
            raise ValueError(f"{span} is out of order")
        end = span.offset + span.length
    return Edits(spans, str(ready["edited"]))


_NOTES = ("carrying", "carried", "orphaned", "blanked")


def _note(line: dict[str, Any]) -> Note:
    numbers = {name: _whole(line[name]) for name in ("offset", "length", "written")}
    note = Note(**{**line, **numbers})
    if note.note not in _NOTES or note.of not in ("old", "new"):
        raise ValueError(f"{note.note!r} of {note.of!r} says nothing")
    _whole(note.offset + note.length)
    return note


def _whole(number: object, limit: int = 1 << 63, *, least: int = 0) -> int:
    if type(number) is not int or not least <= number < limit:
        raise ValueError(f"{number!r} is not a number of bytes, a time or an inode")
    return number


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{value!r} is no text")
    os.fsencode(value)
    return value


def _absolute(value: object) -> Path:
    if not (text := _text(value)).startswith("/"):
        raise ValueError(f"{text!r} is not the path of a session file")
    return Path(text)


class InFlight:
    """Finds, for each session directory, an in-flight directory that renames can reach."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._found: dict[Path, Path] = {}
        self._exchanges: dict[int, bool] = {}  # by device: whether names can be exchanged there
        self.own = OwnCommits()

    def read(self, path: Path) -> InFlightRecord | None:
        """Read a record as `read_record` does, and refuse one of a session that lies elsewhere."""
        record = read_record(path)
        if record is not None and (why := self._disagreement(record)):
            raise Conflict(
                f"the record {path} is not believed: {why}",
                hint="was the root moved, or has somebody put it there? its files are left as "
                "they are: look at them, then remove them",
            )
        return record

    def _disagreement(self, record: InFlightRecord) -> str | None:
        """What in a record does not go with where it lies, or with itself."""
        target = Path(os.path.realpath(record.target.parent)) / record.target.name
        home = record.path.parent
        if os.path.realpath(home) != os.path.realpath(self.layout.inflight):
            sessions_or_agent = Path(os.path.realpath(home.parent.parent))
            if sessions_or_agent not in (target.parent, target.parent.parent):
                return f"{record.target} lies elsewhere"
        places = self.layout.places_of(record.session)
        if target in places or not (places or os.path.lexists(record.target)):
            return None  # of a session that has no place any more there is nothing to be changed
        return f"{record.target} is not where session {record.session} lies"

    def directory_for(self, session: Path) -> Path:
        """The in-flight directory on the mount of `session`.

        Only the kernel tells: bind mounts show the same device number and refuse all the same.
        Raises Unavailable, Forbidden, and LeftAlone where names cannot be exchanged.
        """
        sessions = session.parent
        self.refuse_known(sessions)
        found = self._found.get(sessions)
        if found is not None and found.is_dir() and not self._why_not_ours(found):
            return found
        refused = []
        for candidate in self._candidates(sessions):
            try:
                self._refuse_outside(candidate)
                self._make(candidate)
                self._prove(candidate, sessions)
            except OSError as error:
                refused.append(error)
                continue
            self.refuse_known(sessions)
            self._found[sessions] = candidate
            return candidate
        raise self._nowhere(sessions, refused)

    def _nowhere(self, sessions: Path, refused: list[OSError]) -> BsdError:
        reasons = "; ".join(sorted({str(error.strerror) for error in refused}))
        codes = {error.errno for error in refused}
        source = source_around(self.layout, sessions)
        if source is not None and codes & {errno.EXDEV, errno.EROFS}:
            message = f"sessions of {source.name} cannot be exchanged in {sessions}: {reasons}"
            return Unavailable(message, hint=remedy(self.layout, source))
        message = f"no directory for files in flight can be used for {sessions}: {reasons}"
        if planted := next((error for error in refused if isinstance(error, NotOurRecord)), None):
            return Forbidden(message, hint=MEND_PLANTED.format(planted.filename))
        if codes & {errno.EACCES, errno.EPERM, errno.EROFS}:
            return Forbidden(message, hint=f"make {sessions} writable for the user who runs bsd")
        if codes & {errno.ENOSPC, errno.EDQUOT}:
            return Unavailable(message, hint="free some space on that file system")
        hint = f"bsd needs a directory on the mount of {sessions}, e.g. {sessions.parent / _OWN}"
        return Unavailable(message, hint=hint)

    def refuse_known(self, sessions: Path) -> None:
        """Raise LeftAlone where it has turned out that names cannot be exchanged."""
        with suppress(FileNotFoundError):
            if self._exchanges.get(sessions.stat().st_dev, True):
                return
            found = filesystem.strength(sessions)
            raise LeftAlone(
                f"its file system ({found.filesystem}) cannot exchange two names, without which "
                "no file is replaced safely",
                hint=filesystem.MOVE_ELSEWHERE,
            )

    def can_exchange(self, sessions: Path, *, make: bool = False) -> bool | None:
        """Whether names can be exchanged on the mount of `sessions`; None if that is not known.

        Tried once, in a directory of bsd's own; in one that is there, or the root's is made.
        """
        device = sessions.stat().st_dev
        for candidate in self._candidates(sessions):
            with suppress(OSError):
                if device in self._exchanges:
                    break
                if make and candidate == self.layout.inflight:
                    self._refuse_outside(candidate)
                    self._make(candidate)
                if candidate.is_dir() and not self._why_not_ours(candidate):
                    self._prove(candidate, sessions)
        return self._exchanges.get(device)

    def directories(self) -> Iterator[Path]:
        """Every in-flight directory of bsd's own that exists under the root."""
        return (place for place in self._places() if self._why_not_ours(place) is None)

    def records(self) -> Iterator[Path]:
        """Every record of a commit in flight under the root, the oldest first per directory."""
        trusted = makers(self.layout.root)
        for directory in self.directories():
            found = [path for path in directory.glob(f"*{_RECORD}") if not _why_none(path, trusted)]
            yield from sorted(found, key=_age)

    def readable(self) -> Iterator[InFlightRecord]:
        """The same, of those that say what they are about; `verify` names the others."""
        for path in self.records():
            with suppress(OSError, BsdError):
                if (record := self.read(path)) is not None:
                    yield record

    def planted(self) -> Iterator[tuple[Path, str]]:
        """What lies where bsd's records do and is none of them, and why; it is left alone."""
        trusted = makers(self.layout.root)
        for place in self._places():
            if why := self._why_not_ours(place):
                yield place, why
                continue
            for path in sorted(place.glob(f"*{_RECORD}")):
                if why := _why_none(path, trusted):
                    yield path, why

    def _places(self) -> Iterator[Path]:
        """Where directories for files in flight lie, or something in their place."""
        places = {str(self.layout.inflight)}
        for sessions in self._session_directories():
            places.update((f"{sessions.parent}/{_OWN}", f"{sessions}/{_OWN}"))
        # Hardly any of them exists; so only those that do become paths.
        return iter(sorted(map(Path, filter(os.path.lexists, places))))

    def _why_not_ours(self, directory: Path) -> str | None:
        """What keeps bsd from believing what lies in a directory; None if nothing does."""
        if not self.is_inside(directory):
            return "a symbolic link leads out of the root"
        above = directory.parent
        if directory == self.layout.inflight:  # the root's owner may have put it elsewhere in it
            above, directory = above.resolve(), directory.resolve()
        trusted = makers(self.layout.root)
        for path in (above, directory):
            try:
                why = why_not_our_directory(path.lstat(), trusted)
            except FileNotFoundError:
                continue
            except OSError as error:
                why = f"it cannot be looked at: {error.strerror}"
            if why:
                return why if path == directory else f"{path}: {why}"
        return None

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

    def _make(self, directory: Path) -> None:
        """Have a directory of bsd's own, durably; raises NotOurs for somebody else's."""
        self._refuse_others(directory)
        _make_durable(directory)
        self._refuse_others(directory)  # who may have been quicker

    def _refuse_others(self, directory: Path) -> None:
        if why := self._why_not_ours(directory):
            raise NotOurRecord(directory, why)

    def _prove(self, candidate: Path, sessions: Path) -> None:
        """See that files can be made here and renamed there; raises OSError if the kernel refuses.

        Nothing is made in the session directory: it is its owner's. Whether two of them can also
        be exchanged is noted; a file system does that everywhere or nowhere.
        """
        device = sessions.stat().st_dev
        probes = [candidate / f"{secrets.token_hex(8)}{_PROBE}" for _ in range(2)]
        try:
            for probe in probes if device not in self._exchanges else probes[:1]:
                os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            filesystem.refuse_unless_reached(probes[0], sessions)
            if device not in self._exchanges:
                self._exchanges[device] = filesystem.exchanges(*probes)
        finally:
            for probe in probes:
                probe.unlink(missing_ok=True)

    def _candidates(self, sessions: Path) -> Iterator[Path]:
        yield self.layout.inflight
        if self.is_inside(sessions):  # nothing of ours lies in another program's directories
            yield sessions.parent / _OWN
            yield sessions / _OWN


class NotOurRecord(PermissionError):
    """Somebody else's, where a directory of bsd's own should be."""

    def __init__(self, directory: Path, why: str) -> None:
        super().__init__(errno.EPERM, f"{directory} is not bsd's own: {why}", str(directory))


def _why_none(path: Path, trusted: frozenset[int]) -> str | None:
    """What keeps bsd from believing a record; None if nothing does, or if it is gone."""
    with suppress(FileNotFoundError):
        return why_not_our_file(path.lstat(), trusted)
    return None


def _age(path: Path) -> tuple[int, str]:
    try:
        return path.lstat().st_mtime_ns, path.name
    except FileNotFoundError:  # its owner has just finished
        return 0, path.name


def _subdirectories(path: Path) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
        return [entry.name for entry in entries if os.path.isdir(entry)]
    return []


def _make_durable(directory: Path) -> None:
    """Create it so that a power cut cannot take it, and with it what is displaced into it."""
    if not directory.is_dir():
        make_private_dir(directory)
        for above in (directory.parent, directory.parent.parent):
            sync_dir(above)
