"""The application: a router for each resource, over one daemon and one context of actions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import FastAPI

from bsd import __version__
from bsd.actions.context import ActionContext
from bsd.core.settings import Settings
from bsd.daemon.service import Daemon
from bsd.daemon.status import Service
from bsd.http import (
    archive,
    context,
    entries,
    events,
    memory,
    page,
    search,
    sessions,
    settings,
    state,
    trash,
    workspaces,
)
from bsd.http.errors import LARGEST_BODY, Error, JsonAnswer, add_error_handlers
from bsd.http.metrics import MetricsPage
from bsd.maintenance.disk_use import SavedByHour

_SUMMARY = "Keeps AI-agent session files lean by moving large old values into a store."
_API = (
    *(state, settings, sessions, search, entries, context, trash, archive),
    *(memory, workspaces, events),
)


def create_app(
    daemon: Service,
    action_context: ActionContext,
    *,
    config_changed: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Put the routers together; keys, Host and Origin are checked by each listener.

    Args:
        config_changed: called when settings of config.json were changed.
    """
    app = FastAPI(
        title="bsd",
        summary=_SUMMARY,
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        default_response_class=JsonAnswer,
        responses={"default": {"model": Error, "description": "What went wrong"}},
        max_body_size=LARGEST_BODY,
    )
    app.state.daemon = daemon
    app.state.context = action_context
    app.state.config_changed = config_changed
    app.state.metrics = MetricsPage(daemon.status, daemon.jobs, daemon.health)
    app.state.savings = SavedByHour(action_context.layout.audit_file)
    add_error_handlers(app)
    for module in _API:
        app.include_router(module.router)
    app.include_router(page.router)
    app.mount("/web", page.FILES)
    return app
