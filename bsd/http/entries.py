"""Entries of a session: lists, one as it is spelled, its extracted content, edits, restore.

An entry and its extracted content are sent as they are spelled and are never parsed: numbers keep
their digits, and a large value is read from the store piece by piece while it is sent.
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
_Line = Query(ge=0, le=10**9)  # no session has more


@router.get("")
def entries(  # noqa: PLR0913, PLR0917 - parameters of the query
    context: Context,
    session: SessionPath,
    start: Annotated[int, Query(alias="from"), _Line] = 0,
    before: Annotated[
        int | None, _Line, Query(description="The last ones before this line, not `from`")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = FIRST_PAGE,
    type: Annotated[str, Query(max_length=1000, description="Only these types: a,b")] = "",
    extracted: Annotated[
        bool | None, Query(description="Only those that are (or are not) extracted")
    ] = None,
    texts: Annotated[
        int, Query(ge=0, le=MOST_TEXT, description="Characters of each text; 0: no texts")
    ] = 0,
) -> Entries:
    """Entries from a line on, or the last ones before a line."""
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
    """A whole entry, numbers as they are spelled, to be edited."""

    entry_id: str | None
    index: int
    seen: Annotated[str, Field(description="Hash of the line; an edit may name it")]
    entry: dict[str, Any]


@router.get("/{entry}", response_model=EntryDocument)
def entry(context: Context, session: SessionPath, entry: EntryPath) -> Response:
    """A whole entry as it stands, for reading and editing."""
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
    """Change values of an entry; all other bytes stay."""
    wish, seen = read_edit(body)
    return context.run(edit_entry, session, entry, wish, seen)


@router.get("/{entry}/meta")
def meta(context: Context, session: SessionPath, entry: EntryPath) -> Meta:
    """Show the notes on an entry, and the keys of its extracted values."""
    return context.query(get_meta, session, entry)


class MetaBody(Input):
    """The member `_extractable` of an entry."""

    extractable: Annotated[
        bool | Annotated[int, Field(ge=0, le=10**9)] | None,
        Field(
            alias="_extractable",
            description="false keeps the entry in the session, true lets it go, a number keeps "
            "it for so many messages, null removes the setting.",
        ),
    ]


@router.put("/{entry}/meta")
def set_meta(
    context: Context, session: SessionPath, entry: EntryPath, body: MetaBody
) -> ExtractableSet:
    """Say whether an entry may be extracted."""
    return context.run(set_extractable, session, entry, body.extractable)


class RestoreBody(Input):
    """Which values; without `keys` all that were extracted."""

    keys: Annotated[
        list[str] | None, Field(min_length=1, description="Only these values, by path or by name.")
    ] = None


@router.post("/{entry}/restore", name="restore")
def restore_entry(
    context: Context, session: SessionPath, entry: EntryPath, body: RestoreBody | None = None
) -> Restored:
    """Put an entry's values back."""
    return context.run(restore, session, entry, body.keys if body else None)


@router.get("/{entry}/extracted", response_model=ExtractedContent)
def extracted(context: Context, session: SessionPath, entry: EntryPath) -> StreamingResponse:
    """Show the extracted content of an entry without putting it back."""
    content = StoredDocument.open(context.query(show_extracted, session, entry))
    size = {"content-length": str(content.size)}
    return StreamingResponse(content.pieces(), media_type=_JSON, headers=size)


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A JSON document whose large values are read from the store while it is sent."""

    parts: Sequence[bytes | Span]
    file: FileIO | None = None

    @classmethod
    def open(cls, found: InPieces) -> StoredDocument:
        """Open the stored file; raises Unavailable if it is not the one that was found."""
        moved = Unavailable("the stored file has just moved or changed", hint="ask again")
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
        """Bytes of the document."""
        return sum(
            len(part) if isinstance(part, bytes) else part.end - part.start for part in self.parts
        )

    def pieces(self) -> Iterator[bytes]:
        """The document, then close the file; raises Unavailable if the file became shorter."""
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
        assert self.file is not None  # noqa: S101 - a span is always one of the file
        piece = os.pread(self.file.fileno(), length, start)
        if len(piece) != length:
            raise Unavailable("the stored file has become shorter")
        return piece

    def close(self) -> None:
        """Close the stored file."""
        if self.file is not None:
            self.file.close()
