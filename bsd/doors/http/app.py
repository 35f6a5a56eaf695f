"""The application: all routes, whichever door they are reached through.

FastAPI reads what stands in paths and queries, and describes the routes. Starlette alone does
neither: it would spare a daemon 6 MB of 67, and take more code.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from fastapi import FastAPI

from bsd import __version__
from bsd.daemon.service import Daemon
from bsd.daemon.status import Service
from bsd.doors.http import verb_routes
from bsd.doors.http.answer import LARGEST_BODY, Error, JsonAnswer
from bsd.doors.http.description import complete, document_of
from bsd.doors.http.desk import WAIT_SECONDS, Desk
from bsd.doors.http.layers import ReadOnlyGuard
from bsd.doors.http.requests import handle_errors
from bsd.doors.http.routes import config as config_routes
from bsd.doors.http.routes import events as events_routes
from bsd.doors.http.routes import page as page_routes
from bsd.doors.http.routes import sessions as sessions_routes
from bsd.doors.http.routes import state as state_routes
from bsd.foundation.pruning_config import ConfigService
from bsd.foundation.settings import Settings
from bsd.memory import verbs as memory_verbs
from bsd.memory.facts import Memory, open_memory
from bsd.session.rest import Patience
from bsd.workspaces import verbs as workspace_verbs
from bsd.workspaces.verbs import WorkspaceRoot, rules_of


def create_app(
    daemon: Service,
    config: ConfigService,
    desk: Desk,
    *,
    readonly: bool = False,
    memory: Callable[..., Memory] | None = None,
    workspaces: WorkspaceRoot | None = None,
    config_changed: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Put the routes together. Keys, Host and Origin are the business of each listener."""
    app = _bare()
    handle_errors(app)
    if readonly:
        app.add_middleware(ReadOnlyGuard)
    app.include_router(state_routes.routes(daemon, desk.layout.audit_file))
    app.include_router(config_routes.routes(config, config_changed))
    app.include_router(sessions_routes.routes(desk))
    app.include_router(verb_routes.routes(desk))
    open_facts = memory or partial(open_memory, desk.layout)
    app.include_router(
        verb_routes.wing_routes(memory_verbs.VERBS, lambda actor: open_facts(actor=actor))
    )
    workspace_root = workspaces or WorkspaceRoot(None)
    app.include_router(
        verb_routes.wing_routes(
            workspace_verbs.VERBS, lambda actor: nullcontext(replace(workspace_root, actor=actor))
        )
    )
    app.include_router(events_routes.routes(daemon))
    app.include_router(page_routes.routes())
    complete(app)
    return app


def app_of(daemon: Daemon, settings: Settings) -> FastAPI:
    """The application of a daemon."""
    state = daemon.state
    desk = Desk(
        state.layout,
        state.config,
        Patience(WAIT_SECONDS, settings.quiet_seconds, check=state.stop_here),
        send=daemon.perform,
        cleaned=daemon.cleaned,
        search_state=daemon.search_state,
    )
    rules = rules_of(settings)
    return create_app(
        daemon,
        state.config,
        desk,
        readonly=settings.readonly,
        memory=partial(open_memory, state.layout, settings.memory),
        workspaces=WorkspaceRoot(settings.workspace_root, state.layout, rules, actor="api"),
        config_changed=daemon.config_changed,
    )


def _bare() -> FastAPI:
    """The application without routes."""
    return FastAPI(
        title="bsd",
        summary="Keeps AI-agent session files lean by moving large old values into a store.",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,  # these pages load scripts from the network
        redoc_url=None,
        default_response_class=JsonAnswer,
        max_body_size=LARGEST_BODY,
        responses={"default": document_of(Error, description="What went wrong")},
        generate_unique_id_function=lambda route: f"{route.tags[0]}_{route.name}",
        # Nothing is ever told to anybody who was not asked for.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
