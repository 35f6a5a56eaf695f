"""A file of this root in the bucket: its name, hash and the objects that hold its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RemotePart:
    """A piece of a file, as one object. Sizes are bytes.

    Attributes:
        key: the object's key below the prefix of the bucket.
        size: of the piece before encryption.
        hash: SHA-256 of the piece before encryption, in hex.
        sealed: sizes of its encrypted segments, each of 1 MiB before encryption but for the last;
            empty: not encrypted.
    """

    key: str
    size: int
    hash: str
    sealed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file in the bucket, as manifests and the journal list it.

    Attributes:
        path: relative to `archive/` of the root, with `/`.
        size: bytes of the file.
        hash: SHA-256 of the file, in hex.
        parts: its pieces in order; a file of at most 64 MB has one.
    """

    path: str
    size: int
    hash: str
    parts: tuple[RemotePart, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the file for a manifest or the journal."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, value: object) -> RemoteFile:
        """Return the file that `as_json` has written; raises ValueError for anything else."""
        raise NotImplementedError
