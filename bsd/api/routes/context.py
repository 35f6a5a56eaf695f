"""What an agent does about its context: `/api/sessions/{agent}/{session}/context`, `…/replace`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from bsd.api import session_models as models
from bsd.api.actor import actor_of
from bsd.api.answer import Answer
from bsd.api.body import Wish, described, wish
from bsd.api.desk import Desk
from bsd.api.routes.threads import changing
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

    async def act(
        request: Request,
        agent: str,
        session: str,
        asked: tuple[str, list[Any], bool],
        *,
        dry_run: bool,
    ) -> Response:
        actor, (action, targets, include_user) = actor_of(request), asked

        def work() -> dict[str, Any]:
            name = desk.named(agent, session)
            return desk.surgeon(actor).act_on_context(
                name, action, targets, include_user=include_user, dry_run=dry_run
            )

        return Answer(await changing(work))

    @router.post(
        f"{_PATH}/context",
        response_model=None,
        responses={200: {"model": models.ContextChanged}},
        openapi_extra=described(ContextWish),
    )
    async def change_context(
        request: Request, agent: str, session: str, *, dry_run: bool = False
    ) -> Response:
        """Replace ranges, discard entries or put summaries in their place; an undo takes it back.

        All that is wrong is told at once, by target.
        """
        body = await wish(request, ContextWish)
        asked = (body.action, body.targets, body.include_user)
        return await act(request, agent, session, asked, dry_run=dry_run)

    @router.post(
        f"{_PATH}/replace",
        response_model=None,
        responses={200: {"model": models.ContextChanged}},
        openapi_extra=described(ReplaceWish),
    )
    async def replace(
        request: Request, agent: str, session: str, *, dry_run: bool = False
    ) -> Response:
        """Put another text in the place of what stands between two markers (seed 003)."""
        body = await wish(request, ReplaceWish)
        asked = (REPLACE, body.operations(), body.include_user)
        return await act(request, agent, session, asked, dry_run=dry_run)

    return router
