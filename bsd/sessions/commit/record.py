"""A commit in flight: its two files, `<id>.record` and `<id>.file`.

The record is a journal of JSON lines. The first line is the intention. The second, written once the
new file is complete and durable, has everything that recovery needs. Further lines are notes,
before and after bytes are carried from one file to the other.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bsd.core.errors import BsdError, Conflict
from bsd.core.files import LARGEST_RECORD, open_plain, read_plain, sync_dir, write_all
from bsd.core.layout import SessionName
from bsd.transcripts.change import Identity

_FORMAT = 1
RECORD = ".record"
_BEGINNING = b'{"record": '
FILE = ".file"


@dataclass(frozen=True, slots=True)
class Mark:
    """Identifies a session file, to tell it from its successor and from other files."""

    identity: Identity
    header: str  # SHA-256 of its first line
    tail: str  # SHA-256 of the last 4 KiB before `identity.size`


@dataclass(frozen=True, slots=True)
class Note:
    """A note about bytes that are being carried, or have been, from one of the two files elsewhere.

    `blanked` notes that the displaced file's original bytes are now zeros; its numbers are 0.
    """

    note: str  # carrying | carried (to the other file) | orphaned | blanked
    of: str  # old | new: the file they were read from
    offset: int
    length: int
    written: int  # bytes put into the other file, without a line end put before them
    sha256: str


class EditedSpan(NamedTuple):
    """Bytes of the old file that a commit replaces, and the number of bytes in their place."""

    offset: int
    length: int
    new_length: int


@dataclass(frozen=True, slots=True)
class Edits:
    """How the new file was made from the old one."""

    spans: tuple[EditedSpan, ...]
    sha256: str  # of the hashes of the old file's bytes under each span, in order


@dataclass(frozen=True, slots=True)
class InFlightRecord:
    """One commit in flight, as read from its journal."""

    path: Path  # of the record itself
    session: SessionName
    target: Path  # the session file
    created_ns: int
    carries_late: bool = False  # the new file holds bytes that exist nowhere else
    strong: bool = False
    old: Mark | None = None  # None: the new file was never complete, so no exchange
    new: Mark | None = None
    edits: Edits | None = None  # None in records of older versions
    notes: tuple[Note, ...] = ()

    @property
    def file(self) -> Path:
        """The in-flight file: the new file before the exchange, the old one after it."""
        return self.path.with_suffix(FILE)

    @property
    def is_blank(self) -> bool:
        """True if the displaced file's bytes are zeros, or were about to become zeros."""
        return any(note.note == "blanked" for note in self.notes)

    def done_with(self, of: str) -> list[Note]:
        """Return the notes of bytes of the file `of` that were carried or became an orphan."""
        done = ("carried", "orphaned")
        return [note for note in self.notes if note.of == of and note.note in done]

    def accounted_for(self, of: str, mark: Mark) -> int:
        """Return the offset in the file `of` up to which all bytes also exist elsewhere."""
        ends = [note.offset + note.length for note in self.done_with(of)]
        return max([mark.identity.size, *ends])


class Draft:
    """The two files of a commit while its process makes them."""

    def __init__(self, directory: Path) -> None:
        name = secrets.token_hex(8)
        self.record = directory / f"{name}{RECORD}"
        self.file = directory / f"{name}{FILE}"

    def begin(
        self, session: SessionName, target: Path, now_ns: int, *, carries_late: bool = False
    ) -> int:
        """Write the record's first line and create the new file; return the file's descriptor."""
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
        """Make the record and both names durable. From here on, recovery knows the state."""
        marks = {"old": asdict(old), "new": asdict(new)}
        told = {"edits": edits.spans, "edited": edits.sha256}
        _append(self.record, {"ready": True, "strong": strong, **marks, **told}, sync=True)
        sync_dir(self.record.parent)

    def discard(self) -> None:
        """Remove both files of a commit without an exchange, the record last."""
        for path in (self.file, self.record):
            with suppress(FileNotFoundError):
                path.unlink()


def add_note(record: Path, note: Note) -> None:
    """Append a note to a record, durably."""
    _append(record, asdict(note), sync=True)


def note_line(note: Note) -> bytes:
    """Return the bytes that append a note to a record."""
    return _line(asdict(note))


def _line(value: dict[str, Any]) -> bytes:
    # Line breaks on both sides: a line cut short by a crash must not spoil the next one.
    return b"\n" + json.dumps(value).encode() + b"\n"


def _append(path: Path, value: dict[str, Any], flags: int = 0, *, sync: bool = False) -> None:
    fd = open_plain(path, flags | os.O_WRONLY | os.O_APPEND)
    try:
        write_all(fd, _line(value))
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def read_record(path: Path) -> InFlightRecord | None:
    """Read a record; return None if even its first line is incomplete.

    Raises:
        OSError: the file cannot be read.
        Conflict: this version of bsd cannot read the record.
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
        return {}  # complete, but not written by bsd
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _is_begun(raw: bytes) -> bool:
    """Return whether these bytes are a first line cut off by a crash: empty, zeros, or a part."""
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
        raise ValueError(f"{note.note!r} of {note.of!r} is no valid note")
    _whole(note.offset + note.length)
    return note


def _whole(number: object, limit: int = 1 << 63, *, least: int = 0) -> int:
    if type(number) is not int or not least <= number < limit:
        raise ValueError(f"{number!r} is not a number of bytes, a time or an inode")
    return number


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{value!r} is not text")
    os.fsencode(value)
    return value


def _absolute(value: object) -> Path:
    if not (text := _text(value)).startswith("/"):
        raise ValueError(f"{text!r} is not the path of a session file")
    return Path(text)
