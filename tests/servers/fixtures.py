"""Fixtures of servers; `tests/conftest.py` makes them known to all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import postgres as postgres_server
from tests.servers.faults import Proxy, faulty
from tests.servers.postgres import Postgres
from tests.servers.s3 import S3Server, environment, running


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server for all tests of a process; each test makes buckets with names of its own."""
    with running(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def s3_proxy(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before the server, without faults; the environment leads clients to it."""
    with faulty(s3_server.url) as proxy:
        for name, value in environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL for all tests of a process; each test makes databases of its own."""
    with postgres_server.running() as server:
        yield server


@pytest.fixture
def database(postgres: Postgres) -> str:
    """The connection string of an empty database."""
    return postgres.new_database()
