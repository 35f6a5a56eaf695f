"""The page: `/`, and the files that it loads from `/web/`.

The files are read once and held in memory, compressed: an answer waits for no disk and no other
thread. `/web/VERSION/…` names them by the version of all of them together, so that a browser keeps
them and asks for none of them again until an upgrade changes one.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import mimetypes
import re
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.routing import Route

from bsd.core.config import setting_descriptions

# Nothing from elsewhere, nothing inline, and no text ever becomes markup. Pictures of a session are
# shown by URLs that the page's own scripts make (blob:), for as long as they are shown.
_POLICY = (
    "default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "vary": "accept-encoding",
    "x-frame-options": "DENY",
}
# Ask each time: after an upgrade the parts must fit each other.
_ASK_AGAIN = "no-cache"
_KEEP = "public, max-age=31536000, immutable"  # its name has its version

_FOLDER = Path(__file__).parent / "web"
_SETTINGS = "settings_table.js"
_FIRST_MODULE = "app.js"
_IMPORT = re.compile(rb'^(?:import|export|\})[^"\n]*"\./([\w./-]+\.js)"', re.MULTILINE)
_LEAST_COMPRESSED = 500  # bytes
# In Accept-Encoding; a weight of zero refuses it.
_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page as it is sent."""

    body: bytes
    is_compressed: bool
    media_type: str
    etag: str

    @classmethod
    def of(cls, name: str, content: bytes) -> PageFile:
        """Return a file with its type by its name."""
        is_compressed = len(content) >= _LEAST_COMPRESSED
        return cls(
            gzip.compress(content, mtime=0) if is_compressed else content,
            is_compressed,
            mimetypes.guess_type(name)[0] or "application/octet-stream",
            f'"{_hash(content)}"',
        )

    def answer(self, request: Request, keep: str) -> Response:
        """Return the file, or 304 if the browser has it as it is."""
        headers = {**_HEADERS, "cache-control": keep, "etag": self.etag}
        known = request.headers.get("if-none-match", "").split(",")
        if self.etag in {tag.strip().removeprefix("W/") for tag in known}:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        body = self.body
        if self.is_compressed and _GZIP.search(request.headers.get("accept-encoding", "")):
            headers["content-encoding"] = "gzip"
        elif self.is_compressed:
            body = gzip.decompress(body)
        return Response(body, headers=headers, media_type=self.media_type)


@dataclass(frozen=True, slots=True)
class PageFiles:
    """All files of the page, by their paths below `/web/`; `start` is `/`."""

    version: str
    files: dict[str, PageFile]
    start: PageFile


@cache
def page_files() -> PageFiles:
    """Return the files of the page as they were when the first one was asked for."""
    contents = {
        path.relative_to(_FOLDER).as_posix(): path.read_bytes()
        for path in sorted(_FOLDER.rglob("*"))
        if path.is_file()
    }
    contents[_SETTINGS] = settings_table()
    version = _hash(b"".join(b"%s\0%b\0" % (name.encode(), x) for name, x in contents.items()))
    return PageFiles(
        version,
        {name: PageFile.of(name, content) for name, content in contents.items()},
        PageFile.of("index.html", _start_of(contents, version)),
    )


def _start_of(contents: dict[str, bytes], version: str) -> bytes:
    """Return index.html with the paths of this version, all modules named for the browser.

    The browser asks for all of them at once, rather than for each when another one imports it.
    """
    links = "".join(
        f'<link rel="modulepreload" href="./web/{name}" />\n        ' for name in _modules(contents)
    )
    text = contents["index.html"].decode()
    text = text.replace("<script ", f"{links}<script ", 1)
    return text.replace('"./web/', f'"./web/{version}/').encode()


def _modules(contents: dict[str, bytes]) -> list[str]:
    """Return the modules that the first one imports, and those that these import."""
    names = [_FIRST_MODULE]
    for name in names:  # grows meanwhile
        parent = Path(name).parent
        for imported in _IMPORT.findall(contents[name]):
            path = (parent / imported.decode()).as_posix()
            if path not in names:
                names.append(path)
    return names[1:]


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


async def _start(request: Request) -> Response:
    """Answer with the page itself."""
    response = page_files().start.answer(request, _ASK_AGAIN)
    # A browser opens the page, and asks for HTML; a program that only looks whether bsd is there
    # sends no such header.
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        response.background = BackgroundTask(request.app.state.warm)
    return response


async def _part(request: Request) -> Response:
    """Answer with a file of the page."""
    files, path = page_files(), str(request.path_params["path"])
    name = path.removeprefix(f"{files.version}/")
    if name not in files.files:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return files.files[name].answer(request, _ASK_AGAIN if name == path else _KEEP)


ROUTES = (Route("/", _start), Route("/web/{path:path}", _part))


def settings_table() -> bytes:
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
    return f"export const GROUPS = {json.dumps(list(groups.items()))};\n".encode()
