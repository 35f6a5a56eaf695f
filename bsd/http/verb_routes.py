"""Routes: what one is, and those made from verbs, whose arguments are in path, query and body.

Of some verbs the answer is sent as it stands in session or store. Bodies are JSON, whatever their
Content-Type says (SPEC §8). Neither the models by which they and queries are checked nor the
schemas of these are made before somebody asks.
"""

from __future__ import annotations

import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, field, replace
from functools import cache
from inspect import getdoc
from io import FileIO
from typing import TYPE_CHECKING, Any, Self, TypeVar

import orjson
from starlette import routing
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bsd.actions.answers import as_json
from bsd.actions.context import Executor, SearchState
from bsd.actions.outlines import Outlines
from bsd.actions.verb import Verb, all_verbs, perform
from bsd.actions.verbs import SHOW_EDITABLE, SHOW_EXTRACTED, ShowEditable, ShowExtracted
from bsd.core.definition import Answer, Body, Definition, LibraryVerb, Route, arguments_of
from bsd.core.errors import BsdError, Busy, Invalid, LeftAlone, NotFound, Unavailable
from bsd.core.files import plain_file
from bsd.core.layout import Layout, SessionName
from bsd.core.pruning_config import ConfigService
from bsd.http.answer import JsonAnswer, changing, reading
from bsd.maintenance.trash import Trash
from bsd.planning.result import SessionResult, Status
from bsd.planning.view import ExtractedContent
from bsd.sessions.idle import RetryBudget
from bsd.sessions.session import Session
from bsd.sessions.surgeon import Surgeon
from bsd.transcripts.change import Written
from bsd.transcripts.splice import Span

if TYPE_CHECKING:
    from bsd.actions.models import InBody, InQuery

# --- a route: what OpenAPI is told of it, and how what comes in is read ---


NOBODY_KNOWN = "api"
_EXAMPLE = 'send a JSON object, as in {"keep_recent": 10}'


class ApiRoute(routing.Route):
    """Where something is done, and all that OpenAPI says of it.

    `answer`: a dataclass, the name of a model in `openapi`, or, of what is no JSON, the words of
    OpenAPI; it comes with these `statuses`, too. `body`: its model, unless it is read in a way of
    its own (`told.body`).
    """

    def __init__(
        self,
        told: Route,
        endpoint: Callable[[Request], Awaitable[Response]],
        answer: type | str | Mapping[str, Any],
        *,
        query: Callable[[], type[InQuery]] | None = None,
        body: Callable[[], type[InBody]] | None = None,
        statuses: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__(told.path, endpoint, methods=[told.method], name=told.name)
        self.told, self.answer, self.statuses = told, answer, statuses or {}
        self.query, self.body = query, body

    @classmethod
    def of(
        cls,
        where: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        tag: str,
        answer: type | str | Mapping[str, Any],
        *,
        body: Body | None = None,
        statuses: Mapping[int, str] | None = None,
    ) -> Self:
        """A route that is no verb's; its name and what is told of it are the endpoint's."""
        method, path = where.split()
        doc = getdoc(endpoint) or ""
        told = Route(method, path, endpoint.__name__, doc, tag, body=body)
        return cls(told, endpoint, answer, statuses=statuses)


def actor_of(request: Request) -> str:
    """The first digits of the key's hash, which `KeyGuard` has noted; `api` without a key.

    So whatever comes without one, over the socket or over an open TCP port, is `api`: that it came
    this way is all that is known for certain.
    """
    return str(getattr(request.state, "actor", NOBODY_KNOWN))


async def json_object(request: Request, *, optional: bool = False) -> dict[str, Any]:
    """Read the body; raises Invalid unless it is a JSON object (or, if `optional`, nothing)."""
    sent = await request.body()
    if optional and not sent:
        return {}
    try:
        document = orjson.loads(sent)
    except orjson.JSONDecodeError as error:
        raise Invalid(
            f"the body is not valid JSON: {error}" if sent else "the body is empty",
            hint=_EXAMPLE,
        ) from None
    if not isinstance(document, dict):
        raise Invalid("the body is not a JSON object {…}")
    return document


# --- those of verbs ---


# Nobody waits for an answer longer than this because a session is in use.
WAIT_SECONDS = 5.0
# A file name may have 255 bytes; the longest one of a session ends in `.jsonl.bsd-…`.
_LONGEST_NAME = 240
_LONGEST_ENTRY = 1000  # characters
_OF_THE_SESSION = ("agent", "session")

_H = TypeVar("_H")
# Who asks, and what is given in path, query and body → whether it may change something, and what
# does it, on a thread.
_Prepare = Callable[[str, dict[str, Any]], tuple[bool, Callable[[], Any]]]


@dataclass(frozen=True, slots=True)
class ApiHands:
    """Who does it for whoever comes through the API: with which patience, under which name."""

    layout: Layout
    config: ConfigService
    budget: RetryBudget = field(default_factory=lambda: RetryBudget(wait=WAIT_SECONDS))
    # Has another process call actions that open sessions.
    executor: Executor | None = None
    cleaned: Callable[[], None] = lambda: None  # told when something was deleted for good
    outlines: Outlines = field(default_factory=Outlines)
    searched: Callable[[], dict[str, Any]] | None = None  # `bsd.daemon.status`
    actor: str = "api"

    def surgeon(self, name: SessionName, *, writes: bool) -> Surgeon:  # noqa: ARG002 - it may write, and need not
        return Surgeon(
            self.layout,
            self.config,
            actor=self.actor,
            budget=self.budget,
        )

    def trash(self, *, writes: bool) -> Trash:  # noqa: ARG002 - as above
        return Trash(
            self.layout,
            self.config.current.trash_retention,
            actor=self.actor,
            budget=self.budget,
        )

    def named(self, agent: str, session: str) -> SessionName:
        """A session that is there; raises Invalid, NotFound, Forbidden, LeftAlone."""
        name = SessionName(agent, session)
        if max(len(agent), len(session)) > _LONGEST_NAME:
            raise NotFound("there is no session of so long a name", hint="/api/sessions lists them")
        Session(self.layout, name).refuse_no_session()
        return name

    def search_state(self) -> SearchState:
        if self.searched is None:
            return SearchState(complete=False, waiting=0, problem="nobody keeps an index here")
        return SearchState(**self.searched())

    def clock(self) -> float:
        return self.budget.clock()

    def progressed(self, _: int, of: int | None = None) -> None:  # noqa: ARG002 - nobody looks
        self.budget.check()

    def stopping(self) -> bool:
        return False  # nobody waits for it: what is begun is done to its end


def entry_name(entry: str) -> str:
    """An entry as somebody names it; raises NotFound for what no entry can be called."""
    if len(entry) > _LONGEST_ENTRY:
        raise NotFound("there is no entry of so long a name")
    if entry.startswith("#") and not entry.isascii():  # digits of other scripts
        raise NotFound(f"there is no entry {entry}")
    return entry


def trash_name(id: str) -> str:
    """An id of the trash as somebody names it; raises NotFound for what none can be."""
    if len(id) > _LONGEST_NAME or "/" in id:
        raise NotFound("there is nothing of this name in the trash", hint="/api/trash lists it")
    return id


# Names of other things that stand in paths, and who refuses those that nothing can have.
_NAMES = {"entry": entry_name, "id": trash_name}


def raise_unless_done(result: SessionResult) -> None:
    """Raise Busy, LeftAlone, or what it failed of, unless that was done which was asked for."""
    reason = result.reason or f"{result.session}: {result.status}"
    match result.status:
        case Status.BUSY:
            raise Busy(reason, hint=result.hint)
        case Status.LEFT_ALONE:
            raise LeftAlone(reason, hint=result.hint)
        case Status.FAILED:
            # A full disk is not a missing right: each error has its own status.
            raise (result.error or BsdError)(reason, hint=result.hint)


def routes(hands: ApiHands) -> Iterator[ApiRoute]:
    """All that is about sessions: what is sent as it stands, and verbs that say where they are."""
    yield from _raw_routes(hands)
    for verb in all_verbs().values():
        if verb.route is not None:
            yield _session_route(hands, verb, verb.route)


def _session_route(hands: ApiHands, verb: Verb[Any, Any], route: Route) -> ApiRoute:
    of = _OF_THE_SESSION if verb.ask is None else ()

    def prepare(actor: str, given: dict[str, Any]) -> tuple[bool, Callable[[], Answer]]:
        parts = [given.pop(part) for part in of]

        def work() -> Answer:
            name = hands.named(*parts) if parts else None
            for part, possible in _NAMES.items():
                if part in given:
                    given[part] = possible(given[part])
            as_actor = replace(hands, actor=actor)
            answer: Answer = perform(verb, as_actor, name, verb.arguments(**given))
            if isinstance(answer, SessionResult):
                raise_unless_done(answer)
            return answer

        return verb.changes and not given.get("dry_run"), work

    return _route(verb, route, prepare)


def library_routes(
    verbs: Iterable[LibraryVerb[_H, Any, Any]], opening: Callable[[str], AbstractContextManager[_H]]
) -> Iterator[ApiRoute]:
    """The verbs of a library that say where HTTP finds them.

    `opening` gives the handle with which they are done, for an actor; it is left on the thread on
    which it was entered.
    """
    for verb in verbs:
        if verb.route is not None:
            yield _library_route(opening, verb, verb.route)


def _library_route(
    opening: Callable[[str], AbstractContextManager[_H]],
    verb: LibraryVerb[_H, Any, Any],
    route: Route,
) -> ApiRoute:
    def prepare(actor: str, given: dict[str, Any]) -> tuple[bool, Callable[[], Answer]]:
        asked = verb.arguments(**given)

        def work() -> Answer:
            with opening(actor) as handle:
                answer: Answer = verb.act(handle, asked)
                return answer

        return verb.will_change(asked), work

    return _route(verb, route, prepare)


def _route(verb: Definition[Any, Any], route: Route, prepare: _Prepare) -> ApiRoute:
    """Let a verb be reached where it says."""
    known = {
        name: one
        for name, one in arguments_of(verb.arguments).items()
        if not one[1].people_only and f"{{{name}}}" not in route.path
    }
    in_query = [name for name, (_, said) in known.items() if said.query or route.method == "GET"]
    in_body = [name for name in known if name not in in_query]
    needs_body = route.needs_body or any(known[name][0].default is MISSING for name in in_body)
    query = _model(verb, in_query, in_body=False) if in_query else None
    body = _model(verb, in_body, in_body=True) if in_body and not route.body else None

    async def endpoint(request: Request) -> Response:
        given = dict(request.path_params)
        if query is not None:
            given |= query().read(_query_of(request, query()))
        if route.body:
            given |= await _read(request, route.body)
        elif body is not None:
            try:
                given |= body().read(await json_object(request, optional=not needs_body))
            except Invalid as problem:
                problem.hint = problem.hint or route.hint
                raise
        changes, work = prepare(actor_of(request), given)
        return JsonAnswer(await (changing if changes else reading)(lambda: as_json(work())))

    return ApiRoute(route, endpoint, verb.answer, query=query, body=body)


def _query_of(request: Request, model: type[Any]) -> dict[str, str]:
    """The query by name; a switch that stands there alone, as in `?dry_run`, is on."""
    found = dict(request.query_params)
    alone = {part for part in request.url.query.split("&") if part and "=" not in part}
    for member, info in model.model_fields.items():
        name = info.alias or member
        if info.annotation is bool and name in alone and not found.get(name):
            found[name] = "true"
    return found


async def _read(request: Request, body: Body) -> Mapping[str, Any]:
    """Read a body as its verb does."""
    if body.settings:
        return body.read(await json_object(request, optional=not body.required))
    return body.read(await request.body())


def _model(
    verb: Definition[Any, Any], names: Sequence[str], *, in_body: bool
) -> Callable[[], type[Any]]:
    """The model of these arguments, made when somebody asks for the first time.

    What it is made with takes a daemon 10 MB, and most have nobody who does.
    """

    @cache
    def make() -> type[Any]:
        from bsd.actions import models  # noqa: PLC0415 - see above

        base = models.InBody if in_body else models.InQuery
        return models.arguments_model(verb.arguments, base, names=names, door="http")

    return make


# --- those that send what stands there as it is spelled: piece by piece, never parsed ---


_ENTRY = "/api/sessions/{agent}/{session}/entries/{entry}"
_PIECE = 256 * 1024  # bytes


def _raw_routes(hands: ApiHands) -> list[ApiRoute]:
    """Entries as they are spelled, and what was taken out of one.

    `{entry}` is an id; if it is all digits and no such id exists, the index; `%23n` always is.
    """

    def named(request: Request) -> tuple[SessionName, str]:
        agent, session, entry = (request.path_params[at] for at in ("agent", "session", "entry"))
        return hands.named(agent, session), entry_name(entry)

    def look(request: Request) -> bytes:
        name, entry = named(request)
        shown = perform(SHOW_EDITABLE, hands, name, ShowEditable(entry))
        head = {"entry_id": shown.entry_id, "index": shown.index, "seen": shown.seen}
        # The entry as it is spelled: numbers keep all their digits.
        return bytes(JsonAnswer(head).body)[:-1] + b',"entry":' + shown.text.encode() + b"}"

    async def entry(request: Request) -> Response:
        """A whole entry as it stands, for reading and editing."""
        return Response(await reading(look, request), media_type=JsonAnswer.media_type)

    async def extracted(request: Request) -> Response:
        """What was taken out of an entry, without putting it back."""
        content = await reading(lambda: open_content(hands, *named(request)))
        size = {"content-length": str(content.size)}
        return StreamingResponse(_pieces(content), media_type=JsonAnswer.media_type, headers=size)

    return [
        ApiRoute.of(f"GET {_ENTRY}", entry, "entries", "EntryDocument"),
        ApiRoute.of(f"GET {_ENTRY}/extracted", extracted, "entries", ExtractedContent),
    ]


async def _pieces(content: Content) -> AsyncIterator[bytes]:
    try:
        pieces = content.pieces()
        while (piece := await reading(next, pieces, None)) is not None:
            yield piece
    finally:
        content.close()


@dataclass(slots=True)
class Content:
    """A JSON document whose large values are read from the store while it is sent.

    Between two pieces nothing but an open file is held. Close it.
    """

    parts: Sequence[bytes | Span]
    file: FileIO | None = None

    @property
    def size(self) -> int:
        """Bytes of the document."""
        return sum(
            len(part) if isinstance(part, bytes) else part.end - part.start for part in self.parts
        )

    def pieces(self) -> Iterator[bytes]:
        """The document; raises Unavailable if the file has lost what it had."""
        for part in self.parts:
            if isinstance(part, bytes):
                yield part
                continue
            for start in range(part.start, part.end, _PIECE):
                yield self._read(start, min(_PIECE, part.end - start))

    def _read(self, start: int, length: int) -> bytes:
        assert self.file is not None  # noqa: S101 - a span is always one of the file
        piece = os.pread(self.file.fileno(), length, start)
        if len(piece) != length:
            raise Unavailable("the stored file has become shorter")
        return piece

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def open_content(hands: ApiHands, name: SessionName, entry: str) -> Content:
    """What was taken out of an entry; raises as `SHOW_EXTRACTED`, Unavailable."""
    found = perform(SHOW_EXTRACTED, hands, name, ShowExtracted(entry))
    if found.file is None:
        return Content(found.parts)
    try:
        file = plain_file(found.file)
    except (OSError, Invalid) as error:
        raise _moved() from error
    content = Content(found.parts, file)
    # It is the one whose hash was compared, or the values do not stand where they shall.
    if found.state != Written.of(os.fstat(file.fileno())):
        content.close()
        raise _moved()
    return content


def _moved() -> Unavailable:
    return Unavailable("the stored file has just moved or changed", hint="ask again")
