"""What was saved over time: `/api/savings`."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Response

from bsd.api.answer import Answer
from bsd.api.description import answers
from bsd.api.routes.threads import in_thread
from bsd.lifecycle.saved import SavedByHour


def routes(audit_file: Path) -> APIRouter:
    router = APIRouter(tags=["state"])
    saved = SavedByHour(audit_file)

    @router.get("/api/savings", response_model=None, responses=answers("Savings"))
    async def savings() -> Response:
        """Bytes by which sessions became shorter, and longer again, by hour."""
        return Answer(await in_thread(saved.as_json))

    return router
