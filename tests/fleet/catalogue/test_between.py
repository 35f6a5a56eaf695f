"""What stands between a host and its PostgreSQL: PgBouncer, and TLS."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from bsd.core.errors import ConfigError
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import SessionName
from bsd.fleet.catalogue.checks import look_at_catalogue
from bsd.fleet.catalogue.forgetting import forget_rows
from bsd.fleet.catalogue.migrating import migrate
from bsd.fleet.catalogue.queries import open_catalogue
from tests.fleet.catalogue.conftest import MakeMember
from tests.needs import NOBODY, require_program
from tests.servers.pgbouncer import pooled
from tests.servers.postgres import Postgres, running
from tests.session_files import conversation, entry, write

pytestmark = pytest.mark.servers

S1, S2 = (SessionName("main", f"s{n}") for n in (1, 2))
_SETTINGS = (
    "SELECT name, setting FROM pg_settings WHERE source = 'session' AND name <> 'application_name'"
)


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_pooler_of_one_connection_serves_all(
    member: MakeMember, postgres: Postgres, database: str, mode: str
) -> None:
    """All clients get the same session of the server; none leaves anything in it."""
    name = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
    with pooled(postgres, mode=mode, size=1) as port:
        through = postgres.dsn(name, port=str(port))
        with psycopg.connect(through, autocommit=True, prepare_threshold=None) as other:
            before = other.execute(_SETTINGS).fetchall()
        hosts = [member(f"host{n}", f"{n:08}", database=through) for n in range(3)]
        migrate(hosts[0].settings)
        for host in hosts:
            write(host.layout, [*conversation(3), entry(9, "user", "a quagga in the zoo")], S1)
            write(host.layout, [*conversation(5), entry(9, "user", "two wombats")], S2)
        threads = [threading.Thread(target=host.ingest) for host in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with open_catalogue(hosts[0].settings) as catalogue:
            assert len(catalogue.search("quagga").results) == 3
            assert len(catalogue.sessions().sessions) == 6
            if mode == "session":  # it holds its connection, the only one
                catalogue.close()
            assert look_at_catalogue(hosts[0].settings).rights.not_written == ()
            told = forget_rows(hosts[0].settings, session=S1, entry="e9", hashes=())
            assert (told.entries, told.left) == (3, ())
            assert catalogue.search("quagga").results == ()
            catalogue.close()
        for host in hosts:
            host.ingest()
        with psycopg.connect(through, autocommit=True, prepare_threshold=None) as other:
            assert other.execute(_SETTINGS).fetchall() == before
            assert other.execute(
                "SELECT count(*) FROM pg_class WHERE relpersistence = 't'"
            ).fetchall() == [(0,)]
            other.execute("CREATE TABLE made_by_another (id integer)")  # it may still write
        assert len(hosts[0].entries()) == sum(len(host.fresh()) for host in hosts)


# --- TLS ---


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a certificate for localhost, which signs itself, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *(require_program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "3", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"),
        ],
        check=True,
        capture_output=True,
        cwd=directory,
    )
    return directory


@pytest.fixture(scope="module")
def encrypted(certificate: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server that takes TLS."""
    with running() as server:
        for name in ("cert.pem", "key.pem"):
            there = server.directory / "data" / name
            there.write_bytes((certificate / name).read_bytes())
            there.chmod(0o600)
            if os.geteuid() == 0:
                os.chown(there, NOBODY, NOBODY)
        server.stop()
        server.start(ssl="on", ssl_cert_file="cert.pem", ssl_key_file="key.pem")
        yield server


def _reached(server: Postgres, **options: str) -> FleetSettings:
    return FleetSettings(host="a", database=server.dsn(**{"host": "localhost"} | options))


def test_a_server_is_believed_by_its_certificate(encrypted: Postgres, certificate: Path) -> None:
    root = str(certificate / "cert.pem")
    settings = _reached(encrypted, sslmode="verify-full", sslrootcert=root)
    assert look_at_catalogue(settings).schema.number == 0
    assert look_at_catalogue(_reached(encrypted, sslmode="require")).schema.number == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"host": "127.0.0.1", "sslrootcert": "cert.pem"}, "does not match host name"),
        ({"sslrootcert": "/nowhere"}, 'root certificate file "/nowhere" does not exist'),
        ({"sslrootcert": "system"}, "certificate verify failed"),
    ],
    ids=["other host", "no file", "system"],
)
def test_a_server_that_is_not_trusted_is_an_error_of_settings(
    encrypted: Postgres,
    certificate: Path,
    options: dict[str, str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(certificate)
    settings = _reached(encrypted, **{"sslmode": "verify-full"} | options)
    with pytest.raises(ConfigError, match=said) as caught:
        look_at_catalogue(settings)
    assert "sslrootcert=" in (caught.value.hint or "")


def test_a_server_without_tls(postgres: Postgres) -> None:
    with pytest.raises(ConfigError, match="does not support SSL"):
        look_at_catalogue(_reached(postgres, sslmode="require"))
