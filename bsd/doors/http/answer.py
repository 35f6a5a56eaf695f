"""How answers look (JSON, one form for all errors), and by which threads they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, ParamSpec, TypeVar

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync
from starlette.responses import JSONResponse

from bsd.foundation.answers import Answer, contract
from bsd.foundation.errors import BsdError, FieldError
from bsd.foundation.json_text import document

_P = ParamSpec("_P")
_T = TypeVar("_T")

LARGEST_BODY = 1 << 20  # bytes, of a request
STOPPING = "stopping"  # in the state of a request: the asyncio.Event that the server ends


class JsonAnswer(JSONResponse):
    """A JSON document; lone surrogates and huge integers, which transcripts hold, included."""

    def render(self, content: Any) -> bytes:
        return document(content)


@dataclass(frozen=True, slots=True)
class FieldProblem(Answer):
    """What is wrong with one field of the input."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Error(Answer):
    """Every error, whatever its status."""

    error: str
    hint: str | None = field(default=None, metadata=contract("What to try", omit=True))
    errors: list[FieldProblem] | None = field(
        default=None, metadata=contract("Every bad field of the input", omit=True)
    )


def error_document(
    message: str, hint: str | None = None, errors: Sequence[FieldError] = ()
) -> dict[str, Any]:
    """An `Error` as JSON has it."""
    problems = [FieldProblem(one.field, one.message) for one in errors]
    return Error(message, hint, problems or None).as_json()


def error_answer(error: BsdError) -> JsonAnswer:
    """Answer with an error of ours and the status that it knows."""
    return JsonAnswer(error_document(error.message, error.hint, error.errors), error.status)


TOO_LARGE_TEXT = f"the body is larger than {LARGEST_BODY} bytes"
TOO_LARGE = JsonAnswer(error_document(TOO_LARGE_TEXT), HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


class Threads:
    """At most `most` threads for one kind of work; who comes later waits for his turn."""

    def __init__(self, name: str, most: int) -> None:
        self._most = most
        self._limiter = RunVar[CapacityLimiter](f"bsd-{name}")  # one for each event loop

    async def run(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function on a thread of its own.

        A server that stops does not wait for it: what it does, it does to its end all the same.
        """
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = CapacityLimiter(self._most)
            self._limiter.set(limiter)
        call = partial(function, *args, **kwargs)
        return await run_sync(call, abandon_on_cancel=True, limiter=limiter)


# Apart, so that somebody who waits for a busy session keeps nobody from reading, and somebody who
# reads a huge one keeps nobody from asking how the daemon is.
in_thread = Threads("answers", 4).run
reading = Threads("reading", 4).run
changing = Threads("changing", 4).run
