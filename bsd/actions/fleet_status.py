"""The state of all hosts, as this machine, the catalogue and the bucket know it."""

from __future__ import annotations

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
from bsd.fleet.hosts import named_hosts, shared_names
from bsd.fleet.manifest import host_directories, read_host
from bsd.fleet.time_limit import ANSWER_SECONDS, within
from bsd.store.uploads import UploadJournal

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

    host: Annotated[str, Field(description="`NAME`, or `NAME~ID` if another host has that name")]
    id: Annotated[str, Field(description="8 hex digits that distinguish hosts of one name")]
    here: Annotated[bool, Field(description="True if it is this machine")]
    version: Annotated[str | None, Field(description="Of bsd")]
    last_seen: Annotated[
        str | None, Field(description="When it last told the catalogue or the bucket something")
    ]
    sessions: int | None
    bytes: Annotated[int | None, Field(description="Size of its sessions")]
    bucket_bytes: Annotated[int | None, Field(description="Size of its files in the bucket")]
    behind_files: Annotated[int | None, Field(description="Files that are not uploaded yet")]
    behind_bytes: int | None
    behind_seconds: Annotated[
        float | None, Field(description="Since when files wait; null: none waits")
    ]
    errors: Annotated[int | None, Field(description="Failed uploads")]
    last_error: str | None


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """All hosts, this machine first, then by name."""

    host: Annotated[str, Field(description="The name of this machine")]
    bucket: str | None
    database: Annotated[bool, Field(description="True if the settings name a catalogue")]
    hosts: tuple[HostState, ...]
    warnings: tuple[str, ...]
    problems: tuple[FleetProblem, ...]


def fleet_status(context: ActionContext, *, manifests: bool = True) -> FleetStatus:
    """Return the state of all hosts; a part that does not answer is listed as a problem.

    Args:
        manifests: read the manifests of all hosts in the bucket, not only of those that the
            catalogue does not know.
    """
    settings, survey = context.fleet, _Survey(context, manifests=manifests)
    if settings.database is not None:
        survey.attempt("database", survey.ask_catalogue)
    if settings.bucket is not None:
        survey.attempt("bucket", survey.ask_bucket)
    if settings.is_on:
        survey.attempt("uploads", survey.look_here)
    names = named_hosts(sorted(survey.hosts), survey.here)
    hosts = [replace(survey.hosts[each.directory], host=each.name) for each in names]
    hosts.sort(key=lambda host: not host.here)
    return FleetStatus(
        settings.host,
        settings.bucket,
        settings.database is not None,
        tuple(hosts),
        tuple(shared_names(names)),
        tuple(survey.problems),
    )


class _Survey:
    """Collects the hosts, and the problems of the parts that are asked."""

    def __init__(self, context: ActionContext, *, manifests: bool) -> None:
        self._context = context
        self._settings = context.fleet
        self._manifests = manifests
        self.here: HostDirectory | None = None
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
            # It calls hosts of one name `NAME~ID`.
            directory = HostDirectory(host.host.partition("~")[0], host.id)
            self.hosts[directory] = HostState(**asdict(host), here=False, bucket_bytes=None)

    def ask_bucket(self) -> None:
        settings = self._settings
        found = within(ANSWER_SECONDS, "the bucket", lambda: _directories(settings))
        wanted = found if self._manifests else [each for each in found if each not in self.hosts]
        read = within(
            _MANIFESTS_SECONDS, "the bucket", lambda: list(_of_manifests(settings, wanted))
        )
        for state, problems in read:
            directory = HostDirectory(state.host, state.id)
            known = self.hosts.get(directory)
            self.hosts[directory] = (
                replace(known, bucket_bytes=state.bucket_bytes) if known else state
            )
            self.problems += problems

    def look_here(self) -> None:
        """Put this machine's own figures in place of what it told others."""
        context = self._context
        here = self.here = this_host(context.layout, self._settings)
        state = replace(self.hosts.get(here) or _unknown(here), here=True, version=__version__)
        self.hosts[here] = state
        if self._settings.bucket is None:
            return
        try:
            with UploadJournal(context.layout) as journal:
                figures = journal.figures()
        except NotFound:  # nothing was uploaded yet
            return
        since = figures.waiting_since
        self.hosts[here] = replace(
            state,
            bucket_bytes=figures.bytes,
            behind_files=figures.waiting_files,
            behind_bytes=figures.waiting_bytes,
            behind_seconds=None if since is None else max(context.now() - since, 0.0),
            errors=figures.errors,
            last_error=figures.last_error,
        )


def _catalogue_hosts(settings: FleetSettings) -> tuple[FleetHost, ...]:
    with closing(open_catalogue(settings)) as catalogue:
        return catalogue.hosts()


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
            bytes=sum(copy.size for _, copy in archive.copies()),
            bucket_bytes=sum(each.file.size for each in archive.files.values()),
        )
        yield state, broken
