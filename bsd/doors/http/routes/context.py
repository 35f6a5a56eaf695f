"""What an agent does about its context: `/api/sessions/{agent}/{session}/context`, `…/replace`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from bsd.doors.http.actor import actor_of
from bsd.doors.http.answer import Answer
from bsd.doors.http.body import Wish, described, wish
from bsd.doors.http.description import answers
from bsd.doors.http.desk import Desk
from bsd.doors.http.routes.threads import changing
from bsd.doors.http.verb_routes import DeskHands
from bsd.surgery.targets import REPLACE, ContextChanged, Replacement
from bsd.verbs.change_context import CHANGE_CONTEXT, ChangeContext
from bsd.verbs.verb import perform

_PATH = "/api/sessions/{agent}/{session}"


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
        f"{_PATH}/replace",
        responses=answers(ContextChanged),
        openapi_extra=described(ReplaceWish),
    )
    async def replace(
        request: Request, agent: str, session: str, *, dry_run: bool = False
    ) -> Response:
        """Put another text in the place of what stands between two markers (seed 003)."""
        actor, body = actor_of(request), await wish(request, ReplaceWish)

        def work() -> dict[str, Any]:
            name = desk.named(agent, session)
            asked = ChangeContext(REPLACE, body.operations(), body.include_user, dry_run)
            return perform(CHANGE_CONTEXT, DeskHands(desk, actor), name, asked).as_json()

        return Answer(await changing(work))

    return router
