"""How the daemon is, and what it does: `/api/health`, `/api/status`, `/api/metrics`, `/api/jobs`.

`/api/savings` tells what came of it over time.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from fastapi import APIRouter, Response

from bsd.care.disk_use import SavedByHour, Savings
from bsd.daemon.status import DaemonStatus, Health, Job, Jobs, Service
from bsd.doors.http import early
from bsd.doors.http.answer import JsonAnswer, changing, in_thread
from bsd.doors.http.description import answers, document_of
from bsd.doors.http.metrics import MetricsPage

_STATE: list[str | Enum] = ["state"]
_JOBS: list[str | Enum] = ["jobs"]


def routes(daemon: Service, audit_file: Path) -> APIRouter:
    router = APIRouter()
    _state(router, daemon)
    _jobs(router, daemon)
    _savings(router, audit_file)
    return router


def _state(router: APIRouter, daemon: Service) -> None:
    page = MetricsPage(daemon.status, daemon.jobs, daemon.health)

    @router.get(
        "/api/health",
        tags=_STATE,
        responses=answers(Health) | {503: document_of(Health, description="Not ready")},
    )
    async def health() -> Response:
        """Whether all is well. 503 before the start is complete and while it stops."""
        return await in_thread(early.health, daemon)

    @router.get("/api/status", tags=_STATE, responses=answers(DaemonStatus))
    async def status() -> Response:
        """Everything at a glance."""
        return await in_thread(early.status, daemon)

    @router.get(
        "/api/metrics",
        tags=_STATE,
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        """The same in numbers, for Prometheus."""
        return Response(await in_thread(page.render), headers={"content-type": page.content_type})


def _jobs(router: APIRouter, daemon: Service) -> None:
    @router.get("/api/jobs", tags=_JOBS, responses=answers(Jobs))
    async def jobs() -> Response:
        """All jobs, by name, with their last and next runs."""
        return JsonAnswer({"jobs": await in_thread(daemon.jobs)})

    @router.post("/api/jobs/{name}/run", tags=_JOBS, responses=answers(Job))
    async def run(name: str) -> Response:
        """Run a job now and wait for its end; whether it succeeded is in `last_result`."""
        return JsonAnswer(await changing(daemon.run_job, name))


def _savings(router: APIRouter, audit_file: Path) -> None:
    saved = SavedByHour(audit_file)

    @router.get("/api/savings", tags=_STATE, responses=answers(Savings))
    async def savings() -> Response:
        """Bytes by which sessions became shorter, and longer again, by hour."""
        return JsonAnswer((await in_thread(saved.savings)).as_json())
