"""Routes made from verbs: path, query and body are its arguments, the answer is its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from inspect import Parameter, Signature
from typing import Any

from fastapi import APIRouter, Request, Response

from bsd.care.trash import Trash
from bsd.doors.http.actor import actor_of
from bsd.doors.http.answer import Answer
from bsd.doors.http.body import Wish, described, json_object, wish
from bsd.doors.http.description import answers, body, settings_schema
from bsd.doors.http.desk import Desk, entry_name, raise_unless_done, trash_name
from bsd.doors.http.routes.threads import changing, reading
from bsd.doors.models import arguments_model
from bsd.foundation.errors import Invalid
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.pruning_config import ConfigService
from bsd.session.surgeon import Surgeon
from bsd.surgery.result import SessionResult
from bsd.verbs.verb import Body, Route, Verb, all_verbs, arguments_of, perform

_OF_THE_SESSION = ("agent", "session")
# Names of other things that stand in paths, and who refuses those that nothing can have.
_NAMES = {"entry": entry_name, "id": trash_name}


@dataclass(frozen=True, slots=True)
class DeskHands:
    """Who does it for whoever comes through the API."""

    desk: Desk
    actor: str

    @property
    def layout(self) -> Layout:
        return self.desk.layout

    def surgeon(self, name: SessionName, *, writes: bool) -> Surgeon:  # noqa: ARG002 - the desk's may write, and need not
        return self.desk.surgeon(self.actor)

    @property
    def config(self) -> ConfigService:
        return self.desk.config

    def trash(self, *, writes: bool) -> Trash:  # noqa: ARG002 - as above
        return self.desk.trash(self.actor)

    def clock(self) -> float:
        return self.desk.patience.clock()

    def progressed(self, _: int) -> None:
        self.desk.patience.check()

    def stopping(self) -> bool:
        return False  # nobody waits for it: what is begun is done to its end

    def cleaned(self) -> None:
        self.desk.cleaned()


def routes(desk: Desk) -> APIRouter:
    """All verbs that say where HTTP finds them."""
    router = APIRouter()
    for verb in all_verbs().values():
        if verb.route is not None:
            _add(router, desk, verb, verb.route)
    return router


def _add(router: APIRouter, desk: Desk, verb: Verb[Any, Any], route: Route) -> None:
    """Let a verb be reached where it says."""
    known = {
        name: found
        for name, found in arguments_of(verb.arguments).items()
        if not found[1].people_only
    }
    in_path = re.findall(r"\{(\w+)\}", route.path)
    in_query = [name for name, (_, said) in known.items() if said.query]
    in_body = [name for name in known if name not in {*in_path, *in_query}]
    required = route.needs_body or any(known[name][0].default is MISSING for name in in_body)
    model = None
    if in_body and route.body is None:
        model = arguments_model(verb.arguments, Wish, names=in_body, door="http")

    async def endpoint(request: Request, **given: Any) -> Response:
        actor = actor_of(request)
        name = [given.pop(part) for part in _OF_THE_SESSION if part in given]
        if route.body is not None:
            given |= await _read(request, route.body)
        elif model is not None:
            asked = await _asked(request, model, route, required=required)
            given |= {one: getattr(asked, one) for one in in_body}

        def work() -> dict[str, Any]:
            session = desk.named(*name) if name else None
            for part, check in _NAMES.items():
                if part in given:
                    given[part] = check(given[part])
            answer = perform(verb, DeskHands(desk, actor), session, verb.arguments(**given))
            if isinstance(answer, SessionResult):
                raise_unless_done(answer)
            document: dict[str, Any] = answer.as_json()
            return document

        changes = verb.changes and not given.get("dry_run")
        return Answer(await (changing if changes else reading)(work))

    endpoint.__signature__ = _signature(known, in_path, in_query)  # type: ignore[attr-defined]
    endpoint.__doc__ = route.doc
    router.add_api_route(
        route.path,
        endpoint,
        methods=[route.method],
        name=route.name,
        tags=[route.tag],
        responses=answers(verb.answer),
        openapi_extra=_described(route, model, required=required),
    )


async def _read(request: Request, body: Body) -> Mapping[str, Any]:
    """Read a body as its verb does."""
    if body.settings:
        return body.read(await json_object(request, optional=not body.required))
    return body.read(await request.body())


def _described(route: Route, model: type[Wish] | None, *, required: bool) -> dict[str, Any] | None:
    """Say in OpenAPI what the body may hold."""
    if (own := route.body) is not None:
        schema = own.schema
        return body(
            lambda: dict(schema) if schema else settings_schema(own.settings),
            required=own.required,
        )
    return described(model, required=required) if model else None


async def _asked(request: Request, model: type[Wish], route: Route, *, required: bool) -> Wish:
    try:
        return await wish(request, model, optional=not required)
    except Invalid as problem:
        problem.hint = problem.hint or route.hint
        raise


def _signature(known: Mapping[str, Any], in_path: list[str], in_query: list[str]) -> Signature:
    """What FastAPI reads of it: what stands in the path, and in the query."""
    keyword = Parameter.KEYWORD_ONLY
    return Signature(
        [
            Parameter("request", Parameter.POSITIONAL_OR_KEYWORD, annotation=Request),
            *(Parameter(name, keyword, annotation=str) for name in in_path),
            *(
                Parameter(name, keyword, annotation=bool, default=known[name][0].default)
                for name in in_query
            ),
        ],
        return_annotation=Response,
    )
