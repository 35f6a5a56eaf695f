"""`/api/workspaces…`: the library's answers, errors in the API's form, and no program is run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from bsd.core.layout import Layout
from bsd.http.middleware import AccessMiddleware
from bsd.workspaces import create_session_sandbox, touch_session
from bsd.workspaces.actions import WorkspaceRoot
from bsd.workspaces.prune import Rules
from tests.http.fake_daemon import app_over, ask


class Client:
    """Sends requests to an application over a workspace root."""

    def __init__(
        self, top: Path, workspaces: WorkspaceRoot | None, *, readonly: bool = False
    ) -> None:
        app = app_over(top, workspaces=workspaces)
        self.app = AccessMiddleware(app, readonly=readonly)

    def __call__(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        raw = b"" if body is None else json.dumps(body).encode()
        reply = ask(self.app, method, f"/api/workspaces{path}", body=raw)
        assert reply.status == status, reply.body
        return reply.json()


@pytest.fixture
def spaces(tmp_path: Path) -> Path:
    path = tmp_path / "spaces"
    path.mkdir()
    return path


@pytest.fixture
def api(tmp_path: Path, spaces: Path) -> Client:
    return Client(tmp_path, WorkspaceRoot(spaces, Layout(tmp_path), Rules(24.0), actor="api"))


def stale(spaces: Path, session_id: str, hours: float) -> None:
    create_session_sandbox(session_id, spaces)
    touch_session(session_id, spaces, clock=lambda: time.time() - hours * 3600)


def test_create_look_and_touch(api: Client, spaces: Path) -> None:
    assert api("GET", "") == {"workspace_root": str(spaces), "workspaces": []}
    made = api("POST", "", {"session_id": "a"})
    assert made == {"session_id": "a", "path": str(spaces / "a"), "created": True}
    assert not api("POST", "", {"session_id": "a"})["created"]
    assert api("POST", "")["created"], "without a body a name is made up"
    one = api("GET", "/a")
    assert (one["session_id"], one["execution_count"], one["reason"]) == ("a", 0, None)
    assert one["bytes"] > 0
    assert api("POST", "/a/touch")["metadata"]["updated_at"] >= one["updated_at"]
    rows = api("GET", "?sizes=true")["workspaces"]
    assert len(rows) == 2
    assert all(row["bytes"] > 0 for row in rows)


def test_prune_by_the_settings_or_as_asked(api: Client, spaces: Path, tmp_path: Path) -> None:
    for hours in (1, 2, 30):
        stale(spaces, f"h{hours}", hours)
    told = api("POST", "/prune?dry_run=true")
    assert told["deleted_sessions"] == ["h30"]
    assert api("POST", "/prune") == {**told, "dry_run": False}
    never = {"older_than_hours": None}
    assert api("POST", "/prune", never)["deleted_sessions"] == []
    assert api("POST", "/prune", {**never, "max_count": 1})["deleted_sessions"] == ["h2"]
    assert api("POST", "/prune", {"older_than_hours": 0.5})["deleted_sessions"] == ["h1"]
    lines = (tmp_path / ".brainsurgeon" / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["actor"] for line in lines] == ["api"] * 3


def test_repair(api: Client, spaces: Path) -> None:
    (spaces / "bare").mkdir()
    assert api("GET", "/bare")["reason"] == "missing_metadata"
    assert api("POST", "/bare/touch") == {"session_id": "bare", "metadata": None}
    told = api("POST", "/repair?dry_run=true")
    assert [one["repaired"] for one in told["workspaces"]] == [True]
    assert not list((spaces / "bare").iterdir())
    assert api("POST", "/bare/repair")["workspaces"][0]["reason"] == "missing_metadata"
    assert api("POST", "/repair") == {"dry_run": False, "workspaces": []}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/none", None, 404),
        ("POST", "/none/touch", None, 404),
        ("POST", "/none/repair", None, 404),
        ("GET", "/.bsd", None, 400),
        ("POST", "", {"session_id": "../x"}, 400),
        ("POST", "", {"session_id": 7}, 400),
        ("POST", "", {"name": "a"}, 400),
        ("POST", "/prune", {"older_than_hours": -1}, 400),
        ("POST", "/prune", {"older_than_hours": 1e999}, 400),
        ("POST", "/prune", {"max_count": "many"}, 400),
        ("POST", "/prune", [], 400),
        ("POST", "/prune?dry_run=perhaps", None, 400),
        ("POST", "/a/run", {"argv": ["true"]}, 404),
    ],
)
def test_errors(api: Client, method: str, path: str, body: Any, status: int) -> None:
    answer = api(method, path, body, status)
    assert set(answer) <= {"error", "hint", "errors"}
    assert answer["error"]


def test_without_a_root_there_are_none(tmp_path: Path) -> None:
    api = Client(tmp_path, None)
    assert "workspace_root" in api("GET", "", status=404)["hint"]
    api("POST", "/prune", status=404)
    missing = Client(tmp_path, WorkspaceRoot(tmp_path / "nowhere"))
    assert "there is no workspace root" in missing("GET", "", status=404)["error"]


def test_read_only_changes_nothing(tmp_path: Path, spaces: Path) -> None:
    stale(spaces, "old", 100)
    api = Client(tmp_path, WorkspaceRoot(spaces), readonly=True)
    assert len(api("GET", "")["workspaces"]) == 1
    for path in ("", "/prune", "/old/touch", "/repair"):
        assert api("POST", path, status=403)["readonly"]
    assert (spaces / "old").is_dir()
