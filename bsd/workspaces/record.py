"""The metadata of a workspace, `.metadata.json`: validated when read; unknown fields are kept.

A program in the workspace can overwrite the file. So while programs run, a *witness*, a copy of the
metadata, is in `.bsd` in the root, which isolated programs cannot reach. If a witness exists, its
content is valid, and the file in the workspace is overwritten with it. A witness survives a crash,
so metadata that a killed program has written are not used either.
"""

import errno
import json
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Self

import structlog
from pydantic import Field, PlainSerializer, SerializerFunctionWrapHandler, model_serializer

from bsd.core.answers import as_json
from bsd.core.files import write_all
from bsd.core.formatting import iso_utc
from bsd.workspaces import tree
from bsd.workspaces.place import (
    OpenWorkspace,
    Skip,
    Unusable,
    metadata_lock,
    own_directory,
    try_lock,
)

_log = structlog.stdlib.get_logger(module="workspaces")

FILE_NAME = ".metadata.json"
WITNESS = "witness-"
VERSION = 1
LARGEST = 64 * 1024  # bytes; bsd's files have a few hundred
_LONGEST_ERROR = 500  # characters
_LONGEST_HEAD = 200  # bytes, of a witness
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


Time = Annotated[datetime, PlainSerializer(iso_utc, return_type=str)]


@dataclass(frozen=True, slots=True)
class SessionMetadata:
    """The metadata of a workspace; times are in UTC.

    `other`: fields that this version does not know. In JSON they follow the known fields.
    """

    session_id: str
    created_at: Time
    updated_at: Time
    version: int = VERSION
    execution_count: int = 0
    last_error: str | None = None
    other: Annotated[Mapping[str, Any], Field(exclude=True)] = field(default_factory=dict)

    @model_serializer(mode="wrap")
    def _with_other(self, write: SerializerFunctionWrapHandler) -> Any:
        known: dict[str, Any] = write(self)
        return known | {name: value for name, value in self.other.items() if name not in known}

    @classmethod
    def new(cls, session_id: str, now: float) -> Self:
        """Return the metadata of a workspace that is created at `now` (epoch seconds)."""
        moment = datetime.fromtimestamp(now, UTC)
        return cls(session_id, moment, moment)

    def age_hours(self, now: float) -> float:
        """Return the hours since the last use; negative if the last use is in the future."""
        return (now - self.updated_at.timestamp()) / 3600

    def touched(self, now: float) -> Self:
        """Return the metadata after a use at `now` (epoch seconds)."""
        return replace(self, updated_at=datetime.fromtimestamp(now, UTC))

    def executed(self, now: float, error: str | None) -> Self:
        """Return the metadata after a run at `now`; `error` is None if the program succeeded."""
        text = None if error is None else error[:_LONGEST_ERROR]
        return replace(self.touched(now), execution_count=self.execution_count + 1, last_error=text)

    def render(self) -> bytes:
        """Return the content of the file."""
        return json.dumps(as_json(self), indent=2).encode() + b"\n"


_KNOWN = tuple(one.name for one in fields(SessionMetadata) if one.name != "other")


def parse(raw: bytes, session_id: str) -> SessionMetadata:
    """Parse the file of the workspace `session_id`; raises Unusable."""
    document = parse_document(raw)
    version = document.get("version", VERSION)
    if type(version) is not int or version < 1:
        raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME}: version is not a whole number")
    if version > VERSION:
        raise Unusable(Skip.UNKNOWN_VERSION, f"{FILE_NAME} has version {version}, of a newer bsd")
    owner = document.get("session_id", session_id)  # seed 004's own files may lack it
    if owner != session_id:
        raise Unusable(
            Skip.OTHER_SESSION, f"{FILE_NAME} belongs to another session: copied or renamed?"
        )
    return SessionMetadata(
        session_id=session_id,
        created_at=moment_of(document, "created_at"),
        updated_at=moment_of(document, "updated_at"),
        version=version,
        execution_count=_count(document.get("execution_count")),
        last_error=_text(document.get("last_error")),
        other={name: value for name, value in document.items() if name not in _KNOWN},
    )


def parse_document(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in the file; raises Unusable."""
    if len(raw) > LARGEST:
        raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME} is larger than {LARGEST} bytes")
    try:
        document = json.loads(raw.decode())
    except UnicodeDecodeError:
        raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME} is not UTF-8 text") from None
    except (ValueError, RecursionError):
        raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME} is not valid JSON") from None
    if not isinstance(document, dict):
        raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME} is not a JSON object")
    return document


def moment_of(document: Mapping[str, Any], name: str) -> datetime:
    """Return the time in a member, in UTC; raises Unusable."""
    if name not in document:
        raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME} lacks {name}")
    text = document[name]
    if not isinstance(text, str):
        raise Unusable(Skip.CORRUPTED_TIMESTAMP, f"{FILE_NAME}: {name} is not a string")
    try:
        moment = datetime.fromisoformat(text)
        known_zone = moment.tzinfo is not None
        moment = moment.astimezone(UTC)
        moment.timestamp()
    except (ValueError, OverflowError):
        raise Unusable(
            Skip.CORRUPTED_TIMESTAMP, f"{FILE_NAME}: {name} is not an ISO 8601 time"
        ) from None
    if not known_zone:
        raise Unusable(Skip.CORRUPTED_TIMESTAMP, f"{FILE_NAME}: {name} has no time zone")
    return moment


def kept_of(raw: bytes | None, fresh: SessionMetadata) -> SessionMetadata:
    """Return `fresh` with the count of runs, last error and unknown fields of broken metadata."""
    try:
        document = parse_document(raw or b"")
    except Unusable:
        return fresh
    return replace(
        fresh,
        execution_count=_count(document.get("execution_count")),
        last_error=_text(document.get("last_error")),
        other={name: value for name, value in document.items() if name not in _KNOWN},
    )


def _count(value: object) -> int:
    # No decision depends on this value, so a bad value does not make the metadata unusable.
    return value if type(value) is int and value >= 0 else 0


def _text(value: object) -> str | None:
    return value[:_LONGEST_ERROR] if isinstance(value, str) else None


# --- the file, and its witness while programs run ---

Change = Callable[[SessionMetadata], SessionMetadata]


def read_file(directory: int, name: str = FILE_NAME, most: int = LARGEST + 1) -> bytes | None:
    """Return the first `most` bytes of the file; None if it is missing. Raises Unusable."""
    try:
        descriptor = os.open(name, _READ, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME} is not a regular file") from None
        raise Unusable(Skip.UNREADABLE_METADATA, f"reading {FILE_NAME}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME} is not a regular file")
        return os.read(descriptor, most)
    except OSError as error:
        raise Unusable(Skip.UNREADABLE_METADATA, f"reading {FILE_NAME}: {error.strerror}") from None
    finally:
        os.close(descriptor)


def understood(raw: bytes | None, session_id: str) -> SessionMetadata:
    """Return the metadata in these bytes; raises Unusable, also for None."""
    if raw is None:
        raise Unusable(Skip.MISSING_METADATA, f"there is no {FILE_NAME}")
    return parse(raw, session_id)


def read_truth(space: OpenWorkspace, own: int | None) -> bytes | None:
    """Return the bytes of the witness if it exists, else of the file; raises Unusable."""
    if own is not None:
        found, raw = _read_witness(space, own)
        if found:
            return raw
    return read_file(space.fd)


def read(space: OpenWorkspace, own: int | None) -> SessionMetadata:
    """Return the metadata of a workspace; raises Unusable."""
    return understood(read_truth(space, own), space.session_id)


def look(space: OpenWorkspace, own: int | None) -> SessionMetadata | None:
    """Return the metadata of a workspace; logs a warning and returns None if unusable."""
    try:
        return read(space, own)
    except Unusable as problem:
        _log.warning(
            "session.metadata.unusable",
            session_id=space.session_id,
            reason=problem.skip,
            detail=problem.detail,
        )
        return None


def update(space: OpenWorkspace, change: Change, now: float) -> SessionMetadata | None:
    """Change the metadata of a locked workspace; without metadata, only return None."""
    with own_directory(space.root) as own, metadata_lock(own, space.session_id):
        return _update(space, own, change, now)


def begin(space: OpenWorkspace) -> None:
    """Write a witness of the metadata, before a program starts."""
    with own_directory(space.root) as own, metadata_lock(own, space.session_id):
        found, raw = _read_witness(space, own)
        if found:  # another program runs, or a run was killed, so the file may be forged
            _put_back(space, raw)
            return
        try:
            raw = read_file(space.fd)
        except Unusable:  # a link, a pipe, a directory: no content to restore later
            return
        _write_witness(space, own, raw)


def end(space: OpenWorkspace, change: Change, now: float) -> SessionMetadata | None:
    """After the end of a program: restore the file, record the run, and remove the witness.

    Afterwards, the workspace is no longer locked.
    """
    with own_directory(space.root) as own, metadata_lock(own, space.session_id):
        found, raw = _read_witness(space, own)
        if found:
            _put_back(space, raw)
        metadata = _update(space, own, change, now)
        # Succeeds only if no other run uses the workspace; a failure releases this run's lock.
        if try_lock(space.fd, shared=False):
            forget_witness(own, space.session_id)
        return metadata


def settle(space: OpenWorkspace, own: int) -> None:
    """Restore the file from the witness and remove the witness; no program must be running."""
    found, raw = _read_witness(space, own)
    if found:
        _put_back(space, raw)
        forget_witness(own, space.session_id)


def put_anew(space: OpenWorkspace, own: int, content: bytes) -> None:
    """Replace the metadata and remove the witness; no program must be running."""
    _clear_away(space)
    write(space, content)
    forget_witness(own, space.session_id)


def write(space: OpenWorkspace, content: bytes) -> None:
    """Replace the file durably; raises OSError."""
    _write_new(space.fd, FILE_NAME, content, durable=True)
    os.fsync(space.fd)


def forget_witness(own: int, session_id: str) -> None:
    """Remove the witness."""
    with suppress(FileNotFoundError):
        os.unlink(WITNESS + session_id, dir_fd=own)


def _update(space: OpenWorkspace, own: int, change: Change, now: float) -> SessionMetadata | None:
    before = look(space, own)
    if before is None:  # only a repair creates missing metadata
        return None
    after = change(before)
    content = after.render()
    if _read_witness(space, own)[0]:
        _write_witness(space, own, content)
    write(space, content)
    _log.debug("session.metadata.updated", session_id=space.session_id, at=now)
    return after


def _put_back(space: OpenWorkspace, raw: bytes | None) -> None:
    """Restore the file if a program has changed or removed it."""
    try:
        if read_file(space.fd) == raw:
            return
    except Unusable:  # replaced by another kind of file
        pass
    _log.warning("session.metadata.forged", session_id=space.session_id)
    if raw is None:
        with suppress(IsADirectoryError, PermissionError, FileNotFoundError):
            os.unlink(FILE_NAME, dir_fd=space.fd)
    _clear_away(space)
    if raw is not None:
        write(space, raw)


def _clear_away(space: OpenWorkspace) -> None:
    """Remove a directory in the place of the file, since a rename does not replace it."""
    tree.remove_inside(space.fd, FILE_NAME)


def _read_witness(space: OpenWorkspace, own: int) -> tuple[bool, bytes | None]:
    """Return (a witness exists, its content); content None means that there was no file."""
    try:
        raw = read_file(own, WITNESS + space.session_id, LARGEST + _LONGEST_HEAD)
    except Unusable:
        return False, None
    if raw is None:
        return False, None
    head, _, content = raw.partition(b"\n")
    if head == _head(space, present=True):
        return True, content
    return head == _head(space, present=False), None


def _write_witness(space: OpenWorkspace, own: int, raw: bytes | None) -> None:
    head = _head(space, present=raw is not None)
    content = head + b"\n" + (raw or b"")
    _write_new(own, WITNESS + space.session_id, content, durable=False)


def _head(space: OpenWorkspace, *, present: bool) -> bytes:
    device, inode = space.identity
    return f"bsd-witness 1 {device} {inode} {int(present)}".encode()


def _write_new(directory: int, name: str, content: bytes, *, durable: bool) -> None:
    temporary = f".{secrets.token_hex(6)}.tmp"
    descriptor = os.open(temporary, _NEW, 0o600, dir_fd=directory)
    try:
        try:
            os.fchmod(descriptor, 0o600)  # the umask may have removed bits
            write_all(descriptor, content)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:  # also an interrupt must not leave the temporary file behind
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
