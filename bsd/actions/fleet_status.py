"""The state of all hosts, as this machine, the catalogue and the bucket know it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any

from pydantic import Field

from bsd import __version__
from bsd.actions.context import ActionContext
from bsd.bucket.objects import Bucket, open_bucket
from bsd.bucket.sealing import sealing_of
from bsd.core.answers import OMIT_EMPTY
from bsd.core.errors import BsdError, NotFound
from bsd.core.fleet_settings import FleetSettings
from bsd.core.formatting import iso_utc
from bsd.fleet.catalogue.answers import FleetHost
from bsd.fleet.catalogue.queries import open_catalogue
from bsd.fleet.host import HostDirectory, this_host
from bsd.fleet.manifest import host_directories, read_host
from bsd.fleet.time_limit import ANSWER_SECONDS, within
from bsd.store.uploads import UploadFigures, UploadJournal

_MANIFESTS_SECONDS = 60.0  # for the manifests of all hosts


@dataclass(frozen=True, slots=True)
class FleetProblem:
    """A part of the fleet that cannot be used, and the reason."""

    part: Annotated[str, Field(description="uploads, bucket or database")]
    error: str
    hint: Annotated[str | None, OMIT_EMPTY] = None


@dataclass(frozen=True, slots=True)
class HostState:
    """A host. Sizes are bytes; null: this machine cannot know it."""

    host: str
    id: Annotated[str, Field(description="8 hex digits that distinguish hosts of one name")]
    here: Annotated[bool, Field(description="True if it is this machine")]
    version: Annotated[str | None, Field(description="Of bsd")]
    last_seen: Annotated[
        str | None, Field(description="When it last told the catalogue or the bucket something")
    ]
    sessions: int | None
    bytes: Annotated[int | None, Field(description="Size of its files in the bucket")]
    behind_files: Annotated[int | None, Field(description="Files that are not uploaded yet")]
    behind_bytes: int | None
    behind_seconds: Annotated[
        float | None, Field(description="Since when files wait; null: none waits")
    ]
    errors: Annotated[int | None, Field(description="Failed uploads since the last success")]
    last_error: str | None

    @property
    def directory(self) -> HostDirectory:
        """Its directory in the bucket."""
        return HostDirectory(self.host, self.id)


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """All hosts, this machine first, then by name."""

    host: Annotated[str, Field(description="The name of this machine")]
    bucket: str | None
    database: Annotated[bool, Field(description="True if the settings name a catalogue")]
    hosts: tuple[HostState, ...]
    warnings: tuple[str, ...]
    problems: tuple[FleetProblem, ...]


def fleet_status(context: ActionContext) -> FleetStatus:
    """Return the state of all hosts; a part that does not answer is listed as a problem.

    Hosts that the catalogue does not know are read from their manifests in the bucket.
    """
    settings, survey = context.fleet, _Survey(context)
    if settings.database is not None:
        survey.attempt("database", survey.ask_catalogue)
    if settings.bucket is not None:
        survey.attempt("bucket", survey.ask_bucket)
    if settings.is_on:
        survey.attempt("uploads", survey.look_here)
    hosts = sorted(survey.hosts.values(), key=lambda host: (not host.here, host.host, host.id))
    return FleetStatus(
        settings.host,
        settings.bucket,
        settings.database is not None,
        tuple(hosts),
        tuple(_names_twice(hosts)),
        tuple(survey.problems),
    )


class _Survey:
    """Collects the hosts, and the problems of the parts that are asked."""

    def __init__(self, context: ActionContext) -> None:
        self._context = context
        self._settings = context.fleet
        self.hosts: dict[HostDirectory, HostState] = {}
        self.problems: list[FleetProblem] = []

    def attempt(self, part: str, ask: Callable[[], None]) -> None:
        try:
            ask()
        except BsdError as error:
            self.problems.append(FleetProblem(part, error.message, error.hint))

    def ask_catalogue(self) -> None:
        settings = self._settings
        for host in within(ANSWER_SECONDS, "the database", lambda: _catalogue_hosts(settings)):
            state = _of_catalogue(host)
            self.hosts[state.directory] = state

    def ask_bucket(self) -> None:
        """Read the manifests of the hosts that the catalogue does not know."""
        settings = self._settings
        found = within(ANSWER_SECONDS, "the bucket", lambda: _directories(settings))
        missing = [directory for directory in found if directory not in self.hosts]
        read = within(
            _MANIFESTS_SECONDS, "the bucket", lambda: list(_of_manifests(settings, missing))
        )
        for state, problems in read:
            self.hosts[state.directory] = state
            self.problems += problems

    def look_here(self) -> None:
        """Put this machine's own figures in place of what it told others."""
        context = self._context
        here = this_host(context.layout, self._settings)
        state = replace(self.hosts.get(here) or _unknown(here), here=True, version=__version__)
        self.hosts[here] = state
        if self._settings.bucket is None:
            return
        try:
            with UploadJournal(context.layout) as journal:
                figures = journal.figures()
        except NotFound:  # nothing was uploaded yet
            figures = UploadFigures()
        since = figures.waiting_since
        self.hosts[here] = replace(
            state,
            bytes=figures.bytes,
            behind_files=figures.waiting_files,
            behind_bytes=figures.waiting_bytes,
            behind_seconds=None if since is None else max(context.now() - since, 0.0),
            errors=figures.errors,
            last_error=figures.last_error,
        )


def _catalogue_hosts(settings: FleetSettings) -> tuple[FleetHost, ...]:
    with closing(open_catalogue(settings)) as catalogue:
        return catalogue.hosts()


def _of_catalogue(host: FleetHost) -> HostState:
    # It calls the second host of a name `NAME~ID`.
    return HostState(**asdict(host) | {"host": host.host.partition("~")[0]}, here=False)


def _unknown(directory: HostDirectory) -> HostState:
    nothing: dict[str, Any] = dict.fromkeys(field.name for field in fields(HostState))
    return HostState(**nothing | {"host": directory.host, "id": directory.id, "here": False})


def _directories(settings: FleetSettings) -> list[HostDirectory]:
    return host_directories(open_bucket(settings))


def _of_manifests(
    settings: FleetSettings, directories: list[HostDirectory]
) -> Iterator[tuple[HostState, list[FleetProblem]]]:
    """Yield hosts as their manifests say, with the problems of the manifests."""
    bucket: Bucket = open_bucket(settings)
    sealing = sealing_of(settings)
    for directory in directories:
        try:
            archive = read_host(bucket, directory, sealing)
        except BsdError as error:
            text = f"{directory.host}: {error.message}"
            yield _unknown(directory), [FleetProblem("bucket", text, error.hint)]
            continue
        hint = "`bsd archive verify --remote` says what is missing"
        broken = [
            FleetProblem("bucket", f"{directory.host}: {why}", hint) for why in archive.broken
        ]
        state = replace(
            _unknown(directory),
            version=archive.version or None,
            last_seen=iso_utc(archive.at) if archive.generation else None,
            sessions=sum(1 for _ in archive.copies()),
            bytes=sum(each.file.size for each in archive.files.values()),
        )
        yield state, broken


def _names_twice(hosts: list[HostState]) -> Iterator[str]:
    for name, count in Counter(host.host for host in hosts).items():
        if count > 1:
            ids = ", ".join(host.id for host in hosts if host.host == name)
            yield (
                f"{count} machines call themselves {name} ({ids}): set `host` in [fleet] of "
                "bsd.toml on one of them"
            )
