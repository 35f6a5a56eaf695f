"""Outcomes of requests: the right status for each error, the right name in the audit."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.context import ActionContext
from bsd.core.config_file import ConfigService
from bsd.core.errors import BsdError, Forbidden, TemporaryFailure, Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.http.app import create_app
from bsd.http.errors import LARGEST_BODY
from bsd.http.server import ApiServer
from bsd.sessions import editor
from bsd.sessions.idle import RetryBudget
from tests.http.api import over_socket, over_tcp, serving, settings_for
from tests.http.fake_daemon import FakeDaemon
from tests.openclaw_tree import add_session, set_idle
from tests.refusing import raising
from tests.session_files import sample

pytestmark = pytest.mark.daemon

SAMPLE = "/api/sessions/main/sample"
ALL = b'{"prefix_bound":"extract"}'


@pytest.fixture
def root(root: Path) -> Path:
    add_session(root, "main/sample", sample(12, 1))
    return root


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Unavailable("the disk is full", hint="free some space"), 503),
        (Forbidden("not yours", hint="run as its owner"), 403),
        (BsdError("it went wrong"), 500),
    ],
)
def test_each_failure_has_its_own_status(
    root: Path, monkeypatch: pytest.MonkeyPatch, error: BsdError, status: int
) -> None:
    monkeypatch.setattr(editor, "commit", raising(error))
    with serving(root) as (_, settings):
        answer = over_socket(settings.socket, f"{SAMPLE}/extract", "POST", ALL)
    expected = {"error": error.message} | ({"hint": error.hint} if error.hint else {})
    assert answer == (status, expected)


def test_what_passes_is_a_conflict(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editor, "commit", raising(TemporaryFailure("the file changed")))
    with serving(root, None, RetryBudget(wait=0.0, quiet=0.1)) as (_, settings):
        status, answer = over_socket(settings.socket, f"{SAMPLE}/extract", "POST", ALL)
    assert (status, "in use" in answer["error"]) == (409, True)


def actors(root: Path) -> list[str]:
    path = root / ".brainsurgeon/audit.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["actor"] for line in lines]


def test_the_audit_names_who_asked_through_which_door(root: Path) -> None:
    body = b'{"_extractable":%b}'
    named = hashlib.sha256(b"right").hexdigest()[:8]
    settings: dict[str, str] = {"BRAINSURGEON_HTTP": "127.0.0.1:0"}
    target = f"{SAMPLE}/entries/%233/meta"
    path = Layout(root).agents / "main/sessions/sample.jsonl"
    with serving(root, **settings) as (server, found):
        for value, headers in ((b"1", {}), (b"2", {"X_API_Key": "nobody gave this one out"})):
            assert over_tcp(server, target, "PUT", body % value, **headers)[0] == 200
            set_idle(path)
        assert over_socket(found.socket, target, "PUT", body % b"3")[0] == 200
        set_idle(path)
    assert actors(root) == ["api", "api", "api"], "open to all: nobody is known by a name"
    settings["BRAINSURGEON_API_KEYS"] = "other,right"
    with serving(root, **settings) as (server, found):
        asked: list[tuple[Any, Any, dict[str, str]]] = [
            (over_tcp, server, {"X_API_Key": "right"}),
            (over_socket, found.socket, {"X_API_Key": "right"}),
            (over_socket, found.socket, {"X_API_Key": "wrong"}),
            (over_socket, found.socket, {}),
        ]
        for number, (ask, door, headers) in enumerate(asked, 4):
            value = str(number).encode()
            assert ask(door, target, "PUT", body % value, **headers)[0] == 200
            set_idle(path)
    assert actors(root)[3:] == [named, named, "api", "api"]


def test_whoever_shows_the_forecast_hears_of_what_was_deleted(root: Path) -> None:
    layout, heard = Layout(root), []
    context = ActionContext(
        layout=layout,
        config=ConfigService(layout.config_file),
        actor="api",
        budget=RetryBudget(0.0, 0.1),
        cleaned=lambda: heard.append("cleaned"),
    )
    settings = settings_for(root)
    server = ApiServer(create_app(FakeDaemon().as_daemon(), context), settings)
    server.start()
    try:
        over_socket(settings.socket, f"{SAMPLE}/extract", "POST", ALL)
        for path in layout.store_dir(SessionName("main", "sample")).glob("0*.json"):
            os.utime(path, (1, 1))
        assert over_socket(settings.socket, "/api/retention/run?dry_run=true", "POST")[0] == 200
        assert heard == []
        status, done = over_socket(settings.socket, "/api/retention/run", "POST")
        assert status == 200
        assert done["cleaned"] > 0
        assert heard == ["cleaned"]
        assert over_socket(settings.socket, "/api/trash", "DELETE")[0] == 200
        assert heard == ["cleaned", "cleaned"]
    finally:
        assert server.stop()


def test_a_body_that_is_too_large_is_refused_in_our_form(root: Path) -> None:
    with serving(root, BRAINSURGEON_HTTP="127.0.0.1:0") as (server, settings):
        doors: list[tuple[Any, Any]] = [(over_socket, settings.socket), (over_tcp, server)]
        for ask, door in doors:
            status, answer = ask(door, "/api/config", "POST", b" " * (LARGEST_BODY + 1))
            assert (status, answer) == (
                413,
                {"error": f"the body is larger than {LARGEST_BODY} bytes"},
            )
            status, _ = ask(door, "/api/config", "POST", b" " * LARGEST_BODY)
            assert status == 400


CALLS = ("stat", "lstat", "open", "pread", "listdir", "scandir", "fsync", "rename", "unlink")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("place", ["sessions", "history", "extracted"])
def test_an_undo_on_a_failing_disk_is_no_error_of_ours(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, place: str
) -> None:
    real = getattr(os, call)
    failed: list[str] = []

    def failing(path: Any, *arguments: Any, **named: Any) -> Any:
        where = _path_of(path)
        if f"/{place}" in where and where.startswith(str(root)):
            failed.append(where)
            raise OSError(errno.EIO, os.strerror(errno.EIO), where)
        return real(path, *arguments, **named)

    with serving(root) as (_, settings):
        assert over_socket(settings.socket, f"{SAMPLE}/extract", "POST", ALL)[0] == 200
        set_idle(root / "agents/main/sessions/sample.jsonl")
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
            status, answer = over_socket(settings.socket, f"{SAMPLE}/undo", "POST", b"{}")
    if status != 200:
        assert failed
        assert "internal error" not in answer["error"]
        assert 400 <= status < 600
        assert status != 500, answer
    if status >= 500:
        assert "Input/output error" in answer["error"], answer


def _path_of(path: Any) -> str:
    return os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.fsdecode(path)
