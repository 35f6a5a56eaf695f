"""Deletes bsd's own data under a root when a user uninstalls bsd for good.

Only paths that bsd has created are deleted, never the root as a whole, because the root may be the
directory of an agent's program. bsd.toml and the sessions stay. The caller must make sure that no
daemon runs and that sessions no longer need the stored data.
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

_CUT = re.compile("_.*~[0-9a-f]{16}$")  # the end of a store's name that was shortened


@dataclass(frozen=True, slots=True)
class Purged:
    """The deleted paths, and by path the reasons why others could not be deleted."""

    deleted: tuple[str, ...]
    failed: dict[str, str]


def own_paths(layout: Layout) -> Iterator[Path]:
    """Yield the paths under a root that bsd has created, settings and records last.

    The database of facts is included only if the root has no agents of OpenClaw, because OpenClaw's
    memory plugin may have created that database.
    """
    for place in (layout.extracted, layout.archive):
        yield from _stores(layout, place)
    with suppress(BsdError, OSError):  # an unreadable trash stays
        for each in ids(layout):
            yield from TrashPlace(layout.trash_dir(), each).parts
    if not layout.agents.is_dir():
        yield from sorted(layout.facts_db.parent.glob(f"{layout.facts_db.name}*"))
    yield from sorted(layout.log_file.parent.glob(f"{layout.log_file.name}*"))
    yield from (place.parent for place in InFlight(layout).directories())
    yield layout.own


def _stores(layout: Layout, place: Path) -> Iterator[Path]:
    """Yield the directories of sessions in a directory; if that is a link, only the link.

    Its name is common (such as `archive`), so other content in it does not belong to bsd.
    """
    if place.is_symlink():
        yield place
        return
    with suppress(OSError):  # it does not exist, or its deletion reports the problem
        for path in sorted(place.iterdir()):
            is_cut = _CUT.search(path.name) is not None
            if path.is_dir() and (is_cut or layout.session_of_store(path.name) is not None):
                yield path


def purge(layout: Layout) -> Purged:
    """Delete the paths of `own_paths`, and continue after failures.

    The root, and directories in it that other programs may use, are deleted only if they are empty.
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
        with suppress(OSError):  # it holds files of other programs
            directory.rmdir()
            deleted.append(str(directory))
    return Purged(tuple(deleted), failed)
