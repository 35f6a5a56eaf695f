"""A bucket: objects that are created once, read whole or in ranges, listed and deleted.

Object storage is reached through obstore, `file://` is a directory (`directory.py`). Every error is
one of `errors.py`. No call waits without end, and none retries for long: a caller that cannot go on
waits for `backoff` and calls again.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from bsd.bucket.errors import NoBucket
from bsd.core.extras import require_extra
from bsd.core.fleet_settings import FleetSettings

LARGEST_OBJECT = 64_000_000  # bytes; larger files are stored in several pieces
_SMALLEST_PIECE = 1 << 20
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 300.0  # seconds


class ListedObject(NamedTuple):
    """An object of a list. The key is relative to the prefix of the bucket's URL."""

    key: str
    size: int  # bytes
    modified: datetime  # by the clock of the service, with its time zone


@dataclass(frozen=True, slots=True)
class RightCheck:
    """Whether the credentials allow an operation.

    Attributes:
        operation: "list", "create", "read" or "delete".
        problem: why it failed; None: it is allowed.
        hint: what to do.
    """

    operation: str
    problem: str | None = None
    hint: str | None = None


class Bucket(ABC):
    """A bucket with the prefix of its URL; keys are relative to that. Usable by several threads.

    Every operation raises BucketUnreachable (try again later), BucketRefused or NoBucket.
    """

    url: str  # as in the settings
    bandwidth: Bandwidth

    @abstractmethod
    def put_new(self, key: str, data: bytes | bytearray) -> bool:
        """Create an object of at most `LARGEST_OBJECT` bytes, and check what the service has of it.

        Returns:
            True if it was created; False if it was there with the same content.

        Raises:
            OtherContent: it is there with another content.
        """

    @abstractmethod
    def put(self, key: str, data: bytes | bytearray) -> None:
        """Create or replace an object, and check what the service has of it."""

    @abstractmethod
    def get(self, key: str, most: int = LARGEST_OBJECT) -> bytes:
        """Return an object; raises NoObject, and ObjectDamaged if it has more than `most` bytes."""

    @abstractmethod
    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return `length` bytes of an object.

        Raises NoObject, and ObjectDamaged if the object ends before.
        """

    @abstractmethod
    def list_keys(self, prefix: str) -> Iterator[ListedObject]:
        """Yield the objects below a directory (`prefix` without a slash at its end) by key."""

    @abstractmethod
    def list_directories(self, prefix: str) -> list[str]:
        """Return the names of the directories in a directory; "" is the bucket's own."""

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; one that does not exist is no error."""

    @abstractmethod
    def keeps_versions(self) -> bool | None:
        """Return whether the bucket keeps old versions of deleted objects; None if unknown."""

    @abstractmethod
    def check_rights(self) -> list[RightCheck]:
        """Try each operation with an object of a few bytes, which is deleted again.

        Raises BucketUnreachable and NoBucket.
        """


def open_bucket(settings: FleetSettings) -> Bucket:
    """Return the bucket of the settings, without a request.

    Raises:
        Unavailable: obstore is not installed.
        NoBucket: the settings have no bucket, its directory does not exist, or the files of the
            service's tools cannot be read.
    """
    if not settings.bucket:
        raise NoBucket(
            "no bucket is set",
            hint="set `bucket` of [fleet] in bsd.toml: contrib/docs/fleet.md",
        )
    if settings.bucket.startswith("file://"):
        from bsd.bucket.directory import DirectoryBucket  # noqa: PLC0415 - only one is needed

        return DirectoryBucket(settings.bucket)
    require_extra("obstore", f"the bucket {settings.bucket}")
    from bsd.bucket.object_storage import StorageBucket  # noqa: PLC0415 - loads obstore

    return StorageBucket(settings.bucket, Bandwidth(settings.upload_bytes_per_second))


class Bandwidth:
    """A token bucket: uploads of a process together send at most so many bytes per second.

    A request is sent at once if the bytes of those before it have had their time. Its own bytes are
    sent as fast as the network takes them, so pieces of files are small if the limit is low.

    Args:
        rate: bytes per second; 0: no limit.
    """

    def __init__(
        self,
        rate: int = 0,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.rate = rate
        self._clock, self._sleep = clock, sleep
        self._free_at = 0.0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Wait until `size` bytes may be sent."""
        if not self.rate:
            return
        with self._lock:
            now = self._clock()
            begin = max(now, self._free_at)
            self._free_at = begin + size / self.rate
        if begin > now:
            self._sleep(begin - now)

    @property
    def piece(self) -> int:
        """The largest piece of a file that is sent at once, in bytes: four seconds' worth."""
        if not self.rate:
            return LARGEST_OBJECT
        return min(LARGEST_OBJECT, max(_SMALLEST_PIECE, 4 * self.rate))


def backoff(attempt: int, chance: random.Random | None = None) -> float:
    """Return the seconds to wait before the next attempt: 1 s, doubled each time, at most 300 s.

    Args:
        attempt: 0 after the first failure.
        chance: the source of the jitter, which is half of the wait.
    """
    most = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(attempt, 32))
    return most * (0.5 + 0.5 * (chance or random).random())
