"""Deletion by age: the interface of a retention target, a run over a target, and its forecast.

The targets themselves are in `targets.py`. Times are epoch seconds, sizes bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import structlog
from pydantic import Field

from bsd.core.answers import Internal
from bsd.core.clock import RunTime
from bsd.core.errors import BsdError, Busy, os_problem
from bsd.core.formatting import format_size, iso_utc, lifetime_seconds

_log = structlog.stdlib.get_logger(module="retention")


@dataclass(frozen=True, slots=True)
class ExpirableFile:
    """A file, or a directory that is deleted as a whole; its age counts from `mtime`."""

    path: Path
    size: int
    mtime: float


Expired = Callable[[ExpirableFile], bool]


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """The files of one session in a target, listed without a lock.

    `is_untidy`: True if there are leftovers of a killed operation, whatever their age.
    """

    files: list[ExpirableFile]
    is_untidy: bool = False


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The number of deleted files, their bytes, and the number of errors (fields of seed 000)."""

    cleaned: int = 0
    bytes: int = 0
    errors: int = 0

    def __add__(self, other: Cleaned) -> Cleaned:
        return Cleaned(
            self.cleaned + other.cleaned, self.bytes + other.bytes, self.errors + other.errors
        )


class RetentionTarget(ABC):
    """A kind of content that is kept for the duration of a setting.

    The files of a session lie in a single place (a directory or a file) and are deleted under the
    session's lock.

    Attributes:
        name: as in `Deleted 15 extracted files`.
        keep: a duration, or `never`.
        destroys: False if deletion loses no content. Such files are deleted even if the clock is
            in doubt.
    """

    name: ClassVar[str]
    keep: str
    destroys: bool = True

    @abstractmethod
    def places(self) -> Iterator[Path]:
        """Yield one path per session; raises BsdError."""

    @abstractmethod
    def look(self, place: Path) -> SessionFiles:
        """Return the files in a place without taking its lock; raises OSError."""

    @abstractmethod
    def delete(self, place: Path, expired: Expired) -> Cleaned:
        """Delete the files that are expired, tested again under the lock.

        Raises BsdError, OSError.
        """

    def tidy(self, place: Path) -> None:  # noqa: B027 - some targets have no leftovers
        """Remove leftovers; raises Busy at once if the session is locked."""

    def why_held(self, time: RunTime) -> str | None:
        """Return why files may not be deleted by age; None if the clock is trusted."""
        return time.doubt if self.destroys and lifetime_seconds(self.keep) is not None else None

    def expired(self, time: RunTime) -> Expired:
        """Return a predicate that is true for files older than `keep`."""
        lifetime = lifetime_seconds(self.keep)
        if lifetime is None or self.why_held(time):
            return lambda _: False
        return lambda file: time.now - file.mtime > lifetime


def clean(
    target: RetentionTarget,
    time: RunTime,
    stopping: Callable[[], bool] = lambda: False,
    progress: Callable[[Cleaned], None] = lambda _: None,
) -> Cleaned:
    """Delete the files that are old enough; log failures and a clock in doubt.

    Args:
        stopping: called before each session; if it returns True, the next run deletes the rest.
        progress: called after each session with the sum so far.
    """
    if held := target.why_held(time):
        _log.warning("[RETENTION] Nothing is deleted", target=target.name, problem=held)
        return Cleaned()
    return clean_expired(target, target.expired(time), stopping, progress)


def clean_expired(
    target: RetentionTarget,
    expired: Expired,
    stopping: Callable[[], bool],
    progress: Callable[[Cleaned], None] = lambda _: None,
) -> Cleaned:
    """Delete the files for which `expired` is true, with the arguments of `clean`."""
    done = Cleaned()
    try:
        for place in target.places():
            if stopping():
                break
            done += _clean_place(target, place, expired)
            progress(done)
    except BsdError as problem:
        _log.error("[RETENTION] The store cannot be read", problem=problem.message)
        done += Cleaned(errors=1)
    if done.cleaned:
        amount = f"{done.cleaned} {target.name} file{'' if done.cleaned == 1 else 's'}"
        _log.info(f"[RETENTION] Deleted {amount} ({format_size(done.bytes)})")
    return done


def _clean_place(target: RetentionTarget, place: Path, expired: Expired) -> Cleaned:
    try:
        # First without the lock, because most sessions have no expired files.
        found = target.look(place)
        if any(map(expired, found.files)):
            return target.delete(place, expired)
        if found.is_untidy:
            with suppress(Busy):
                target.tidy(place)
        return Cleaned()
    except FileNotFoundError:
        return Cleaned()  # deleted meanwhile
    except (BsdError, OSError) as error:
        problem = os_problem(error, f"in {place}")
        _log.warning("[RETENTION] Not deleted", where=str(place), problem=problem.message)
        return Cleaned(errors=1)


@dataclass(frozen=True, slots=True)
class ExpiredFile:
    """A file to be deleted, and the time since which it is old enough. Times are ISO 8601."""

    path: str
    size: int
    modified: str
    expired: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """The files that a run at `at` (epoch seconds) would delete, and the next expiry after it."""

    at: Internal[float]
    keep: str
    going: Internal[tuple[ExpirableFile, ...]]  # oldest first
    next_expiry: Internal[float | None]  # the earliest of the files that stay
    cleaned: int = field(init=False, default=0)
    bytes: int = field(init=False, default=0)
    staying: int
    held: Annotated[
        str | None, Field(description="Why the run deletes no files, however old they are")
    ] = None
    expires: Annotated[
        str | None,
        Field(
            description="When the first of the files that stay will be old enough",
            serialization_alias="next_expiry",
        ),
    ] = field(init=False, default=None)
    files: tuple[ExpiredFile, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        """Compute the fields that derive from others."""
        lifetime = lifetime_seconds(self.keep) or 0.0
        files = tuple(
            ExpiredFile(
                str(file.path), file.size, iso_utc(file.mtime), iso_utc(file.mtime + lifetime)
            )
            for file in self.going
        )
        expires = None if self.next_expiry is None else iso_utc(self.next_expiry)
        fill = object.__setattr__
        fill(self, "cleaned", len(self.going))
        fill(self, "bytes", sum(file.size for file in self.going))
        fill(self, "expires", expires)
        fill(self, "files", files)


def forecast(target: RetentionTarget, time: RunTime) -> Forecast:
    """Return the files that `clean` would delete, without deleting them. Raises BsdError."""
    lifetime, expired = lifetime_seconds(target.keep), target.expired(time)
    going: list[ExpirableFile] = []
    staying: list[float] = []  # modification times
    for place in target.places():
        with suppress(OSError):
            for file in target.look(place).files:
                if expired(file):
                    going.append(file)
                else:
                    staying.append(file.mtime)
    going.sort(key=lambda file: file.mtime)
    expiry = None
    if staying and lifetime is not None:
        expiry = max(time.now, min(staying) + lifetime)
    held = target.why_held(time)
    return Forecast(time.now, target.keep, tuple(going), expiry, len(staying), held)
