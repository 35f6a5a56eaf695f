"""What an agent does about its context: `/api/sessions/{agent}/{session}/context`, `…/replace`."""

from __future__ import annotations

from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from pydantic import Field

from bsd.doors.http.actor import actor_of
from bsd.doors.http.answer import Answer
from bsd.doors.http.body import Wish, described, wish
from bsd.doors.http.description import answers
from bsd.doors.http.desk import Desk
from bsd.doors.http.routes.threads import changing
from bsd.surgery.targets import REPLACE, Replacement

_PATH = "/api/sessions/{agent}/{session}"


class ContextWish(Wish):
    """Seed 003's context tool."""

    action: str = Field(description="replace, discard or distill")
    targets: list[Any] = Field(
        description="[hash], [hash, summary], or {start, end, replacement}: all of them or none"
    )
    include_user: bool = Field(default=False, description="Also change what the user wrote")


class ReplaceWish(Wish):
    """One replacement, or several under `targets`: all of them or none."""

    start: str | None = None
    end: str | None = None
    replacement: str | None = None
    targets: list[Any] | None = None
    include_user: bool = Field(default=False, description="Also change what the user wrote")

    def operations(self) -> list[Any]:
        """The targets as the tool takes them."""
        one = {name: getattr(self, name) for name in Replacement.__dataclass_fields__}
        given = {name: value for name, value in one.items() if value is not None}
        return [*([given] if given else []), *(self.targets or [])]


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["sessions"])

    @router.post(
        f"{_PATH}/context",
        response_model=None,
        responses=answers("ContextChanged"),
        openapi_extra=described(ContextWish),
    )
    async def change_context(
        request: Request, agent: str, session: str, *, dry_run: bool = False
    ) -> Response:
        """Replace ranges, discard entries or put summaries in their place; an undo takes it back.

        All that is wrong is told at once, by target.
        """
        body = await wish(request, ContextWish)
        asked = _Asked(body.action, body.targets, body.include_user, dry_run)
        return await _act(desk, request, (agent, session), asked)

    @router.post(
        f"{_PATH}/replace",
        response_model=None,
        responses=answers("ContextChanged"),
        openapi_extra=described(ReplaceWish),
    )
    async def replace(
        request: Request, agent: str, session: str, *, dry_run: bool = False
    ) -> Response:
        """Put another text in the place of what stands between two markers (seed 003)."""
        body = await wish(request, ReplaceWish)
        asked = _Asked(REPLACE, body.operations(), body.include_user, dry_run)
        return await _act(desk, request, (agent, session), asked)

    return router


class _Asked(NamedTuple):
    action: str
    targets: list[Any]
    include_user: bool
    dry_run: bool


async def _act(desk: Desk, request: Request, session: tuple[str, str], asked: _Asked) -> Response:
    actor = actor_of(request)

    def work() -> dict[str, Any]:
        return desk.surgeon(actor).act_on_context(
            desk.named(*session),
            asked.action,
            asked.targets,
            include_user=asked.include_user,
            dry_run=asked.dry_run,
        )

    return Answer(await changing(work))
