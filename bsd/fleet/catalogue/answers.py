"""Answers of the catalogue. Times are ISO 8601, sizes bytes, costs US dollars.

Pages go by key: `next` of a page is the `after` of the next one; None: there is no further page.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FleetSession:
    """A session of any host."""

    host: str
    session: str  # AGENT/SESSION
    agent: str
    program: str
    title: str | None
    directory: str | None
    created: str | None
    updated: str
    size: int
    entries: int
    calls: int
    cost: float
    saved: int
    models: tuple[str, ...]
    deleted_at: str | None


@dataclass(frozen=True, slots=True)
class FleetSessions:
    """A page of sessions, the last changed first."""

    sessions: tuple[FleetSession, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class FleetHit:
    """An entry that contains all words of a search."""

    host: str
    session: str  # AGENT/SESSION
    line: int
    entry: str | None
    time: str
    role: str | None
    tool: str | None
    size: int
    title: str | None  # of the session


@dataclass(frozen=True, slots=True)
class FleetHits:
    """A page of entries, the newest first."""

    query: str
    results: tuple[FleetHit, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class FleetHost:
    """A host, as it last told the catalogue or the bucket."""

    host: str
    id: str  # 8 hex digits that distinguish hosts of one name
    version: str
    last_seen: str
    sessions: int
    bytes: int
    behind_files: int  # files that are not uploaded yet
    behind_bytes: int
    behind_seconds: float | None  # age of the oldest of them; None: nothing waits
    errors: int  # since the last success
    last_error: str | None
