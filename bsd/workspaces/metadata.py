"""What is noted of a workspace: `.metadata.json`, read with suspicion, kept with what is unknown.

A program that runs in the workspace may have written the file: nothing about it is taken on trust
before it was checked here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from bsd.foundation.spelling import iso_utc

FILE_NAME = ".metadata.json"
VERSION = 1
LARGEST = 64 * 1024  # bytes; ours have a few hundred
_LONGEST_ERROR = 500  # characters


class Skip(StrEnum):
    """Why a workspace is left alone."""

    MISSING_METADATA = "missing_metadata"
    CORRUPTED_METADATA = "corrupted_metadata"
    CORRUPTED_TIMESTAMP = "corrupted_timestamp"
    UNREADABLE_METADATA = "unreadable_metadata"
    UNKNOWN_VERSION = "unknown_version"
    OTHER_SESSION = "other_session"
    IN_USE = "in_use"
    SYMLINK = "symlink"
    INVALID_NAME = "invalid_name"


class Unusable(Exception):
    """A workspace whose age cannot be told, or that is not to be touched, and why in words."""

    def __init__(self, skip: Skip, detail: str) -> None:
        super().__init__(detail)
        self.skip = skip
        self.detail = detail


@dataclass(frozen=True, slots=True)
class SessionMetadata:
    """Times are aware, in UTC; `other` are fields that this version does not know, kept as read."""

    session_id: str
    created_at: datetime
    updated_at: datetime
    version: int = VERSION
    execution_count: int = 0
    last_error: str | None = None
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def new(cls, session_id: str, now: float) -> SessionMetadata:
        """Metadata of a workspace that begins now (epoch seconds)."""
        moment = datetime.fromtimestamp(now, UTC)
        return cls(session_id, moment, moment)

    def age_hours(self, now: float) -> float:
        """Return for how long it has not been used; negative if its date lies in the future."""
        return (now - self.updated_at.timestamp()) / 3600

    def touched(self, now: float) -> SessionMetadata:
        """The same, used now (epoch seconds)."""
        return replace(self, updated_at=datetime.fromtimestamp(now, UTC))

    def executed(self, now: float, error: str | None) -> SessionMetadata:
        """The same after a program ran, and how it failed, if it did."""
        text = None if error is None else error[:_LONGEST_ERROR]
        return replace(self.touched(now), execution_count=self.execution_count + 1, last_error=text)

    def as_json(self) -> dict[str, Any]:
        """The document, unknown fields last."""
        known = {
            "session_id": self.session_id,
            "created_at": iso_utc(self.created_at),
            "updated_at": iso_utc(self.updated_at),
            "version": self.version,
            "execution_count": self.execution_count,
            "last_error": self.last_error,
        }
        return known | {name: value for name, value in self.other.items() if name not in known}

    def render(self) -> bytes:
        """The file's content."""
        return json.dumps(self.as_json(), indent=2).encode() + b"\n"


_KNOWN = frozenset(
    ("session_id", "created_at", "updated_at", "version", "execution_count", "last_error")
)


def parse(raw: bytes, session_id: str) -> SessionMetadata:
    """Read the file of the workspace `session_id`; raises Unusable."""
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
    """Read the file as far as it is a JSON object; raises Unusable."""
    if len(raw) > LARGEST:
        raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME} is larger than {LARGEST} bytes")
    try:
        document = json.loads(raw.decode())
    except UnicodeDecodeError:
        raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME} is not UTF-8 text") from None
    except (ValueError, RecursionError):
        raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME} is not valid JSON") from None
    if not isinstance(document, dict):
        raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME} holds no JSON object")
    return document


def moment_of(document: Mapping[str, Any], name: str) -> datetime:
    """One of its times, in UTC; raises Unusable."""
    if name not in document:
        raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME} lacks {name}")
    text = document[name]
    if not isinstance(text, str):
        raise Unusable(Skip.CORRUPTED_TIMESTAMP, f"{FILE_NAME}: {name} is not a time in text")
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
        raise Unusable(Skip.CORRUPTED_TIMESTAMP, f"{FILE_NAME}: {name} names no time zone")
    return moment


def kept_of(raw: bytes | None, fresh: SessionMetadata) -> SessionMetadata:
    """Return `fresh` with what else broken metadata tell: runs, the last error, unknown fields."""
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
    # Neither of these two decides about anything: a bad one is no reason to keep the workspace.
    return value if type(value) is int and value >= 0 else 0


def _text(value: object) -> str | None:
    return value[:_LONGEST_ERROR] if isinstance(value, str) else None
