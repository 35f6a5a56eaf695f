"""replace, discard and distill through the API, over a real socket and a real file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.api import over_socket, serving
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import Talk, text

pytestmark = pytest.mark.daemon

PATH = "/api/sessions/main/talk"
LOG = "START_DEBUG_LOG " + "many lines of it " * 9 + "END_DEBUG_LOG"
REPLACE = {"start": "START_DEBUG_LOG", "end": "END_DEBUG_LOG", "replacement": "…"}
Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def serve(root: Path) -> Iterator[Ask]:
    with serving(root) as (_, settings):

        def ask(method: str, path: str, body: object = None) -> tuple[int, Any]:
            data = None if body is None else json.dumps(body).encode()
            return over_socket(settings.socket, PATH + path, method, data)

        yield ask


@pytest.fixture
def session(root: Path) -> Path:
    talk = Talk()
    talk.user()
    talk.says(text(f"before {LOG} after"))
    talk.user()
    talk.says(text("done"))
    return add_session(root, "main/talk", talk.raw)


def words(session: Path) -> str:
    entry = json.loads(session.read_bytes().splitlines()[2])
    found: str = entry["message"]["content"][0]["text"]
    return found


def test_replace(serve: Ask, session: Path) -> None:
    before = session.read_bytes()
    calls: list[tuple[str, object]] = [
        ("/replace", REPLACE),
        ("/replace", {"targets": [REPLACE]}),
        ("/context", {"action": "replace", "targets": [REPLACE]}),
    ]
    for path, body in calls:
        status, foretold = serve("POST", f"{path}?dry_run=true", body)
        assert (status, foretold["operation"]) == (200, None)
        assert session.read_bytes() == before
        status, done = serve("POST", path, body)
        assert (status, done) == (200, foretold | {"operation": done["operation"]})
        assert done["replacements"][0]["operation"] == REPLACE
        assert words(session) == "before … after"
        set_idle(session)
        assert serve("POST", "/undo", {"op": done["operation"]})[0] == 200
        assert session.read_bytes() == before
        set_idle(session)


def test_discard_and_distill(serve: Ask, session: Path) -> None:
    for action, more, left in (
        ("distill", ["a log"], "a log"),
        ("discard", [], "[content discarded]"),
    ):
        _, listed = serve("GET", "/context")
        hash_ = listed["entries"][2]["hash"]
        status, done = serve("POST", "/context", {"action": action, "targets": [[hash_, *more]]})
        assert (status, done["action"]) == (200, action)
        assert words(session) == left
        set_idle(session)


WRONG: list[tuple[str, object, set[str]]] = [
    ("/context", {}, {"action", "targets"}),
    ("/context", {"action": "compress", "targets": [["a"]]}, {"action"}),
    ("/context", {"action": "replace", "targets": []}, {"targets"}),
    ("/context", {"action": "replace", "targets": [REPLACE], "more": 1}, {"more"}),
    ("/context", {"action": "discard", "targets": [["xyz"], ["ffffff"]]}, {"targets[0]"}),
    ("/context", {"action": "discard", "targets": [["ffffff"]]}, {"targets[0]"}),
    ("/replace", {}, {"targets"}),
    ("/replace", {"start": "a"}, {"targets[0]"}),
    ("/replace", REPLACE | {"start": "nowhere"}, {"targets[0]"}),
    ("/replace", {"targets": [REPLACE, REPLACE]}, {"targets[1]"}),
]


def test_all_that_is_wrong_is_named_and_nothing_is_changed(serve: Ask, session: Path) -> None:
    before = session.read_bytes()
    for path, body, fields in WRONG:
        status, answer = serve("POST", path, body)
        assert (status, {one["field"] for one in answer["errors"]}) == (400, fields)
        assert answer["error"]
        assert session.read_bytes() == before
