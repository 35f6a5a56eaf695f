"""No client exceeds its permission: keys, read-only, and names that try to lead elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.sessions.idle import RetryBudget
from tests.http.api import over_tcp, request, serving
from tests.http.fake_daemon import app_over, description
from tests.openclaw_tree import add_session
from tests.session_files import sample
from tests.unix import UnixConnection

pytestmark = pytest.mark.daemon

CANARY = '{"canary":"must not be read"}\n'

OPEN = {("GET", "/api/health"), ("GET", "/api/config")}


@cache
def paths() -> dict[str, Any]:
    """Return the paths of the OpenAPI document."""
    known: dict[str, Any] = description(app_over(Path("/nonexistent")))["paths"]
    return known


def routes() -> list[tuple[str, str]]:
    return [(method.upper(), path) for path, methods in paths().items() for method in methods]


@pytest.fixture
def root(root: Path) -> Path:
    add_session(root, "main/sample", sample(2, 1))
    layout = Layout(root)
    # The files after the first start, and after the first work on the session.
    assert ConfigService(layout.config_file).current.enabled
    with own_lock(layout, SessionName("main", "sample"), 1.0):
        pass
    return root


def named(path: str, method: str = "") -> str:
    """Return a route filled with existing names, and with the parameters that its query needs."""
    values = {"agent": "main", "session": "sample", "entry": "%231"}
    target = re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], "nope"), path)
    operation = paths().get(path, {}).get(method.lower(), {})
    wanted = [
        f"{one['name']}={values.get(one['name'], 'nope')}"
        for one in operation.get("parameters", ())
        if one["in"] == "query" and one.get("required")
    ]
    return f"{target}?{'&'.join(wanted)}" if wanted else target


def everything(root: Path) -> dict[str, bytes | None]:
    """Return all files and directories, and their contents."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
        if not path.is_socket()
    }


# --- keys and read-only ---------------------------------------------------------------------


def test_all_routes_are_known() -> None:
    assert len(routes()) > 20
    assert len(list(parameters())) > 30
    assert len(list(queries())) > 5


def test_every_route_wants_a_key(root: Path) -> None:
    keyed = {"BRAINSURGEON_API_KEYS": "right", "BRAINSURGEON_HTTP": "127.0.0.1:0"}
    with serving(root, **keyed) as (server, _):
        before = everything(root)
        for method, path in routes():
            status, answer = over_tcp(server, named(path, method), method)
            assert status == (200 if (method, path) in OPEN else 401), (method, path, answer)
            status, answer = over_tcp(server, named(path, method), method, X_API_Key="wrong")
            assert status == (200 if (method, path) in OPEN else 403), (method, path, answer)
        assert everything(root) == before
        assert over_tcp(server, "/api/sessions/main/sample", X_API_Key="right")[0] == 200


def test_read_only_every_change_is_refused(root: Path) -> None:
    with serving(root, BRAINSURGEON_READONLY="true") as (_, settings):
        before = everything(root)
        for method, path in routes():
            if path == "/api/events":
                continue  # its answer never ends
            target = named(path, method)
            status, answer = request(UnixConnection(settings.socket), target, method)
            if method == "GET":  # here is no memory, workspace, catalogue or deleted session
                none = ("/api/memory", "/api/workspaces", "/api/archive/{", "/api/setup/{")
                fleet = path in {"/api/fleet/sessions", "/api/fleet/search"}
                library = fleet or path.startswith(none)
                assert status in ({200, 404} if library else {200, 409}), (path, answer)
            else:
                expected = {"error": "Server is in read-only mode", "readonly": True}
                assert (status, answer) == (403, expected), (method, path)
        assert everything(root) == before


# --- pages of other origins --------------------------------------------------------------------


def test_no_route_answers_pages_of_others_or_by_a_rebound_name(root: Path) -> None:
    with serving(root, BRAINSURGEON_HTTP="127.0.0.1:0") as (server, settings):
        before = everything(root)
        for method, path in [*routes(), ("GET", "/"), ("GET", "/api/openapi.json")]:
            target, body = named(path, method), body_of(method, path)
            port = server.addresses[0].port
            for headers in (
                {"Origin": "http://evil.example"},
                {"Origin": "null"},
                {"Origin": f"http://localhost.evil.example:{port}"},
                {"Host": f"evil.example:{port}"},
                {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"},
            ):
                status, answer = over_tcp(server, target, method, body, **headers)
                assert (status, list(answer)) == (403, ["error", "hint"]), (method, path, headers)
            connection = UnixConnection(settings.socket)
            status, _ = request(connection, target, method, body, Origin="http://evil.example")
            assert status == 403, (method, path)
        assert everything(root) == before


# --- names ----------------------------------------------------------------------------------


def once(text: str) -> str:
    return quote(text, safe="")


def twice(text: str) -> str:
    return once(once(text))


HOSTILE = [
    *("..", ".", "%2e%2e", "%2e", "..%2f..%2fcanary", "..%2Fcanary", "%252e%252e%252fcanary"),
    *(once("../../canary"), twice("../../canary"), once("/etc/passwd"), twice("/etc/passwd")),
    *("%00", "sample%00", "sample%00.jsonl", "%0a", "sample%0a", "%0d%0aX:%20y"),
    *(once("..\\..\\canary"), "%5c", "..%5c", once("C:\\canary")),
    *("a" * 300, "9" * 5000, "%23" + "9" * 5000, "a" * 15_000),
    *(once("sаmple"), once("ｍain"), once("．．／canary"), once("․․"), once("#١"), once("٣")),
    *("%ff%fe", "%c0%ae%c0%ae%c0%af", once("\u202e"), once("sample "), "%20", "~", "$HOME", "*"),
    *("sample.jsonl", once("../sessions/sample"), "...", once("-rf"), once("{{7*7}}"), "%23-1"),
    *("sessions.json", once("canary"), once("link"), once("outside")),
]


@pytest.fixture
def tree(tmp_path: Path, root: Path) -> Path:
    """A canary in every place to which a wrong name could lead, and links that leave the root."""
    places = [tmp_path, root, root / "agents", root / "agents/main", tmp_path / "outside/sessions"]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        for name in ("canary", "canary.json", "canary.jsonl"):
            (place / name).write_text(CANARY)
    (root / "agents/main/sessions/link.jsonl").symlink_to(tmp_path / "canary.jsonl")
    (root / "agents/outside").symlink_to(tmp_path / "outside")
    return tmp_path


def parameters() -> Iterator[tuple[str, str, str]]:
    for method, path in routes():
        for parameter in re.findall(r"\{(\w+)\}", path):
            yield method, path, parameter


_RANGE = b'{"start":"nobody has ever","end":"written this text","replacement":""}'
BODIES = {
    "/context": b'{"action":"replace","targets":[' + _RANGE + b"]}",
    "/replace": _RANGE,
    "/meta": b'{"_extractable":false}',
    "/extract": b'{"keep_recent":0}',
    "{entry}": b'{"set":{"message.content[0].text":"x"}}',
}


def body_of(method: str, path: str) -> bytes | None:
    if method in {"GET", "DELETE"}:
        return None
    return next((body for end, body in BODIES.items() if path.endswith(end)), b"")


def test_no_name_leads_anywhere(tree: Path, root: Path) -> None:
    with serving(root) as (_, settings), closing(UnixConnection(settings.socket)) as connection:
        before = everything(tree)
        for method, path, parameter in parameters():
            for text in HOSTILE:
                where = (method, path, parameter, text)
                target = named(path.replace(f"{{{parameter}}}", text, 1))
                connection.request(method, target, body_of(method, path))
                answer = connection.getresponse()
                content = answer.read()
                allowed = {400, 403, 404, 405} if text in {"link", "outside"} else {400, 404, 405}
                assert answer.status in allowed, (where, answer.status, content)
                assert b"must not be read" not in content, where
            assert everything(tree) == before, (method, path, parameter)


def queries() -> Iterator[tuple[str, list[str]]]:
    for method, path in routes():
        if method == "GET":
            given = paths()[path]["get"].get("parameters", ())
            if names := [one["name"] for one in given if one["in"] == "query"]:
                yield path, names


def test_no_query_leads_anywhere(tree: Path, root: Path) -> None:
    with serving(root) as (_, settings), closing(UnixConnection(settings.socket)) as connection:
        before = everything(tree)
        for path, names in queries():
            target = named(path, "GET")
            for query, text in product(names, HOSTILE):
                where = (path, query, text)
                connection.request("GET", f"{target}{'&' if '?' in target else '?'}{query}={text}")
                answer = connection.getresponse()
                content = answer.read()
                assert answer.status in {200, 400, 403, 404}, (where, answer.status, content)
                assert b"must not be read" not in content, where
            assert everything(tree) == before, path


def test_a_ref_in_a_transcript_leads_nowhere(tree: Path, root: Path) -> None:
    """The original read any `*.json` of the host whose path was in a marker or in the URL."""
    line = (
        b'{"type":"message","id":"evil","parentId":null,"timestamp":"2026-01-05T08:30:00Z",'
        b'"message":{"role":"toolResult","toolCallId":"c","content":[{"type":"text",'
        b'"text":"[[extracted-evil]]"}]},"_extracted":{"ref":"../../canary",'
        b'"hash":"sha256:00","size":1,"keys":["message.content[0].text"],'
        b'"at":"2026-01-05T08:30:00Z"}}\n'
    )
    path = root / "agents/main/sessions/sample.jsonl"
    add_session(root, "main/sample", path.read_bytes() + line)
    with serving(root) as (_, settings):
        for ending in ("", "/extracted", "/meta"):
            connection = UnixConnection(settings.socket)
            target = f"/api/sessions/main/sample/entries/evil{ending}"
            connection.request("GET", target)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            assert b"must not be read" not in content
            assert answer.status in {200, 400, 404, 409}, content


# --- waiting --------------------------------------------------------------------------------


def test_a_session_in_use_is_a_conflict(root: Path) -> None:
    layout = Layout(root)
    with (
        serving(root, None, RetryBudget(wait=0.2)) as (_, settings),
        own_lock(layout, SessionName("main", "sample"), 1.0),
    ):
        before = everything(root)
        for method, path in routes():
            if "{session}" not in path or method == "GET" or path.startswith("/api/archive/"):
                continue  # no copy of it is stored here
            answer: tuple[int, Any] = request(
                UnixConnection(settings.socket), named(path), method, body_of(method, path)
            )
            assert answer[0] == 409, (path, answer)
            assert answer[1]["error"]
        assert everything(root) == before
