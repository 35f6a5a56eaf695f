"""What is kept for a time, and then deleted: by age, lot by lot, or only foretold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol

import structlog
from pydantic import Field

from bsd.core.answers import Internal
from bsd.core.clock import Ages
from bsd.core.errors import BsdError, Busy, os_problem
from bsd.core.formatting import format_size, iso_utc, lifetime_seconds

_log = structlog.stdlib.get_logger(module="retention")


@dataclass(frozen=True, slots=True)
class Thing:
    """One file (or directory) that is kept for a time; its age counts from `mtime` (epoch s)."""

    path: Path
    size: int
    mtime: float


Expired = Callable[[Thing], bool]


class Lot(ABC):
    """Things that are deleted together, under one lock."""

    path: Path

    @abstractmethod
    def things(self) -> list[Thing]:
        """What lies there now; raises OSError."""

    @abstractmethod
    def delete(self, expired: Expired) -> Cleaned:
        """Delete what is expired when looked at under the lock; raises BsdError, OSError."""

    def is_untidy(self) -> bool:
        """Whether `things` found what is of no use to anybody: leftovers of what was cut short."""
        return False

    def tidy(self) -> None:  # noqa: B027 - where nothing is left over, or it has a journal
        """Remove such things; raises Busy at once if somebody is at work there."""


class Shelf(Protocol):
    """A place where things are kept for as long as one setting says."""

    name: str  # as in `Deleted 15 extracted files`
    keep: str  # a duration, or `never`

    def lots(self) -> Iterable[Lot]:
        """All that lies there; raises BsdError."""
        ...


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How much was deleted (bytes), and how much could not be: seed 000's fields."""

    cleaned: int = 0
    bytes: int = 0
    errors: int = 0

    def __add__(self, other: Cleaned) -> Cleaned:
        return Cleaned(
            self.cleaned + other.cleaned, self.bytes + other.bytes, self.errors + other.errors
        )


@dataclass(frozen=True, slots=True)
class ExpiredFile:
    """One file that goes, and since when it is old enough. Times are ISO 8601."""

    path: str
    size: int
    modified: str
    expired: str


def _expired_files(found: Forecast) -> tuple[ExpiredFile, ...]:
    lifetime = lifetime_seconds(found.keep) or 0.0
    return tuple(
        ExpiredFile(str(one.path), one.size, iso_utc(one.mtime), iso_utc(one.mtime + lifetime))
        for one in found.going
    )


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run at `at` (epoch seconds) would delete, and what comes after it."""

    at: Internal[float]
    keep: str
    going: Internal[tuple[Thing, ...]]  # the oldest first
    next_expiry: Internal[float | None]  # of what stays: epoch seconds
    cleaned: int = field(init=False, default=0)
    bytes: int = field(init=False, default=0)
    staying: int
    held: Annotated[str | None, Field(description="Why nothing is deleted, whatever its age")] = (
        None
    )
    expires: Annotated[
        str | None,
        Field(
            description="When the first of what stays will be old enough",
            serialization_alias="next_expiry",
        ),
    ] = field(init=False, default=None)
    files: tuple[ExpiredFile, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        """Fill the members that follow from others."""
        expires = None if self.next_expiry is None else iso_utc(self.next_expiry)
        fill = object.__setattr__
        fill(self, "cleaned", len(self.going))
        fill(self, "bytes", sum(thing.size for thing in self.going))
        fill(self, "expires", expires)
        fill(self, "files", _expired_files(self))


def clean(shelf: Shelf, ages: Ages, stopping: Callable[[], bool] = lambda: False) -> Cleaned:
    """Delete what is old enough; failures are logged and counted, a clock in doubt is logged.

    `stopping` is asked before each lot: what is left then goes with the next run.
    """
    lifetime = lifetime_seconds(shelf.keep)
    if held := ages.why_held(lifetime):
        _log.warning("[RETENTION] Nothing is deleted", shelf=shelf.name, problem=held)
        return Cleaned()

    def expired(thing: Thing) -> bool:
        return lifetime is not None and ages.age(thing.mtime, lifetime) > lifetime

    return clean_lots(shelf, expired, stopping)


def clean_lots(shelf: Shelf, expired: Expired, stopping: Callable[[], bool]) -> Cleaned:
    """Delete what is expired, whatever that means, as `clean` does."""
    done = Cleaned()
    try:
        for lot in shelf.lots():
            if stopping():
                break
            done += _clean_lot(lot, expired)
    except BsdError as problem:
        _log.error("[RETENTION] The store cannot be read", problem=problem.message)
        done += Cleaned(errors=1)
    if done.cleaned:
        amount = f"{done.cleaned} {shelf.name} file{'' if done.cleaned == 1 else 's'}"
        _log.info(f"[RETENTION] Deleted {amount} ({format_size(done.bytes)})")
    return done


def _clean_lot(lot: Lot, expired: Expired) -> Cleaned:
    try:
        # Without the lock: most lots have nothing to give, and need not be locked to know it.
        if any(map(expired, lot.things())):
            return lot.delete(expired)
        if lot.is_untidy():
            with suppress(Busy):
                lot.tidy()
        return Cleaned()
    except FileNotFoundError:
        return Cleaned()  # it went by itself
    except (BsdError, OSError) as error:
        problem = os_problem(error, f"in {lot.path}")
        _log.warning("[RETENTION] Not deleted", where=str(lot.path), problem=problem.message)
        return Cleaned(errors=1)


def forecast(shelf: Shelf, ages: Ages) -> Forecast:
    """Say what `clean` would delete; changes nothing. Raises BsdError."""
    lifetime = lifetime_seconds(shelf.keep)
    held = ages.held_for(lifetime)
    going, oldest, staying = [], float("-inf"), 0
    for lot in shelf.lots():
        with suppress(OSError):
            for thing in lot.things():
                age = 0.0 if lifetime is None else ages.age(thing.mtime, lifetime)
                if lifetime is not None and age > lifetime and not held:
                    going.append(thing)
                    continue
                staying += 1
                oldest = max(oldest, age)
    expiry = None
    if staying and lifetime is not None:
        expiry = ages.wall + max(lifetime - oldest, held)
    going.sort(key=lambda thing: thing.mtime)
    why = ages.why_held(lifetime)
    return Forecast(ages.wall, shelf.keep, tuple(going), expiry, staying, why)


def unlink(thing: Thing) -> Cleaned:
    """Delete one file; a failure is logged and counted."""
    try:
        thing.path.unlink()
    except FileNotFoundError:
        return Cleaned()
    except OSError as error:
        problem = os_problem(error, f"deleting {thing.path}").message
        _log.warning("[RETENTION] Not deleted", where=str(thing.path), problem=problem)
        return Cleaned(errors=1)
    return Cleaned(1, thing.size)
