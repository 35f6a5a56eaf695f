"""Makes old local packs thin (`[fleet] keep_local`): their content is then in the bucket only."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import structlog

from bsd.bucket.errors import NoObject, ObjectDamaged
from bsd.bucket.objects import Bucket
from bsd.bucket.sealing import Sealing
from bsd.bucket.transfers import read_range
from bsd.core.errors import BsdError, Busy, Unavailable, os_problem
from bsd.core.files import stamp_of
from bsd.core.formatting import MINUTE, lifetime_seconds
from bsd.core.layout import COPY
from bsd.fleet.context import FleetContext
from bsd.maintenance.targets import lock_of
from bsd.store.pack import PackDamaged
from bsd.store.snapshots import read_snapshot
from bsd.store.thin_packs import make_thin
from bsd.store.upload_places import PlaceJournal

_log = structlog.stdlib.get_logger(module="fleet")

_COMPARED = 64  # bytes at the end of a pack, with its hash


def thin_packs(
    context: FleetContext,
    bucket: Bucket,
    sealing: Sealing,
    place: PlaceJournal,
    problems: list[str],
    stopping: Callable[[], bool],
) -> int:
    """Make the packs thin that are older than `keep_local`; return their number.

    Packs of copies of sessions that still exist stay whole, and packs of sessions in use.

    Args:
        context: of the push.
        bucket: the bucket.
        sealing: how its objects are encrypted.
        place: the journal of this root's directory.
        problems: why packs could not be made thin is added here.
        stopping: called before each pack; True ends the run.

    Raises:
        BucketUnreachable, BucketRefused, NoBucket: the bucket cannot be asked for a pack.
    """
    keep = lifetime_seconds(context.fleet.keep_local, minimum=MINUTE)
    if keep is None or (sealing.seals and sealing.identity is None):
        return 0  # without an identity this host could not read them
    thinned = 0
    for path in place.to_thin(int((context.now() - keep) * 1e9)):
        if stopping():
            break
        try:
            thinned += _thin(context, bucket, sealing, place, path)
        except Busy:
            continue
        except (NoObject, ObjectDamaged) as lost:
            place.note_lost(path)
            problems.append(f"{lost.message}: the next push uploads {path} again")
        except (Unavailable, PackDamaged, OSError) as error:
            problem = f"{path}: {error}"
            if isinstance(error, OSError):
                problem = os_problem(error, f"making {path} thin").message
            _log.warning("A pack stays whole", problem=problem)
            problems.append(problem)
    return thinned


def _thin(
    context: FleetContext, bucket: Bucket, sealing: Sealing, place: PlaceJournal, path: str
) -> bool:
    """Make a pack thin if the bucket has all of it; return False if it must stay whole."""
    layout = context.layout
    local = layout.archive / path
    remote = place.file(path)
    if remote is None or _is_of_living_session(context, path):
        return False
    with lock_of(layout, layout.archive / path.partition("/")[0], 0.0), suppress(FileNotFoundError):
        noted = place.noted_in(path.rpartition("/")[0]).get(path)
        if noted is None or noted.stamp != stamp_of(local.lstat()):
            return False
        # The object may have been deleted by other hands; a pack ends with its hash.
        start = max(0, remote.size - _COMPARED)
        with local.open("rb") as file:
            file.seek(start)
            end = file.read()
        if read_range(bucket, remote, sealing, start, len(end)) != end:
            raise Unavailable(f"the bucket has another content of {local}")
        freed = make_thin(local)
        place.note_stamp(path, stamp_of(local.lstat()), is_thin=True)
        return freed > 0
    return False


def _is_of_living_session(context: FleetContext, path: str) -> bool:
    directory = path.rpartition("/")[0]
    if not directory.rpartition("/")[2].startswith(COPY):
        return False
    try:
        snapshot = read_snapshot(context.layout.archive / directory)
    except BsdError:
        return True
    return snapshot is None or snapshot.gone_at is None
