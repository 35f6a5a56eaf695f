"""The routes that there are, their errors, and their description."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from bsd.actions import models
from bsd.actions.models import arguments_model
from bsd.core.config_file import ConfigService
from bsd.core.errors import Busy, Unavailable
from bsd.core.layout import Layout
from bsd.http.answer import LARGEST_BODY, Threads
from tests.http.fake_daemon import (
    FakeDaemon,
    Reply,
    app_over,
    ask,
    description,
    sample_job,
    sample_status,
)
from tests.logs import capture_logs
from tests.waiting import DEADLINE_SECONDS


@pytest.fixture
def daemon() -> FakeDaemon:
    return FakeDaemon()


@pytest.fixture
def config(tmp_path: Path) -> ConfigService:
    return ConfigService(Layout(tmp_path).config_file)


@pytest.fixture
def app(daemon: FakeDaemon, tmp_path: Path) -> Starlette:
    return app_over(tmp_path, daemon)


def post(app: Starlette, path: str, body: bytes = b"", content_type: str | None = None) -> Reply:
    headers = {} if content_type is None else {"Content-Type": content_type}
    return ask(app, "POST", path, body=body, headers=headers)


@pytest.mark.parametrize(
    ("state", "status"), [("ok", 200), ("degraded", 200), ("starting", 503), ("stopping", 503)]
)
def test_health_is_for_load_balancers_too(
    app: Starlette, daemon: FakeDaemon, state: str, status: int
) -> None:
    daemon.state = state
    reply = ask(app, "GET", "/api/health")
    assert (reply.status, reply.json()["status"]) == (status, state)


def test_status_is_the_daemons(app: Starlette) -> None:
    reply = ask(app, "GET", "/api/status")
    assert (reply.status, reply.json()) == (200, sample_status())
    assert reply.headers["content-type"] == "application/json"


def test_names_that_are_no_unicode_can_be_told(app: Starlette, daemon: FakeDaemon) -> None:
    daemon.document = {"root": "/home/\udcff", "huge": 10**30}
    assert ask(app, "GET", "/api/status").json() == {"root": "/home/\udcff", "huge": 10**30}


def test_jobs_are_listed_and_run(app: Starlette, daemon: FakeDaemon) -> None:
    assert [job["name"] for job in ask(app, "GET", "/api/jobs").json()["jobs"]] == [
        "auto",
        "retention",
    ]
    assert post(app, "/api/jobs/retention/run").json() == sample_job()
    assert daemon.ran == ["retention"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("sessions?limit=abc", "limit must be a whole number from 1 to 1000, not 'abc'"),
        ("sessions?limit=0", "limit must be a whole number from 1 to 1000, not '0'"),
        ("sessions?agent=" + "a" * 1001, "agent must be a text of up to 1000 characters, not"),
        ("search", "q is missing"),
        ("sessions/main/a/entries?from=x", "from must be a whole number from 0 to"),
        ("sessions/main/a/entries?extracted=perhaps", "extracted must be true or false, not"),
    ],
)
def test_bad_parameters_are_named_in_our_words(app: Starlette, query: str, message: str) -> None:
    reply = ask(app, "GET", f"/api/{query}")
    (error,) = reply.json()["errors"]
    assert (reply.status, error["message"]) == (400, reply.json()["error"])
    assert error["message"].startswith(message)
    assert error["message"].startswith(f"{error['field']} ")


def test_an_unknown_job_is_not_found(app: Starlette) -> None:
    reply = post(app, "/api/jobs/nope/run")
    assert reply.status == 404
    assert reply.json() == {"error": "there is no job nope", "hint": "`bsd jobs` lists them"}


# --- config ---------------------------------------------------------------------------------


def test_config_is_shown_without_anything_secret(app: Starlette, config: ConfigService) -> None:
    shown = ask(app, "GET", "/api/config").json()
    assert shown == config.current.as_json()
    assert "api_keys" not in shown


@pytest.mark.parametrize("content_type", [None, "application/json", "text/plain", "x/y; charset=z"])
def test_config_is_changed_whatever_the_content_type(
    tmp_path: Path, config: ConfigService, content_type: str | None
) -> None:
    told: list[str] = []
    app = app_over(tmp_path, config_changed=lambda: told.append("changed"))
    reply = post(app, "/api/config", b'{"keep_recent":7,"retention":"never"}', content_type)
    assert reply.status == 200
    assert (reply.json()["keep_recent"], reply.json()["retention"]) == (7, "never")
    assert config.current.keep_recent == 7
    assert json.loads(config.path.read_bytes())["keep_recent"] == 7
    assert told == ["changed"]


def test_every_bad_field_is_named_and_nothing_changes(
    app: Starlette, config: ConfigService
) -> None:
    body = b'{"keep_recent":101,"min_value_length":"many","keep_recnt":1,"enabled":true}'
    reply = post(app, "/api/config", body)
    assert reply.status == 400
    answer = reply.json()
    assert {one["field"] for one in answer["errors"]} == {
        "keep_recent",
        "min_value_length",
        "keep_recnt",
    }
    assert "less than or equal to 100" in json.dumps(answer["errors"])
    assert answer["error"]
    assert config.current.keep_recent == 3


def test_times_of_runs_cannot_be_set(app: Starlette) -> None:
    reply = post(app, "/api/config", b'{"last_run_at":"2020-01-01T00:00:00Z"}')
    assert (reply.status, reply.json()["last_run_at"]) == (200, None)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b'{"a":NaN}'])
def test_a_body_that_is_no_object_is_refused(app: Starlette, body: bytes) -> None:
    reply = post(app, "/api/config", body)
    assert reply.status == 400
    assert "body" in reply.json()["error"]


def test_a_body_without_end_is_refused(app: Starlette) -> None:
    reply = post(app, "/api/config", b" " * (LARGEST_BODY + 1))
    assert reply.status == 413
    assert str(LARGEST_BODY) in reply.json()["error"]


# --- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/web", 404),
        ("GET", "/api/nope", 404),
        ("GET", "/docs", 404),
        ("DELETE", "/api/status", 405),
        ("GET", "/api/jobs/retention/run", 405),
    ],
)
def test_unknown_routes_and_methods_have_our_form(
    app: Starlette, method: str, path: str, status: int
) -> None:
    reply = ask(app, method, path)
    assert reply.status == status
    assert path in reply.json()["error"]
    assert reply.json()["hint"] == "/api/openapi.json lists what there is"
    assert ("allow" in reply.headers) == (status == 405)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Busy("main/a is in use", hint="try again"), 409),
        (Unavailable("the disk is full", hint="try again"), 503),
    ],
)
def test_errors_know_their_status(
    app: Starlette, daemon: FakeDaemon, error: Exception, status: int
) -> None:
    daemon.failing = error
    reply = ask(app, "GET", "/api/status")
    assert reply.status == status
    assert reply.json() == {"error": str(error), "hint": "try again"}


def test_what_nobody_foresaw_tells_nothing_of_the_inside(
    app: Starlette, daemon: FakeDaemon
) -> None:
    from bsd.http.middleware import ErrorBoundary

    daemon.failing = ZeroDivisionError("secret detail")
    with capture_logs() as lines:
        reply = ask(ErrorBoundary(app), "GET", "/api/status")
    assert reply.status == 500
    assert reply.json()["error"] == "internal error: ZeroDivisionError"
    assert b"secret" not in reply.body
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert (line["event"], line["path"]) == ("A request has failed", "/api/status")
    assert line["exc_info"]


# --- read-only ------------------------------------------------------------------------------


def test_a_read_only_server_changes_nothing(
    daemon: FakeDaemon, config: ConfigService, tmp_path: Path
) -> None:
    app = app_over(tmp_path, daemon, readonly=True)
    for path, body in [("/api/jobs/retention/run", b""), ("/api/config", b'{"keep_recent":7}')]:
        reply = post(app, path, body)
        assert reply.status == 403
        assert reply.json() == {"error": "Server is in read-only mode", "readonly": True}
    assert daemon.ran == []
    assert config.current.keep_recent == 3
    assert ask(app, "GET", "/api/config").status == 200


# --- OpenAPI --------------------------------------------------------------------------------


def references(document: Any) -> list[str]:
    if isinstance(document, dict):
        found = [document["$ref"]] if isinstance(document.get("$ref"), str) else []
        return found + [one for value in document.values() for one in references(value)]
    if isinstance(document, list):
        return [one for value in document for one in references(value)]
    return []


def test_the_description_is_valid_openapi(app: Starlette) -> None:
    from jsonschema_rs import Draft202012Validator
    from schemathesis.specs.openapi.definitions import OPENAPI_31

    document = description(app)
    Draft202012Validator(OPENAPI_31).validate(document)
    assert references(document)
    for reference in references(document):
        target: Any = document
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]
    named = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert named == set(references(document)), "no model is left over"
    operations = [one for path in document["paths"].values() for one in path.values()]
    names = [one["operationId"] for one in operations]
    assert len(names) == len(set(names))
    for operation in operations:
        assert "200" in operation["responses"]
        assert "422" not in operation["responses"], "validation errors are 400 here"
        error = operation["responses"]["default"]["content"]["application/json"]["schema"]
        assert error == {"$ref": "#/components/schemas/Error"}


def test_what_bodies_and_answers_hold_is_worked_out_for_nobody_but_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def told(kind: Any, *args: Any, **how: Any) -> Any:
        made.append(kind.__name__)
        return arguments_model(kind, *args, **how)

    monkeypatch.setattr(models, "arguments_model", told)
    app = app_over(tmp_path)
    assert ask(app, "GET", "/api/status").status == 200
    assert not made
    for _ in range(2):
        assert post(app, "/api/sessions/main/none/undo", b"{}").status == 404
        assert made == ["Undo"]
    assert ask(app, "GET", "/api/openapi.json").status == 200
    assert {"Undo", "ListEntries", "Replace"} < set(made)
    assert made.count("Undo") == 1


def test_head_is_answered_where_get_is(app: Starlette) -> None:
    for path in ("/api/health", "/api/jobs", "/api/config", "/api/events"):
        reply = ask(app, "HEAD", path)
        assert reply.status == 200
        assert reply.headers["content-type"]
    assert ask(app, "HEAD", "/api/retention/run").status == 405
    allowed = ask(app, "PATCH", "/api/sessions/main/a").headers["allow"]
    assert allowed == "DELETE, GET, HEAD", "those of all routes there"


# --- work beside the event loop: by a few threads, and never on the loop itself ---


def test_no_more_threads_than_allowed_work_at_once() -> None:
    most = 3
    working: set[int] = set()
    seen: list[int] = []
    together = threading.Barrier(most)
    guard = threading.Lock()

    def work() -> int:
        with guard:
            working.add(threading.get_ident())
            seen.append(len(working))
        together.wait(DEADLINE_SECONDS)  # so all that may work do so at the same time
        with guard:
            working.discard(threading.get_ident())
        together.wait(DEADLINE_SECONDS)
        return threading.get_ident()

    async def all_at_once() -> list[int]:
        threads = Threads("test", most)
        return await asyncio.gather(*(threads.run(work) for _ in range(3 * most)))

    idents = asyncio.run(all_at_once())
    assert max(seen) == most
    assert threading.get_ident() not in idents


def test_each_event_loop_has_its_own() -> None:
    threads = Threads("again", 1)
    for _ in range(2):
        assert asyncio.run(threads.run(lambda: 7)) == 7
