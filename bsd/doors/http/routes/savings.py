"""What was saved over time: `/api/savings`."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Response

from bsd.care.disk_use import SavedByHour
from bsd.doors.http.answer import Answer
from bsd.doors.http.description import answers
from bsd.doors.http.routes.threads import in_thread


def routes(audit_file: Path) -> APIRouter:
    router = APIRouter(tags=["state"])
    saved = SavedByHour(audit_file)

    @router.get("/api/savings", response_model=None, responses=answers("Savings"))
    async def savings() -> Response:
        """Bytes by which sessions became shorter, and longer again, by hour."""
        return Answer(await in_thread(saved.as_json))

    return router
