"""The application: all routes, whichever door they are reached through."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from fastapi import FastAPI

from bsd import __version__
from bsd.daemon.events import Subscription
from bsd.doors.http import verb_routes
from bsd.doors.http.answer import LARGEST_BODY, Answer
from bsd.doors.http.auth import ReadOnlyGuard
from bsd.doors.http.description import complete, document_of
from bsd.doors.http.desk import Desk
from bsd.doors.http.errors import handle_errors
from bsd.doors.http.feed import Feed
from bsd.doors.http.routes import config as config_routes
from bsd.doors.http.routes import events as events_routes
from bsd.doors.http.routes import jobs as jobs_routes
from bsd.doors.http.routes import page as page_routes
from bsd.doors.http.routes import savings as savings_routes
from bsd.doors.http.routes import sessions as sessions_routes
from bsd.doors.http.routes import state as state_routes
from bsd.doors.http.routes.config import Configured
from bsd.memory import verbs as memory_verbs
from bsd.memory.facts import Memory, open_memory
from bsd.workspaces import verbs as workspace_verbs
from bsd.workspaces.verbs import WorkspaceRoot


class Backend(Protocol):
    """The daemon, as far as the API needs it; `bsd.daemon.status` says what the answers hold."""

    def health(self) -> dict[str, Any]: ...

    def status(self) -> dict[str, Any]: ...

    def status_json(self) -> bytes: ...

    def jobs(self) -> list[dict[str, Any]]: ...

    def run_job(self, name: str) -> dict[str, Any]: ...

    def subscribe(self, wake: Callable[[], None], /) -> Subscription: ...


def create_app(
    backend: Backend,
    config: Configured,
    desk: Desk,
    *,
    readonly: bool = False,
    memory: Callable[..., Memory] | None = None,
    workspaces: WorkspaceRoot | None = None,
    config_changed: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Put the routes together. Keys, Host and Origin are the business of each listener."""
    app = FastAPI(
        title="bsd",
        summary="Keeps AI-agent session files lean by moving large old values into a store.",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,  # these pages load scripts from the network
        redoc_url=None,
        default_response_class=Answer,
        max_body_size=LARGEST_BODY,
        responses={"default": document_of("Error", description="What went wrong")},
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
    handle_errors(app)
    if readonly:
        app.add_middleware(ReadOnlyGuard)
    app.include_router(state_routes.routes(backend))
    app.include_router(jobs_routes.routes(backend))
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
    app.include_router(events_routes.routes(Feed(backend.subscribe)))
    app.include_router(savings_routes.routes(desk.layout.audit_file))
    app.include_router(page_routes.routes())
    complete(app)
    return app
