"""What no verb answers: the agents, entries as they are spelled, and what was taken out of one.

That is sent as it stands in the store: piece by piece, never parsed. `{entry}` is an id; if it is
all digits and no such id exists, the index; `%23n` always is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from io import FileIO
from typing import NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bsd.agents.marker import Marker
from bsd.care import catalog
from bsd.care.catalog import Agents
from bsd.doors.http.answer import JsonAnswer, reading
from bsd.doors.http.verb_routes import ApiHands, ApiRoute, entry_name
from bsd.foundation.errors import Invalid, Unavailable
from bsd.foundation.files import plain_file
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.value_path import ValuePath, paths_of
from bsd.session.session import Session
from bsd.store.extracted import Missing, SessionStore
from bsd.surgery.locate import locate
from bsd.surgery.restore import UNAVAILABLE
from bsd.surgery.view import ExtractedContent, extracted_content
from bsd.text.splice import Span, SpliceError, find
from bsd.verbs.edit import SHOW_EDITABLE, ShowEditable
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
        content = await reading(lambda: open_content(hands.layout, *named(request)))
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

    parts: list[bytes | Span] = field(default_factory=list)
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


def open_content(layout: Layout, name: SessionName, entry: str) -> Content:
    """What `Surgeon.extracted_content` tells, in the same fields.

    The stored line is held whole while its hash is compared, not while it is sent. Raises NotFound,
    Conflict if nothing of the entry is away.
    """
    store = SessionStore(layout, name)
    source, fmt = Session(layout, name).open_to_read()
    with source:
        located = locate(source, fmt, entry)
        marker = Marker.of(located.entry)
        stream = _open_own(store, marker) if marker else None
        if marker is None or stream is None:
            # Where a marker was dropped, or names what another store has, looking takes more.
            found = extracted_content(source, fmt, located.name, store)
            return Content([bytes(JsonAnswer(found.as_json()).body)])
    head = {
        "entry_id": located.facts.id,
        "index": located.line.index,
        "ref": marker.ref,
        "extracted_at": marker.at,
        "size_bytes": marker.size,
    }
    with ExitStack() as undo:
        content = Content(file=stream.file)
        undo.callback(content.close)
        paths = paths_of(marker.keys)
        spans = _spans(stream.line, paths.values())
        known = {key: spans[path] for key, path in paths.items() if path in spans}
        missing = {key: UNAVAILABLE[Missing.CORRUPT] for key in paths if key not in known}
        content.parts += [bytes(JsonAnswer(head).body)[:-1] + b',"content":{']
        for number, (key, span) in enumerate(known.items()):
            content.parts += [b"," * bool(number) + orjson.dumps(key) + b":", span]
        content.parts += [b'},"unavailable":' + orjson.dumps(missing) + b"}"]
        undo.pop_all()
    return content


class _Opened(NamedTuple):
    file: FileIO
    line: bytes


def _open_own(store: SessionStore, marker: Marker) -> _Opened | None:
    """Open the file that a marker names, if it is there and holds what it shall."""
    try:
        file = plain_file(store.file(marker.ref))
    except (OSError, Invalid):
        return None
    with suppress(OSError):
        # A large one is not held in memory before it is known to be the right one.
        if f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" == marker.hash:
            file.seek(0)
            return _Opened(file, file.read())
    file.close()
    return None


def _spans(line: bytes, paths: Iterable[ValuePath]) -> dict[ValuePath, Span]:
    wanted = list(paths)
    try:
        return find(line, wanted)
    except SpliceError:
        if len(wanted) <= 1:
            return {}
    # One that is not there shall not hide the others.
    return {path: span for one in wanted for path, span in _spans(line, [one]).items()}
