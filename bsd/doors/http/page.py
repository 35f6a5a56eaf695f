"""The web page: `/`, and what it loads from `/web/`: files as they are, and one made here."""

from __future__ import annotations

import hashlib
import json
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bsd.doors.http.answer import in_thread
from bsd.foundation.pruning_fields import SETTABLE, SETTINGS

_FOLDER = files("bsd.doors.http") / "web"
_START = "index.html"
_TABLE = "settings_table.js"  # made from the table of settings
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing from elsewhere, nothing inline, and no text ever becomes markup.
_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    # Ask each time: after an upgrade the parts must fit each other.
    "cache-control": "no-cache",
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def routes() -> list[Route]:
    async def start(request: Request) -> Response:
        return await in_thread(_answer, request, _START)

    async def part(request: Request) -> Response:
        return await in_thread(_answer, request, request.path_params["name"])

    return [Route("/", start), Route("/web/{name}", part)]


def _answer(request: Request, name: str) -> Response:
    if name not in _names():
        raise HTTPException(HTTPStatus.NOT_FOUND)
    content = settings_table() if name == _TABLE else (_FOLDER / name).read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = {**_HEADERS, "etag": tag}
    known = request.headers.get("if-none-match", "").split(",")
    if tag in (one.strip().removeprefix("W/") for one in known):
        return Response(None, HTTPStatus.NOT_MODIFIED, headers)
    media_type = _TYPES["." + name.rpartition(".")[2]]
    return Response(content, headers=headers, media_type=media_type)


def _names() -> frozenset[str]:
    """What there is: a name from outside is only ever compared with these."""
    names = (item.name for item in _FOLDER.iterdir() if item.is_file())
    return frozenset({_TABLE, *(one for one in names if "." + one.rpartition(".")[2] in _TYPES)})


def settings_table() -> bytes:
    """What the page knows of the settings: where each stands, and how it is written."""
    groups: dict[str, list[dict[str, Any]]] = {}
    # What is written as JSON takes much room and is rarely wanted: it stands last in its group.
    for name in sorted(SETTABLE, key=lambda one: SETTINGS[one].kind.control == "json"):
        one = SETTINGS[name]
        groups.setdefault(one.place, []).append(
            {
                "name": name,
                "control": one.kind.control,
                "choices": list(one.kind.choices.items()),
                "label": one.label,
                "help": one.note,
            }
        )
    return f"export const GROUPS = {json.dumps(list(groups.items()))};\n".encode()
