"""What no verb answers: the agents, entries as they are spelled, and what was taken out of one.

That is sent as it stands in the store: piece by piece, never parsed. `{entry}` is an id; if it is
all digits and no such id exists, the index; `%23n` always is.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bsd.care import catalog
from bsd.care.catalog import Agents
from bsd.doors.http.answer import JsonAnswer, reading
from bsd.doors.http.verb_routes import ApiHands, ApiRoute, entry_name
from bsd.foundation.errors import Invalid, Unavailable
from bsd.foundation.files import plain_file
from bsd.foundation.layout import SessionName
from bsd.surgery.view import ExtractedContent
from bsd.text.change import Written
from bsd.text.splice import Span
from bsd.verbs.edit import SHOW_EDITABLE, ShowEditable
from bsd.verbs.read_extracted import SHOW_EXTRACTED, ShowExtracted
from bsd.verbs.verb import perform

_ENTRY = "/api/sessions/{agent}/{session}/entries/{entry}"
_PIECE = 256 * 1024  # bytes


def routes(hands: ApiHands) -> list[ApiRoute]:
    async def agents(_: Request) -> Response:
        """All agents, those whose sessions are left alone included."""
        found = await reading(catalog.agents, hands.layout)
        return JsonAnswer(Agents(tuple(found)).as_json())

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
        ApiRoute.of("GET /api/agents", agents, "sessions", Agents),
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
