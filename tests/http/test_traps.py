"""Four traps of FastAPI: how bodies are read, and how answers are sent."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.http.api import serving
from tests.http.fake_daemon import app_over, ask
from tests.needs import require_program
from tests.openclaw_tree import add_session
from tests.session_files import Talk, text
from tests.waiting import DEADLINE_SECONDS


@pytest.mark.daemon
def test_a_body_that_curl_sends_as_a_form_is_json(root: Path) -> None:
    curl = require_program("curl")
    with serving(root) as (_, settings):
        done = subprocess.run(
            [
                *(curl, "-s", "--unix-socket", str(settings.socket)),
                *("http://bsd/api/config", "-d", '{"keep_recent": 7}'),
            ],
            check=True,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
    assert json.loads(done.stdout)["keep_recent"] == 7


@pytest.mark.parametrize(
    "body",
    [
        b'{"query":NaN}',
        b'{"limit":Infinity,"query":"x"}',
        b'{"query":"\\ud800"}',
        b'{"query":"\xff"}',
    ],
)
def test_what_json_does_not_allow_is_refused(tmp_path: Path, body: bytes) -> None:
    reply = ask(app_over(tmp_path), "POST", "/api/memory/recall", body=body)
    assert reply.status == 400
    assert reply.json()["error"].startswith("the body is not valid JSON: ")


def test_half_a_surrogate_of_a_session_is_sent_as_it_stands_there(tmp_path: Path) -> None:
    talk = Talk()
    talk.user()
    talk.says(text("half a pair: \ud83d"))
    add_session(tmp_path, "main/talk", talk.raw)
    app = app_over(tmp_path)
    reply = ask(app, "GET", "/api/sessions/main/talk/entries")
    assert reply.status == 200
    assert "half a pair: \ud83d" in [entry["preview"] for entry in reply.json()["entries"]]
    assert b"half a pair: \\ud83d" in reply.body


def test_every_field_of_a_wrong_type_is_named(tmp_path: Path) -> None:
    body = b'{"text":1,"tags":"a","confidence":2,"nothing":null}'
    reply = ask(app_over(tmp_path), "POST", "/api/memory/store", body=body)
    assert reply.status == 400
    assert set(reply.json()) == {"error", "errors"}
    problems = reply.json()["errors"]
    assert {one["field"] for one in problems} == {"text", "tags", "confidence", "nothing"}
    assert all(set(one) == {"field", "message"} for one in problems)
    for body in (b'{"limit":"5","query":"x"}', b'{"limit":true,"query":"x"}', b'{"query":["x"]}'):
        reply = ask(app_over(tmp_path), "POST", "/api/memory/recall", body=body)
        assert (reply.status, len(reply.json()["errors"])) == (400, 1), body
