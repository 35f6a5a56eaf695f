"""PgBouncer from Debian's binary, before a PostgreSQL on loopback, as an ordinary user."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.needs import NOBODY, without
from tests.servers.postgres import PASSWORD, Postgres, free_port, ordinary
from tests.waiting import DEADLINE_SECONDS


@contextmanager
def pooled(server: Postgres, *, mode: str, size: int) -> Iterator[int]:
    """Run a pooler before a server; yields its port.

    Args:
        server: whose databases it gives to its clients under their own names.
        mode: "session", "transaction" or "statement".
        size: connections to each database.
    """
    import psycopg

    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        without("PgBouncer (Debian: apt install pgbouncer)")
    port = free_port()
    directory = Path(tempfile.mkdtemp(prefix="bsd-pool-", dir="/tmp"))
    try:
        users = directory / "users"
        users.write_text(f'"postgres" "{PASSWORD}"\n')
        settings = directory / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = scram-sha-256\nauth_file = {users}\n"
            f"pool_mode = {mode}\ndefault_pool_size = {size}\n"
        )
        if os.geteuid() == 0:
            for path in (directory, users, settings):
                os.chown(path, NOBODY, NOBODY)
        log = directory / "log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [*ordinary(), program, settings], stdout=stream, stderr=stream, cwd=directory
            )
        try:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while True:
                try:
                    psycopg.connect(server.dsn(port=str(port)), connect_timeout=5).close()
                    break
                except psycopg.OperationalError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise AssertionError(log.read_text()) from None
                    time.sleep(0.05)
            yield port
        finally:
            process.terminate()
            process.wait(DEADLINE_SECONDS)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
