"""Faults of database, host and network: each is a clear error, and nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import bsd.fleet.catalogue.migrating
from bsd.core.errors import (
    BsdError,
    ConfigError,
    Forbidden,
    NotFound,
    TemporaryFailure,
    Unavailable,
)
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import SessionName
from bsd.fleet.catalogue import writing
from bsd.fleet.catalogue.migrating import Migration, migrate, migrations
from bsd.fleet.catalogue.queries import open_catalogue
from bsd.fleet.catalogue.writing import CatalogueWriter
from tests.fleet.catalogue.conftest import FleetMember, MakeMember
from tests.servers.postgres import Postgres, running, without_password
from tests.session_files import conversation, entry, write
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.servers

_NAMES = [SessionName("main", f"s{n}") for n in range(6)]


def _fill(host: FleetMember, results: int = 8) -> None:
    for name in _NAMES:
        lines = conversation(results)
        write(host.layout, [*lines, entry(99, "user", f"wombat {name.session}")], name)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_MOST_ROWS", 20)


@pytest.mark.usefixtures("small_batches")
def test_each_step_may_be_the_last(member: MakeMember) -> None:
    """The server ends the connection before each statement in turn, COPY included."""
    host = member()
    _fill(host)
    import psycopg

    truth = host.fresh()
    _fill(host, 3)
    host.ingest()
    _fill(host)  # so that rows are deleted and written
    calls = fails_at = 0

    def counted(real: Any) -> Any:
        def call(self: Any, *args: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == fails_at:
                host.ask(f"SELECT pg_terminate_backend({self.connection.info.backend_pid})")
            return real(self, *args, **more)

        return call

    failed, said = 0, list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", counted(psycopg.Cursor.execute))
        patch.setattr(psycopg.Cursor, "executemany", counted(psycopg.Cursor.executemany))
        patch.setattr(psycopg.Copy, "write_row", counted(psycopg.Copy.write_row))
        for step in range(7, 1000, 5):  # a step further each time, through all batches
            calls, fails_at = 0, step
            try:
                host.ingest()
            except TemporaryFailure as error:
                failed += 1
                said.append(without_password(error.message))
            else:
                break
    assert failed > 8
    assert all("127.0.0.1/bsd_" in message for message in said)
    host.ingest()
    assert host.entries() == truth


@pytest.mark.crash
def test_the_process_is_killed_at_many_moments(member: MakeMember, tmp_path: Path) -> None:
    host = member()
    _fill(host, 3)
    host.ingest()
    _fill(host)
    script = tmp_path / "ingest.py"
    script.write_text(_KILLED)
    for delay in (0.0, 0.01, 0.02, 0.04, 0.06, 0.1):
        child = subprocess.Popen(
            [sys.executable, script, host.layout.root, host.settings.database or ""],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.communicate()
    _wait_for_no_other(host)
    host.ingest()
    assert host.entries() == host.fresh()


_KILLED = """
import sys
from pathlib import Path
import bsd.fleet.catalogue.ingest as module
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout
from bsd.core.prices import shipped_prices
from bsd.fleet.catalogue import writing
from bsd.fleet.host import HostDirectory
writing._MOST_ROWS = 20
layout, settings = Layout(Path(sys.argv[1])), FleetSettings(host="alpha", database=sys.argv[2])
module.this_host = lambda *_: HostDirectory("alpha", layout.root.name)
prices = shipped_prices()
print("ready", flush=True)
module.ingest(layout, settings, prices=prices)
"""


def _wait_for_no_other(host: FleetMember) -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'bsd %'"
    while host.ask(count) != [(0,)] and time.monotonic() < end:
        time.sleep(0.05)


@pytest.mark.usefixtures("small_batches")
def test_the_server_restarts_crashes_and_stays_away(member: MakeMember) -> None:
    with running() as server:
        host = member(database=server.new_database())
        host.postgres = server
        _fill(host)
        add = CatalogueWriter.add
        with open_catalogue(host.settings) as catalogue:
            for number, at_once in enumerate((False, True)):
                written = 0

                def added(*args: Any, stop: bool = at_once, **more: Any) -> None:
                    nonlocal written
                    written += 1
                    if written == 4:
                        server.stop(at_once=stop)
                    add(*args, **more)

                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(CatalogueWriter, "add", added)
                    with pytest.raises(TemporaryFailure):
                        host.ingest()
                with pytest.raises(TemporaryFailure, match=r"127\.0\.0\.1/bsd_"):
                    host.ingest()
                with pytest.raises(TemporaryFailure):
                    catalogue.hosts()
                server.start()
                if number == 0:
                    assert len(catalogue.hosts()) == 1
            host.ingest()
            assert host.entries() == host.fresh()
            assert len(catalogue.search("wombat").results) == len(_NAMES)  # over a new connection


def test_a_full_disk(member: MakeMember) -> None:
    host = member()
    _fill(host, 2)
    host.ingest()
    host.ask(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE"
        " 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;"
        "CREATE TRIGGER full_disk BEFORE INSERT ON bsd.entries FOR EACH ROW"
        " EXECUTE FUNCTION full_disk()"
    )
    before = host.entries()
    _fill(host)
    with pytest.raises(Unavailable, match="No space left") as refused:
        host.ingest()
    assert refused.value.hint == "free some space on the disk of PostgreSQL"
    assert host.entries() == before
    host.ask("DROP TRIGGER full_disk ON bsd.entries")
    host.ingest()
    assert host.entries() == host.fresh()


def test_rows_that_the_database_refuses_stop_no_other_session(member: MakeMember) -> None:
    host = member()
    _fill(host)
    host.ingest()
    host.ask(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE"
        " 'not this one' USING ERRCODE = '22P05'; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON bsd.entries FOR EACH ROW"
        " WHEN (NEW.entry = 'bad') EXECUTE FUNCTION refuse()"
    )
    _fill(host, 9)
    write(host.layout, [*conversation(1), {**entry(5, "user", "x"), "id": "bad"}], _NAMES[2])
    assert host.ingest().failed == ("main/s2: not this one",)
    assert {row[3] for row in host.entries() if row[5] == "e14"} == {
        *(f"s{n}" for n in (0, 1, 3, 4, 5))
    }
    assert host.ask("SELECT errors, last_error FROM bsd.hosts") == [(1, "main/s2: not this one")]


def test_two_processes_and_two_hosts_at_once(member: MakeMember) -> None:
    members = [member("alpha", "aaaaaaaa")] * 3 + [member("alpha", "bbbbbbbb")] * 2
    for each in members:
        _fill(each)
    problems: list[BsdError] = []

    def run(each: FleetMember) -> None:
        try:
            each.ingest()
        except TemporaryFailure as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(each,)) for each in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    for each in (members[0], members[-1]):
        each.ingest()
    assert len(problems) < 4
    assert all("another process" in problem.message for problem in problems)
    both = members[0].entries()
    for each in (members[0], members[-1]):
        assert [row for row in both if row[1] == each.layout.root.name] == each.fresh()
    assert members[0].ask("SELECT name, key FROM bsd.hosts ORDER BY 2") == [
        ("alpha", "aaaaaaaa"),
        ("alpha", "bbbbbbbb"),
    ]


def test_schemas_of_other_versions(member: MakeMember, monkeypatch: pytest.MonkeyPatch) -> None:
    host = member()
    _fill(host)
    with open_catalogue(host.settings) as catalogue:
        with pytest.raises(ConfigError, match="no catalogue yet") as missing:
            catalogue.hosts()
        assert "bsd fleet migrate" in str(missing.value.hint)
    host.ingest()  # the role may make the tables
    old = migrations()
    # A newer bsd adds a column; this one may read, and must not write.
    later = Migration(2, "later", 1, "ALTER TABLE bsd.hosts ADD COLUMN colour text")
    monkeypatch.setattr(bsd.fleet.catalogue.migrating, "migrations", lambda: (*old, later))
    assert migrate(host.settings)[:2] == (1, 2)
    host.ingest()
    monkeypatch.setattr(bsd.fleet.catalogue.migrating, "migrations", lambda: old)
    for refused in (host.ingest, lambda: migrate(host.settings)):
        with pytest.raises(ConfigError, match=r"schema 2, which is newer .* writes schema 1") as no:
            refused()
        assert str(no.value.hint).startswith("update bsd on this host")
    with open_catalogue(host.settings) as catalogue:
        assert len(catalogue.search("wombat").results) == len(_NAMES)
    host.ask("UPDATE bsd.migrations SET readable_from = 2 WHERE number = 2")
    with (
        open_catalogue(host.settings) as catalogue,
        pytest.raises(ConfigError, match="which this bsd cannot read"),
    ):
        catalogue.hosts()
    # An older schema, of another role.
    host.ask("DELETE FROM bsd.migrations WHERE number = 2")
    dsn = _role(host, "writer")
    migrate(host.settings, readers=(f"writer_{dsn.split('dbname=')[1].split()[0]}",))
    monkeypatch.setattr(bsd.fleet.catalogue.migrating, "migrations", lambda: (*old, later))
    with pytest.raises(ConfigError, match="has schema 1, and this bsd writes schema 2") as other:
        FleetMember(host.layout, FleetSettings(host="alpha", database=dsn), host.postgres).ingest()
    assert "a role that owns the schema" in str(other.value.hint)


def _role(host: FleetMember, name: str) -> str:
    """Make a role that may do nothing, and return its connection string."""
    import psycopg.conninfo

    own = psycopg.conninfo.conninfo_to_dict(host.settings.database or "")
    role = f"{name}_{own['dbname']}"
    host.ask(f"CREATE ROLE {role} LOGIN PASSWORD '{own['password']}'")
    return psycopg.conninfo.make_conninfo(host.settings.database or "", user=role)


def test_roles_and_rights(member: MakeMember, postgres: Postgres) -> None:
    host = member()
    _fill(host)
    host.ingest()
    dsn = _role(host, "reader")
    reader = FleetSettings(host="grafana", database=dsn)
    with open_catalogue(reader) as catalogue, pytest.raises((Forbidden, ConfigError)):
        catalogue.hosts()
    role = dsn.split("user=")[1].split()[0]
    assert migrate(host.settings, readers=(role,)).readers == (role,)
    with open_catalogue(reader) as catalogue:
        assert len(catalogue.search("wombat").results) == len(_NAMES)
    with pytest.raises(Forbidden, match="permission denied"):
        FleetMember(host.layout, reader, postgres).ingest()
    with pytest.raises(ConfigError, match="no role nobody_here"):
        migrate(host.settings, readers=("nobody_here",))
    right = host.settings.database or ""
    for wrong, kind in {
        right.replace("password='loopback'", "password='wrong'"): Forbidden,
        right.replace("dbname='bsd_", "dbname='none_"): Forbidden,
        right.replace("port='", "port='1"): ConfigError,
        "postgresql://me:loopback@127.0.0.1:1/x": TemporaryFailure,
        "host=127.0.0.1 secret=loopback": ConfigError,
    }.items():
        with pytest.raises(BsdError) as refused:
            FleetMember(host.layout, FleetSettings(host="x", database=wrong), postgres).ingest()
        without_password(f"{refused.value.message} {refused.value.hint}")
        assert isinstance(refused.value, kind | TemporaryFailure), refused.value
    with open_catalogue(host.settings) as catalogue, pytest.raises(NotFound):
        catalogue.search("x", host="gone")


def test_a_host_with_a_wrong_clock(member: MakeMember, monkeypatch: pytest.MonkeyPatch) -> None:
    host = member()
    path = write(
        host.layout,
        [*conversation(0)[:1], entry(1, "user", "wombat", timestamp="2060-01-01T00:00:00Z")],
    )
    future = time.time() + 40 * 365 * 86400
    os.utime(path, (future, future))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: future)
        host.ingest()
    assert host.ask("SELECT max(time) < now() + interval '2 days' FROM bsd.entries") == [(True,)]
    assert host.ask("SELECT now() - last_seen < interval '1 hour' FROM bsd.hosts") == [(True,)]
    with open_catalogue(host.settings) as catalogue:
        assert len(catalogue.search("wombat").results) == 1
