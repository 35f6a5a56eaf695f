"""Sessions with only their prompts left, over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI

from bsd.actions.context import ActionContext
from bsd.core.config_file import ConfigService
from bsd.http.app import create_app
from tests.http.fake_daemon import FakeDaemon, ask
from tests.maintenance.keeping import ClaudeHome
from tests.maintenance.remembering import id_of, prompt, write_history

SESSION = f"claude-code:-home-me-project/{id_of(1)}"


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    home = ClaudeHome.of(tmp_path, 1, small=True)
    lines = [prompt("why is the basket empty?", id_of(1)), prompt("mend it", id_of(1), hours=1)]
    write_history(home.source, *lines)
    config = ConfigService(home.layout.config_file)
    context = ActionContext(layout=home.layout, config=config, actor="api")
    return create_app(FakeDaemon().as_daemon(), context)


def test_they_are_listed_shown_and_found(app: FastAPI) -> None:
    [listed] = ask(app, "GET", "/api/archive").json()["prompts_only"]
    assert (listed["session"], listed["prompts"]) == (SESSION, 2)
    shown = ask(app, "GET", f"/api/archive/{SESSION}?limit=1").json()
    assert shown["session"] == listed
    assert [one["text"] for one in shown["prompts"]] == ["why is the basket empty?"]
    assert shown["next"] == 1
    [found] = ask(app, "GET", "/api/archive/search?q=basket").json()["prompts"]
    assert (found["session"], found["status"]) == (SESSION, "prompts only")


def test_they_are_not_brought_back(app: FastAPI) -> None:
    refused = ask(app, "POST", f"/api/archive/{SESSION}/bring-back")
    assert refused.status == 404
    assert "only the prompts" in refused.json()["error"]
