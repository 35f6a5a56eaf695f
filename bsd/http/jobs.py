"""Scheduled jobs of the daemon: list them, run a job now."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from bsd.daemon.status import Job, JobList
from bsd.http.dependencies import DaemonService, JsonRoute
from bsd.http.errors import JsonAnswer

router = APIRouter(prefix="/api/jobs", tags=["jobs"], route_class=JsonRoute)


@router.get("", response_model=JobList)
def jobs(daemon: DaemonService) -> Response:
    """List all jobs by name, with their last and next runs."""
    return JsonAnswer({"jobs": daemon.scheduler.status()})


@router.post("/{name}/run", response_model=Job)
def run(daemon: DaemonService, name: Annotated[str, Path(pattern="^[a-z_]+$")]) -> Response:
    """Run a job now and wait until it ends; `last_result` tells whether it succeeded."""
    daemon.scheduler.run(name)
    return JsonAnswer(daemon.scheduler.status_of(name))
