"""A session as one file to save, and a preview of the secrets in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from bsd.actions.export import Exported, ExportFormat, export_session
from bsd.core.files import plain_stream
from bsd.http.dependencies import AnySessionPath, Context, JsonRoute

router = APIRouter(
    prefix="/api/sessions/{agent}/{session}/export", tags=["export"], route_class=JsonRoute
)

_PIECE = 256 << 10  # bytes
_TYPES = {
    ExportFormat.HTML: "text/html; charset=utf-8",
    ExportFormat.MARKDOWN: "text/markdown; charset=utf-8",
    ExportFormat.JSONL: "application/jsonl",
}
_Format = Annotated[ExportFormat, Query()]


@router.get("", response_class=StreamingResponse)
def export(
    context: Context,
    session: AnySessionPath,
    format: _Format = ExportFormat.HTML,
    *,
    redact: bool = False,
) -> StreamingResponse:
    """The session and those of its sub-agents in one file, with all values in their places.

    One that its program has deleted is read from its copy in the archive, and may be named by its
    id there.
    `redact` replaces keys and passwords by `[redacted-RULE]`.
    """
    # Beside the root: where bsd only reads, it writes nothing there.
    with TemporaryDirectory(prefix="bsd-export-") as directory:
        path = Path(directory, "export")
        done = context.query(export_session, session, format, path, redact=redact)
        stream = plain_stream(path)

    def pieces() -> Iterator[bytes]:
        with stream:
            while piece := stream.read(_PIECE):
                yield piece

    name = f"{session.session}.{format}"
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "content-length": str(done.bytes),
        "content-security-policy": "sandbox; default-src 'none'",
        "x-content-type-options": "nosniff",
    }
    return StreamingResponse(pieces(), media_type=_TYPES[format], headers=headers)


@router.get("/preview")
def export_preview(
    context: Context, session: AnySessionPath, format: _Format = ExportFormat.HTML
) -> Exported:
    """What the file would hold, and the keys and passwords in it; nothing is written."""
    return context.query(export_session, session, format, redact=True, dry_run=True)
