"""Connects to PostgreSQL, and makes errors of it such that users can act on them.

psycopg is imported here only, and only by functions. No message names a password: the database is
shown as HOST/NAME, and texts of libpq about a connection string are left out, since they quote it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import bsd
from bsd.core.errors import BsdError, ConfigError, Forbidden, TemporaryFailure, Unavailable
from bsd.core.extras import require_extra
from bsd.core.fleet_settings import FleetSettings

if TYPE_CHECKING:
    import psycopg

CONNECT_SECONDS = 10
_STATEMENT_SECONDS, _LOCK_SECONDS = 300.0, 30.0
# Lost connections are noticed within about a minute.
_KEEPALIVE = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # milliseconds
}
_MIGRATE = "bsd fleet migrate"


def library() -> Any:
    """Return the package psycopg, with those of its modules that bsd uses."""
    import psycopg.conninfo  # noqa: PLC0415 - most users have no catalogue
    import psycopg.errors  # noqa: PLC0415 - the same
    import psycopg.sql  # noqa: PLC0415 - the same

    return psycopg


def database_of(settings: FleetSettings) -> str:
    """Return the connection string; raises ConfigError if there is none or psycopg is missing."""
    if settings.database is None:
        raise ConfigError(
            "no catalogue is set", hint="name a database: `database` of [fleet] in bsd.toml"
        )
    require_extra("psycopg", "the catalogue")
    return settings.database


def parameters(settings: FleetSettings, purpose: str) -> dict[str, Any]:
    """Return the parameters of a connection; what the user has set there wins.

    Raises:
        ConfigError: there is no valid connection string.
    """
    database, psycopg = database_of(settings), library()
    try:
        own = psycopg.conninfo.conninfo_to_dict(database)
    except psycopg.ProgrammingError:
        raise ConfigError(
            "`database` of [fleet] is no connection string of PostgreSQL",
            hint="postgresql://USER@HOST/NAME, with the password in ~/.pgpass",
        ) from None
    return {
        "application_name": f"bsd {settings.host}{purpose}",
        "connect_timeout": CONNECT_SECONDS,
        **_KEEPALIVE,
        **own,
    }


def shown(settings: FleetSettings) -> str:
    """Return the database as messages name it: HOST/NAME, without user and password."""
    told = {}
    try:
        told = parameters(settings, "")
    except BsdError:
        return "the catalogue"
    host, name = told.get("host") or told.get("hostaddr"), told.get("dbname")
    if not name and told.get("service"):
        name = f"service {told['service']}"
    return f"{host or 'localhost'}/{name or '(default)'}"


def connect(
    settings: FleetSettings, purpose: str = "", *, read_only: bool = False
) -> psycopg.Connection:
    """Return a connection. All statements on it belong into `transaction`.

    Args:
        settings: with the database.
        purpose: what the server shows behind this host's name.
        read_only: transactions cannot change anything.

    Raises:
        ConfigError, Unavailable: no database, or no library for it.
        psycopg.Error
    """
    given = parameters(settings, purpose)
    # Nothing of a connection outlasts a transaction, so that PgBouncer may stand between: no
    # prepared statement, no setting, no temporary table.
    connect: Any = library().connect
    connection: psycopg.Connection = connect(**given, autocommit=True, prepare_threshold=None)
    connection.read_only = read_only
    return connection


@contextmanager
def transaction(
    connection: psycopg.Connection, *, seconds: float = _STATEMENT_SECONDS
) -> Iterator[None]:
    """Run a block as one transaction; each statement may take `seconds`, a lock 30 s.

    Raises:
        psycopg.Error: the transaction is undone.
    """
    with connection.transaction():
        connection.execute(
            "SELECT set_config('statement_timeout', %s, true),"
            " set_config('lock_timeout', %s, true), set_config('TimeZone', 'UTC', true),"
            # Plans in which a kind of scan is forbidden have costs that always start the compiler.
            " set_config('jit', 'off', true)",
            (str(int(seconds * 1000)), str(int(_LOCK_SECONDS * 1000))),
        )
        yield


@contextmanager
def connected(settings: FleetSettings) -> Iterator[psycopg.Connection]:
    """Yield a connection of a writer; errors of the database are raised as of `problem`."""
    database_of(settings)
    with translated(settings):
        connection = connect(settings)
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def translated(settings: FleetSettings) -> Iterator[None]:
    """Raise errors of psycopg as errors that a user can act on."""
    try:
        yield
    except library().Error as error:
        raise problem(error, settings) from error


def problem(error: psycopg.Error, settings: FleetSettings) -> BsdError:
    """Return the error of bsd for an error of PostgreSQL.

    TemporaryFailure and Unavailable (full): trying again helps, perhaps much later.
    """
    where, code = shown(settings), error.sqlstate or ""
    if not code:
        return _lost(str(error), where)
    said = error.diag.message_primary or type(error).__name__
    text = f"the catalogue at {where}: {said}"
    match code[:2], code:
        case _, "53100":
            return Unavailable(text, hint="free some space on the disk of PostgreSQL")
        case _, "57014":
            return TemporaryFailure(text, hint="run it again, with more words or filters")
        case _, "42501":
            return Forbidden(text, hint="grant the role its rights: contrib/docs/catalogue.md")
        case _, "25006":  # a standby
            return ConfigError(text, hint="name the primary server in `database` of [fleet]")
        case ("28", _) | ("3D", _):
            return Forbidden(text, hint="check the role, its password (~/.pgpass) and the database")
        case ("3F", _) | (_, "42P01") | (_, "42703") | (_, "42883"):
            return ConfigError(text, hint=f"make its tables with `{_MIGRATE}`")
        case (("08" | "40" | "53" | "55" | "57"), _):
            return TemporaryFailure(text, hint="bsd tries again; see the log of PostgreSQL")
    return Unavailable(f"{text} ({code})", hint=f"bsd {bsd.__version__}: see PostgreSQL's log")


# What libpq says if a connection is refused for good; other reasons, and those in other languages,
# count as temporary.
_REFUSED = ("authentication failed", "no pg_hba.conf entry", "does not exist", "no password")
_NOT_TRUSTED = (" certificate ", "SSL error", "does not support SSL")
# Where Debian and its derivatives keep the authorities that the machine trusts.
_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"


def _lost(said: str, where: str) -> BsdError:
    lines = [line.strip() for line in said.splitlines()]
    lines = [line for line in lines if line and not line.startswith("Is the server running")]
    for line in lines:
        if any(word in line for word in _NOT_TRUSTED):
            # psycopg's own OpenSSL finds no authorities of the machine: sslrootcert=system fails.
            return ConfigError(
                f"the catalogue at {where}: {line}",
                hint="check sslmode in `database` of [fleet], and name the authority that signed"
                f" the server's certificate: sslrootcert={_AUTHORITIES}, or its own file",
            )
    text = f"the catalogue at {where}: {lines[-1] if lines else 'the connection was lost'}"
    if any(word in said for word in _REFUSED) and "Is the server running" not in said:
        return Forbidden(text, hint="check the role, its password (~/.pgpass) and the database")
    return TemporaryFailure(
        text, hint="check that PostgreSQL runs and that its address is right; bsd tries again"
    )
