"""The schema of the catalogue: numbered migrations, each applied once, in a transaction.

`migrations/NNNN_NAME.sql` is packaged with bsd. Its line `-- readable from: N` names the oldest
bsd, by the newest migration that it has, whose queries still work afterwards.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

import bsd
from bsd.core.errors import ConfigError, Forbidden
from bsd.core.fleet_settings import FleetSettings
from bsd.fleet.catalogue.connection import connected, library, shown, transaction

if TYPE_CHECKING:
    from psycopg import Connection

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_READABLE = re.compile(r"^-- readable from: (\d+)$", re.MULTILINE)
_MIGRATE = "bsd fleet migrate"
_UPDATE = "update bsd on this host (pip install -U brainsurgeond)"
_OLDEST_READ = 1  # the oldest schema with which the queries of this bsd work


class Migration(NamedTuple):
    """A numbered file of SQL."""

    number: int
    name: str
    readable_from: int
    sql: str


class SchemaState(NamedTuple):
    """The number of the newest migration that the database has; 0: none."""

    number: int = 0
    readable_from: int = 0


class Migrated(NamedTuple):
    """The outcome of a migration."""

    before: int
    now: int
    readers: tuple[str, ...] = ()  # roles that may read since


@cache
def migrations() -> tuple[Migration, ...]:
    """Return the migrations that this bsd has, in order."""
    found = []
    for each in files("bsd.fleet.catalogue").joinpath("migrations").iterdir():
        if name := _FILE.fullmatch(each.name):
            sql = each.read_text(encoding="utf-8")
            readable = _READABLE.search(sql)
            number = int(name[1])
            found.append(Migration(number, name[2], int(readable[1] if readable else number), sql))
    return tuple(sorted(found))


def newest() -> int:
    """Return the number of the newest schema that this bsd knows."""
    return migrations()[-1].number


def read_state(connection: Connection) -> SchemaState:
    """Return the state of the schema; raises psycopg.Error."""
    # Not to_regclass: the server may still remember that there was no such table.
    there = connection.execute(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = 'bsd' AND c.relname = 'migrations')"
    ).fetchone()
    if not there or not there[0]:
        return SchemaState()
    row = connection.execute(
        "SELECT coalesce(max(number), 0), coalesce(max(readable_from), 0) FROM bsd.migrations"
    ).fetchone()
    return SchemaState(*row) if row else SchemaState()


def require_readable(state: SchemaState, settings: FleetSettings) -> None:
    """Raise ConfigError unless queries of this bsd work with the schema."""
    where = shown(settings)
    if state.number == 0:
        raise ConfigError(
            f"the database {where} has no catalogue yet",
            hint=f"`{_MIGRATE}` makes its tables; the daemon of a host does so, too",
        )
    if state.readable_from > newest():
        raise ConfigError(
            f"the catalogue at {where} has schema {state.number}, which this bsd cannot read: it"
            f" knows schemas up to {newest()}",
            hint=_UPDATE,
        )
    if state.number < _OLDEST_READ:
        raise ConfigError(
            f"the catalogue at {where} has the old schema {state.number}", hint=f"`{_MIGRATE}`"
        )


def require_writable(connection: Connection, settings: FleetSettings) -> None:
    """Bring the schema up to date if the role owns it, or else raise ConfigError.

    Raises:
        ConfigError: the schema is newer than this bsd, or older and of another role.
        psycopg.Error
    """
    with transaction(connection):
        state, owns = read_state(connection), owns_schema(connection)
    if state.number > newest():
        raise _too_new(state, settings)
    if state.number < newest():
        if not owns:
            raise ConfigError(
                f"the catalogue at {shown(settings)} has schema {state.number}, and this bsd"
                f" writes schema {newest()}",
                hint=f"run `{_MIGRATE}` with a role that owns the schema bsd",
            )
        _apply(connection, settings)


def migrate(settings: FleetSettings, *, readers: tuple[str, ...] = ()) -> Migrated:
    """Make the tables of the catalogue, or bring them up to date.

    Args:
        settings: with the database.
        readers: roles that may read all tables from now on, new ones included.

    Raises:
        ConfigError: the schema is newer than this bsd, or no database is set.
        Forbidden, TemporaryFailure, Unavailable.
    """
    with connected(settings) as connection:
        with transaction(connection):
            before = read_state(connection)
        if before.number > newest():
            raise _too_new(before, settings)
        _apply(connection, settings)
        errors, sql = library().errors, library().sql
        for role in readers:
            name = sql.Identifier(role)
            try:
                with transaction(connection):
                    for grant in _GRANTS:
                        connection.execute(sql.SQL(grant).format(name))
            except errors.UndefinedObject as error:
                raise ConfigError(
                    f"the database {shown(settings)} has no role {role}",
                    hint=f"CREATE ROLE {role} LOGIN PASSWORD '…', then run this again",
                ) from error
        return Migrated(before.number, newest(), readers)


_GRANTS = (
    "GRANT USAGE ON SCHEMA bsd TO {}",
    "GRANT SELECT ON ALL TABLES IN SCHEMA bsd TO {}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA bsd GRANT SELECT ON TABLES TO {}",
)


def _apply(connection: Connection, settings: FleetSettings) -> None:
    """Apply the missing migrations; several hosts may do so at once."""
    errors = library().errors
    while True:
        with transaction(connection):
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('bsd.migrations'))")
            state = read_state(connection)
            missing = next((each for each in migrations() if each.number > state.number), None)
            if missing is None:
                return
            try:
                if state.number == 0:
                    connection.execute(_BEGIN)
                connection.execute(missing.sql.encode())  # several statements, without arguments
                connection.execute(
                    "INSERT INTO bsd.migrations VALUES (%s, %s, %s, %s)",
                    (missing.number, missing.name, missing.readable_from, bsd.__version__),
                )
            except errors.InsufficientPrivilege as error:
                raise Forbidden(
                    f"the role may not make the tables of the catalogue at {shown(settings)}:"
                    f" {error.diag.message_primary}",
                    hint=f"GRANT CREATE ON DATABASE … TO the role, or `{_MIGRATE}` as another role",
                ) from error


_BEGIN = b"""
CREATE SCHEMA IF NOT EXISTS bsd;
CREATE TABLE bsd.migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    readable_from integer NOT NULL,
    bsd text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
"""


def owns_schema(connection: Connection) -> bool:
    """Return whether the role owns the schema, or may make it."""
    row = connection.execute(
        "SELECT coalesce((SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace"
        " WHERE nspname = 'bsd'), has_database_privilege(current_database(), 'CREATE'))"
    ).fetchone()
    return bool(row and row[0])


def _too_new(state: SchemaState, settings: FleetSettings) -> ConfigError:
    return ConfigError(
        f"the catalogue at {shown(settings)} has schema {state.number}, which is newer than this"
        f" bsd: it writes schema {newest()}",
        hint=_UPDATE,
    )
