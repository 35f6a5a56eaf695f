"""Bounds the archive (SPEC §7a): packs and copies of sessions together take no more than was set.

Copies of sessions that are still in their places go first, since nothing is lost by that now; then
what is oldest. A copy goes whole. A session that is gone goes with its packs, by the youngest of
all that is kept of it: brought back without its values it would be none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bsd.care.expiry import Cleaned, Expired, Lot, Thing
from bsd.care.forgetting import Forgetting
from bsd.care.gone import gone_sessions
from bsd.care.keeping import archived, is_gone
from bsd.care.shelves import ArchiveShelf, own_lock_of
from bsd.foundation.errors import NotFound, Unavailable
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import Layout
from bsd.foundation.spelling import NEVER
from bsd.store.copies import SessionCopy, copy_directories, forget_copy, read_copy

_NEARLY = 0.9  # of what may be taken: then people are told


@immutable
class Goer:
    """What goes together, in this order."""

    age_from: float  # epoch seconds
    things: tuple[Thing, ...]
    copy: Path | None = None
    gone: SessionCopy | None = None  # the session that goes with all that is kept of it
    first: bool = False  # nothing is lost by it now

    @property
    def size(self) -> int:
        return sum(thing.size for thing in self.things)


class OverLimit:
    """What has to go so that the archive takes no more bytes than `limit`; packs are a shelf's."""

    name = "archived"
    keep = NEVER  # by age nothing of it goes

    def __init__(self, layout: Layout, limit: int, forgetting: Forgetting | None = None) -> None:
        self._layout = layout
        self._limit = limit
        self._forgetting = forgetting or Forgetting(layout)
        self._all = list(self._found())
        self.used = sum(goer.size for goer in self._all)
        self.going = list(self._chosen())

    @property
    def is_near(self) -> bool:
        """Whether there is hardly any room left."""
        return self.used >= _NEARLY * self._limit

    def _chosen(self) -> Iterator[Goer]:
        over = self.used - self._limit
        for goer in sorted(self._all, key=lambda one: (not one.first, one.age_from)):
            if over <= 0:
                return
            over -= goer.size
            yield goer

    def _found(self) -> Iterator[Goer]:
        layout = self._layout
        gone = {copy.directory: copy for copy in gone_sessions(layout)}
        packs = {lot.path: lot.things() for lot in ArchiveShelf(layout, NEVER).lots()}
        for archive in archived(layout):
            copies = list(copy_directories(archive))
            own = packs.pop(archive, [])
            for directory in copies:
                copy, size = gone.get(directory), _size_of(directory)
                thing = Thing(directory, size, _kept_at(directory))
                if copy is None:
                    spare = _is_spare(layout, directory)
                    yield Goer(thing.mtime, (thing,), directory, first=spare)
                elif len(copies) > 1 or not is_gone(layout, copy.name):
                    yield Goer(thing.mtime, (thing,), directory, copy)
                else:
                    together = (thing, *own)
                    own = []
                    youngest = max(one.mtime for one in together)
                    yield Goer(youngest, together, directory, copy)
            yield from (Goer(pack.mtime, (pack,)) for pack in own)

    def lots(self) -> Iterator[Lot]:
        """Those of the goers that are not packs alone."""
        for goer in self.going:
            if goer.copy is not None:
                yield _CopyLot(self._layout, goer.copy, goer, self._forgetting)

    def packs(self) -> Expired:
        """Tells the packs that go alone."""
        paths = {goer.things[0].path for goer in self.going if goer.copy is None}
        return lambda thing: thing.path in paths


class _CopyLot:
    def __init__(self, layout: Layout, path: Path, goer: Goer, forgetting: Forgetting) -> None:
        self.path = path
        self._layout = layout
        self._goer = goer
        self._forgetting = forgetting

    def things(self) -> list[Thing]:
        return list(self._goer.things)

    def delete(self, expired: Expired) -> Cleaned:
        goer = self._goer
        if not any(map(expired, goer.things)):
            return Cleaned()
        if goer.gone is not None:
            with suppress(NotFound):
                self._forgetting.session(goer.gone.name, goer.gone)
            return Cleaned(len(goer.things), goer.size)
        with own_lock_of(self._layout, self.path.parent, 0.0):
            if goer.first and not _is_spare(self._layout, self.path):
                return Cleaned()  # its session has gone meanwhile
            forget_copy(self.path)
        return Cleaned(1, goer.size)

    def is_untidy(self) -> bool:
        return False

    def tidy(self) -> None:
        """Nothing: what is half done is done anew."""


def _is_spare(layout: Layout, directory: Path) -> bool:
    """Whether it is a copy of a session that is still in its place."""
    with suppress(Unavailable):
        copy = read_copy(directory)
        return copy is not None and copy.gone_at is None and not is_gone(layout, copy.name)
    return False


def _kept_at(directory: Path) -> float:
    with suppress(Unavailable):
        if copy := read_copy(directory):
            return copy.kept_at
    with suppress(OSError):  # nobody can say more of one that is damaged
        return directory.stat().st_mtime
    return 0.0


def _size_of(directory: Path) -> int:
    found = 0
    for path in directory.iterdir():
        with suppress(FileNotFoundError):
            found += path.lstat().st_size
    return found


def everything(_: Thing) -> bool:
    """What is chosen goes, whatever its age."""
    return True
