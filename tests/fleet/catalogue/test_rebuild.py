"""The catalogue is built from a bucket, without the hosts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bsd.actions.fleet_catalogue import rebuild_catalogue
from bsd.bucket.objects import open_bucket
from bsd.core.config_file import ConfigService
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout, SessionName
from bsd.core.prices import shipped_prices
from bsd.fleet.catalogue.forgetting import obey_bucket
from bsd.fleet.catalogue.ingest import ingest
from bsd.fleet.push import push
from bsd.fleet.tombstones import put_tombstones
from bsd.sessions.idle import RetryBudget
from bsd.store.tombstone import Tombstone
from tests.actions.performed import Caller
from tests.fleet.catalogue.conftest import ALL_ENTRIES
from tests.servers.postgres import Postgres
from tests.session_files import Clock, conversation, entry, write
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import Home

pytestmark = pytest.mark.servers

S1, S2 = SessionName("main", "s1"), SessionName("main", "s2")


def _host(layout: Layout, settings: FleetSettings) -> Caller:
    clock = Clock()
    clock.ahead = 86_400.0  # sessions have rested
    budget = RetryBudget(wait=30.0, clock=clock.now, sleep=clock.sleep)
    config = ConfigService(layout.config_file)
    return Caller(layout=layout, config=config, budget=budget, fleet=settings)


def test_a_lost_catalogue_comes_back(
    layout: Layout, tmp_path: Path, postgres: Postgres, database: str
) -> None:
    bucket = f"file://{tmp_path}/bucket"
    (tmp_path / "bucket").mkdir()
    write(layout, [*conversation(3), entry(40, "user", "an aardvark " * 40)], S1)
    write(layout, [*conversation(1), entry(9, "user", "gone soon")], S2)
    home = Home.of(CLAUDE_CODE, tmp_path / "second", claude_code_lines())
    hosts = {}
    for name, each in (("alpha", layout), ("beta", home.layout)):
        hosts[name] = _host(
            each, FleetSettings(host=name, bucket=bucket, database=database, copy_after="1h")
        )
    hosts["alpha"].extract(S1)
    for host in hosts.values():
        ingest(host.layout, host.fleet, prices=shipped_prices())
        assert push(host).problems == []
    truth = postgres.execute(ALL_ENTRIES, database)
    assert {row[0] for row in truth} == {"alpha", "beta"}

    empty = postgres.new_database()
    third = tmp_path / "third"
    third.mkdir(mode=0o700)
    other = _host(Layout(third), FleetSettings(host="gamma", bucket=bucket, database=empty))
    done = rebuild_catalogue(other)
    assert (done.hosts, done.sessions, done.failed) == (2, 3, ())
    assert postgres.execute(ALL_ENTRIES, empty) == truth
    facts = "SELECT agent, session, program, title, calls, deleted_at FROM bsd.sessions ORDER BY 2"
    assert postgres.execute(facts, empty) == postgres.execute(facts, database)

    again = rebuild_catalogue(other, "beta")
    assert (again.sessions, again.unchanged, again.rows) == (0, 1, 0)
    # The hosts go on where the copies ended.
    for host in hosts.values():
        settings = FleetSettings(host=host.fleet.host, database=empty)
        assert ingest(host.layout, settings, prices=shipped_prices()).rows == 0
    assert postgres.execute(ALL_ENTRIES, empty) == truth

    # A host forgets; the next one that updates the catalogue deletes the rows of all hosts.
    tombstone = Tombstone.new(layout, S1, time.time() + 1)
    put_tombstones(open_bucket(other.fleet), [tombstone], "alpha", time.time())
    assert obey_bucket(other.fleet) == ()
    assert {row[3] for row in truth} - {row[3] for row in postgres.execute(ALL_ENTRIES, empty)} == {
        "s1"
    }
    assert postgres.execute("SELECT count(*) FROM bsd.tombstones", empty) == [(1,)]
    assert obey_bucket(other.fleet) == ()
