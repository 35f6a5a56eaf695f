"""Deletes what bsd itself keeps under a root, when a user leaves bsd for good.

Only paths that bsd has made are deleted, never the root as a whole: it may be the directory of an
agent's program. bsd.toml and the sessions stay. The caller has seen to it that no daemon runs, and
that nothing which sessions need is left here.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bsd.core.errors import BsdError, os_problem
from bsd.core.layout import Layout
from bsd.maintenance.trashed import TrashPlace, ids
from bsd.sessions.commit.inflight import InFlight

_CUT = re.compile("_.*~[0-9a-f]{16}$")  # the end of a store's name that was too long


@dataclass(frozen=True, slots=True)
class Purged:
    """The paths that were deleted, and why others could not be, by path."""

    deleted: tuple[str, ...]
    failed: dict[str, str]


def own_paths(layout: Layout) -> Iterator[Path]:
    """Yield the paths under a root that bsd has made, settings and records last.

    Facts of agents are among them only if the root is no directory of an agent's program: there
    its memory plugin may have made the database.
    """
    for place in (layout.extracted, layout.archive):
        yield from _stores(layout, place)
    with suppress(BsdError, OSError):  # a trash that cannot be read stays
        for each in ids(layout):
            yield from TrashPlace(layout.trash_dir(), each).parts
    if not layout.agents.is_dir():
        yield from sorted(layout.facts_db.parent.glob(f"{layout.facts_db.name}*"))
    yield from sorted(layout.log_file.parent.glob(f"{layout.log_file.name}*"))
    yield from (place.parent for place in InFlight(layout).directories())
    yield layout.own


def _stores(layout: Layout, place: Path) -> Iterator[Path]:
    """Yield the directories of sessions in a place, the place itself if it is a link.

    Its name is a common one: anything else that lies there is not bsd's.
    """
    if place.is_symlink():
        yield place
        return
    with suppress(OSError):  # there is none; or deleting it tells why it cannot be read
        for path in sorted(place.iterdir()):
            is_cut = _CUT.search(path.name) is not None
            if path.is_dir() and (is_cut or layout.session_of_store(path.name) is not None):
                yield path


def purge(layout: Layout) -> Purged:
    """Delete the paths of `own_paths`; one that cannot be deleted does not stop the others.

    The root and directories in it that bsd shares with others go only if they are empty.
    """
    deleted: list[str] = []
    failed: dict[str, str] = {}
    for path in list(own_paths(layout)):
        if not os.path.lexists(path):
            continue
        try:
            layout.refuse_outside(path)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        except (BsdError, OSError) as error:
            failed[str(path)] = os_problem(error, f"deleting {path}").message
        else:
            deleted.append(str(path))
    beside = (layout.trash, layout.log_file.parent, layout.facts_db.parent)
    shared = (layout.extracted, layout.archive, *beside, layout.root)
    for directory in shared:
        with suppress(OSError):  # it holds something of others
            directory.rmdir()
            deleted.append(str(directory))
    return Purged(tuple(deleted), failed)
