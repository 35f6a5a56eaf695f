"""Routes made from verbs: path, query and body are its arguments, the answer is its answer."""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass
from inspect import Parameter, Signature
from typing import Annotated, Any, get_type_hints

from fastapi import APIRouter, Query, Request, Response

from bsd.care.outlines import Outlines
from bsd.doors.http.actor import actor_of
from bsd.doors.http.answer import Answer
from bsd.doors.http.body import Wish, described, wish
from bsd.doors.http.description import answers
from bsd.doors.http.desk import Desk, entry_name
from bsd.doors.http.routes.threads import changing, reading
from bsd.doors.models import arguments_model
from bsd.foundation.errors import Invalid
from bsd.foundation.layout import Layout, SessionName
from bsd.session.surgeon import Surgeon
from bsd.verbs.list_sessions import SearchState
from bsd.verbs.verb import Argument, Route, Verb, all_verbs, arguments_of, perform

_OF_THE_SESSION = ("agent", "session")


@dataclass(frozen=True, slots=True)
class DeskHands:
    """Who does it for whoever comes through the API."""

    desk: Desk
    actor: str

    @property
    def layout(self) -> Layout:
        return self.desk.layout

    @property
    def outlines(self) -> Outlines:
        return self.desk.outlines

    def search_state(self) -> SearchState:
        return self.desk.searched()

    def surgeon(self, name: SessionName, *, writes: bool) -> Surgeon:  # noqa: ARG002 - the desk's may write, and need not
        return self.desk.surgeon(self.actor)


def routes(desk: Desk) -> APIRouter:
    """All verbs that say where HTTP finds them."""
    router = APIRouter()
    for verb in all_verbs().values():
        if verb.route is not None:
            _add(router, desk, verb, verb.route)
    return router


def _add(router: APIRouter, desk: Desk, verb: Verb[Any, Any], route: Route) -> None:
    """Let a verb be reached where it says."""
    known = arguments_of(verb.arguments)
    in_path = [name for name in re.findall(r"\{(\w+)\}", route.path) if name in known]
    whole = route.method == "GET"  # which has no body
    in_query = [name for name, (_, said) in known.items() if said.query or whole]
    in_query = [name for name in in_query if name not in in_path]
    in_body = [name for name in known if name not in {*in_path, *in_query}]
    required = any(known[name][0].default is MISSING for name in in_body)
    model = arguments_model(verb.arguments, Wish, names=in_body, door="http") if in_body else None

    async def endpoint(request: Request, **given: Any) -> Response:
        actor = actor_of(request)
        name = (given.pop("agent"), given.pop("session")) if verb.ask is None else None
        if model is not None:
            asked = await _asked(request, model, route, required=required)
            given |= {one: getattr(asked, one) for one in in_body}

        def work() -> dict[str, Any]:
            session = desk.named(*name) if name else None
            if "entry" in given:
                given["entry"] = entry_name(given["entry"])
            answer = perform(verb, DeskHands(desk, actor), session, verb.arguments(**given))
            document: dict[str, Any] = answer.as_json()
            return document

        return Answer(await (changing if verb.changes else reading)(work))

    if verb.ask is None:
        in_path = [*_OF_THE_SESSION, *in_path]
    endpoint.__signature__ = _signature(verb, in_path, in_query)  # type: ignore[attr-defined]
    endpoint.__doc__ = route.doc
    router.add_api_route(
        route.path,
        endpoint,
        methods=[route.method],
        name=route.name,
        tags=[route.tag],
        responses=answers(verb.answer),
        openapi_extra=described(model, required=required) if model else None,
    )


async def _asked(request: Request, model: type[Wish], route: Route, *, required: bool) -> Wish:
    try:
        return await wish(request, model, optional=not required)
    except Invalid as problem:
        problem.hint = problem.hint or route.hint
        raise


def _signature(verb: Verb[Any, Any], in_path: list[str], in_query: list[str]) -> Signature:
    """What FastAPI reads of it: what stands in the path, and in the query."""
    known, hints = arguments_of(verb.arguments), get_type_hints(verb.arguments)
    keyword = Parameter.KEYWORD_ONLY

    def required(name: str) -> bool:
        return known[name][0].default is MISSING

    return Signature(
        [
            Parameter("request", Parameter.POSITIONAL_OR_KEYWORD, annotation=Request),
            *(Parameter(name, keyword, annotation=str) for name in in_path),
            *(
                Parameter(
                    name,
                    keyword,
                    annotation=Annotated[hints[name], _query(hints[name], known[name][1])],
                    default=Parameter.empty if required(name) else known[name][0].default,
                )
                for name in in_query
            ),
        ],
        return_annotation=Response,
    )


def _query(annotation: Any, said: Argument) -> Any:
    """What FastAPI is told of an argument in the query."""
    more: dict[str, Any] = {"ge": said.least, "le": said.most}
    if annotation not in {int, int | None}:
        more = {"min_length": said.least, "max_length": said.most}
    name = (said.names or {}).get("http")
    return Query(alias=name, description=said.doc or None, **more)
