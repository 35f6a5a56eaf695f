"""Dependencies of the routes: names in paths, the ActionContext, strict parsing of bodies."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Annotated, Any

import orjson
from fastapi import Depends, Path, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict

from bsd.actions.context import ActionContext
from bsd.core.layout import SessionName
from bsd.daemon.service import Daemon
from bsd.sessions.session import Session


async def _daemon(request: Request) -> Daemon:
    daemon: Daemon = request.app.state.daemon
    return daemon


DaemonService = Annotated[Daemon, Depends(_daemon)]


async def _actor(request: Request) -> str:
    """Return the first digits of the API key's hash, set by the middleware; `api` without a key."""
    return str(getattr(request.state, "actor", "api"))


Actor = Annotated[str, Depends(_actor)]


async def _context(request: Request, actor: Actor) -> ActionContext:
    context: ActionContext = request.app.state.context
    return replace(context, actor=actor)


Context = Annotated[ActionContext, Depends(_context)]

# A file name has at most 255 bytes; the longest file name of a session ends in `.jsonl.bsd-…`.
_NAME = Path(pattern=r"^[A-Za-z0-9._@:+-]+$", max_length=240)


def _named(agent: Annotated[str, _NAME], session: Annotated[str, _NAME]) -> SessionName:
    return SessionName(agent, session)


# An existing or deleted session, or the id of a session in the archive.
AnySessionPath = Annotated[SessionName, Depends(_named)]


def _session(context: Context, name: AnySessionPath) -> SessionName:
    """Return the name of an existing session; raises NotFound, Forbidden, LeftAlone."""
    Session(context.layout, name).refuse_no_session()
    return name


SessionPath = Annotated[SessionName, Depends(_session)]
# An entry id. If it has only digits and no entry has this id, it is an index (0-based line number).
# `%23n` (`#n`) is always an index.
EntryPath = Annotated[str, Path(min_length=1, max_length=1000)]
Agent = Annotated[str | None, Query(max_length=1000)]


class Input(BaseModel):
    """A request body; unknown members are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class JsonRequest(Request):
    """A request whose body is parsed strictly: NaN and lone surrogates are refused."""

    async def json(self) -> Any:
        return orjson.loads(await self.body())


class JsonRoute(APIRoute):
    """A route that reads its body as JSON, whatever the Content-Type (SPEC §8).

    A query parameter without a value, such as `?dry_run`, means true.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            headers = [one for one in request.scope["headers"] if one[0] != b"content-type"]
            headers.append((b"content-type", b"application/json"))
            query = [
                part if b"=" in part or not part else part + b"=true"
                for part in request.scope["query_string"].split(b"&")
            ]
            scope = {**request.scope, "headers": headers, "query_string": b"&".join(query)}
            return await handle(JsonRequest(scope, request.receive))

        return handle_json
