"""What one host forgets is in no object of an S3 bucket, no row of PostgreSQL, no Parquet file."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyrage  # type: ignore[import-untyped]
import pytest

from bsd.actions.archive import forget
from bsd.actions.fleet_export import fleet_export
from bsd.actions.other_hosts import pass_on_forgetting, verify_remote
from bsd.actions.push import update_catalogue
from bsd.bucket.sealing import sealing_of
from bsd.bucket.transfers import download
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout
from bsd.fleet.manifest import host_directories, read_host
from bsd.fleet.push import push
from tests.fleet.archives import Machine, said_in
from tests.fleet.test_forget_everywhere import share_a_session
from tests.maintenance.test_forgetting import WORDS
from tests.servers.postgres import Postgres
from tests.servers.s3 import S3Server, environment
from tests.session_files import NAME, Clock

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("s3")]

_numbers = itertools.count()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in environment(s3_server.url).items():
        monkeypatch.setenv(name, value)
    s3_server.make_bucket(name := f"forget-{os.getpid()}-{next(_numbers)}")
    return name


Make = Callable[..., tuple[Machine, Machine]]


@pytest.fixture
def machines(layout: Layout, tmp_path: Path, clock: Clock, bucket: str, database: str) -> Make:
    """Make two machines with one session, which share a bucket and a database."""

    def make(**settings: Any) -> tuple[Machine, Machine]:
        root = tmp_path / "second"
        (root / "agents").mkdir(parents=True)
        both = [
            Machine(each, FleetSettings(**(_settings(host) | settings)), clock.now)
            for each, host in ((layout, "first"), (Layout(root), "second"))
        ]
        share_a_session(both[0], both[1], clock)
        return both[0], both[1]

    def _settings(host: str) -> dict[str, Any]:
        url = f"s3://{bucket}/prefix"
        return {"bucket": url, "host": host, "copy_after": "1h", "database": database}

    return make


def copy_of_bucket(machine: Machine, top: Path) -> Path:
    """Write all objects of the bucket, and all files that they are parts of, into a directory."""
    bucket = machine.bucket
    for listed in bucket.list_keys(""):
        (to := top / "objects" / listed.key).parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(bucket.get(listed.key))
    for host in host_directories(bucket):
        archive = read_host(bucket, host, sealing := sealing_of(machine.settings))
        assert archive.broken == ()
        for path, each in archive.files.items():
            (to := top / "files" / host.key / path).parent.mkdir(parents=True, exist_ok=True)
            with to.open("wb") as file:
                download(bucket, each.file, sealing, file)
    return top


def rows(postgres: Postgres, database: str) -> str:
    """Return all rows of the catalogue as text."""
    tables = postgres.execute(
        "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'bsd'::regnamespace"
        " AND relkind = 'r'",
        database,
    )
    return "\n".join(
        str(row)
        for (table,) in tables
        for row in postgres.execute(f"SELECT t::text FROM {table} t", database)
    )


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_no_word_is_left(
    machines: Make, tmp_path: Path, postgres: Postgres, database: str, sealed: bool
) -> None:
    settings = {}
    if sealed:
        identity = pyrage.x25519.Identity.generate()
        (key := tmp_path / "fleet.key").write_text(f"{identity}\n")
        settings = {"encrypt_to": [str(identity.to_public())], "identity": str(key)}
    first, second = machines(**settings)
    parquet = tmp_path / "parquet" if sealed else None  # they are never sealed
    for each in (first, second):
        assert update_catalogue(each.context).failed == ()
        fleet_export(each.context, parquet)
    word, other = WORDS
    assert word.lower() in rows(postgres, database).lower()
    before = copy_of_bucket(first, tmp_path / "before")
    assert said_in(before / "files", word)
    assert bool(said_in(before / "objects", word)) is not sealed

    forget(first.context, str(NAME), entry="e1")
    assert pass_on_forgetting(first.context) is None
    assert update_catalogue(first.context).failed == ()
    assert word.lower() not in rows(postgres, database).lower()
    assert said_in(second.layout.root, word)  # it was off
    for each in (second, first):
        assert push(each.context).problems == []
        assert update_catalogue(each.context).failed == ()
        fleet_export(each.context, parquet)
    assert word.lower() not in rows(postgres, database).lower()
    for place in (
        copy_of_bucket(first, tmp_path / "after"),
        first.layout.root,
        second.layout.root,
        *filter(None, [parquet]),
    ):
        assert said_in(place, word) == []
    assert other.lower() in rows(postgres, database).lower()
    assert said_in(tmp_path / "after" / "files", other)
    assert verify_remote(first.context, "*", full=True).clean
