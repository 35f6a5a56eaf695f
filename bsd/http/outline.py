"""The outline of a session: prompts, tools, context, sizes by kind of content, sub-agents."""

from __future__ import annotations

from fastapi import APIRouter

from bsd.actions.session_outline import SessionOutline, outline_session
from bsd.http.dependencies import Context, JsonRoute, SessionPath

router = APIRouter(
    prefix="/api/sessions/{agent}/{session}", tags=["sessions"], route_class=JsonRoute
)


@router.get("/outline")
def outline(context: Context, session: SessionPath) -> SessionOutline:
    """Return the outline of a session; the first request reads the whole session."""
    return context.query(outline_session, session)
