"""Entries of a session: list, full text, extracted content, edit, restore.

An entry and its extracted content are sent as the file spells them, without parsing, so numbers
keep their digits. A large value is read from the store in pieces while the answer is sent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from bsd.actions.edit import (
    EDIT_SCHEMA,
    Meta,
    edit_entry,
    get_meta,
    read_edit,
    set_extractable,
    show_editable,
)
from bsd.actions.list_entries import FIRST_PAGE, MOST_ENTRIES, MOST_TEXT, Entries, list_entries
from bsd.actions.read_extracted import InPieces, show_extracted
from bsd.actions.restore import restore
from bsd.core.errors import Invalid, Unavailable
from bsd.core.files import plain_file
from bsd.core.formatting import document
from bsd.http.dependencies import Context, EntryPath, Input, JsonRoute, SessionPath
from bsd.planning.edit import Edited, ExtractableSet
from bsd.planning.restore import Restored
from bsd.planning.view import ExtractedContent
from bsd.transcripts.change import Written
from bsd.transcripts.splice import Span

router = APIRouter(
    prefix="/api/sessions/{agent}/{session}/entries", tags=["entries"], route_class=JsonRoute
)

_JSON = "application/json"
_PIECE = 256 * 1024  # bytes
_Line = Query(ge=0, le=10**9)  # no session has more lines


@router.get("")
def entries(  # noqa: PLR0913, PLR0917 - parameters of the query
    context: Context,
    session: SessionPath,
    start: Annotated[int, Query(alias="from"), _Line] = 0,
    before: Annotated[
        int | None, _Line, Query(description="Instead of `from`: the last entries before this line")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = FIRST_PAGE,
    type: Annotated[str, Query(max_length=1000, description="Only these types: a,b")] = "",
    extracted: Annotated[
        bool | None, Query(description="Only entries that are (or are not) extracted")
    ] = None,
    texts: Annotated[
        int, Query(ge=0, le=MOST_TEXT, description="Characters of each text; 0: no texts")
    ] = 0,
) -> Entries:
    """List entries from a line on, or the last entries before a line."""
    return context.query(
        list_entries,
        session,
        start=start,
        before=before,
        limit=limit,
        types=type,
        extracted=extracted,
        texts=texts,
    )


@dataclass(frozen=True, slots=True)
class EntryDocument:
    """A whole entry for editing; numbers keep their spelling."""

    entry_id: str | None
    index: int
    seen: Annotated[str, Field(description="Hash of the line; an edit may send it back")]
    entry: dict[str, Any]


@router.get("/{entry}", response_model=EntryDocument)
def entry(context: Context, session: SessionPath, entry: EntryPath) -> Response:
    """Return a whole entry in its present state, for reading and editing."""
    shown = context.query(show_editable, session, entry)
    head = document({"entry_id": shown.entry_id, "index": shown.index, "seen": shown.seen})
    return Response(head[:-1] + b',"entry":' + shown.text.encode() + b"}", media_type=_JSON)


async def _body(request: Request) -> bytes:
    return await request.body()


_EDIT = {"requestBody": {"required": True, "content": {_JSON: {"schema": EDIT_SCHEMA}}}}


@router.put("/{entry}", openapi_extra=_EDIT)
def edit(
    context: Context,
    session: SessionPath,
    entry: EntryPath,
    body: Annotated[bytes, Depends(_body)],
) -> Edited:
    """Change values of an entry; all other bytes stay the same."""
    wish, seen = read_edit(body)
    return context.run(edit_entry, session, entry, wish, seen)


@router.get("/{entry}/meta")
def meta(context: Context, session: SessionPath, entry: EntryPath) -> Meta:
    """Return bsd's notes on an entry, and the keys of its extracted values."""
    return context.query(get_meta, session, entry)


class MetaBody(Input):
    """The member `_extractable` of an entry."""

    extractable: Annotated[
        bool | Annotated[int, Field(ge=0, le=10**9)] | None,
        Field(
            alias="_extractable",
            description="false: never extract the entry; true: extract it when due; a number: "
            "keep it for that many messages; null: remove the setting.",
        ),
    ]


@router.put("/{entry}/meta")
def set_meta(
    context: Context, session: SessionPath, entry: EntryPath, body: MetaBody
) -> ExtractableSet:
    """Set whether an entry may be extracted."""
    return context.run(set_extractable, session, entry, body.extractable)


class RestoreBody(Input):
    """The values to restore; without `keys`, all that were extracted."""

    keys: Annotated[
        list[str] | None, Field(min_length=1, description="Only these values, by path or name.")
    ] = None


@router.post("/{entry}/restore", name="restore")
def restore_entry(
    context: Context, session: SessionPath, entry: EntryPath, body: RestoreBody | None = None
) -> Restored:
    """Restore the extracted values of an entry."""
    return context.run(restore, session, entry, body.keys if body else None)


@router.get("/{entry}/extracted", response_model=ExtractedContent)
def extracted(context: Context, session: SessionPath, entry: EntryPath) -> StreamingResponse:
    """Return the extracted content of an entry without restoring it."""
    content = StoredDocument.open(context.query(show_extracted, session, entry))
    size = {"content-length": str(content.size)}
    return StreamingResponse(content.pieces(), media_type=_JSON, headers=size)


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A JSON document; its large values are read from the store while the answer is sent."""

    parts: Sequence[bytes | Span]
    file: FileIO | None = None

    @classmethod
    def open(cls, found: InPieces) -> StoredDocument:
        """Open the stored file; raises Unavailable if it has moved or changed since the search."""
        moved = Unavailable("the stored file has just moved or changed", hint="repeat the request")
        if found.file is None:
            return cls(found.parts)
        try:
            file = plain_file(found.file)
        except (OSError, Invalid) as error:
            raise moved from error
        if found.state != Written.of(os.fstat(file.fileno())):
            file.close()
            raise moved
        return cls(found.parts, file)

    @property
    def size(self) -> int:
        """The size of the document in bytes."""
        return sum(
            len(part) if isinstance(part, bytes) else part.end - part.start for part in self.parts
        )

    def pieces(self) -> Iterator[bytes]:
        """Yield the document, then close the file; raises Unavailable if the file is too short."""
        try:
            for part in self.parts:
                if isinstance(part, bytes):
                    yield part
                    continue
                for start in range(part.start, part.end, _PIECE):
                    yield self._read(start, min(_PIECE, part.end - start))
        finally:
            self.close()

    def _read(self, start: int, length: int) -> bytes:
        assert self.file is not None  # noqa: S101 - spans exist only with a file
        piece = os.pread(self.file.fileno(), length, start)
        if len(piece) != length:
            raise Unavailable("the stored file has become shorter")
        return piece

    def close(self) -> None:
        """Close the stored file."""
        if self.file is not None:
            self.file.close()
