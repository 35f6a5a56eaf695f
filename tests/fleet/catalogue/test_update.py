"""`bsd fleet update`: what was forgotten, here or on other hosts, is not written again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bsd.actions.archive import forget
from bsd.actions.push import update_catalogue
from bsd.bucket.objects import open_bucket
from bsd.core.config_file import ConfigService
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout, SessionName
from bsd.fleet.tombstones import put_tombstones
from bsd.maintenance.tell_others import origins_of
from bsd.store.originals import SessionStore
from bsd.store.tombstone import Tombstone
from tests.actions.performed import Caller
from tests.servers.postgres import Postgres
from tests.session_files import conversation, entry, write

pytestmark = pytest.mark.servers

S1 = SessionName("main", "s1")
WITH_WORD = "SELECT count(*) FROM bsd.entries WHERE words @@ 'aardvark'::tsquery"


@pytest.fixture
def host(layout: Layout, database: str) -> Callable[..., Caller]:
    """Make a host with one session, from which an entry of the user has left."""

    def make(bucket: str | None = None) -> Caller:
        write(layout, [*conversation(2), entry(40, "user", "an aardvark " * 80), *_later()], S1)
        fleet = FleetSettings(host="alpha", database=database, bucket=bucket)
        made = Caller(layout=layout, config=ConfigService(layout.config_file), fleet=fleet)
        overrides = {"trigger_types": ["user"], "keep_recent": 1, "prefix_bound": "extract"}
        made.extract(S1, by_hand=True, overrides=overrides)
        assert any(b"aardvark" in content for content in _stored(layout))
        return made

    return make


def _later() -> list[dict[str, object]]:
    return [entry(41 + number, "assistant", "seen") for number in range(5)]


def _stored(layout: Layout) -> list[bytes]:
    store = SessionStore(layout, S1)
    return [store.read(ref) or b"" for ref in store.refs()]


def test_a_host_with_a_database_alone(
    host: Callable[..., Caller], postgres: Postgres, database: str
) -> None:
    one = host()
    assert update_catalogue(one).failed == ()
    assert postgres.execute(WITH_WORD, database) == [(1,)]
    forget(one, str(S1), entry="e40")
    assert update_catalogue(one).failed == ()
    assert postgres.execute(WITH_WORD, database) == [(0,)]
    assert update_catalogue(one).rows == 0


def test_a_host_that_was_off_when_another_forgot(
    host: Callable[..., Caller], tmp_path: Path, postgres: Postgres, database: str
) -> None:
    (tmp_path / "bucket").mkdir(mode=0o700)
    one = host(f"file://{tmp_path}/bucket")
    origins = origins_of(one.layout, S1)
    now = time.time()
    tombstone = Tombstone.new(one.layout, S1, now, entry="e40", origins=origins)
    put_tombstones(open_bucket(one.fleet), [tombstone], "beta/00000000", now)
    assert update_catalogue(one).failed == ()
    assert not any(b"aardvark" in content for content in _stored(one.layout))
    assert postgres.execute(WITH_WORD, database) == [(0,)]

    (tmp_path / "bucket").rename(tmp_path / "away")
    (problem,) = update_catalogue(one).failed
    assert "bucket" in problem
