"""Extracted values on disk: one file per entry, holding its original line (SPEC §3 "Store")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of the session file as planned: kept without passing through the plan's memory."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Keep:
    """An original line that must be durable before its session loses values."""

    ref: str  # file name without ending, e.g. `0045_thinking`
    entry_id: str
    index: int  # line number in the session, 0-based, at the time of extraction
    type: str
    hash: str  # `sha256:…` of the file's bytes
    size: int  # bytes of the file
    keys: tuple[str, ...]
    sizes: Mapping[str, int]  # bytes that each key took in the line
    # What to keep: a line as it stands in the session (the usual case), bytes that stand nowhere,
    # or None: the file is there already, check its hash and renew its mtime.
    line: Span | bytes | None


class Missing(StrEnum):
    """Why stored content cannot be had."""

    GONE = "missing"
    CORRUPT = "corrupt"


class Stored(Protocol):
    """What planners may ask of a session's store."""

    def load(self, ref: str, hash: str) -> bytes | Missing:
        """The original line that `ref` holds, if it is there and has this hash."""
        ...

    def find(self, entry_id: str) -> tuple[str, str] | None:
        """(ref, hash) of the newest file kept for this entry, if any."""
        ...

    def taken(self, ref: str) -> bool:
        """Whether a file of this name exists or was ever indexed."""
        ...
