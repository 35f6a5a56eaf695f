"""The page: `/`, and the files that it loads from `/web/`.

The files are read once and held in memory, compressed, so an answer waits for no disk and no other
thread. Their URLs `/web/VERSION/…` contain a version computed from all files together. A browser
caches them and requests them again only after an upgrade has changed a file.
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

# The page loads no file from another origin, has no inline scripts or styles, and never parses text
# as markup. Pictures of a session have blob: URLs that the page's scripts make and revoke.
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
# The browser asks each time: after an upgrade all files must be of the same version.
_ASK_AGAIN = "no-cache"
_KEEP = "public, max-age=31536000, immutable"  # the URL contains the version

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
        """Compress the content if it is large enough, and guess the media type from the name."""
        is_compressed = len(content) >= _LEAST_COMPRESSED
        return cls(
            gzip.compress(content, mtime=0) if is_compressed else content,
            is_compressed,
            mimetypes.guess_type(name)[0] or "application/octet-stream",
            f'"{_hash(content)}"',
        )

    def answer(self, request: Request, keep: str) -> Response:
        """Return the file, or 304 if the browser has this version; `keep` is Cache-Control."""
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
    """Return the files of the page, as read at the first call."""
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
    """Return index.html with versioned paths and a `modulepreload` link for each module.

    With these links the browser requests all modules at once, not each when another imports it.
    """
    links = "".join(
        f'<link rel="modulepreload" href="./web/{name}" />\n        ' for name in _modules(contents)
    )
    text = contents["index.html"].decode()
    text = text.replace("<script ", f"{links}<script ", 1)
    return text.replace('"./web/', f'"./web/{version}/').encode()


def _modules(contents: dict[str, bytes]) -> list[str]:
    """Return the modules that `app.js` imports, directly and indirectly."""
    names = [_FIRST_MODULE]
    for name in names:  # the loop appends to it
        parent = Path(name).parent
        for imported in _IMPORT.findall(contents[name]):
            path = (parent / imported.decode()).as_posix()
            if path not in names:
                names.append(path)
    return names[1:]


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


async def _start(request: Request) -> Response:
    """Answer with index.html, then start a child process that the page will need soon."""
    response = page_files().start.answer(request, _ASK_AGAIN)
    # A browser opens the page, and asks for HTML; a program that only looks whether bsd is there
    # sends no such header.
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        response.background = BackgroundTask(request.app.state.warm)
    return response


async def _part(request: Request) -> Response:
    """Answer with a file of the page; 404 if it does not exist."""
    files, path = page_files(), str(request.path_params["path"])
    name = path.removeprefix(f"{files.version}/")
    if name not in files.files:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return files.files[name].answer(request, _ASK_AGAIN if name == path else _KEEP)


ROUTES = (Route("/", _start), Route("/web/{path:path}", _part))


def settings_table() -> bytes:
    """Return a JavaScript module with the settings by group, each with its form control."""
    groups: dict[str, list[dict[str, Any]]] = {}
    # A setting edited as JSON takes much space and is rarely changed: it comes last in its group.
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
