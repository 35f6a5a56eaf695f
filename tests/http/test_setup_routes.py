"""Agents are listed, and turned on and off, over HTTP as `bsd agents` does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from bsd.cli.main import run
from bsd.core.logs import close_logs
from bsd.core.settings import load_settings
from bsd.http.middleware import AccessMiddleware
from bsd.http.server import ApiServer
from tests.http.fake_daemon import Reply, app_over, ask
from tests.setup.homes import CLAUDE_SESSION, context_of, fill_home, foreign


class Home:
    """A home with all agents, and the application over its root."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.restarts = 0
        self.app: FastAPI = app_over(
            context_of(path).layout.root, setup=lambda: context_of(path), restart=self.restart
        )

    def restart(self) -> None:
        self.restarts += 1

    def ask(self, method: str, path: str, body: Any = None, *, local: bool = True) -> Reply:
        app = AccessMiddleware(self.app, keys_required=not local, hosts=["localhost"])
        content = b"" if body is None else json.dumps(body).encode()
        return ask(app, method, f"/api/{path}", body=content)

    def agent(self, name: str) -> dict[str, Any]:
        agents = self.ask("GET", "setup").json()["agents"]
        found: dict[str, Any] = next(one for one in agents if one["agent"] == name)
        return found


@pytest.fixture
def home(clean_environment: Path) -> Home:
    return Home(fill_home(clean_environment))


def test_it_is_shown_first_then_done_and_taken_back(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = foreign(home.path)
    claude = home.agent("claude-code")
    size = (home.path / CLAUDE_SESSION).stat().st_size
    assert (claude["on"], claude["sessions"], claude["bytes"]) == (False, 1, size)
    told = home.ask("GET", "setup/claude-code/would-leave").json()
    assert (told["sessions"], told["bytes"]) == (1, size)

    where = "setup/claude-code"
    shown = home.ask("POST", where, {"turn": "on", "permission": False, "dry_run": True}).json()
    assert '+kind = "claude-code"' in shown["files"][0]["diff"]
    assert foreign(home.path) == before
    # Consent to another change is refused: the user has not seen this change.
    other = home.ask("POST", where, {"turn": "on", "seen": shown["seen"]})
    assert (other.status, foreign(home.path) == before, home.restarts) == (409, True, 0)

    body = {"turn": "on", "permission": False, "seen": shown["seen"]}
    done = home.ask("POST", where, body).json()
    assert (done["settings_changed"], home.restarts) == (True, 1)
    claude = home.agent("claude-code")
    assert (claude["on"], claude["parts"]["permission"]) == (True, False)
    assert claude["command"] == "bsd agents off claude-code"
    # The application is older than the source: its daemon does not know it.
    assert home.ask("GET", "setup").json()["not_followed"] == ["claude-code"]

    with monkeypatch.context() as patch:  # a program may still write to a replaced version
        patch.setattr("bsd.actions.agents.replaced_versions", lambda _layout, _kind: 1)
        refused = home.ask("POST", where, {"turn": "off"})
    assert (refused.status, refused.json()["hint"]) == (409, "again in a minute")
    assert home.agent("claude-code")["on"]
    home.ask("POST", where, {"turn": "off"})
    assert foreign(home.path) == before
    assert home.agent("claude-code")["turned_off"]


def test_a_daemon_that_could_not_start_again_goes_on(home: Home) -> None:
    assert (home.ask("POST", "setup/restart").status, home.restarts) == (200, 1)
    settings = home.path / ".config/bsd/bsd.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("[[sources]\nkind = ")
    for path, body in (("setup/restart", None), ("setup/codex", {"turn": "on"})):
        refused = home.ask("POST", path, body)
        assert "bsd.toml" in str(refused.json()), refused
        assert refused.status >= 400
    assert (home.restarts, settings.read_text()) == (1, "[[sources]\nkind = ")


def test_on_tcp_without_a_key_the_command_is_told_instead(home: Home) -> None:
    before = foreign(home.path)
    for path, body in (("setup/codex", {"turn": "on", "dry_run": True}), ("setup/restart", None)):
        refused = home.ask("POST", path, body, local=False)
        assert refused.status == 403
        assert "without a key" in refused.json()["error"]
        assert "diff" not in refused.body.decode()
    assert home.ask("POST", "setup/codex", {"turn": "on"}, local=False).json()["hint"] == (
        "bsd agents on codex"
    )
    assert (home.restarts, foreign(home.path) == before) == (0, True)
    here = home.ask("GET", "setup", local=False).json()
    assert "without a key" in here["locked"]
    assert home.ask("GET", "setup").json()["locked"] is None


def test_the_command_has_a_daemon_start_again(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load_settings()
    server = ApiServer(home.app, settings)
    server.start()
    try:
        code = run(["agents", "on", "codex", "--yes"])
    finally:
        close_logs()
        server.stop()
    assert (code, home.restarts) == (0, 1)
    assert "bsd restarts, as process 4711" in capsys.readouterr().out


def test_files_that_may_not_be_written_are_named(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    codex = str(home.path / ".codex")
    monkeypatch.setattr(
        "bsd.setup.states.is_writable", lambda path: not str(path).startswith(codex)
    )
    assert home.agent("codex")["read_only"][0] == f"{codex}/config.toml"
    assert home.agent("pi")["read_only"] == []


def test_what_is_unknown_or_not_here_is_refused(home: Home, tmp_path: Path) -> None:
    assert home.ask("POST", "setup/nobody", {"turn": "on"}).status == 404
    assert home.ask("POST", "setup/codex", {"turn": "round"}).status == 400
    assert home.ask("GET", "setup/codex/would-leave").status == 200
    empty = app_over(tmp_path)
    assert [one for one in ask(empty, "GET", "/api/setup").json()["agents"] if one["found"]] == []
    assert ask(empty, "GET", "/api/setup/codex/would-leave").status == 404


def test_a_dismissed_notice_is_noted(home: Home) -> None:
    (home.path / ".openclaw/.brainsurgeon").mkdir(mode=0o700, exist_ok=True)
    for name in ("disk", "clock"):
        answer = home.ask("POST", "notices/dismiss", {"id": name})
    assert answer.json() == {"dismissed": ["clock", "disk"]}


def test_a_project_is_forgotten(home: Home) -> None:
    context = context_of(home.path)
    store = context.layout.extracted / "main_4f2a"
    store.mkdir(parents=True)
    (store / "0001_tool_result.json").write_text("{}")
    for here in (".", "~", "main/"):  # of the daemon, not of the caller
        assert home.ask("DELETE", f"archive?project={here}&dry_run").status == 400
    would = home.ask("DELETE", "archive?project=main&dry_run").json()
    assert (would["dry_run"], would["agents"], store.exists()) == (True, ["main"], True)
    done = home.ask("DELETE", "archive?project=main").json()
    assert (done["files"], store.exists()) == (1, False)
    assert home.ask("DELETE", "archive").status == 400
