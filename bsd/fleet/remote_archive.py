"""Sessions in the archives of other hosts: lists, and taking one into the archive of this root.

A session is downloaded into a directory that is laid out as a root of its own, with all that
belongs to it: packs of values, the sessions that are its parts, those in whose files it begins, and
notes of its project. What was forgotten is removed there. Then its files are moved into the archive
of this root, `copy.json` last, and `bring_back` does the rest. Packs that a killed call has moved
stay, and the next call continues; `sweep_arriving` removes the directory.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from bsd.bucket.objects import Bucket
from bsd.bucket.sealing import Sealing
from bsd.bucket.transfers import download
from bsd.core.errors import (
    BsdError,
    Busy,
    Conflict,
    Invalid,
    NotFound,
    Unavailable,
    os_problem,
)
from bsd.core.files import create_private, make_durable_dir, make_private_dir, sync_dir
from bsd.core.formatting import iso_utc
from bsd.core.layout import COPY, Layout, SessionName
from bsd.core.locks import OwnLock, own_lock
from bsd.core.sources import Source, names_above
from bsd.fleet.context import FleetContext
from bsd.fleet.manifest import CopyFacts, FileKind, HostArchive, ManifestFile
from bsd.fleet.tombstones import GRACE_SECONDS, read_tombstones
from bsd.maintenance.obey_tombstone import ObedientForget
from bsd.maintenance.relocate import remove_tree
from bsd.sessions.session import format_of
from bsd.store.contents import contents_of
from bsd.store.snapshot_parts import SnapshotReader, tidy_snapshot
from bsd.store.snapshots import (
    Snapshot,
    packs_in,
    read_snapshot,
    snapshot_directories,
    snapshot_directory,
    write_snapshot,
)
from bsd.store.tombstone import Tombstone, store_hash
from bsd.transcripts.agents.programs import KINDS, kind_of, program_of
from bsd.transcripts.reader import parse_entry

_COPY_FILE = "copy.json"
_LOCK = "in-use"
_AT_ONCE = 8  # objects that are read at the same time
_LARGEST_COPY = 64 << 20  # bytes of a `copy.json` that is read for its title
_MOST_BEGINNINGS = 100


@dataclass(frozen=True, slots=True)
class RemoteCopy:
    """A copy of a session in the archive of a host."""

    archive: HostArchive
    file: ManifestFile
    facts: CopyFacts
    origin: str

    @property
    def id(self) -> str:
        """The session's name with the origin, as of `Snapshot`."""
        return f"{self.facts.session}@{self.origin[:8]}"

    @property
    def directory(self) -> str:
        """The directory of the copy, relative to `archive/`."""
        return self.file.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Adopted:
    """A session that was taken from another host into the archive.

    Attributes:
        copy: its copy, in the archive of this root.
        stayed: copies of this root that are newer than those of the host, and stayed.
    """

    copy: Snapshot
    stayed: list[str]


# --- lists ---


def remote_copies(archive: HostArchive) -> list[RemoteCopy]:
    """Return the copies of sessions of a host, the last used first."""
    found = []
    for file, facts in archive.copies():
        *above, name = file.path.split("/")
        if len(above) == 2 and name == _COPY_FILE and above[1].startswith(COPY):
            found.append(RemoteCopy(archive, file, facts, above[1].removeprefix(COPY)))
    return sorted(found, key=lambda copy: copy.facts.updated, reverse=True)


def find_copy(archive: HostArchive, text: str) -> RemoteCopy:
    """Return the copy with this name or id.

    Raises:
        NotFound: the host has no such session.
        Invalid: several copies have this name.
    """
    copies = remote_copies(archive)
    chosen = [copy for copy in copies if copy.id == text]
    if not chosen:
        name = SessionName.parse(text)
        chosen = [copy for copy in copies if copy.facts.session == name]
    if not chosen:
        raise NotFound(
            f"host {archive.host} has no copy of {text} in the bucket",
            hint=f"`bsd archive list --host {archive.directory}`",
        )
    if len(chosen) > 1:
        which = ", ".join(copy.id for copy in chosen)
        raise Invalid(f"{len(chosen)} sessions were named {text}", hint=f"one of {which}")
    return chosen[0]


def titles_of(bucket: Bucket, sealing: Sealing, copies: Sequence[RemoteCopy]) -> list[str | None]:
    """Return the titles of copies; None if there is none, or its object cannot be read."""

    def title(copy: RemoteCopy) -> str | None:
        with suppress(BsdError, ValueError, LookupError, TypeError):
            found = copy_document(bucket, sealing, copy)["title"]
            return found if isinstance(found, str) else None
        return None

    with ThreadPoolExecutor(_AT_ONCE, "titles") as threads:
        return list(threads.map(title, copies))


def copy_document(bucket: Bucket, sealing: Sealing, copy: RemoteCopy) -> dict[str, object]:
    """Return the content of a `copy.json`; raises ValueError, and as `download`."""
    if copy.file.file.size > _LARGEST_COPY:
        raise ValueError(f"{copy.file.path} is too large")
    data = io.BytesIO()
    download(bucket, copy.file.file, sealing, data)
    document = orjson.loads(data.getvalue())
    if not isinstance(document, dict):
        raise TypeError(f"{copy.file.path} is not an object")
    return document


def is_forgotten(path: str, tombstones: Collection[Tombstone]) -> bool:
    """Return whether a file belongs to a copy of a session that all hosts have to forget.

    Args:
        path: relative to the archive of a host.
        tombstones: those of all hosts.
    """
    store, _, below = path.partition("/")
    if not below.startswith(COPY):
        return False
    origin, hash_ = below.removeprefix(COPY).partition("/")[0], store_hash(store)
    return any(
        each.is_of_session and each.store == hash_ and origin in each.origins for each in tombstones
    )


def remembered_files(archive: HostArchive, tombstones: Collection[Tombstone]) -> list[ManifestFile]:
    """Return the files of a host that are not of forgotten sessions, by path."""
    copies = [copy.file for copy in remote_copies(archive)]
    gone = {each.path for each in copies if is_forgotten(each.path, tombstones)}
    stores = {each.store for each in copies if each.path in gone}
    stores -= {each.store for each in copies if each.path not in gone}
    return [
        each
        for path, each in sorted(archive.files.items())
        if each.store not in stores and not is_forgotten(path, tombstones)
    ]


# --- downloading ---


@contextmanager
def arrived(
    context: FleetContext, bucket: Bucket, sealing: Sealing, copy: RemoteCopy
) -> Iterator[Layout]:
    """Yield a root of its own that holds a session of another host, without what was forgotten.

    Raises:
        NotFound: all hosts have to forget the session.
        Unavailable: an object is missing or damaged.
        BsdError: the bucket cannot be reached.
    """
    sweep_arriving(context.layout)
    try:
        top = make_private_dir(_arriving(context.layout) / secrets.token_hex(8))
        with OwnLock(top / _LOCK, 0.0, name=copy.facts.session):
            try:
                arrival = _Arrival(context, bucket, sealing, copy, top)
                arrival.run()
                yield arrival.layout
            finally:
                remove_tree(top)
    except OSError as error:
        raise os_problem(error, f"bringing {copy.id} here") from error


def _arriving(layout: Layout) -> Path:
    return layout.refuse_outside(layout.own / "arriving")


def sweep_arriving(layout: Layout) -> None:
    """Remove the directories that killed calls of `arrived` have left."""
    try:
        names = os.listdir(_arriving(layout))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        top = _arriving(layout) / name
        with suppress(Busy, OSError), OwnLock(top / _LOCK, 0.0, name=SessionName("any", "any")):
            remove_tree(top)


@dataclass(slots=True)
class _Arrival:
    context: FleetContext
    bucket: Bucket
    sealing: Sealing
    head: RemoteCopy
    top: Path
    layout: Layout = field(init=False)
    copies: list[RemoteCopy] = field(default_factory=list)
    tombstones: list[Tombstone] = field(default_factory=list)

    def __post_init__(self) -> None:
        sources = self.context.layout.sources
        if (
            guessed := guessed_source(self.context.layout, self.head.facts.session.agent)
        ) is not None:
            sources = (*sources, guessed)
        self.layout = Layout(self.top, sources, exclude=None)

    def run(self) -> None:
        for _, read in read_tombstones(self.bucket):
            if isinstance(read, BsdError):
                raise read
            self.tombstones += read.tombstones
        if is_forgotten(self.head.file.path, self.tombstones):
            raise NotFound(
                f"{self.head.id} of host {self.head.archive.directory} was forgotten for good",
                hint="`bsd archive list --host '*'` lists what can be brought back",
            )
        self._add(self.head)
        self._add_beginnings()
        self._download(list(self._files()))
        self._forget()

    # --- what is needed ---

    def _add(self, copy: RemoteCopy) -> None:
        """Add a copy, and the newest copies of all sessions that are parts of it."""
        known = {each.facts.session for each in self.copies}
        self.copies.append(copy)
        head = (copy.facts.session.agent, copy.facts.session.session)
        for each in remote_copies(self.head.archive):
            name = each.facts.session
            if name in known or name == copy.facts.session:
                continue
            if head in set(names_above(name.agent)) and not self._is_forgotten(each):
                known.add(name)
                self.copies.append(each)

    def _is_forgotten(self, copy: RemoteCopy) -> bool:
        return is_forgotten(copy.file.path, self.tombstones)

    def _add_beginnings(self) -> None:
        """Add the sessions in whose files the session begins, unless this root has them."""
        copy = self.head
        for _ in range(_MOST_BEGINNINGS):
            begins_in = self._document(copy).get("begins_in")
            if not isinstance(begins_in, str):
                return
            name = SessionName.parse(begins_in)
            if name in {each.facts.session for each in self.copies} or self._is_here(name):
                return
            found = (
                each
                for each in remote_copies(self.head.archive)
                if each.facts.session == name and not self._is_forgotten(each)
            )
            if (before := next(found, None)) is None:
                return
            self._add(before)
            copy = before

    def _document(self, copy: RemoteCopy) -> dict[str, object]:
        try:
            return copy_document(self.bucket, self.sealing, copy)
        except (ValueError, TypeError) as error:
            raise Unavailable(
                f"{copy.file.path} of {copy.archive.directory} is not as bsd wrote it ({error})",
                hint=f"`bsd archive verify --remote --host {copy.archive.directory} --full`",
            ) from error

    def _is_here(self, name: SessionName) -> bool:
        layout = self.context.layout
        with suppress(BsdError):
            return layout.has_copy(name) or os.path.lexists(layout.transcript(name))
        return False

    def _files(self) -> Iterator[ManifestFile]:
        archive = self.head.archive
        stores: set[str] = set()
        for copy in self.copies:
            yield from archive.below(copy.directory)
            if copy.file.store not in stores:
                stores.add(copy.file.store)
                for each in archive.below(copy.file.store):
                    if each.kind is FileKind.VALUES:
                        yield each
        for agent in {copy.facts.session.agent for copy in self.copies}:
            memory = self.layout.memory_dir(agent).relative_to(self.layout.archive)
            yield from archive.below(str(memory))

    # --- download ---

    def _download(self, files: Sequence[ManifestFile]) -> None:
        def one(each: ManifestFile) -> None:
            path = self.layout.archive / each.path
            make_private_dir(path.parent, durable=False)
            with open(create_private(path), "wb") as file:
                download(self.bucket, each.file, self.sealing, file)
                file.flush()
                os.fsync(file.fileno())

        with ThreadPoolExecutor(self.context.fleet.uploads_at_once, "arriving") as threads:
            for done in [threads.submit(one, each) for each in files]:
                done.result()
        for directory, _, _ in os.walk(self.layout.archive):
            sync_dir(Path(directory))

    def _forget(self) -> None:
        """Remove entries and lines that were forgotten since the host copied the session."""
        budget = self.context.budget
        forget = ObedientForget(self.layout, actor=self.context.actor, budget=budget)
        for copy in self.copies:
            hash_ = store_hash(copy.file.store)
            for each in self.tombstones:
                if each.store == hash_ and not each.is_of_session:
                    forget.obey(copy.facts.session, each, each.at + GRACE_SECONDS)


def guessed_source(layout: Layout, agent: str) -> Source | None:
    """Return a source for an agent of a program whose sessions are not served by this root.

    None if this root serves the agent, or if the agent's name does not begin with the name of a
    program. The source has a directory that does not exist: its sessions can only be read.
    """
    word = agent.partition(":")[0]
    if word == agent or layout.source_of(agent) is not None or word not in KINDS:
        return None
    kind = kind_of(word)
    return Source(word, word, layout.own / "no-such-directory", kind.routes)


def refuse_unserved(layout: Layout, name: SessionName, text: str) -> None:
    """Raise Invalid if no source of this root serves an agent.

    Args:
        text: the session as the user named it.
    """
    word = name.agent.partition(":")[0]
    if word == name.agent or layout.source_of(name.agent) is not None:
        return
    known = word if word in KINDS else "PROGRAM"
    raise Invalid(
        f"no source of this root is called {word}, so {name} has no place here",
        hint=f"`bsd archive bring-back {text} --to FILE`; or add to bsd.toml: "
        f'[[sources]] name = "{word}", kind = "{known}", path = "DIRECTORY"',
    )


# --- adoption ---


def adopt(context: FleetContext, arrived: Layout, copy: RemoteCopy) -> Adopted:
    """Move a session that has arrived, and all that came with it, into the archive of this root.

    Raises:
        Conflict: this root has another version of the session that is not an earlier one.
        Busy: another process works on the session.
        Unavailable, Forbidden: files cannot be moved.
    """
    layout, stayed = context.layout, list[str]()
    found = [
        (archive, snapshot)
        for archive in sorted(arrived.archive.iterdir())
        for directory in snapshot_directories(archive)
        if (snapshot := read_snapshot(directory)) is not None
    ]
    head = None
    # The requested session last: until it is there, the next call begins anew.
    found.sort(key=lambda each: each[1].name == copy.facts.session)
    for archive, snapshot in found:
        name = snapshot.name
        budget = context.budget
        try:
            with own_lock(layout, name, budget.wait, sleep=budget.sleep):
                _adopt_packs(layout, archive, layout.archive_dir(name))
                head = _adopt_copy(layout, snapshot, context.now())
                if head.transcript.parts != snapshot.transcript.parts:
                    stayed.append(head.id)
        except OSError as error:
            raise os_problem(error, f"bringing {name} into the archive") from error
    for agent in {snapshot.name.agent for _, snapshot in found}:
        _adopt_memory(arrived.memory_dir(agent), layout.memory_dir(agent))
    contents_of(layout).changed()
    if head is None:
        raise Unavailable(f"nothing of {copy.id} has arrived", hint="run it again")
    return Adopted(head, stayed)


def _adopt_packs(layout: Layout, source: Path, target: Path) -> None:
    """Move packs of values, whose names tell their content."""
    make_durable_dir(layout.refuse_outside(target))
    for path in packs_in(source):
        _move_new(path, target / path.name)
    sync_dir(target)


def _move_new(path: Path, target: Path) -> None:
    if not os.path.lexists(target):  # a thin pack of this root has the same content
        os.rename(path, target)


def _adopt_copy(layout: Layout, theirs: Snapshot, now: float) -> Snapshot:
    """Move a copy to its place, unless this root has a newer one; return the one that is there."""
    target = snapshot_directory(layout, theirs.name, theirs.origin)
    moved = replace(theirs, directory=target)
    if not os.path.lexists(target):
        os.rename(theirs.directory, target)
        sync_dir(target.parent)
        return moved
    ours = None
    with suppress(Unavailable):  # a damaged copy is replaced
        ours = read_snapshot(target)
    if ours is not None:
        is_newer = ours.transcript.was.mtime_ns > theirs.transcript.was.mtime_ns
        if is_newer or ours.transcript.parts == theirs.transcript.parts:
            return ours
        if not _entries(layout, ours) <= _entries(layout, theirs):
            raise Conflict(
                f"the archive of this root has a copy of {ours.name} of "
                f"{iso_utc(ours.transcript.was.mtime_ns / 1e9)[:16]}, and the other host has "
                "continued the session in another way",
                hint=f"bring-back with --to FILE; or `bsd archive forget {ours.id}` deletes the"
                " copy of this root",
            )
    for path in packs_in(theirs.directory):
        _move_new(path, target / path.name)
    sync_dir(target)
    write_snapshot(moved)
    tidy_snapshot(moved, now)
    return moved


def _entries(layout: Layout, copy: Snapshot) -> set[str | bytes]:
    """Return the ids of the entries of a copy; lines without an id count as they are."""
    found: set[str | bytes] = set()
    with closing(SnapshotReader(copy)) as source:
        fmt = format_of(source, program_of(layout, copy.name.agent))
        for line in source.lines():
            entry = None if fmt is None else parse_entry(line.raw)
            found.add((fmt.info(entry).id if fmt and entry else None) or line.raw)
    return found


def _adopt_memory(source: Path, target: Path) -> None:
    """Move copies of a project's notes that this root does not have."""
    for top, _, names in os.walk(source):
        for name in names:
            path = Path(top, name)
            place = target / path.relative_to(source)
            if not os.path.lexists(place):
                make_private_dir(place.parent)
                os.rename(path, place)
                sync_dir(place.parent)
