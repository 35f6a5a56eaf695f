"""A session as one file to save, and a preview of the secrets in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from uuid import uuid4

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from bsd.actions.export import Exported, ExportFormat, export_session
from bsd.core.files import make_private_dir, plain_stream
from bsd.http.dependencies import Context, JsonRoute, SessionPath

router = APIRouter(
    prefix="/api/sessions/{agent}/{session}/export", tags=["export"], route_class=JsonRoute
)

_PIECE = 256 << 10  # bytes
_LEFT_SECONDS = 3600.0  # after that a file was left by a daemon that was killed
_TYPES = {
    ExportFormat.HTML: "text/html; charset=utf-8",
    ExportFormat.MARKDOWN: "text/markdown; charset=utf-8",
    ExportFormat.JSONL: "application/jsonl",
}
_Format = Annotated[ExportFormat, Query()]


@router.get("", response_class=StreamingResponse)
def export(
    context: Context,
    session: SessionPath,
    format: _Format = ExportFormat.HTML,
    *,
    redact: bool = False,
) -> StreamingResponse:
    """The session and those of its sub-agents in one file, with all values in their places.

    `redact` replaces keys and passwords by `[redacted-RULE]`.
    """
    directory = make_private_dir(context.layout.own / "exports")
    _remove_left(directory, context.now())
    path = directory / uuid4().hex
    done = context.query(export_session, session, format, path, redact=redact)
    stream = plain_stream(path)
    path.unlink()

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
    context: Context, session: SessionPath, format: _Format = ExportFormat.HTML
) -> Exported:
    """What the file would hold, and the keys and passwords in it; nothing is written."""
    return context.query(export_session, session, format, redact=True, dry_run=True)


def _remove_left(directory: Path, now: float) -> None:
    """Remove files that a daemon left which was killed."""
    for path in directory.iterdir():
        with suppress(OSError):
            if now - os.lstat(path).st_mtime > _LEFT_SECONDS:
                path.unlink()
