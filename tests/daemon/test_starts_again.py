"""A daemon that is told to starts again in its own process, and follows bsd.toml."""

from __future__ import annotations

import http.client
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.running import Running, running
from tests.setup.agent_homes import add_agent
from tests.transcripts.agents.sources import CODEX
from tests.waiting import wait_for

pytestmark = pytest.mark.daemon


def test_an_agent_that_is_turned_on_beside_it_is_served(
    clean_environment: Path, tmp_path: Path
) -> None:
    add_agent(clean_environment, CODEX)
    root = clean_environment / ".openclaw"
    (root / "agents").mkdir(parents=True)
    with running(root, tmp_path) as daemon:
        began = daemon.status()["started_at"]
        done = daemon.bsd("agents", "on", "codex", "--yes")
        pid = daemon.process.pid
        assert f"bsd starts again, as process {pid}" in done.stdout
        status = wait_for(lambda: _after(daemon, began), "it to start again")
        assert status["pid"] == pid
        assert [one["kind"] for one in status["sources"]] == ["codex"]
        assert daemon.said("bsd starts again")


def _after(daemon: Running, began: object) -> dict[str, Any]:
    with suppress(OSError, http.client.HTTPException):
        status = daemon.status()
        return status if status["started_at"] != began else {}
    return {}
