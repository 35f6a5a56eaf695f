"""Routes made from verbs: path, query and body are its arguments, the answer is its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass
from inspect import Parameter, Signature
from typing import Annotated, Any, TypeVar, get_type_hints

from fastapi import APIRouter, Query, Request, Response

from bsd.care.outlines import Outlines
from bsd.care.trash import Trash
from bsd.doors.http.answer import JsonAnswer, changing, reading
from bsd.doors.http.description import answers, settings_schema
from bsd.doors.http.description import body as body_of
from bsd.doors.http.desk import Desk, entry_name, raise_unless_done, trash_name
from bsd.doors.http.requests import Wish, actor_of, described, json_object, wish
from bsd.doors.models import arguments_model, taken_type
from bsd.foundation.answers import Answer
from bsd.foundation.definition import Body, Definition, Route, WingVerb, arguments_of
from bsd.foundation.errors import Invalid
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.pruning_config import ConfigService
from bsd.session.surgeon import Surgeon
from bsd.surgery.result import SessionResult
from bsd.verbs.list_sessions import SearchState
from bsd.verbs.verb import Verb, all_verbs, perform

_OF_THE_SESSION = ("agent", "session")
# Names of other things that stand in paths, and who refuses those that nothing can have.
_NAMES = {"entry": entry_name, "id": trash_name}

_H = TypeVar("_H")
# Who asks, and what is given in path, query and body → whether it may change something, and what
# does it, on a thread.
_Prepare = Callable[[str, dict[str, Any]], tuple[bool, Callable[[], Answer]]]


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

    @property
    def config(self) -> ConfigService:
        return self.desk.config

    def trash(self, *, writes: bool) -> Trash:  # noqa: ARG002 - as above
        return self.desk.trash(self.actor)

    def clock(self) -> float:
        return self.desk.patience.clock()

    def progressed(self, _: int, of: int | None = None) -> None:  # noqa: ARG002 - nobody looks
        self.desk.patience.check()

    def stopping(self) -> bool:
        return False  # nobody waits for it: what is begun is done to its end

    def cleaned(self) -> None:
        self.desk.cleaned()


def routes(desk: Desk) -> APIRouter:
    """All verbs of sessions that say where HTTP finds them."""
    router = APIRouter()
    for verb in all_verbs().values():
        if verb.route is not None:
            _add_session_verb(router, desk, verb, verb.route)
    return router


def _add_session_verb(router: APIRouter, desk: Desk, verb: Verb[Any, Any], route: Route) -> None:
    of = _OF_THE_SESSION if verb.ask is None else ()

    def prepare(actor: str, given: dict[str, Any]) -> tuple[bool, Callable[[], Answer]]:
        parts = [given.pop(part) for part in of]

        def work() -> Answer:
            name = desk.named(*parts) if parts else None
            for part, checked in _NAMES.items():
                if part in given:
                    given[part] = checked(given[part])
            answer: Answer = perform(verb, DeskHands(desk, actor), name, verb.arguments(**given))
            if isinstance(answer, SessionResult):
                raise_unless_done(answer)
            return answer

        return verb.changes and not given.get("dry_run"), work

    _add(router, verb, route, prepare, of)


def wing_routes(
    verbs: Iterable[WingVerb[_H, Any, Any]], opening: Callable[[str], AbstractContextManager[_H]]
) -> APIRouter:
    """The verbs of a wing that say where HTTP finds them.

    `opening` gives the handle with which they are done, for an actor; it is left on the thread on
    which it was entered.
    """
    router = APIRouter()
    for verb in verbs:
        if verb.route is not None:
            _add_wing_verb(router, opening, verb, verb.route)
    return router


def _add_wing_verb(
    router: APIRouter,
    opening: Callable[[str], AbstractContextManager[_H]],
    verb: WingVerb[_H, Any, Any],
    route: Route,
) -> None:
    def prepare(actor: str, given: dict[str, Any]) -> tuple[bool, Callable[[], Answer]]:
        asked = verb.arguments(**given)

        def work() -> Answer:
            with opening(actor) as handle:
                answer: Answer = verb.act(handle, asked)
                return answer

        return verb.will_change(asked), work

    _add(router, verb, route, prepare)


def _add(
    router: APIRouter,
    verb: Definition[Any, Any],
    route: Route,
    prepare: _Prepare,
    of: tuple[str, ...] = (),
) -> None:
    """Let a verb be reached where it says; `of` are names in the path that are no arguments."""
    known = {
        name: found
        for name, found in arguments_of(verb.arguments).items()
        if not found[1].people_only
    }
    in_path = [name for name in re.findall(r"\{(\w+)\}", route.path) if name in known]
    in_query = [name for name, (_, said) in known.items() if said.query or route.method == "GET"]
    in_query = [name for name in in_query if name not in in_path]
    in_body = [name for name in known if name not in {*in_path, *in_query}]
    required = route.needs_body or any(known[name][0].default is MISSING for name in in_body)
    model = None
    if in_body and route.body is None:
        model = arguments_model(verb.arguments, Wish, names=in_body, door="http")

    async def endpoint(request: Request, **given: Any) -> Response:
        actor = actor_of(request)
        if route.body is not None:
            given |= await _read(request, route.body)
        elif model is not None:
            body = await _asked(request, model, route, required=required)
            # What was left out is as the verb's own arguments have it.
            given |= {name: getattr(body, name) for name in body.model_fields_set}
        changes, work = prepare(actor, given)
        return JsonAnswer(await (changing if changes else reading)(lambda: work().as_json()))

    endpoint.__signature__ = _signature(verb.arguments, [*of, *in_path], in_query)  # type: ignore[attr-defined]
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
        return body_of(
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


def _signature(arguments: Any, in_path: list[str], in_query: list[str]) -> Signature:
    """What FastAPI reads of it: what stands in the path, and in the query."""
    known, hints = arguments_of(arguments), get_type_hints(arguments)
    keyword = Parameter.KEYWORD_ONLY
    asked = []
    for name in in_query:
        one, said = known[name]
        taken: Any = taken_type(hints[name], said)
        alias = (said.names or {}).get("http")
        kind = Annotated[taken, Query(alias=alias, description=said.doc or None)]
        default = Parameter.empty if one.default is MISSING else one.default
        asked.append(Parameter(name, keyword, annotation=kind, default=default))
    return Signature(
        [
            Parameter("request", Parameter.POSITIONAL_OR_KEYWORD, annotation=Request),
            *(Parameter(name, keyword, annotation=str) for name in in_path),
            *asked,
        ],
        return_annotation=Response,
    )
