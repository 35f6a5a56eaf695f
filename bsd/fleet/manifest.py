"""Manifests: lists of the files that a host has in the bucket, each an object, chained by hash.

A manifest is `HOST/ID/manifests/<generation>.json`: JSON, compressed with zstd, encrypted if the
settings say so. It is only ever created. Generations count from 1; each names the SHA-256 of the
object before it, and lists what was added and removed since. Every 50th lists all files (`full`),
and those before it are deleted then. Titles and other words of sessions are in no manifest, since
`forget` must be able to delete them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from bsd import __version__
from bsd.bucket.errors import CannotDecrypt, NoObject
from bsd.bucket.objects import Bucket
from bsd.bucket.remote_file import RemoteFile
from bsd.bucket.sealing import Sealing
from bsd.core.errors import BsdError, TemporaryFailure
from bsd.core.layout import COPY, SessionName
from bsd.core.zstd import zstd
from bsd.fleet.host import HOST, ID, HostDirectory
from bsd.store.checked import moment, relative_path, sha256_in_hex, text, truth, whole_number
from bsd.store.pack import PACK
from bsd.store.snapshots import COPY_FILE

VERSION = 1
FULL_EVERY = 50  # generations
_NAME = re.compile(r"(\d{10})\.json")
_LEVEL = 3
_LARGEST = 1 << 30  # bytes of JSON; a manifest of 64 MB may not inflate to more
_PIECE = 1 << 20
_MOST_TRIES = 3
_BROKEN = (
    *(LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError),
    *(BsdError, zstd.ZstdError),
)


class FileKind(StrEnum):
    """The kind of a file of the archive, which its path tells."""

    COPY = "copy"  # `copy.json` of a session's copy
    PARTS = "parts"  # a pack of a session's copy
    VALUES = "values"  # a pack of values that left a session
    OTHER = "other"  # such as notes of a project


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """Facts about a copy of a session, so that lists need no other object. Times: epoch seconds.

    Attributes:
        session: its name.
        updated: the time of its transcript when it was copied.
        size: bytes of its files, without extracted values.
        gone_at: when it was found deleted on its host; None: it was not.
    """

    session: SessionName
    updated: float
    size: int
    gone_at: float | None = None


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A file of a host in the bucket; `copy` is given for a `copy.json`."""

    file: RemoteFile
    copy: CopyFacts | None = None

    @property
    def path(self) -> str:
        """The path relative to `archive/`."""
        return self.file.path

    @property
    def kind(self) -> FileKind:
        """The kind of the file."""
        *directories, name = self.path.split("/")
        if directories[-1:] and directories[-1].startswith(COPY):
            return FileKind.COPY if name == COPY_FILE else FileKind.PARTS
        is_values = len(directories) == 1 and name.endswith(PACK)
        return FileKind.VALUES if is_values else FileKind.OTHER

    @property
    def store(self) -> str:
        """The first directory of the path: the store name of the session."""
        return self.path.partition("/")[0]


@dataclass(frozen=True, slots=True)
class HostArchive:
    """The files of a host in the bucket, as its newest manifest says.

    Attributes:
        directory: of the host.
        generation: of the newest manifest; 0: there is none.
        previous: SHA-256 of the newest manifest's object, in hex; the next one names it.
        at: when it was written, by the host's clock; epoch seconds.
        version: of bsd that wrote it.
        files: all files by path.
        broken: what is wrong with the chain of manifests; empty: nothing.
    """

    directory: HostDirectory
    generation: int = 0
    previous: str | None = None
    at: float = 0.0
    version: str = ""
    files: dict[str, ManifestFile] = field(default_factory=dict)
    broken: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        """The host's name; two hosts may have the same."""
        return self.directory.host

    @property
    def id(self) -> str:
        """The id that distinguishes hosts of the same name."""
        return self.directory.id

    def copies(self) -> Iterator[tuple[ManifestFile, CopyFacts]]:
        """Yield the `copy.json` of each copy of a session, with its facts."""
        for each in self.files.values():
            if each.copy is not None:
                yield each, each.copy

    def below(self, directory: str) -> list[ManifestFile]:
        """Return the files in a directory of the archive and below it, by path."""
        start = f"{directory}/"
        return sorted(
            (each for path, each in self.files.items() if path.startswith(start)),
            key=lambda each: each.path,
        )


def host_directories(bucket: Bucket) -> list[HostDirectory]:
    """Return the directories of all hosts, sorted: hosts of one name stand beside each other.

    Raises the errors of `bsd/bucket/errors.py`.
    """
    return sorted(
        HostDirectory(host, id_)
        for host in bucket.list_directories("")
        if HOST.fullmatch(host)
        for id_ in bucket.list_directories(host)
        if ID.fullmatch(id_)
    )


def manifest_key(directory: HostDirectory, generation: int) -> str:
    """Return the key of a manifest."""
    return f"{directory.manifests}/{generation:010d}.json"


def generations(bucket: Bucket, directory: HostDirectory) -> list[int]:
    """Return the numbers of a host's manifests, ascending."""
    names = (each.key.rpartition("/")[2] for each in bucket.list_keys(directory.manifests))
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))


def newest_generation(bucket: Bucket, directory: HostDirectory) -> int:
    """Return the number of the newest manifest of a host, with one request; 0 if there is none."""
    return max(generations(bucket, directory), default=0)


# --- writing ---


def make_manifest(
    directory: HostDirectory,
    generation: int,
    previous: str | None,
    added: Iterable[tuple[bytes, bytes | None]],
    removed: Iterable[str],
    *,
    at: float,
    full: bool,
) -> bytes:
    """Return a manifest as JSON, compressed, not encrypted.

    Args:
        directory: of the host.
        generation: its number.
        previous: SHA-256 of the object before it, in hex; None for the first.
        added: the files that are new or changed, all files if `full`; each is the JSON of a
            `RemoteFile`, and of the facts of a copy (`copy_facts`).
        removed: the paths that are no longer there; not read if `full`.
        at: epoch seconds.
        full: the manifest replaces all before.
    """
    head = {
        "version": VERSION,
        "host": directory.host,
        "id": directory.id,
        "generation": generation,
        "previous": previous,
        "at": at,
        "bsd": __version__,
        "full": full,
        "removed": [] if full else list(removed),
    }
    packer = zstd.ZstdCompressor(level=_LEVEL)
    pieces = [packer.compress(orjson.dumps(head)[:-1] + b',"added":[')]
    for number, (file, copy) in enumerate(added):
        begin = b',{"file":' if number else b'{"file":'
        end = b"}" if copy is None else b',"copy":' + copy + b"}"
        pieces.append(packer.compress(begin + file + end))
    pieces.append(packer.compress(b"]}"))
    pieces.append(packer.flush())
    return b"".join(pieces)


def copy_facts(facts: CopyFacts) -> bytes:
    """Return facts of a copy as JSON, for the journal and for manifests."""
    return orjson.dumps(
        {
            "session": str(facts.session),
            "updated": facts.updated,
            "size": facts.size,
            "gone_at": facts.gone_at,
        }
    )


# --- reading ---


@dataclass(frozen=True, slots=True)
class _Manifest:
    """A manifest as it was read. `hash`: of the object, in hex."""

    generation: int
    hash: str
    previous: str | None
    at: float
    version: str
    full: bool
    added: tuple[ManifestFile, ...]
    removed: tuple[str, ...]


def read_host(bucket: Bucket, directory: HostDirectory, sealing: Sealing) -> HostArchive:
    """Return the newest state of a host.

    A manifest that is missing or damaged is named in `broken`; what the others say is returned. If
    the host deletes old manifests meanwhile, they are read again.

    Raises:
        CannotDecrypt: the manifests are encrypted, and the identity is missing or another one.
        TemporaryFailure: the host deletes manifests all the time.
        BucketUnreachable, BucketRefused, NoBucket: as of `Bucket`.
    """
    for _ in range(_MOST_TRIES):
        try:
            return _read_chain(bucket, directory, sealing)
        except NoObject:
            continue
    raise TemporaryFailure(
        f"{directory} changes its manifests while they are read", hint="run it again"
    )


def _read_chain(bucket: Bucket, directory: HostDirectory, sealing: Sealing) -> HostArchive:
    """Read back from the newest manifest to one that lists all files; raises NoObject."""
    there = generations(bucket, directory)
    chain: list[_Manifest] = []
    broken: list[str] = []
    newest_hash: str | None = None
    for generation in reversed(there):
        key = manifest_key(directory, generation)
        data = bucket.get(key)
        hash_ = hashlib.sha256(data).hexdigest()
        newest_hash = newest_hash or hash_
        try:
            manifest = _parse(sealing.open(data, key), directory, generation, hash_)
        except CannotDecrypt:
            raise
        except _BROKEN as error:
            broken.append(f"{key} is damaged ({error})")
            continue
        if chain and (chain[-1].generation, chain[-1].previous) != (generation + 1, hash_):
            broken.append(f"the chain is broken between {key} and generation {generation + 1}")
        chain.append(manifest)
        if manifest.full:
            break
    else:
        if there:
            broken.append(f"the manifests of {directory} before {there[0]} are missing")
    files: dict[str, ManifestFile] = {}
    for manifest in reversed(chain):
        files |= {each.path: each for each in manifest.added}
        for path in manifest.removed:
            files.pop(path, None)
    newest = chain[0] if chain else None
    return HostArchive(
        directory,
        generation=max(there, default=0),
        previous=newest_hash,
        at=newest.at if newest else 0.0,
        version=newest.version if newest else "",
        files=files,
        broken=tuple(broken),
    )


def _parse(data: bytes, directory: HostDirectory, generation: int, hash_: str) -> _Manifest:
    """Read a manifest strictly; raises an error of `_BROKEN`."""
    document = orjson.loads(_inflated(data))
    if document["version"] != VERSION:
        raise ValueError(f"its version is {document['version']!r:.20}")
    place = (document["host"], document["id"], document["generation"])
    if place != (directory.host, directory.id, generation):
        raise ValueError("it belongs to another place")
    previous = document["previous"]
    return _Manifest(
        generation,
        hash_,
        None if previous is None else sha256_in_hex(previous).hex(),
        moment(document["at"]),
        text(document["bsd"]),
        truth(document["full"]),
        tuple(map(_parse_file, document["added"])),
        tuple(map(relative_path, document["removed"])),
    )


def _parse_file(document: Any) -> ManifestFile:
    file = RemoteFile.from_json(document["file"])
    relative_path(file.path)
    for part in file.parts:
        relative_path(part.key)
    copy = document.get("copy")
    if copy is None:
        return ManifestFile(file)
    gone_at = copy["gone_at"]
    facts = CopyFacts(
        SessionName.parse(text(copy["session"])),
        moment(copy["updated"]),
        whole_number(copy["size"]),
        None if gone_at is None else moment(gone_at),
    )
    return ManifestFile(file, facts)


def _inflated(data: bytes) -> bytes:
    unpacker = zstd.ZstdDecompressor()
    pieces, size = [], 0
    while not unpacker.eof:
        piece = unpacker.decompress(data, _PIECE)
        data = b""
        if not piece and unpacker.needs_input:
            raise ValueError("it is cut short")
        size += len(piece)
        if size > _LARGEST:
            raise ValueError("it is too large")
        pieces.append(piece)
    return b"".join(pieces)
