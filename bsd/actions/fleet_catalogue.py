"""Makes the tables of the catalogue, and builds the catalogue anew from the bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.bucket.objects import open_bucket
from bsd.core.errors import ConfigError
from bsd.fleet.catalogue.connection import shown
from bsd.fleet.catalogue.migrating import migrate
from bsd.fleet.catalogue.rebuild import rebuild
from bsd.fleet.host import HostDirectory
from bsd.fleet.hosts import find_hosts, list_hosts


@dataclass(frozen=True, slots=True)
class MigratedCatalogue:
    """The schema of the catalogue before and after."""

    database: Annotated[str, Field(description="HOST/NAME")]
    before: Annotated[int, Field(description="Number of the schema before; 0: there was none")]
    schema: Annotated[int, Field(description="Number of the schema now")]
    readers: Annotated[tuple[str, ...], Field(description="Roles that may read since")]


@dataclass(frozen=True, slots=True)
class RebuiltCatalogue:
    """The sums of a rebuild of the catalogue."""

    database: Annotated[str, Field(description="HOST/NAME")]
    hosts: int
    sessions: Annotated[int, Field(description="Sessions that were read")]
    unchanged: Annotated[int, Field(description="Sessions that the catalogue had already")]
    rows: Annotated[int, Field(description="Entries that were written")]
    failed: Annotated[tuple[str, ...], Field(description="What could not be read, and why")]


def migrate_catalogue(context: ActionContext, readers: tuple[str, ...] = ()) -> MigratedCatalogue:
    """Make the tables of the catalogue, or bring them up to date.

    Args:
        readers: roles that may read all tables from now on.

    Raises:
        ConfigError: no database is set, its schema is newer than this bsd, or a role is missing.
        Forbidden, TemporaryFailure, Unavailable.
    """
    found = migrate(context.fleet, readers=readers)
    return MigratedCatalogue(shown(context.fleet), found.before, found.now, found.readers)


def rebuild_catalogue(context: ActionContext, host: str | None = None) -> RebuiltCatalogue:
    """Write the sessions that the bucket has, and the catalogue lacks, into the catalogue.

    Args:
        host: only this host: HOST or HOST~ID; None: all.

    Raises:
        ConfigError: the settings lack bucket or database.
        NotFound, Invalid: no host has this name, or several have.
        BsdError: bucket or database cannot be used.
    """
    settings = context.fleet
    if settings.bucket is None:
        raise ConfigError(
            "the catalogue is rebuilt from a bucket, and none is set",
            hint="name it: `bucket` of [fleet] in bsd.toml; each daemon writes its own host's rows",
        )
    hosts: list[HostDirectory] | None = None
    if host is not None:
        found = find_hosts(list_hosts(open_bucket(settings), None), host)
        hosts = [each.directory for each in found]
    done = rebuild(context, prices=context.prices.table(), hosts=hosts)
    return RebuiltCatalogue(
        shown(settings), done.hosts, done.sessions, done.unchanged, done.rows, done.failed
    )
