"""The FastAPI application: one router per resource, all with the same daemon and ActionContext."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import FastAPI

from bsd import __version__
from bsd.actions.context import ActionContext, SearchState
from bsd.core.errors import Unavailable
from bsd.core.settings import Settings
from bsd.daemon.child_tasks import ChildExecutor
from bsd.daemon.service import Daemon
from bsd.http import (
    archive,
    context,
    entries,
    events,
    export,
    fleet,
    hooks,
    jobs,
    memory,
    notices,
    outline,
    overview,
    page,
    pauses,
    prices,
    replay,
    search,
    secrets,
    sessions,
    settings,
    setup,
    state,
    trash,
    workspaces,
)
from bsd.http.errors import ERROR_HANDLERS, LARGEST_BODY, Error, JsonAnswer
from bsd.http.metrics import MetricsPage
from bsd.maintenance.disk_use import SavedByHour
from bsd.memory.memory import Memory, open_memory
from bsd.sessions.idle import RetryBudget
from bsd.setup.additions import SetupContext
from bsd.workspaces.actions import WorkspaceRoot, rules_of

_SUMMARY = "Keeps AI-agent session files lean by moving large old values into a store."
_WAIT_SECONDS = 5.0  # the longest time that a request waits for a session in use
_API = (
    *(state, jobs, settings, sessions, search, entries, outline, context, trash, archive, pauses),
    *(setup, notices, memory, workspaces, overview, events, hooks, secrets, export, prices),
    *(replay, fleet),
)


class Api(FastAPI):
    """FastAPI with an OpenAPI 3.1 document: FastAPI writes `itemSchema`, which is new in 3.2."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        document = super().openapi()
        events = document["paths"]["/api/events"]["get"]["responses"]["200"]
        events["content"]["text/event-stream"] = {"schema": {"type": "string"}}
        return document


def create_app(
    daemon: Daemon,
    action_context: ActionContext,
    *,
    memory: Callable[..., Memory] | None = None,
    workspaces: WorkspaceRoot | None = None,
    config_changed: Callable[[], None] = lambda: None,
    setup: Callable[[], SetupContext] | None = None,
    restart: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Build the application. Each listener checks API keys, Host and Origin itself.

    Args:
        action_context: each request gets a copy of it with its own actor.
        memory: opens the memory for an actor.
        config_changed: called after a change of config.json.
        setup: returns the context for setting up agents, made from the current settings.
        restart: restarts the daemon, so that it reads bsd.toml again.
    """
    app = Api(
        title="bsd",
        summary=_SUMMARY,
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: f"{route.tags[0]}_{route.name}",
        default_response_class=JsonAnswer,
        responses={"default": {"model": Error, "description": "The error"}},
        exception_handlers=ERROR_HANDLERS,
        max_body_size=LARGEST_BODY,
    )
    app.state.daemon = daemon
    app.state.context = action_context
    app.state.config_changed = config_changed
    app.state.setup = setup or _no_setup
    app.state.restart = restart
    app.state.warm = lambda: None  # called when the page is opened
    app.state.open_memory = memory or partial(open_memory, action_context.layout)
    app.state.workspaces = workspaces or WorkspaceRoot(None)
    app.state.metrics = MetricsPage(
        daemon.report.status, daemon.scheduler.status, daemon.report.health
    )
    app.state.forecast = overview.LastForecast()
    app.state.fleet = fleet.FleetRequests()
    app.state.savings = SavedByHour(action_context.layout.audit_file)
    # The page's routes come first: routes are compared in order, and the page loads many files.
    app.router.routes.extend(page.ROUTES)
    for module in _API:
        app.include_router(module.router)
    return app


def _no_setup() -> SetupContext:
    raise Unavailable("agents cannot be set up from here", hint="bsd agents")


def app_of(
    daemon: Daemon,
    settings: Settings,
    *,
    setup: Callable[[], SetupContext],
    restart: Callable[[], None],
) -> FastAPI:
    """Return the application of a daemon; for `setup` and `restart` see `create_app`."""
    state = daemon.state
    action_context = ActionContext(
        layout=state.layout,
        config=state.config,
        actor="api",
        fleet=settings.fleet,
        prices=settings.price_sources,
        budget=RetryBudget(_WAIT_SECONDS, settings.quiet_seconds, check=state.stop_here),
        progress=lambda _done, of=None: state.stop_here(),  # noqa: ARG005 - only checks
        cleaned=daemon.report.forget_retention,
        search_state=lambda: SearchState(**daemon.indexer.state()),
        executor=ChildExecutor(daemon.children),
    )
    app = create_app(
        daemon,
        action_context,
        memory=partial(open_memory, state.layout, settings.memory),
        workspaces=WorkspaceRoot(settings.workspace_root, state.layout, rules_of(settings)),
        config_changed=daemon.scheduler.look_at_settings,
        setup=setup,
        restart=restart,
    )
    app.state.warm = daemon.children.warm
    return app
