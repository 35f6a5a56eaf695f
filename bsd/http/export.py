"""Export of a session as a file, and a preview of the secrets in it."""

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
    """Return a session and the sessions of its sub-agents in one file, with all values restored.

    If its program has deleted the session, its copy in the archive is exported; the id of the copy
    may then be given as the name. `redact` replaces keys and passwords by `[redacted-RULE]`.
    """
    # Not in the root: a read-only bsd must not write there.
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
    """Return what an export would contain, and the keys and passwords in it; writes no file."""
    return context.query(export_session, session, format, redact=True, dry_run=True)
