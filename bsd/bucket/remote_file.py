"""A file of this root in the bucket: its name, hash and the objects that hold its bytes.

The forms in manifests and the journal are read strictly: other hosts write manifests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_HASH = re.compile(r"[0-9a-f]{64}")
_LARGEST = 1 << 50  # bytes
_LARGEST_PIECE = 64_000_000
_SEGMENT = 1 << 20
_SEGMENT_MORE = 1 << 16  # bytes that encryption adds at most
_MOST_PARTS = 1 << 20


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

    def as_json(self) -> dict[str, Any]:
        """Return the piece for a manifest or the journal."""
        found: dict[str, Any] = {"key": self.key, "size": self.size, "hash": self.hash}
        return found | {"sealed": list(self.sealed)} if self.sealed else found

    @classmethod
    def from_json(cls, value: object) -> RemotePart:
        """Return the piece that `as_json` has written; raises ValueError for anything else."""
        members = _members(value, {"key", "size", "hash"}, {"sealed"})
        part = cls(
            key=_key(members["key"]),
            size=_size(members["size"], _LARGEST_PIECE),
            hash=_hash(members["hash"]),
            sealed=tuple(
                _size(each, _SEGMENT + _SEGMENT_MORE)
                for each in _list(members.get("sealed", []), _LARGEST_PIECE // _SEGMENT + 1)
            ),
        )
        if part.sealed and len(part.sealed) != -(-part.size // _SEGMENT):
            raise ValueError("the segments of a piece do not match its size")
        return part


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file in the bucket, as manifests and the journal list it.

    Attributes:
        path: relative to `archive/` of the root, with `/`.
        size: bytes of the file.
        hash: SHA-256 of the file, in hex.
        parts: its pieces in order; a file of at most 64 MB has one, unless uploads are limited.
    """

    path: str
    size: int
    hash: str
    parts: tuple[RemotePart, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the file for a manifest or the journal."""
        parts = [part.as_json() for part in self.parts]
        return {"path": self.path, "size": self.size, "hash": self.hash, "parts": parts}

    @classmethod
    def from_json(cls, value: object) -> RemoteFile:
        """Return the file that `as_json` has written; raises ValueError for anything else.

        A path that leads out of the archive is an error, too.
        """
        members = _members(value, {"path", "size", "hash", "parts"}, set())
        file = cls(
            path=_key(members["path"]),
            size=_size(members["size"], _LARGEST),
            hash=_hash(members["hash"]),
            parts=tuple(map(RemotePart.from_json, _list(members["parts"], _MOST_PARTS))),
        )
        if sum(part.size for part in file.parts) != file.size:
            raise ValueError("the pieces of a file do not match its size")
        return file


def _members(value: object, wanted: set[str], possible: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or not wanted <= value.keys() <= wanted | possible:
        raise ValueError(f"an object with the members {', '.join(sorted(wanted))} is expected")
    return value


def _list(value: object, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"a list of at most {most} items is expected")
    return value


def _size(value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"a size of at most {most} bytes is expected")
    return value


def _hash(value: object) -> str:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise ValueError("a SHA-256 in hex is expected")
    return value


def _key(value: object) -> str:
    """Return a relative path with `/`, without parts that lead elsewhere."""
    if not isinstance(value, str) or not 0 < len(value) <= 1024 or not value.isprintable():
        raise ValueError("a path is expected")
    if any(part in {"", ".", ".."} for part in value.split("/")) or "\\" in value:
        raise ValueError("a path leads elsewhere")
    return value
