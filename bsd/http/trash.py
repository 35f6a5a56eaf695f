"""The trash, and retention, which removes old content from the store, trash and archive."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from bsd.actions.retention import RetentionForecast, foretell_retention, run_retention
from bsd.actions.trash import (
    Emptied,
    Removed,
    TrashList,
    delete_from_trash,
    empty_trash,
    list_trash,
    restore_from_trash,
)
from bsd.daemon.cron import Cron
from bsd.http.dependencies import Context, JsonRoute
from bsd.maintenance.retention import CleanedAll, ForecastAll, Retention
from bsd.maintenance.trashed import Returned

router = APIRouter(prefix="/api", tags=["trash"], route_class=JsonRoute)

_Id = Annotated[str, Path(pattern=r"^[A-Za-z0-9._@:+-]+$", max_length=240)]


@router.get("/trash")
def trash(context: Context) -> TrashList:
    """List the sessions in the trash and when each is deleted, oldest first."""
    return list_trash(context)


@router.delete("/trash")
def empty(context: Context) -> Emptied:
    """Delete all sessions in the trash permanently."""
    return context.run(empty_trash)


@router.post("/trash/{id}/restore")
def restore(context: Context, id: _Id) -> Returned:
    """Restore a session from the trash, with the children that were deleted with it."""
    return context.run(restore_from_trash, id)


@router.delete("/trash/{id}")
def remove(context: Context, id: _Id) -> Removed:
    """Delete a session in the trash permanently, but not its children."""
    return context.run(delete_from_trash, id)


@router.post("/retention/run", name="run_retention", response_model=CleanedAll | ForecastAll)
def retention(
    context: Context,
    *,
    dry_run: bool = False,
    forget: Annotated[bool, Query(description="Delete permanently instead of archiving")] = False,
) -> Retention:
    """Archive or delete content whose retention time is over; `dry_run` only reports it."""
    return context.run(run_retention, dry_run=dry_run, forget=forget)


@router.get("/retention", name="foretell_retention")
def forecast(
    context: Context,
    at: Annotated[
        str, Query(max_length=100, description="tonight, tomorrow, +24h, or an ISO 8601 time")
    ] = "tonight",
) -> RetentionForecast:
    """List what will be deleted by a time: by scheduled runs, and by agents' own programs."""
    return foretell_retention(context, at, Cron(context.config.current.retention_cron).after)
