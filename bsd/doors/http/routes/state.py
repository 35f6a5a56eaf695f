"""How the daemon is: `/api/health`, `/api/status`, `/api/metrics`."""

from __future__ import annotations

from typing import Any, Protocol

from fastapi import APIRouter, Response

from bsd.doors.http import glance
from bsd.doors.http.description import answers, document_of
from bsd.doors.http.metrics import MetricsPage
from bsd.doors.http.routes.threads import in_thread


class Observed(Protocol):
    """What is asked of the daemon here; its answers are described in `bsd.daemon.status`."""

    def health(self) -> dict[str, Any]: ...

    def status(self) -> dict[str, Any]: ...

    def status_json(self) -> bytes: ...

    def jobs(self) -> list[dict[str, Any]]: ...


def routes(daemon: Observed) -> APIRouter:
    router = APIRouter(tags=["state"])
    page = MetricsPage(daemon.status, daemon.jobs, daemon.health)

    @router.get(
        "/api/health",
        response_model=None,
        responses=answers("Health") | {503: document_of("Health", description="Not ready")},
    )
    async def health() -> Response:
        """Whether all is well. 503 before the start is complete and while it stops."""
        return await in_thread(glance.health, daemon)

    @router.get("/api/status", response_model=None, responses=answers("Status"))
    async def status() -> Response:
        """Everything at a glance."""
        return await in_thread(glance.status, daemon)

    @router.get(
        "/api/metrics",
        response_model=None,
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        """The same in numbers, for Prometheus."""
        return Response(await in_thread(page.render), headers={"content-type": page.content_type})

    return router
