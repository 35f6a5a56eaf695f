"""Routes under /api/fleet: their answers, and a database that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from bsd.core.errors import TemporaryFailure
from bsd.core.fleet_settings import FleetSettings
from bsd.http import fleet
from bsd.http.fleet_threads import MOST_THREADS, FleetThreads, LastAnswer
from tests.fake_catalogue import FakeCatalogue, catalogue
from tests.http.fake_daemon import app_over, ask
from tests.waiting import DEADLINE_SECONDS, wait_for

__all__ = ["catalogue"]


def shared(root: Path) -> FastAPI:
    """The application of a machine that has a catalogue."""
    app = app_over(root)
    settings = FleetSettings(host="ours", database="postgresql://db.invalid/bsd")
    app.state.context = replace(app.state.context, fleet=settings)
    return app


def told(app: FastAPI, path: str, status: int = 200) -> Any:
    reply = ask(app, "GET", f"/api/fleet/{path}")
    assert reply.status == status, reply.body
    return reply.json()


@pytest.fixture
def app(tmp_path: Path, catalogue: FakeCatalogue) -> Iterator[FastAPI]:
    yield shared(tmp_path)
    if catalogue.holding is not None:
        catalogue.holding.set()


def test_without_a_catalogue(tmp_path: Path) -> None:
    app = app_over(tmp_path)
    document = told(app, "status")
    assert (document["bucket"], document["database"], document["hosts"]) == (None, False, [])
    for path in ("sessions", "search?q=word"):
        assert "Try" not in told(app, path, 404)["error"]
        assert "contrib/docs/fleet.md" in told(app, path, 404)["hint"]


def test_answers(app: FastAPI, catalogue: FakeCatalogue) -> None:
    hosts = told(app, "status")["hosts"]
    assert [one["host"] for one in hosts] == ["ours", "build-3", "old"]
    assert hosts[1]["behind_seconds"] == 7200
    told(app, "status")
    assert catalogue.opened == 1  # the second answer is the first one again

    found = told(app, "search?q=dead+lock&host=build-3&role=user&since=2026-11-01&after=k&limit=5")
    assert found["next"] == "page-2"
    assert found["results"][2]["command"].startswith("bsd archive bring-back build-3:")
    asked = catalogue.asked[-1]
    assert asked.pop("since") < time.time()
    assert asked == {
        "words": "dead lock",
        "host": "build-3",
        "role": "user",
        "after": "k",
        "limit": 5,
    }
    listed = told(app, "sessions?host=*&untouched=30d&directory=/home/ada")
    assert [one["here"] for one in listed["sessions"]] == [True, True, False]
    assert catalogue.asked[-1] == {
        "untouched_seconds": 30 * 86400,
        "directory": "/home/ada",
        "limit": 50,
    }
    for path in (
        "search?q=%20",
        "search?q=a&role=tool",
        "sessions?untouched=x",
        "sessions?limit=0",
    ):
        told(app, path, 400)
    catalogue.failing = TemporaryFailure("the database refuses connections", hint="start it")
    assert told(app, "sessions", 503)["hint"] == "start it"


def test_a_database_that_hangs(
    app: FastAPI, catalogue: FakeCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(fleet, "_STATUS_SECONDS", 0.2)
    catalogue.holding = threading.Event()
    many = MOST_THREADS + 2
    with ThreadPoolExecutor(many) as clients:
        asked = [clients.submit(told, app, "sessions", 503) for _ in range(many)]
        answers = [one.result(DEADLINE_SECONDS) for one in asked]
    assert all("has not answered within" in one["error"] for one in answers)
    assert len(catalogue.asked) == MOST_THREADS
    told(app, "status", 503)
    assert ask(app, "GET", "/api/config").status == 200
    catalogue.holding.set()
    wait_for(lambda: catalogue.closed == MOST_THREADS + 1)  # calls given up are not made
    told(app, "sessions")


def test_too_many_questions() -> None:
    threads, hold = FleetThreads(), threading.Event()

    def ask_often() -> None:
        for _ in range(100):
            threads.submit(hold.wait)

    with pytest.raises(TemporaryFailure, match="too many questions wait"):
        ask_often()
    hold.set()


def test_errors_are_not_kept() -> None:
    last: LastAnswer[int] = LastAnswer(60)
    asked: list[Future[int]] = []

    def submit() -> Future[int]:
        asked.append(Future())
        return asked[-1]

    first, beside = last.get(submit), last.get(submit)
    assert len(asked) == 1  # it is being made
    assert beside.cancel()
    asked[0].set_exception(TemporaryFailure("down"))
    assert isinstance(first.exception(), TemporaryFailure)
    second = last.get(submit)
    asked[1].set_result(7)
    assert second.result() == last.get(submit).result() == 7
    assert len(asked) == 2
