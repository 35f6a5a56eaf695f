"""Thin packs (`[fleet] keep_local`): packs whose blocks are only in the bucket.

A thin pack is the head of a pack (16 bytes) and everything from its index on, as they were. Its
hash, places and records are those of the whole pack, and a line costs one request for its block.
The journal of uploads says where the pack is, so that no settings are needed. Nothing of what is
read is kept on this disk.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from bsd.bucket.errors import CannotDecrypt, NoBucket, NoObject, ObjectDamaged
from bsd.bucket.objects import Bucket, open_bucket
from bsd.bucket.remote_file import RemoteFile
from bsd.bucket.sealing import Sealing
from bsd.bucket.transfers import read_range
from bsd.core.errors import BsdError
from bsd.core.files import create_private, sync_dir, write_all
from bsd.core.fleet_settings import FleetSettings
from bsd.store.pack import UNFINISHED, OnlyInBucket, Pack, PackDamaged, root_of
from bsd.store.uploads import BucketPlace, stored_in_bucket

_NO_JOURNAL = "run `bsd archive push`, which finds it again in the bucket's manifests"


def make_thin(path: Path) -> int:
    """Replace a pack by its head and index, durably; return how many bytes that frees.

    The caller holds the session's lock, and knows that the bucket has the whole pack and that the
    journal names it.

    Raises:
        PackDamaged: the pack is not as it was written; it is left as it is.
        OSError: for example, the disk is full; the pack is left as it is.
    """
    with Pack(path) as pack:
        if pack.is_thin:
            return 0
        data = pack.without_blocks()
        freed = pack.summary.packed - len(data)
        status = path.lstat()
    temporary = path.with_name(f".{os.urandom(8).hex()}{UNFINISHED}")
    try:
        descriptor = create_private(temporary)
        try:
            write_all(descriptor, data)
            os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with Pack(temporary) as thin:
            thin.check_index()
            if not thin.is_thin and thin.summary.blocks:
                raise PackDamaged(path, "it cannot be made smaller")
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    sync_dir(path.parent)
    return freed


class RemoteBlocks:
    """Reads the bytes of a thin pack from the bucket.

    Raises:
        OnlyInBucket: the bucket cannot be reached or read now.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._remote, self._place = self._look_up()
        with _as_away(path, self._place.url):
            settings = FleetSettings(bucket=self._place.url, identity=self._place.identity)
            self._bucket: Bucket = open_bucket(settings)
        self._sealing = Sealing(identity=self._place.identity)

    def _look_up(self) -> tuple[RemoteFile, BucketPlace]:
        try:
            stored = stored_in_bucket(root_of(self._path), self._path)
        except BsdError as error:
            raise OnlyInBucket(
                f"{self._path}: its lines are only in the bucket, and {error.message}",
                hint=error.hint,
            ) from error
        if stored is None:
            raise OnlyInBucket(
                f"{self._path}: its lines are only in the bucket, and the journal of uploads does "
                "not say where",
                hint=_NO_JOURNAL,
            )
        return stored.file, stored.place

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the whole pack; raises PackDamaged if the bucket has others."""
        for attempt in (1, 2):
            try:
                with _as_away(self._path, self._place.url):
                    return read_range(self._bucket, self._remote, self._sealing, offset, length)
            except NoObject:
                why = f"the bucket {self._place.url} does not have its lines any more"
                raise PackDamaged(self._path, why) from None
            except ObjectDamaged as error:  # also on its way here
                if attempt == 2:
                    raise PackDamaged(self._path, error.message) from None
        raise AssertionError  # never reached


class _as_away:  # noqa: N801 - used as a function
    """Convert errors of a bucket that can go away by themselves, or by what the user does."""

    def __init__(self, path: Path, url: str) -> None:
        self._text = f"{path}: its lines are only in the bucket {url}, which cannot be read now"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NoObject | ObjectDamaged) or not isinstance(error, BsdError):
            return
        hint = error.hint or "connect this machine to the bucket, and run it again"
        lasting = isinstance(error, CannotDecrypt | NoBucket)
        word = "" if lasting else "try again when it can be reached; "
        raise OnlyInBucket(f"{self._text} ({error.message})", hint=word + hint) from None
