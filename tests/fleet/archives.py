"""Two machines that share a bucket in a directory, and an archive as a push leaves it there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from bsd.actions.context import ActionContext
from bsd.bucket.objects import Bucket, open_bucket
from bsd.bucket.sealing import sealing_of
from bsd.bucket.transfers import upload
from bsd.core.config_file import ConfigService
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout
from bsd.core.zstd import zstd
from bsd.fleet.host import HostDirectory, this_host
from bsd.fleet.manifest import CopyFacts, copy_facts, make_manifest, manifest_key
from bsd.sessions.idle import RetryBudget
from bsd.store.snapshots import read_snapshot


@dataclass
class Machine:
    """A host of a fleet."""

    layout: Layout
    settings: FleetSettings
    clock: Callable[[], float] = time.time

    @classmethod
    def of(cls, layout: Layout, bucket: Path, host: str) -> Machine:
        bucket.mkdir(exist_ok=True)
        return cls(layout, FleetSettings(bucket=f"file://{bucket}", host=host, copy_after="1h"))

    @property
    def context(self) -> ActionContext:
        return ActionContext(
            layout=self.layout,
            config=ConfigService(self.layout.config_file),
            fleet=self.settings,
            budget=RetryBudget(wait=0.0, clock=self.clock, sleep=lambda _: None),
        )

    @property
    def bucket(self) -> Bucket:
        return open_bucket(self.settings)

    @property
    def directory(self) -> HostDirectory:
        return this_host(self.layout, self.settings)

    def put_archive(self, generation: int = 1, at: float | None = None) -> None:
        """Upload the archive with one manifest, as a first push does."""
        sealing, directory, archive = sealing_of(self.settings), self.directory, self.layout.archive
        added: list[tuple[bytes, bytes | None]] = []
        for path in sorted(each for each in archive.rglob("*") if each.is_file()):
            file = upload(
                self.bucket,
                directory.objects,
                path,
                root=self.layout.root,
                path=str(path.relative_to(archive)),
                sealing=sealing,
            )
            added.append((orjson.dumps(file.as_json()), _facts(path)))
        manifest = make_manifest(
            directory, generation, None, added, (), at=at or self.clock(), full=True
        )
        self.bucket.put_new(manifest_key(directory, generation), sealing.seal(manifest))


def _facts(path: Path) -> bytes | None:
    if path.name != "copy.json" or (copy := read_snapshot(path.parent)) is None:
        return None
    updated = copy.transcript.was.mtime_ns / 1e9
    return copy_facts(CopyFacts(copy.name, updated, copy.size, copy.gone_at))


def plain_contents(top: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield all files below a directory with their content, zstd frames decompressed."""
    for path in sorted(top.rglob("*")):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            yield path, content + _unpacked(content)


def _unpacked(content: bytes) -> bytes:
    pieces, magic = [], b"\x28\xb5\x2f\xfd"
    at = content.find(magic)
    while at >= 0:
        unpacker = zstd.ZstdDecompressor()
        with suppress(zstd.ZstdError):
            pieces.append(unpacker.decompress(content[at:]))
        at = content.find(magic, at + 1)
    return b"".join(pieces)


def said_in(top: Path, word: str) -> list[str]:
    """Return the files below a directory that contain a word, in any encoding bsd uses."""
    needle = word.encode().lower()
    return [
        str(path.relative_to(top)) for path, data in plain_contents(top) if needle in data.lower()
    ]
