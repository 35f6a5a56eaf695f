"""The list of sessions: by stat and the store's indexes, never by reading transcripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bsd.foundation.layout import Layout, SessionName


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session as the list shows it. Sizes are bytes, times epoch seconds."""

    name: SessionName
    size: int
    updated: float
    label: str | None
    status: str | None  # `sessions.json`
    parent: str | None  # session id of its parent
    extracted_entries: int
    extracted_bytes: int  # bytes of the store files

    def as_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """One agent directory; `note` says why its sessions are not listed or edited, if so."""

    name: str
    sessions: int
    note: str | None  # e.g. moved to SQLite, leads out of the root, not readable


def agents(layout: Layout) -> list[AgentInfo]:
    """All agents of the root, SQLite-era and unreadable ones included."""
    ...


def sessions(layout: Layout, agent: str | None = None) -> Iterator[SessionInfo]:
    """All sessions, newest first within an agent; things that are no sessions are left out."""
    ...
