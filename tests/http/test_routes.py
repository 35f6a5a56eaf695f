"""The existing routes, their errors, and their description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from bsd.core.config_file import ConfigService
from bsd.core.errors import Busy, Unavailable
from bsd.core.layout import Layout
from bsd.daemon.child import Stopping
from bsd.http.errors import LARGEST_BODY
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


@pytest.fixture
def daemon() -> FakeDaemon:
    return FakeDaemon()


@pytest.fixture
def config(tmp_path: Path) -> ConfigService:
    return ConfigService(Layout(tmp_path).config_file)


@pytest.fixture
def app(daemon: FakeDaemon, tmp_path: Path) -> FastAPI:
    return app_over(tmp_path, daemon)


def post(app: FastAPI, path: str, body: bytes = b"", content_type: str | None = None) -> Reply:
    headers = {} if content_type is None else {"Content-Type": content_type}
    return ask(app, "POST", path, body=body, headers=headers)


@pytest.mark.parametrize(
    ("state", "status"), [("ok", 200), ("degraded", 200), ("starting", 503), ("stopping", 503)]
)
def test_health_is_for_load_balancers_too(
    app: FastAPI, daemon: FakeDaemon, state: str, status: int
) -> None:
    daemon.health_status = state
    reply = ask(app, "GET", "/api/health")
    assert (reply.status, reply.json()["status"]) == (status, state)


def test_status_is_the_daemons(app: FastAPI) -> None:
    reply = ask(app, "GET", "/api/status")
    assert (reply.status, reply.json()) == (200, sample_status())
    assert reply.headers["content-type"] == "application/json"


def test_names_that_are_no_unicode_can_be_told(app: FastAPI, daemon: FakeDaemon) -> None:
    daemon.document = {"root": "/home/\udcff", "huge": 10**30}
    assert ask(app, "GET", "/api/status").json() == {"root": "/home/\udcff", "huge": 10**30}


def test_jobs_are_listed_and_run(app: FastAPI, daemon: FakeDaemon) -> None:
    assert [job["name"] for job in ask(app, "GET", "/api/jobs").json()["jobs"]] == [
        "auto",
        "retention",
    ]
    assert post(app, "/api/jobs/retention/run").json() == sample_job()
    assert daemon.ran == ["retention"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("sessions?limit=abc", "limit"),
        ("sessions?limit=0", "limit"),
        ("sessions?limit", "limit"),
        ("sessions?agent=" + "a" * 1001, "agent"),
        ("search", "q"),
        ("archive/main/a?from=x", "from"),
        ("sessions?agent=a&limit=1&cursor=" + "a" * 1001, "cursor"),
    ],
)
def test_bad_parameters_are_named(app: FastAPI, query: str, field: str) -> None:
    reply = ask(app, "GET", f"/api/{query}")
    (error,) = reply.json()["errors"]
    assert (reply.status, error["field"]) == (400, field)
    assert reply.json()["error"] == f"{field}: {error['message']}"


def test_an_unknown_job_is_not_found(app: FastAPI) -> None:
    reply = post(app, "/api/jobs/nope/run")
    assert reply.status == 404
    assert reply.json() == {"error": "there is no job nope", "hint": "`bsd jobs` lists them"}


# --- config ---------------------------------------------------------------------------------


def test_config_is_shown_without_anything_secret(app: FastAPI, config: ConfigService) -> None:
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


def test_every_bad_field_is_named_and_nothing_changes(app: FastAPI, config: ConfigService) -> None:
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


def test_times_of_runs_cannot_be_set(app: FastAPI) -> None:
    reply = post(app, "/api/config", b'{"last_run_at":"2020-01-01T00:00:00Z"}')
    assert (reply.status, reply.json()["last_run_at"]) == (200, None)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b'{"a":NaN}'])
def test_a_body_that_is_no_object_is_refused(app: FastAPI, body: bytes) -> None:
    reply = post(app, "/api/config", body)
    assert reply.status == 400
    assert "body" in reply.json()["error"]


def test_a_body_without_end_is_refused(app: FastAPI) -> None:
    reply = post(app, "/api/config", b" " * (LARGEST_BODY + 1))
    assert reply.status == 413
    assert str(LARGEST_BODY) in reply.json()["error"]


# --- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/nope", 404),
        ("GET", "/docs", 404),
        ("DELETE", "/api/status", 405),
        ("GET", "/api/jobs/retention/run", 405),
    ],
)
def test_unknown_routes_and_methods_have_our_form(
    app: FastAPI, method: str, path: str, status: int
) -> None:
    reply = ask(app, method, path)
    assert reply.status == status
    assert path in reply.json()["error"]
    assert reply.json()["hint"] == "/api/openapi.json lists all routes"
    assert ("allow" in reply.headers) == (status == 405)


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/api/sessions/main/a", "DELETE, GET, HEAD"),
        ("/api/jobs/retention/run", "POST"),
        ("/", "GET, HEAD"),
    ],
)
def test_a_method_that_is_not_allowed_is_told_all_that_are(
    app: FastAPI, path: str, methods: str
) -> None:
    assert ask(app, "PATCH", path).headers["allow"] == methods


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Busy("main/a is in use", hint="try again"), 409),
        (Unavailable("the disk is full", hint="try again"), 503),
    ],
)
def test_errors_know_their_status(
    app: FastAPI, daemon: FakeDaemon, error: Exception, status: int
) -> None:
    daemon.failing = error
    reply = ask(app, "GET", "/api/status")
    assert reply.status == status
    assert reply.json() == {"error": str(error), "hint": "try again"}


def test_a_request_that_the_stop_ends_is_told_so(app: FastAPI, daemon: FakeDaemon) -> None:
    daemon.failing = Stopping()
    reply = ask(app, "GET", "/api/status")
    assert (reply.status, reply.json()["error"]) == (503, "the daemon is stopping")


def test_an_unforeseen_error_tells_nothing_of_the_inside(app: FastAPI, daemon: FakeDaemon) -> None:
    daemon.failing = ZeroDivisionError("secret detail")
    with capture_logs() as lines, pytest.raises(ZeroDivisionError):
        ask(app, "GET", "/api/status")  # raised once it is answered, for the server to log
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert (line["event"], line["path"]) == ("A request has failed", "/api/status")


# --- OpenAPI --------------------------------------------------------------------------------


def references(document: Any) -> list[str]:
    if isinstance(document, dict):
        found = [document["$ref"]] if isinstance(document.get("$ref"), str) else []
        return found + [one for value in document.values() for one in references(value)]
    if isinstance(document, list):
        return [one for value in document for one in references(value)]
    return []


def test_the_description_is_valid_openapi(app: FastAPI) -> None:
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
        [error] = operation["responses"]["default"]["content"].values()
        assert error["schema"] == {"$ref": "#/components/schemas/Error"}
