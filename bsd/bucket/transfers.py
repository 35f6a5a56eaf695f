"""Files as objects: upload in pieces, download, and ranges."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from bsd.bucket.objects import Bucket
from bsd.bucket.remote_file import RemoteFile
from bsd.bucket.sealing import Sealing


def upload(
    bucket: Bucket,
    directory: str,
    file: Path,
    *,
    root: Path,
    path: str,
    sealing: Sealing,
) -> RemoteFile:
    """Upload a file in pieces of at most 64 MB; a piece that is already there is not sent again.

    Args:
        directory: the directory of the objects' keys: `HOST/ROOT/objects`.
        file: the file.
        root: bsd's root, which contains the file (see `files.open_ours`).
        path: the file's name in the manifest.
        sealing: how it is encrypted.

    Raises:
        OSError: the file cannot be read, or changed while it was read.
        OtherContent: an object has the key of a piece, but not its content.
    """
    raise NotImplementedError


def read_range(
    bucket: Bucket, remote: RemoteFile, sealing: Sealing, start: int, length: int
) -> bytes:
    """Return bytes of a file in the bucket; requests only what is needed of it.

    The bytes of a piece that is not sealed are only verified if the whole piece is read: the caller
    knows the hash of its line.

    Raises:
        NoObject, ObjectDamaged: a piece is missing or is not as it was uploaded.
        CannotDecrypt: as `Sealing.open`.
    """
    raise NotImplementedError


def download(bucket: Bucket, remote: RemoteFile, sealing: Sealing, to: BinaryIO) -> None:
    """Write a whole file of the bucket, and check its hashes; raises as `read_range`."""
    raise NotImplementedError
