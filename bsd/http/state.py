"""The state of the daemon: health, status, metrics, and bytes saved."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from bsd.daemon.status import DaemonStatus, Health
from bsd.http.dependencies import DaemonService, JsonRoute
from bsd.http.errors import JsonAnswer
from bsd.maintenance.disk_use import Savings

router = APIRouter(prefix="/api", tags=["state"], route_class=JsonRoute)

_NOT_READY: dict[int | str, dict[str, Any]] = {503: {"model": Health, "description": "Not ready"}}


@router.get("/health", response_model=Health, responses=_NOT_READY)
def health(daemon: DaemonService) -> Response:
    """Return the health; 503 until the start is complete and while the daemon stops."""
    answer = daemon.report.health()
    is_ready = answer["status"] in {"ok", "degraded"}
    return JsonAnswer(answer, HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)


@router.get("/status", response_model=DaemonStatus)
def status(daemon: DaemonService) -> Response:
    """Return the whole status: queue, workers, totals, disk use, retention and problems."""
    return JsonAnswer(daemon.report.status())


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(request: Request) -> Response:
    """Return the figures of the status in the text format of Prometheus."""
    page = request.app.state.metrics
    return Response(page.render(), headers={"content-type": page.content_type})


@router.get("/savings")
def savings(request: Request) -> Savings:
    """Return, by hour, the bytes by which sessions became shorter, and longer again."""
    answer: Savings = request.app.state.savings.savings()
    return answer
