"""Packs originals that are still only in the stores of sessions, so that the bucket has them, too.

A store keeps its files: when their time in the store is over (`retention`), the archive has their
lines already. A store is packed once it has rested for `copy_after`, or once its session has been
copied, since the copy in the bucket may have placeholders of its values. If the setting `archive`
is off, nothing is packed, since expired content is to be deleted. `archive_retention` counts from
the time of the early packing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress

import structlog

from bsd.core.config import PruningConfig
from bsd.core.errors import BsdError, Busy, os_problem
from bsd.core.layout import Layout
from bsd.maintenance.targets import ExtractedFiles
from bsd.store.pack import PackDamaged
from bsd.store.snapshots import COPY_FILE, snapshot_directories
from bsd.store.uploads import UploadJournal

_log = structlog.stdlib.get_logger(module="fleet")


def pack_stored(
    layout: Layout,
    config: PruningConfig,
    rest_seconds: float,
    now: float,
    journal: UploadJournal,
    stopping: Callable[[], bool],
) -> list[str]:
    """Pack the originals of all stores that rest; return why some could not be packed.

    A store that has not changed since it was packed costs one stat.

    Args:
        layout: the root.
        config: the settings of retention.
        rest_seconds: how long a store must not have changed, if its session is not copied.
        now: epoch seconds.
        journal: has the time of each store when it was packed.
        stopping: called before each store; True ends the run.
    """
    problems: list[str] = []
    if not config.archive:
        return problems
    target = ExtractedFiles(
        layout,
        config.retention,
        wait=0.0,
        packed_at=now,
        archive_keep=config.archive_retention,
    )
    packed = dict(journal.rows("SELECT store, mtime_ns FROM packed"))
    for place in target.places():
        if stopping():
            break
        with suppress(FileNotFoundError):
            mtime_ns = os.stat(place, follow_symlinks=False).st_mtime_ns
            age = now - mtime_ns / 1e9
            packed_ns = packed.get(place.name, 0)
            if packed_ns == mtime_ns:
                continue
            try:
                if 0 <= age < rest_seconds and not _is_copied_since(layout, place.name, packed_ns):
                    continue
                target.pack_early(place)
            except Busy:
                continue
            except (BsdError, OSError, PackDamaged, sqlite3.Error) as error:
                problem = f"{place.name}: {error}"
                if isinstance(error, OSError):
                    problem = os_problem(error, f"packing {place}").message
                _log.warning("Originals are not packed", problem=problem)
                problems.append(problem)
            else:
                with journal.change() as db:
                    db.execute(
                        "INSERT OR REPLACE INTO packed VALUES (?, ?)", (place.name, mtime_ns)
                    )
    return problems


def _is_copied_since(layout: Layout, store: str, mtime_ns: int) -> bool:
    """Return whether a copy of a session is newer than a time, by the name of its store."""
    for directory in snapshot_directories(layout.archive / store):
        with suppress(FileNotFoundError):
            if os.stat(directory / COPY_FILE, follow_symlinks=False).st_mtime_ns > mtime_ns:
                return True
    return False
