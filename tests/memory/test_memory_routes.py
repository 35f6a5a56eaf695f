"""`/api/memory/…`, asked without any network."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from bsd.core.layout import Layout
from bsd.http.middleware import AccessMiddleware
from bsd.memory import actions
from bsd.memory.facts import FIELDS
from bsd.memory.memory import open_memory
from tests.http.fake_daemon import Reply, app_over, ask
from tests.memory.memories import DAY, NOW, Clock, rows


@pytest.fixture
def app(tmp_path: Path, clock: Clock) -> ASGIApp:
    return app_over(tmp_path, memory=partial(open_memory, Layout(tmp_path), clock=clock))


def post(app: ASGIApp, verb: str, **body: Any) -> Any:
    reply = ask(app, "POST", f"/api/memory/{verb}", body=json.dumps(body).encode())
    assert reply.status == 200, reply.body
    return reply.json()


def get(app: ASGIApp, what: str) -> Any:
    reply = ask(app, "GET", f"/api/memory/{what}")
    assert reply.status == 200, reply.body
    return reply.json()


def test_a_fact_from_beginning_to_end(app: ASGIApp, clock: Clock, tmp_path: Path) -> None:
    stored = post(app, "store", text="Ada likes tea", entity="Ada", tags=["x"], confidence=0.5)
    assert set(stored) == {"created", *FIELDS}
    assert stored["created"] is True
    assert post(app, "store", text="ada likes TEA", entity="Ada")["created"] is False
    clock.now += DAY
    (found,) = get(app, "recall?query=tea&limit=3&tag=x")["results"]
    assert found["expires_at"] == stored["expires_at"], "who only looks keeps nothing alive"
    (found,) = post(app, "recall", query="tea")["results"]
    assert found["expires_at"] == stored["expires_at"] + DAY
    assert set(found) == {"score", *FIELDS}
    assert get(app, "lookup?entity=ADA")["results"][0]["recall_count"] == 1
    assert post(app, "lookup", entity="ADA")["results"][0]["recall_count"] == 2
    assert post(app, "confirm", id=stored["id"])["confidence"] == 1.0
    assert post(app, "forget", id=stored["id"])["forgotten"] is True
    assert get(app, "recall?query=tea") == {"query": "tea", "results": []}
    audit = (tmp_path / ".brainsurgeon" / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["action"] for line in audit] == [
        *("memory_store", "memory_confirm", "memory_forget")
    ]
    assert {json.loads(line)["actor"] for line in audit} == {"api"}


def test_what_is_recalled_can_be_narrowed_and_widened(app: ASGIApp, clock: Clock) -> None:
    old = post(app, "store", text="tea one", entity="Ada", tags=["x"])
    post(app, "store", text="tea two", entity="Ada", supersedes=old["id"])
    post(app, "store", text="tea three", expires_at=NOW)
    for number in range(6):
        post(app, "store", text=f"tea of Bob {number}", entity="Bob", tags=["y"])

    def both(**wanted: Any) -> list[str]:
        """The same by GET and by POST."""
        query = "&".join(f"{name}={value}" for name, value in wanted.items())
        found = get(app, f"recall?query=tea&{query}")["results"]
        posted = post(app, "recall", query="tea", refresh=False, **wanted)["results"]
        assert found == posted
        return sorted(one["text"] for one in found)

    assert both(entity="ada") == ["tea two"]
    assert both(tag="x", include_superseded=True) == ["tea one"]
    assert both(entity="ada", include_superseded=True) == ["tea one", "tea two"]
    assert len(both(limit=6)) == 6
    assert len(both(limit=50)) == 7
    assert len(both(limit=50, include_expired=True)) == 8
    assert len(post(app, "recall", query="tea", as_of=NOW - 1)["results"]) == 0
    assert len(get(app, "lookup?entity=bob&tag=x")["results"]) == 0
    assert len(post(app, "lookup", entity="bob", tag="y", limit=4)["results"]) == 4


def test_pruning_says_first_what_it_would_do(app: ASGIApp, clock: Clock, tmp_path: Path) -> None:
    post(app, "store", text="right now")
    post(app, "store", text="too faint", confidence=0.05)
    clock.now += 2 * DAY
    assert get(app, "stats")["expired"] == 1
    predicted = post(app, "prune", dry_run=True)
    assert (predicted["expired"], predicted["deleted"], predicted["dry_run"]) == (1, 1, True)
    assert post(app, "prune", vectors=True, dry_run=True)["vectors_orphaned"] == 0
    assert predicted["vectors_orphaned"] is None
    assert post(app, "prune", hard=True, dry_run=True)["deleted"] == 0
    assert post(app, "prune", soft=True)["expired"] == 0
    reply = ask(app, "POST", "/api/memory/prune")
    assert reply.json()["expired"] == 1, "without a body it does both"
    assert get(app, "stats")["facts"] == 0


def test_backfill_and_checkpoints(app: ASGIApp) -> None:
    assert get(app, "checkpoint") == {"checkpoint": None}
    said = {"intent": "a", "state": "b", "working_files": ["x.py"], "expected_outcome": "c"}
    saved = post(app, "checkpoint", **said)
    assert saved["expires_at"] == NOW + 4 * 3600
    assert get(app, "checkpoint")["checkpoint"]["expectedOutcome"] == "c"
    assert get(app, "checkpoint")["checkpoint"]["workingFiles"] == ["x.py"]
    post(app, "store", text="we decided", decay_class="active")
    assert ask(app, "POST", "/api/memory/backfill").json() == {"reclassified": {"permanent": 1}}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "store", {}, 400, "text"),
        ("POST", "store", {"text": " "}, 400, "needs a text"),
        ("POST", "store", {"text": "x", "confidence": 3}, 400, "confidence"),
        ("POST", "store", {"text": "x", "decay_class": "stabel"}, 400, "did you mean stable"),
        ("POST", "store", {"text": "x", "nonsense": 1}, 400, "nonsense"),
        ("POST", "confirm", {"id": "x"}, 404, "there is no database"),
        ("GET", "recall", None, 400, "query"),
        ("GET", "recall?query=x&limit=0", None, 400, "limit"),
        ("GET", "stats", None, 404, "there is no database"),
    ],
)
def test_what_cannot_be_done(
    app: ASGIApp, tmp_path: Path, method: str, path: str, body: Any, status: int, said: str
) -> None:
    told = b"" if body is None else json.dumps(body).encode()
    reply: Reply = ask(app, method, f"/api/memory/{path}", body=told)
    assert reply.status == status, reply.body
    assert said in reply.json()["error"]
    assert not (tmp_path / "memory").exists()


def test_readonly_may_still_look(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with open_memory(layout) as memory:
        from bsd.memory.new_fact import NewFact

        actions.store(memory, NewFact("harbour"))
    app = AccessMiddleware(app_over(tmp_path), readonly=True)
    assert len(get(app, "recall?query=harbour")["results"]) == 1
    assert ask(app, "POST", "/api/memory/recall", body=b'{"query": "x"}').status == 403
    assert rows(layout.facts_db, "SELECT recall_count FROM facts") == [(0,)]
