"""The push: what is new in this root's archive goes to the bucket, and what was deleted goes there.

A push is cut into steps, each of which can be interrupted anywhere and is then done again:

1. what other hosts have forgotten is forgotten here (`tombstones.obey`);
2. sessions that rest are copied into the archive, and originals are packed (`prepare`);
3. files that the journal does not list are uploaded; each is noted when the bucket has it;
4. a manifest lists them; deleted files leave it;
5. objects that no listed file uses are deleted;
6. packs older than `keep_local` become thin.

Steps 1, 2 and 6 touch sessions and run in a process of one thread; step 3 uses threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bsd.fleet.context import FleetContext


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of a push. Sizes are bytes."""

    host: Annotated[str, Field(description="This host's directory in the bucket: HOST/ID")]
    bucket: Annotated[str, Field(description="URL of the bucket")]
    copied: Annotated[int, Field(description="Sessions copied into the archive before")]
    files: Annotated[int, Field(description="Files that were uploaded")]
    uploaded: Annotated[int, Field(description="Their size")]
    removed: Annotated[int, Field(description="Files removed, since they were deleted here")]
    thinned: Annotated[
        int, Field(description="Local packs whose content is now in the bucket only")
    ]
    generation: Annotated[int, Field(description="Number of the newest manifest")]
    waiting: Annotated[int, Field(description="Files that are not in the bucket yet")]
    problems: Annotated[list[str], Field(description="Files that were left out, with the reason")]


def push(
    context: FleetContext,
    *,
    seconds: float | None = None,
    stopping: Callable[[], bool] | None = None,
) -> Pushed:
    """Bring the bucket up to date with this root's archive.

    Args:
        context: of the action; `context.fleet.bucket` must be set.
        seconds: begin no further upload after this time; None: no limit.
        stopping: as `context.stopping`, which is the default.

    Raises:
        Invalid: no bucket is set.
        Busy: another push of this root is running.
        BsdError: the bucket refuses, or cannot be reached; all that was done is noted.
    """
    raise NotImplementedError
