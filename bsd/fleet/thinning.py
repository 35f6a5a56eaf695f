"""Makes old local packs thin (`[fleet] keep_local`): their content is then in the bucket only."""

from __future__ import annotations

import os
from collections.abc import Callable

from bsd.core.errors import BsdError, Busy, os_problem
from bsd.core.files import stamp_of
from bsd.core.formatting import MINUTE, lifetime_seconds
from bsd.core.layout import COPY
from bsd.core.locks import own_lock
from bsd.fleet.context import FleetContext
from bsd.store.pack import PackDamaged
from bsd.store.snapshots import read_snapshot
from bsd.store.thin_packs import make_thin
from bsd.store.upload_places import PlaceJournal


def thin_packs(
    context: FleetContext,
    place: PlaceJournal,
    problems: list[str],
    stopping: Callable[[], bool],
) -> int:
    """Make the packs thin that are older than `keep_local`; return their number.

    Packs of copies of sessions that their program has not deleted stay whole, since these copies
    are renewed. Sessions in use are left for the next push.

    Args:
        context: of the push.
        place: the journal of this root's directory.
        problems: why packs could not be made thin is added here.
        stopping: called before each pack; True ends the run.
    """
    keep = lifetime_seconds(context.fleet.keep_local, minimum=MINUTE)
    if keep is None:
        return 0
    done = 0
    for path in place.to_thin(int((context.now() - keep) * 1e9)):
        if stopping():
            break
        try:
            done += _thin(context, place, path)
        except Busy:
            continue
        except (PackDamaged, BsdError) as problem:
            problems.append(f"{path}: {problem}")
        except OSError as error:
            problems.append(os_problem(error, f"making {path} thin").message)
    return done


def _thin(context: FleetContext, place: PlaceJournal, path: str) -> bool:
    """Make one pack thin; return False if it must stay whole, or is gone."""
    layout = context.layout
    store, *others = path.split("/")
    name, pack = layout.session_of_store(store), layout.archive / path
    if name is None:
        return False
    with own_lock(layout, name, 0.0):
        if len(others) > 1 and others[0].startswith(COPY):
            copy = read_snapshot(pack.parent)
            if copy is None or copy.gone_at is None:
                return False
        remote = place.file(path)
        try:
            if remote is None or os.lstat(pack).st_size != remote.size:
                return False
        except FileNotFoundError:
            return False
        make_thin(pack)
        place.note_stamp(path, stamp_of(os.lstat(pack)), is_thin=True)
    return True
