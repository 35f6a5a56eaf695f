"""A catalogue of three machines that answers without a database; the first is this one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from bsd.actions import fleet, fleet_status
from bsd.core.fleet_settings import FleetSettings
from bsd.fleet.catalogue.answers import FleetHit, FleetHits, FleetHost, FleetSession, FleetSessions
from bsd.fleet.host import HostDirectory

HERE = HostDirectory("ours", "00000001")
SETTINGS = 'host = "ours"\ndatabase = "postgresql://db.invalid/bsd"\n'


def host(name: str, id: str, **members: Any) -> FleetHost:
    known: dict[str, Any] = {
        "version": "0.7.0",
        "last_seen": "2026-11-27T04:00:00.000Z",
        "sessions": 12,
        "bytes": 3 << 20,
        "behind_files": 0,
        "behind_bytes": 0,
        "behind_seconds": None,
        "errors": 0,
        "last_error": None,
    }
    return FleetHost(name, id, **known | members)


def session(name: str, of: str, **members: Any) -> FleetSession:
    known: dict[str, Any] = {
        "agent": name.partition("/")[0],
        "program": "openclaw",
        "title": f"About {name}",
        "directory": "/home/ada/shop",
        "created": None,
        "updated": "2026-11-26T10:00:00.000Z",
        "size": 5 << 20,
        "entries": 120,
        "calls": 40,
        "cost": 1.25,
        "saved": 1 << 20,
        "models": (),
        "deleted_at": None,
    }
    return FleetSession(of, name, **known | members)


def hit(name: str, of: str, line: int, entry: str | None) -> FleetHit:
    time = "2026-11-26T10:00:00.000Z"
    return FleetHit(of, name, line, entry, time, "user", None, 1234, f"About {name}")


@dataclass
class FakeCatalogue:
    """Gives prepared answers, and notes what it was asked."""

    known_hosts: tuple[FleetHost, ...] = (
        host("build-3", "00000003", behind_files=2, behind_bytes=4 << 20, behind_seconds=7200.0),
        host("ours", "00000001"),
        host("old", "00000002", errors=3, last_error="the bucket is full"),
    )
    known_sessions: tuple[FleetSession, ...] = (
        session("main/alpha", "ours"),
        session("main/departed", "ours", deleted_at="2026-11-26T12:00:00.000Z"),
        session("claude-code:-home-me/4f2a", "build-3"),
    )
    hits: tuple[FleetHit, ...] = (
        hit("main/alpha", "ours", 4, "e4"),
        hit("main/departed", "ours", 2, None),
        hit("claude-code:-home-me/4f2a", "build-3", 7, "e7"),
    )
    next: str | None = "page-2"
    failing: Exception | None = None
    holding: threading.Event | None = None  # answers wait for it
    asked: list[dict[str, Any]] = field(default_factory=list)
    opened: int = 0
    closed: int = 0

    def search(self, words: str, **wanted: Any) -> FleetHits:
        self._answer(words=words, **wanted)
        return FleetHits(words, self.hits, self.next)

    def sessions(self, **wanted: Any) -> FleetSessions:
        self._answer(**wanted)
        return FleetSessions(self.known_sessions, self.next)

    def hosts(self) -> tuple[FleetHost, ...]:
        self._answer()
        return self.known_hosts

    def close(self) -> None:
        self.closed += 1

    def _answer(self, **wanted: Any) -> None:
        self.asked.append({name: value for name, value in wanted.items() if value is not None})
        if self.holding is not None:
            self.holding.wait()
        if self.failing is not None:
            raise self.failing


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> FakeCatalogue:
    """The catalogue that actions open, and the identity of this machine."""
    fake = FakeCatalogue()

    def opened(_: FleetSettings) -> FakeCatalogue:
        fake.opened += 1
        return fake

    for module in (fleet, fleet_status):
        monkeypatch.setattr(module, "open_catalogue", opened)
        monkeypatch.setattr(module, "this_host", lambda *_: HERE)
    return fake
