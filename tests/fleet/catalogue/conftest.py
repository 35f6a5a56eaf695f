"""Hosts that write into databases of a PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import bsd.fleet.catalogue.ingest
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout
from bsd.core.prices import shipped_prices
from bsd.fleet.catalogue.ingest import Ingested, ingest
from bsd.fleet.host import HostDirectory
from tests.servers.postgres import Postgres

# All that the catalogue says of entries, without the numbers that a database gives.
ALL_ENTRIES = """
SELECT h.name, h.key, s.agent, s.session, e.line, e.entry, e.role, e.tool, e.size, e.digest::text,
    e.model, e.cost, e.saved, e.stored, e.words::text
FROM bsd.entries e JOIN bsd.sessions s ON s.id = e.session JOIN bsd.hosts h ON h.id = s.host
ORDER BY 1, 2, 3, 4, 5
"""


@dataclass
class FleetMember:
    """A host with a root that writes into a database."""

    layout: Layout
    settings: FleetSettings
    postgres: Postgres

    def ingest(self, **options: Any) -> Ingested:
        return ingest(self.layout, self.settings, prices=shipped_prices(), **options)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self.postgres.execute(sql, self.settings.database)

    def entries(self) -> list[tuple[Any, ...]]:
        return self.ask(ALL_ENTRIES)

    def fresh(self) -> list[tuple[Any, ...]]:
        """What an empty database has after one run: the truth."""
        other = FleetMember(
            self.layout,
            FleetSettings(host=self.settings.host, database=self.postgres.new_database()),
            self.postgres,
        )
        other.ingest()
        return other.entries()


MakeMember = Callable[..., FleetMember]


@pytest.fixture
def member(
    postgres: Postgres, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> MakeMember:
    """Makes hosts; each has a root of its own, whose name is its id."""

    def directory(layout: Layout, settings: FleetSettings) -> HostDirectory:
        return HostDirectory(settings.host, layout.root.name)

    monkeypatch.setattr(bsd.fleet.catalogue.ingest, "this_host", directory)

    def make(host: str = "alpha", key: str = "aaaaaaaa", **more: Any) -> FleetMember:
        root = tmp_path / key
        root.mkdir(mode=0o700, exist_ok=True)
        layout = Layout(root)
        (layout.agents / "main" / "sessions").mkdir(parents=True, exist_ok=True)
        settings = FleetSettings(host=host, **{"database": database, **more})
        return FleetMember(layout, settings, postgres)

    return make
