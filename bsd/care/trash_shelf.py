"""The trash as retention sees it: each deleted session goes as a whole, when its time has come."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from bsd.care.expiry import Cleaned, Expired, Lot, Thing, clean
from bsd.care.trash import Trash
from bsd.care.trashed import TrashPlace, ids
from bsd.foundation.ages import look, steady
from bsd.foundation.errors import NotFound
from bsd.foundation.layout import Layout

_WAIT_SECONDS = 5.0


def run_trash_retention(
    layout: Layout,
    keep: str,
    *,
    actor: str,
    clock: Callable[[], float] = time.time,
    steady: Callable[[], float] = steady,
    wait: float = _WAIT_SECONDS,
    stopping: Callable[[], bool] = lambda: False,
) -> Cleaned:
    """Delete for good what was deleted longer ago than `keep`; each session is audited.

    Counts files. What an earlier process has left half done is finished first.
    """
    trash = Trash(layout, keep, actor=actor, wait=wait, clock=clock)
    trash.recover()
    return clean(TrashShelf(layout, keep, trash), look(layout, clock, steady), stopping)


class TrashShelf:
    """The trash, one lot for each session; age counts from the time when it was deleted."""

    name = "trash"

    def __init__(self, layout: Layout, keep: str, trash: Trash | None = None) -> None:
        self.keep = keep
        self._layout = layout
        self._trash = trash or Trash(layout, keep)

    def lots(self) -> Iterator[Lot]:
        directory = self._layout.trash_dir()
        for each in ids(self._layout):
            yield _TrashLot(self._trash, TrashPlace(directory, each))


class _TrashLot:
    def __init__(self, trash: Trash, place: TrashPlace) -> None:
        self.path = place.meta
        self._trash = trash
        self._place = place

    def things(self) -> list[Thing]:
        sizes = list(_sizes(self._place))
        return [Thing(self.path, sum(sizes), self._place.trashed_at)] if sizes else []

    def delete(self, expired: Expired) -> Cleaned:
        sizes = list(_sizes(self._place))
        if not any(map(expired, self.things())):
            return Cleaned()
        with suppress(NotFound):  # it was restored meanwhile
            self._trash.remove(self._place.id)
            return Cleaned(len(sizes), sum(sizes))
        return Cleaned()

    def is_untidy(self) -> bool:
        return False

    def tidy(self) -> None:
        """Nothing: what is half done has a journal."""


def _sizes(place: TrashPlace) -> Iterator[int]:
    """Yield the sizes of all files of one session in the trash."""
    for part in place.parts:
        if part.is_dir():
            for directory, _, names in os.walk(part):
                yield from (Path(directory, name).lstat().st_size for name in names)
        elif os.path.lexists(part):
            yield part.lstat().st_size
