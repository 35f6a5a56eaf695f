"""The questions of `bsd doctor` to the database of the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bsd.core.fleet_settings import FleetSettings
from bsd.fleet.catalogue.connection import connected, shown, transaction
from bsd.fleet.catalogue.migrating import SchemaState, owns_schema, read_state

if TYPE_CHECKING:
    from psycopg import Connection

_SECONDS = 8  # limit of each statement


class TableRights(NamedTuple):
    """Tables that the role may not use."""

    not_read: tuple[str, ...] = ()
    not_written: tuple[str, ...] = ()


class CatalogueState(NamedTuple):
    """The database as this host's role sees it."""

    where: str  # HOST/NAME, without user and password
    time: float  # by its clock, epoch seconds
    schema: SchemaState
    may_migrate: bool  # the role owns the schema, or may make it
    rights: TableRights


def look_at_catalogue(settings: FleetSettings) -> CatalogueState:
    """Return the state of the database; changes nothing.

    Raises:
        TemporaryFailure: it cannot be reached, or is too slow.
        Forbidden, ConfigError, Unavailable: as of `connection.problem`.
    """
    with connected(settings) as connection, transaction(connection, seconds=_SECONDS):
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        return CatalogueState(
            shown(settings),
            row[0] if row else 0.0,
            read_state(connection),
            owns_schema(connection),
            _rights(connection),
        )


def _rights(connection: Connection) -> TableRights:
    rows = connection.execute(_RIGHTS.encode()).fetchall()
    return TableRights(
        tuple(name for name, reads, _ in rows if not reads),
        tuple(name for name, _, writes in rows if not writes),
    )


# Rights on the schema itself come first: without them, no table of it can be used.
_RIGHTS = """
SELECT c.relname,
    has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'),
    has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'INSERT')
        AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'bsd' AND c.relname IN ('hosts', 'sessions', 'watermarks', 'entries')
ORDER BY c.relname
"""
