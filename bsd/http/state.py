"""How the daemon is, and what it does: health, status, metrics, jobs, what was saved."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import PlainTextResponse

from bsd.daemon.status import DaemonStatus, Health, Job, Jobs
from bsd.http.dependencies import DaemonService, JsonRoute
from bsd.http.errors import JsonAnswer
from bsd.maintenance.disk_use import Savings

router = APIRouter(prefix="/api", tags=["state"], route_class=JsonRoute)

_NOT_READY = {503: {"model": Health, "description": "Not ready"}}


@router.get("/health", response_model=Health, responses=_NOT_READY)
def health(daemon: DaemonService) -> Response:
    """Whether all is well. 503 before the start is complete and while it stops."""
    answer = daemon.health()
    is_ready = answer["status"] in {"ok", "degraded"}
    return JsonAnswer(answer, HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)


@router.get("/status", response_model=DaemonStatus)
def status(daemon: DaemonService) -> Response:
    """Everything at a glance."""
    return Response(daemon.status_json(), media_type="application/json")


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(request: Request) -> Response:
    """The same in numbers, for Prometheus."""
    page = request.app.state.metrics
    return Response(page.render(), headers={"content-type": page.content_type})


@router.get("/savings")
def savings(request: Request) -> Savings:
    """Bytes by which sessions became shorter, and longer again, by hour."""
    answer: Savings = request.app.state.savings.savings()
    return answer


@router.get("/jobs", response_model=Jobs, tags=["jobs"])
def jobs(daemon: DaemonService) -> Response:
    """All jobs, by name, with their last and next runs."""
    return JsonAnswer({"jobs": daemon.jobs()})


@router.post("/jobs/{name}/run", response_model=Job, tags=["jobs"])
def run_job(daemon: DaemonService, name: Annotated[str, Path(pattern="^[a-z_]+$")]) -> Response:
    """Run a job now and wait for its end; whether it succeeded is in `last_result`."""
    return JsonAnswer(daemon.run_job(name))
