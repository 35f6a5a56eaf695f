"""Scheduled jobs: `/api/jobs`."""

from __future__ import annotations

from typing import Any, Protocol

from fastapi import APIRouter, Response

from bsd.doors.http.answer import Answer
from bsd.doors.http.description import answers
from bsd.doors.http.routes.threads import changing, in_thread


class Jobber(Protocol):
    """What is asked of the daemon here."""

    def jobs(self) -> list[dict[str, Any]]: ...

    def run_job(self, name: str) -> dict[str, Any]: ...


def routes(daemon: Jobber) -> APIRouter:
    router = APIRouter(tags=["jobs"])

    @router.get("/api/jobs", response_model=None, responses=answers("Jobs"))
    async def jobs() -> Response:
        """All jobs, by name, with their last and next runs."""
        return Answer({"jobs": await in_thread(daemon.jobs)})

    @router.post("/api/jobs/{name}/run", response_model=None, responses=answers("Job"))
    async def run(name: str) -> Response:
        """Run a job now and wait for its end; whether it succeeded is in `last_result`."""
        return Answer(await changing(daemon.run_job, name))

    return router
