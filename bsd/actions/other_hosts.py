"""The archives of all hosts that share a bucket: list, bring back, verify, forget."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, NamedTuple

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.actions.restore import RestoredCopy
from bsd.bucket.errors import NoObject, ObjectDamaged
from bsd.bucket.objects import Bucket, open_bucket
from bsd.bucket.remote_file import RemotePart
from bsd.bucket.sealing import Sealing, sealing_of
from bsd.bucket.transfers import download
from bsd.core.answers import OMIT_EMPTY
from bsd.core.errors import BsdError, Invalid, LeftAlone, NotFound
from bsd.core.formatting import iso_utc
from bsd.core.layout import SessionName
from bsd.fleet.forgotten_rows import forget_pending_rows
from bsd.fleet.host import HostDirectory, this_host
from bsd.fleet.hosts import EVERY_HOST, NamedHost, find_hosts, list_hosts, shared_names
from bsd.fleet.manifest import HostArchive, ManifestFile, read_host
from bsd.fleet.push import Prepared, send
from bsd.fleet.remote_archive import (
    RemoteCopy,
    adopt,
    arrived,
    find_copy,
    is_forgotten,
    refuse_unserved,
    remembered_files,
    remote_copies,
    titles_of,
)
from bsd.fleet.tombstones import put_tombstones, read_tombstones
from bsd.maintenance.bring_back import BroughtBack
from bsd.maintenance.bring_back import bring_back as bring_back_snapshot
from bsd.maintenance.catalog import resume_command
from bsd.maintenance.tell_others import add_rows
from bsd.planning.restore import restored_copy
from bsd.sessions.session import format_of
from bsd.store.originals import SessionStore
from bsd.store.snapshot_parts import SnapshotReader
from bsd.store.snapshots import read_snapshot, snapshot_directory
from bsd.store.tombstone import Tombstone
from bsd.store.upload_places import current_place
from bsd.store.uploads import BucketPlace, UploadJournal
from bsd.transcripts.agents.programs import program_of

LOST_SECONDS = 7 * 24 * 3600.0  # a host that was silent for longer seems lost
_MOST_PROBLEMS = 100  # of one host, that are listed


@dataclass(frozen=True, kw_only=True)
class RemoteHost:
    """A host with an archive in the bucket. Times are ISO 8601, sizes bytes."""

    name: Annotated[str, Field(description="As commands accept it: HOST, or HOST~ID")]
    host: str
    id: Annotated[str, Field(description="Tells hosts of one name apart")]
    is_this: Annotated[bool, Field(description="Whether it is this root")]
    updated: Annotated[str | None, Field(description="Time of its newest manifest")]
    seems_lost: Annotated[bool, Field(description="It has not written to the bucket for a week")]
    generation: Annotated[int, Field(description="Number of its newest manifest; 0: none")]
    sessions: Annotated[int, Field(description="Copies of sessions")]
    files: int
    size: Annotated[int, Field(description="Size of its files")]
    problems: Annotated[tuple[str, ...], OMIT_EMPTY] = ()


@dataclass(frozen=True, kw_only=True)
class RemoteSession:
    """A copy of a session in the archive of a host. Sizes are bytes, times ISO 8601."""

    host: Annotated[str, Field(description="The name of its host")]
    id: Annotated[str, Field(description="HOST:AGENT/SESSION@ORIGIN, as bring-back accepts it")]
    session: str
    agent: str
    title: str | None
    updated: Annotated[str, Field(description="When its program had last written to it")]
    gone_at: Annotated[
        str | None, Field(description="When its host found it deleted; null: it was not")
    ]
    size: Annotated[int, Field(description="Size of its files, without extracted values")]
    is_here: Annotated[bool, Field(description="Whether this root's archive has a copy of it")]


@dataclass(frozen=True, kw_only=True)
class RemoteList:
    """Copies of sessions of hosts, the last used first."""

    bucket: str
    hosts: tuple[RemoteHost, ...]
    sessions: tuple[RemoteSession, ...]
    more: Annotated[int, Field(description="Number of further sessions that are not listed")]
    warnings: Annotated[tuple[str, ...], OMIT_EMPTY] = ()


@dataclass(frozen=True, kw_only=True)
class VerifiedHost:
    """The result for one host. Sizes are bytes."""

    name: str
    generation: int
    files: int
    objects: int
    bytes: int
    read: Annotated[int, Field(description="Bytes that were read and hashed")]
    problems: tuple[str, ...]
    again: Annotated[
        int, Field(description="Lost files that are whole here: the next push uploads them again")
    ] = 0


@dataclass(frozen=True, kw_only=True)
class RemoteVerification:
    """The result of `verify` for the bucket."""

    bucket: str
    clean: bool
    full: bool
    hosts: tuple[VerifiedHost, ...]
    warnings: Annotated[tuple[str, ...], OMIT_EMPTY] = ()


@dataclass(frozen=True, kw_only=True)
class RemoteForgotten:
    """The result of forgetting a session of another host."""

    session: str
    host: str
    objects: Annotated[int, Field(description="Objects that were deleted at once")]
    waits: Annotated[bool, Field(description="The host itself deletes it, when it runs")]


class _Fleet(NamedTuple):
    """The bucket of the settings, opened."""

    bucket: Bucket
    sealing: Sealing
    own: HostDirectory
    hosts: list[NamedHost]


def _open(context: ActionContext) -> _Fleet:
    settings = context.fleet
    if settings.bucket is None:
        raise Invalid(
            "no bucket is set, so no other host can be reached",
            hint='[fleet] bucket = "s3://BUCKET/PREFIX" in bsd.toml',
        )
    bucket, own = open_bucket(settings), this_host(context.layout, settings)
    return _Fleet(bucket, sealing_of(settings), own, list_hosts(bucket, own))


def _tombstones(bucket: Bucket) -> tuple[list[Tombstone], list[str]]:
    """Return all tombstones, and what is wrong with those that cannot be read."""
    found: list[Tombstone] = []
    problems: list[str] = []
    for _, read in read_tombstones(bucket):
        if isinstance(read, BsdError):
            problems.append(read.message)
        else:
            found += read.tombstones
    return found, problems


# --- list ---


def list_hosts_archive(
    context: ActionContext, host: str, *, agent: str | None = None, limit: int = 100
) -> RemoteList:
    """List the copies of sessions in the archive of a host, or of all (`*`).

    Raises:
        Invalid: no bucket is set, or several hosts have this name.
        NotFound: there is no such host.
        BsdError: the bucket refuses, or cannot be reached.
    """
    fleet = _open(context)
    tombstones, problems = _tombstones(fleet.bucket)
    hosts: list[RemoteHost] = []
    copies: list[tuple[NamedHost, RemoteCopy]] = []
    for each in find_hosts(fleet.hosts, host):
        archive = read_host(fleet.bucket, each.directory, fleet.sealing)
        found = [
            copy for copy in remote_copies(archive) if not is_forgotten(copy.file.path, tombstones)
        ]
        hosts.append(_host(context, each, archive, len(found)))
        copies += [(each, copy) for copy in found if agent in (None, copy.facts.session.agent)]
    copies.sort(key=lambda pair: pair[1].facts.updated, reverse=True)
    shown = copies[:limit]
    titles = titles_of(fleet.bucket, fleet.sealing, [copy for _, copy in shown])
    return RemoteList(
        bucket=fleet.bucket.url,
        hosts=tuple(hosts),
        sessions=tuple(
            _session(context, each, copy, title)
            for (each, copy), title in zip(shown, titles, strict=True)
        ),
        more=len(copies) - len(shown),
        warnings=(*shared_names(fleet.hosts), *problems),
    )


def _host(
    context: ActionContext, host: NamedHost, archive: HostArchive, sessions: int
) -> RemoteHost:
    return RemoteHost(
        name=host.name,
        host=archive.host,
        id=archive.id,
        is_this=host.is_this,
        updated=iso_utc(archive.at) if archive.generation else None,
        seems_lost=not host.is_this and context.now() - archive.at > LOST_SECONDS,
        generation=archive.generation,
        sessions=sessions,
        files=len(archive.files),
        size=sum(each.file.size for each in archive.files.values()),
        problems=archive.broken,
    )


def _session(
    context: ActionContext, host: NamedHost, copy: RemoteCopy, title: str | None
) -> RemoteSession:
    facts = copy.facts
    here = snapshot_directory(context.layout, facts.session, copy.origin)
    return RemoteSession(
        host=host.name,
        id=f"{host.name}:{copy.id}",
        session=str(facts.session),
        agent=facts.session.agent,
        title=title,
        updated=iso_utc(facts.updated),
        gone_at=None if facts.gone_at is None else iso_utc(facts.gone_at),
        size=facts.size,
        is_here=os.path.lexists(here),
    )


# --- bring back ---


def _find(fleet: _Fleet, host: str, session: str) -> RemoteCopy:
    if host == EVERY_HOST:
        raise Invalid("name one host", hint="`bsd archive list --host '*'`")
    [found] = find_hosts(fleet.hosts, host)
    return find_copy(read_host(fleet.bucket, found.directory, fleet.sealing), session)


def bring_back_remote(
    context: ActionContext, host: str, session: str, *, renamed: str | None = None
) -> BroughtBack:
    """Bring a session of another host back to where its program finds it on this machine.

    Args:
        host: HOST or HOST~ID.
        session: AGENT/SESSION, or the id of its copy.
        renamed: bring it back under this name, AGENT/SESSION.

    Raises:
        NotFound: there is no such host or session, or it was forgotten for good.
        Invalid: several copies have this name, or no source of this root serves the agent.
        Conflict: a session of this name exists here, or the archive has another version of it.
        BsdError: the bucket refuses, or cannot be reached; an object is missing or damaged.
    """
    layout, fleet = context.layout, _open(context)
    copy = _find(fleet, host, session)
    name = SessionName.parse(renamed) if renamed else None
    refuse_unserved(layout, name or copy.facts.session, f"{host}:{session}")
    with arrived(context, fleet.bucket, fleet.sealing, copy) as root:
        adopted = adopt(context, root, copy)
    answer = bring_back_snapshot(
        layout, adopted.copy, renamed=name, actor=context.actor, budget=context.budget
    )
    if adopted.stayed:
        stays = f"this root had a newer copy of {', '.join(adopted.stayed)}, which was used"
        answer = replace(answer, advice="; ".join(filter(None, (stays, answer.advice))))
    return replace(answer, resume=resume_command(layout, SessionName.parse(answer.session)))


def copy_back_remote(
    context: ActionContext, host: str, session: str, write: Callable[[bytes], object]
) -> RestoredCopy:
    """Write a session of another host with every value inline; nothing else changes here.

    Raises:
        LeftAlone: bsd does not know the format of its lines.
        BsdError: as `bring_back_remote`.
    """
    fleet = _open(context)
    copy = _find(fleet, host, session)
    name = copy.facts.session
    with arrived(context, fleet.bucket, fleet.sealing, copy) as root:
        snapshot = read_snapshot(snapshot_directory(root, name, copy.origin))
        if snapshot is None:
            raise ObjectDamaged(f"the copy of {name} is incomplete", hint="bsd archive verify")
        with SnapshotReader(snapshot) as source:
            fmt = format_of(source, program_of(root, name.agent))
            if fmt is None:
                raise LeftAlone(f"bsd does not know the format of the lines of {name}")
            values, missing = restored_copy(source, fmt, SessionStore(root, name), write)
    return RestoredCopy(str(name), values, missing)


# --- verify ---


def verify_remote(
    context: ActionContext, host: str | None = None, *, full: bool = False
) -> RemoteVerification:
    """Check the archives in the bucket: manifests, objects, and with `full` every byte.

    Args:
        host: HOST or HOST~ID; None: this host; `*`: all.
        full: read every object.

    Raises:
        NotFound: there is no such host.
        BsdError: the bucket refuses, or cannot be reached.
    """
    fleet = _open(context)
    hosts = [each for each in fleet.hosts if each.is_this]
    if host is not None:
        hosts = find_hosts(fleet.hosts, host)
    elif not hosts:
        hosts = [NamedHost(fleet.own.host, fleet.own, is_this=True)]
    tombstones, problems = _tombstones(fleet.bucket)
    verify = partial(_verify_host, context, fleet, tombstones, full=full)
    verified = tuple(map(verify, hosts))
    return RemoteVerification(
        bucket=fleet.bucket.url,
        clean=not problems and not any(each.problems for each in verified),
        full=full,
        hosts=verified,
        warnings=(*shared_names(fleet.hosts), *problems),
    )


def _verify_host(
    context: ActionContext,
    fleet: _Fleet,
    tombstones: Collection[Tombstone],
    host: NamedHost,
    *,
    full: bool,
) -> VerifiedHost:
    archive = read_host(fleet.bucket, host.directory, fleet.sealing)
    listed = {each.key: each.size for each in fleet.bucket.list_keys(host.directory.objects)}
    files = remembered_files(archive, tombstones)
    problems = list(archive.broken)
    if not archive.generation:
        problems.append(f"{host.directory} has no manifest: `bsd archive push` has not run there")
    whole, lost = list[ManifestFile](), list[ManifestFile]()
    for each in files:
        missing = list(_missing(each, listed))
        problems += missing
        (lost if missing else whole).append(each)
    if host.is_this:
        problems += _thin_without_remote(context, archive)
    read, total = 0, sum(each.file.size for each in whole)
    with open(os.devnull, "wb") as nowhere:
        for each in whole if full else ():
            context.progress(read, total)
            try:
                download(fleet.bucket, each.file, fleet.sealing, nowhere)
                read += each.file.size
            except (NoObject, ObjectDamaged) as error:
                problems.append(f"{each.path}: {error.message}")
                lost.append(each)
    more = len(problems) - _MOST_PROBLEMS
    if more > 0:
        problems[_MOST_PROBLEMS:] = [f"… and {more:,} more"]
    return VerifiedHost(
        name=host.name,
        generation=archive.generation,
        files=len(files),
        objects=len(listed),
        bytes=sum(each.file.size for each in files),
        read=read,
        problems=tuple(problems),
        again=_upload_again(context, fleet, lost) if host.is_this and lost else 0,
    )


def _upload_again(context: ActionContext, fleet: _Fleet, lost: list[ManifestFile]) -> int:
    """Have the next push upload files of this host again that the bucket has lost.

    A file that is not whole here is left in the journal, since it could not be uploaded.

    Returns:
        The number of files that will be uploaded.
    """
    again = 0
    with suppress(NotFound), UploadJournal(context.layout) as journal:
        place = current_place(
            journal, BucketPlace(fleet.bucket.url, context.fleet.identity, fleet.own.key)
        )
        for each in lost:
            with suppress(FileNotFoundError):
                local = os.lstat(context.layout.archive / each.path)
                if local.st_size == each.file.size:
                    place.note_lost(each.path)
                    again += 1
    return again


def _missing(file: ManifestFile, listed: dict[str, int]) -> Iterator[str]:
    for part in file.file.parts:
        there = listed.get(part.key)
        if there is None:
            yield f"{file.path}: its object {part.key} is missing"
        elif there != _stored_size(part):
            yield f"{file.path}: its object {part.key} has {there:,} bytes, not {part.size:,}"


def _stored_size(part: RemotePart) -> int:
    return sum(part.sealed) if part.sealed else part.size


def _thin_without_remote(context: ActionContext, archive: HostArchive) -> Iterator[str]:
    """Yield a problem for each thin pack of this root whose file is not in the bucket."""
    with suppress(NotFound), UploadJournal(context.layout) as journal:
        for (path,) in journal.rows("SELECT DISTINCT path FROM files WHERE is_thin"):
            if path not in archive.files and os.path.lexists(context.layout.archive / path):
                yield f"{path} has only its index here, and the bucket has no file of it"


# --- forget ---


def forget_remote(
    context: ActionContext, host: str, session: str, *, lost: bool = False
) -> RemoteForgotten:
    """Make all hosts forget a session of another host.

    Each host obeys at its next push. If the host is lost, or was silent for a week, its objects are
    deleted at once.

    Args:
        host: HOST or HOST~ID.
        session: AGENT/SESSION, or the id of its copy.
        lost: the host will not come back: delete its objects at once.

    Raises:
        NotFound: there is no such host or session.
        Invalid: several copies have this name, or the host is this one.
        BsdError: the bucket refuses, or cannot be reached.
    """
    fleet = _open(context)
    copy = _find(fleet, host, session)
    name, archive = copy.facts.session, copy.archive
    if archive.directory == fleet.own:
        raise Invalid(f"{host} is this host", hint=f"`bsd archive forget {session}`")
    now = context.now()
    tombstone = Tombstone.new(context.layout, name, now, origins=[copy.origin])
    put_tombstones(fleet.bucket, [tombstone], fleet.own.key, now)
    is_lost = lost or now - archive.at > LOST_SECONDS
    keys = list(_only_used_by(archive, copy)) if is_lost else []
    fleet.bucket.delete(keys)
    if is_lost and context.fleet.database is not None:
        with UploadJournal(context.layout, create=True) as journal:
            add_rows(journal, name, None, (), (archive.host, archive.id))
    return RemoteForgotten(session=str(name), host=host, objects=len(keys), waits=not is_lost)


def pass_on_forgetting(context: ActionContext) -> str | None:
    """Delete at once from bucket and catalogue what this host has just forgotten.

    Uploads nothing. Without a bucket and a database in the settings, nothing is done.

    Returns:
        Why it has to wait for the next push; None: it is done.
    """
    problems = []
    try:
        if context.fleet.bucket is not None:
            pushed = send(context, Prepared(), seconds=0.0, stopping=context.stopping)
            problems += pushed.problems
    except BsdError as problem:
        problems.append(problem.message)
    try:
        if context.fleet.database is not None:
            forget_pending_rows(context)
    except BsdError as problem:
        problems.append(problem.message)
    return "; ".join(problems) or None


def _only_used_by(archive: HostArchive, copy: RemoteCopy) -> Iterator[str]:
    """Yield the keys of the objects that belong to a copy alone.

    If it is the only copy of that name, the packs of values of the session belong to it, too.
    """
    store = copy.file.store
    is_alone = sum(each.file.store == store for each in remote_copies(archive)) == 1
    gone = archive.below(store if is_alone else copy.directory)
    paths = {each.path for each in gone}
    others = {
        part.key
        for path, each in archive.files.items()
        if path not in paths
        for part in each.file.parts
    }
    keys = Counter(part.key for each in gone for part in each.file.parts)
    yield from (key for key in keys if key not in others)
