"""The page: `/`, and the files that it loads from `/web/`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.staticfiles import StaticFiles

from bsd.core.config import setting_descriptions

# Nothing from elsewhere, nothing inline, and no text ever becomes markup. Pictures of a session are
# shown by URLs that the page's own scripts make (blob:), for as long as they are shown.
_POLICY = (
    "default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
_HEADERS = {
    # Ask each time: after an upgrade the parts must fit each other.
    "cache-control": "no-cache",
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}


class PageFiles(StaticFiles):
    """The files of the page, with headers that keep other pages and sources out."""

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, *rest: Any
    ) -> Response:
        response = super().file_response(full_path, stat_result, *rest)
        response.headers.update(_HEADERS)
        return response


FILES = PageFiles(directory=Path(__file__).parent / "web")
router = APIRouter(tags=["page"], include_in_schema=False)


@router.get("/")
async def start(request: Request) -> Response:
    """Answer with the page itself."""
    return await FILES.get_response("index.html", request.scope)


@router.get("/web/settings_table.js")
def settings_table() -> Response:
    """Tell the page about the settings: where each stands, and how it is written."""
    groups: dict[str, list[dict[str, Any]]] = {}
    # A setting written as JSON takes much room and is rarely wanted: it stands last in its group.
    for setting in sorted(setting_descriptions().values(), key=lambda it: it.control == "json"):
        groups.setdefault(setting.group, []).append(
            {
                "name": setting.name,
                "control": setting.control,
                "choices": list(setting.choices.items()),
                "label": setting.label,
                "help": setting.help,
            }
        )
    script = f"export const GROUPS = {json.dumps(list(groups.items()))};\n"
    return Response(script, media_type="text/javascript", headers=_HEADERS)
