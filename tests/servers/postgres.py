"""PostgreSQL from Debian's binaries, in a temporary directory, as an ordinary user."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.needs import NOBODY, without
from tests.waiting import DEADLINE_SECONDS

_BINARIES = Path("/usr/lib/postgresql")
PASSWORD = "loopback"  # of every role; messages must not contain it
# Nothing here outlives a test. `fsync` does not matter for kills of processes either.
SETTINGS: Mapping[str, Any] = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "32MB",
    "max_connections": 30,
    "autovacuum_naptime": "1h",
    "log_min_messages": "fatal",
}


def binaries() -> Path:
    """Return the directory with the newest server's programs, or skip the test."""
    found = sorted(_BINARIES.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if not found:
        without("PostgreSQL (Debian: apt install postgresql)")
    return found[-1].parent


@dataclass
class Postgres:
    """A server on a free port of loopback, and on a socket in its directory."""

    directory: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def dsn(self, database: str = "postgres", *, user: str = "postgres", **more: str) -> str:
        """Return a connection string over TCP."""
        given = {"host": "127.0.0.1", "port": str(self.port), "dbname": database, "user": user}
        given |= {"password": PASSWORD} | more
        return " ".join(f"{name}='{value}'" for name, value in given.items())

    def new_database(self) -> str:
        """Make an empty database of a random name, and return its connection string."""
        name = f"bsd_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.dsn(name)

    def execute(self, sql: str, dsn: str | None = None) -> list[tuple[Any, ...]]:
        """Run a statement as the superuser, and return its rows."""
        import psycopg

        with psycopg.connect(dsn or self.dsn(), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self, **settings: Any) -> None:
        """Start the server, and wait until it answers."""
        import psycopg

        options = [f"-c{name}={value}" for name, value in {**SETTINGS, **settings}.items()]
        program: list[str | Path] = [
            *ordinary(),
            binaries() / "postgres",
            "-clisten_addresses=127.0.0.1",
        ]
        place = [f"-cunix_socket_directories={self.directory}", f"-cport={self.port}"]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*program, "-D", self.directory / "data", *place, *options],
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]},
            )
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                psycopg.connect(self.dsn(), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError((self.directory / "log").read_text()) from None
                time.sleep(0.05)

    def stop(self, *, at_once: bool = False) -> None:
        """Stop the server; `at_once`: as after a crash, so that it recovers at the next start."""
        if self._process is not None:
            import signal

            self._process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
            self._process.wait(DEADLINE_SECONDS)
            self._process = None

    def log(self) -> str:
        """Return what the server has logged."""
        return (self.directory / "log").read_text(errors="replace")


def ordinary() -> list[str]:
    """Return the words before a program that must not run as root."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        without("the program `setpriv`")
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


@contextmanager
def running(**settings: Any) -> Iterator[Postgres]:
    """Start a server of its own; its files are removed at the end."""
    # Not below pytest's directory, whose path may be too long for a socket, and closed to others.
    directory = Path(tempfile.mkdtemp(prefix="bsd-pg-", dir="/tmp"))
    try:
        options: list[str | Path] = [
            "-D",
            directory / "data",
            "-U",
            "postgres",
            "--auth=scram-sha-256",
        ]
        options += ["--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"]
        password = directory / "password"
        password.write_text(PASSWORD)
        if os.geteuid() == 0:
            os.chown(directory, NOBODY, NOBODY)
            os.chown(password, NOBODY, NOBODY)
        subprocess.run(
            [*ordinary(), binaries() / "initdb", *options, f"--pwfile={password}"],
            check=True,
            capture_output=True,
            cwd=directory,
        )
        server = Postgres(directory, free_port())
        server.start(**settings)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def without_password(text: str) -> str:
    """Return a text; fail if it contains the password of the roles."""
    assert not re.search(rf"\b{PASSWORD}\b", text), text
    return text
