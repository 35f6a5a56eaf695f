"""The application: all routes, whichever door they are reached through.

Starlette alone: FastAPI, whose models and documents verbs make needless, takes 7 MB of a daemon.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bsd.daemon.service import Daemon
from bsd.daemon.status import Service
from bsd.doors.http import entries, events, page, state, verb_routes
from bsd.doors.http.answer import ERRORS, LARGEST_BODY, JsonAnswer, in_thread
from bsd.doors.http.layers import ReadOnlyGuard
from bsd.doors.http.route import ApiRoute
from bsd.doors.http.verb_routes import WAIT_SECONDS, ApiHands
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
    hands: ApiHands,
    *,
    readonly: bool = False,
    memory: Callable[..., Memory] | None = None,
    workspaces: WorkspaceRoot | None = None,
    config_changed: Callable[[], None] = lambda: None,
) -> Starlette:
    """Put the routes together. Keys, Host and Origin are the business of each listener."""
    facts = memory or partial(open_memory, hands.layout)
    spaces = workspaces or WorkspaceRoot(None)
    routes = [
        *state.routes(daemon, hands.layout.audit_file),
        *state.config_routes(config, config_changed),
        *entries.routes(hands),
        *verb_routes.routes(hands),
        *verb_routes.wing_routes(memory_verbs.VERBS, lambda actor: facts(actor=actor)),
        *verb_routes.wing_routes(
            workspace_verbs.VERBS, lambda actor: nullcontext(replace(spaces, actor=actor))
        ),
        *events.routes(daemon),
    ]
    return Starlette(
        routes=[*routes, *page.routes(), _description(routes)],
        middleware=[Middleware(ReadOnlyGuard)] if readonly else [],
        exception_handlers=ERRORS,
        max_body_size=LARGEST_BODY,
    )


def _description(routes: list[ApiRoute]) -> Route:
    def describe() -> Response:
        from bsd.doors.http.openapi import openapi  # noqa: PLC0415 - takes 4 MB, seldom wanted

        return JsonAnswer(openapi(routes))

    async def document(_: Request) -> Response:
        return await in_thread(describe)

    return Route("/api/openapi.json", document)


def app_of(daemon: Daemon, settings: Settings) -> Starlette:
    """The application of a daemon."""
    now = daemon.state
    hands = ApiHands(
        now.layout,
        now.config,
        Patience(WAIT_SECONDS, settings.quiet_seconds, check=now.stop_here),
        work=daemon.perform,
        cleaned=daemon.cleaned,
        searched=daemon.search_state,
    )
    return create_app(
        daemon,
        now.config,
        hands,
        readonly=settings.readonly,
        memory=partial(open_memory, now.layout, settings.memory),
        workspaces=WorkspaceRoot(
            settings.workspace_root, now.layout, rules_of(settings), actor="api"
        ),
        config_changed=daemon.config_changed,
    )
