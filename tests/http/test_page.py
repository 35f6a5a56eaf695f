"""The page's files: served with correct caching rules, and no other file is served."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from fastapi import FastAPI

import bsd.http
from bsd.core.config import SETTABLE, setting_descriptions
from bsd.http.middleware import AccessMiddleware
from bsd.http.page import page_files, settings_table
from tests.http.fake_daemon import app_over, ask

_FOLDER = Path(bsd.http.__file__).parent / "web"
_FILES = sorted(path.name for path in _FOLDER.iterdir() if path.is_file())
# Third-party libraries, each in a directory of its own.
_LIBRARIES = sorted(
    str(path.relative_to(_FOLDER))
    for path in (_FOLDER / "vendor").glob("*/*")
    if path.suffix in {".js", ".css"}
)
_MADE = "settings_table.js"
_PARTS = [*_FILES, *_LIBRARIES, _MADE]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    return app_over(tmp_path_factory.mktemp("page"))


@pytest.mark.parametrize("path", ["/", *(f"/web/{name}" for name in _PARTS)])
def test_every_part_is_served_with_its_type_and_may_be_kept(app: FastAPI, path: str) -> None:
    name = path.removeprefix("/web/").strip("/") or "index.html"
    content = _content(name)
    reply = ask(app, "GET", path)
    assert reply.status == 200
    assert _as_written(reply.body) == content
    ending = "html" if path == "/" else path.rpartition(".")[2]
    types = {
        "html": "text/html",
        "js": "text/javascript",
        "css": "text/css",
        "svg": "image/svg+xml",
    }
    kind = reply.headers["content-type"].replace("application/javascript", "text/javascript")
    assert kind.partition(";")[0] == types[ending]
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert reply.headers["cache-control"] == "no-cache"
    known = f'W/"old", {reply.headers["etag"]}'
    again = ask(app, "GET", path, headers={"If-None-Match": known})
    assert (again.status, again.body) == (304, b"")


def _as_written(start: bytes) -> bytes:
    """Return index.html without the version and the modules that the server adds to it."""
    plain = start.replace(f"/web/{page_files().version}/".encode(), b"/web/")
    return re.sub(rb'<link rel="modulepreload"[^>]*>\s*', b"", plain)


def test_the_start_names_every_module_at_once_and_no_file_is_asked_for_again(app: FastAPI) -> None:
    start = ask(app, "GET", "/").body.decode()
    linked = re.findall(r'(?:href|src)="\./(web/[^"]+)"', start)
    for path in linked:
        reply = ask(app, "GET", f"/{path}")
        assert reply.status == 200, path
        assert reply.headers["cache-control"] == "public, max-age=31536000, immutable"
        name = path.split("/", 2)[2]
        assert reply.body == _content(name), path
    preloaded = {path.split("/", 2)[2] for path in linked if path.endswith(".js")}
    imported = {
        (Path(name).parent / found).as_posix()
        for name in preloaded
        for found in re.findall(r'from\s+"\./([^"]+)"', _content(name).decode())
    }
    assert imported - preloaded == set()
    assert "vendor/uplot/uplot.js" not in preloaded, "it is loaded behind the rest"
    assert ask(app, "GET", "/web/another-version/app.js").status == 404


def _content(name: str) -> bytes:
    return settings_table() if name == _MADE else (_FOLDER / name).read_bytes()


def test_the_page_is_light_on_the_way(app: FastAPI) -> None:
    size = 0
    for name in (*_FILES, *_LIBRARIES):
        reply = ask(app, "GET", f"/web/{name}", headers={"Accept-Encoding": "gzip"})
        content = (_FOLDER / name).read_bytes()
        if reply.headers.get("content-encoding") == "gzip":
            assert gzip.decompress(reply.body) == content
        else:
            assert len(content) < 500
            assert reply.body == content
        size += len(reply.body)
    assert size < 400_000


@pytest.mark.parametrize(
    ("accepted", "sent"),
    [
        *(("gzip", "gzip"), ("br, GZIP;q=0.5", "gzip"), ("gzip;q=0.01", "gzip")),
        *(("gzip;q=0", None), ("gzip ; q=0.000, br", None), ("identity", None), ("gzipped", None)),
    ],
)
def test_a_file_is_sent_as_the_browser_accepts_it(
    app: FastAPI, accepted: str, sent: str | None
) -> None:
    reply = ask(app, "GET", "/web/app.js", headers={"Accept-Encoding": accepted})
    assert reply.headers.get("content-encoding") == sent


def test_only_a_browser_that_opens_the_page_has_a_child_started(tmp_path: Path) -> None:
    app, opened = app_over(tmp_path), list[str]()
    app.state.warm = lambda: opened.append("warm")
    ask(app, "GET", "/", headers={"Accept": "*/*"})
    ask(app, "HEAD", "/", headers={"Accept": "text/html"})
    assert opened == []
    ask(app, "GET", "/", headers={"Accept": "text/html,*/*;q=0.8"})
    assert opened == ["warm"]


@pytest.mark.parametrize(
    "name",
    [
        *("..", ".", "%2e%2e", "../__init__.py", "..%2f__init__.py", "%2e%2e%2f__init__.py"),
        *("..\\__init__.py", "index.html%00", "INDEX.HTML", "\x00", "", "x" * 5000),
        *("/etc/passwd", "//etc/passwd", "index.html.", "index．html"),
    ],
)
def test_nothing_else_is_served(app: FastAPI, name: str) -> None:
    assert ask(app, "GET", f"/web/{name}").status in {307, 404}


def test_the_page_is_open_to_those_who_have_no_key_yet(app: FastAPI) -> None:
    guarded = AccessMiddleware(app, keys=["key"])
    for path in ("/", *(f"/web/{name}" for name in _PARTS)):
        assert ask(guarded, "GET", path).status == 200
        assert ask(guarded, "POST", path).status == 401
    for path in ("/web", "/web/../api/status", "/api/status", "//"):
        assert ask(guarded, "GET", path).status in {401, 404}, path
    assert ask(guarded, "GET", "/api/savings").status == 401


def test_its_sources_load_nothing_from_elsewhere_and_make_no_markup_of_text() -> None:
    for path in (_FOLDER / name for name in _FILES):
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/", "")
        assert not re.search(r"(?:https?:)?//[a-z0-9-]+\.[a-z]", text), path.name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        ), path.name
        assert text.count("\n") <= 400, f"{path.name} has grown too long"


def test_each_setting_that_people_set_stands_on_the_page_once(app: FastAPI) -> None:
    text = ask(app, "GET", f"/web/{_MADE}").body.decode()
    groups = json.loads(text.removeprefix("export const GROUPS = ").removesuffix(";\n"))
    fields = {one["name"]: one for _, group in groups for one in group}
    assert sum(len(group) for _, group in groups) == len(fields)
    assert fields.keys() == set(SETTABLE)
    assert fields["keep_recent"] == {
        "name": "keep_recent",
        "control": "number",
        "choices": [],
        "label": "Messages to keep",
        "help": "The number of newest messages that stay whole (0–100).",
    }
    assert fields["scope"]["choices"] == [
        ["all", "all values"],
        ["display", "only values that the model never gets"],
    ]
    assert [title for title, _ in groups] == [
        *("What is extracted", "When", "How long it is kept", "Search", "What agents see"),
        "What is left out",
    ]
    assert groups[0][1][-1]["name"] == "trigger_rules", "it takes much room"


def test_the_page_knows_each_control() -> None:
    text = (_FOLDER / "settings.js").read_text(encoding="utf-8")
    for setting in setting_descriptions().values():
        control = setting.control
        assert re.search(rf'"{control}"|^    {control}: ', text, re.MULTILINE), control
