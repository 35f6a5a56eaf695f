"""fleet_export: bring the Parquet files of this host up to date, in a bucket or a directory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.fleet.parquet import export_parquet


@dataclass(frozen=True, slots=True)
class ExportedFleet:
    """The files of sessions, calls, usage and savings by day, after an export."""

    to: Annotated[str, Field(description="The directory, or this host's directory in the bucket")]
    written: Annotated[int, Field(description="Files that were written")]
    unchanged: Annotated[int, Field(description="Files that were up to date")]
    deleted: Annotated[int, Field(description="Files of days without rows")]
    sessions: Annotated[int, Field(description="Sessions that were read, since they had changed")]
    failed: Annotated[
        tuple[str, ...], Field(description="Sessions that could not be read, with the reason")
    ]
    complete: Annotated[bool, Field(description="False if the export was stopped before its end")]


def fleet_export(
    context: ActionContext, to: Path | None = None, since: date | None = None
) -> ExportedFleet:
    """Write the files of all days whose rows have changed.

    Args:
        context: names the bucket, and the prices of calls without a recorded cost.
        to: a directory; None: the bucket.
        since: leave files of earlier days as they are.

    Raises:
        BsdError: see `export_parquet`.
    """
    done = export_parquet(
        context.layout,
        context.fleet,
        prices=context.prices.table(),
        to=to,
        since=since,
        stopping=context.stopping,
        progress=context.progress,
    )
    return ExportedFleet(
        to=done.to,
        written=done.written,
        unchanged=done.unchanged,
        deleted=done.deleted,
        sessions=done.sessions,
        failed=done.failed,
        complete=done.complete,
    )
