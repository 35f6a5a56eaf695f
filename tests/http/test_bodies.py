"""Bodies that no sane client would send: refused or carried out, never an internal error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.sample import session_lines
from bsd.sessions.idle import RetryBudget
from tests.http.fake_daemon import app_over, ask
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import sample

BRIEF = RetryBudget(wait=0.1, quiet=0.0)
VALUES = [
    *(b"null", b"true", b"1", b"-1", b"1.5", b"1e400", b"1" + b"0" * 5000, b"18446744073709551616"),
    *(b'"x"', b'"\\ud800"', b'"\\u0000"', b"[]", b"[null]", b'["\\ud800"]', b"[{}]", b"{}"),
    *(b'{"a":1,"a":2}', b"[" * 5000 + b"]" * 5000, b"[" * 900 + b"]" * 900, b"", b"\xff", b"{"),
]
FIELDS = {
    ("POST", "extract?dry_run=1"): ["keep_recent", "trigger_types", "trigger_rules", "\\ud800"],
    ("POST", "undo"): ["op", "\\u0000"],
    ("POST", "entries/3/restore"): ["keys", "\\ud800"],
    ("PUT", "entries/3/meta"): ["_extractable", "extractable"],
    ("PUT", "entries/3"): ["entry", "set", "seen"],
}
PATHS = ["", "\\u0000", "\\ud800", "[0]", "a[99999999999999999999]", "message", "_extracted", "x.y"]


def bodies(fields: list[str]) -> Iterator[bytes]:
    yield from VALUES
    for field in fields:
        yield from (b'{"%b":%b}' % (field.encode(), value) for value in VALUES)
    if "set" in fields:
        yield from (b'{"set":{"message.content[0].text":%b}}' % value for value in VALUES)
        yield from (b'{"set":{"%b":1}}' % path.encode() for path in PATHS)


@pytest.mark.parametrize(("method", "route"), list(FIELDS))
def test_no_body_is_an_internal_error(tmp_path: Path, method: str, route: str) -> None:
    path = add_session(tmp_path, "main/sample", sample(2, 1))
    app = app_over(tmp_path, budget=BRIEF)
    for body in bodies(FIELDS[method, route]):
        set_idle(path)
        reply = ask(app, method, f"/api/sessions/main/sample/{route}", body=body)
        assert reply.status in {200, 400, 404, 409}, (body[:80], reply.body)
        assert reply.status == 200 or reply.json()["error"]


@pytest.mark.parametrize("depth", [900, 1000, 5000])
def test_an_entry_nested_deeply_is_no_internal_error(tmp_path: Path, depth: int) -> None:
    lines = list(session_lines(turns=2, seed=1))
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    lines[3] = lines[3].rstrip(b"}\n") + b"}" * (len(lines[3]) - len(lines[3].rstrip(b"}\n")) - 2)
    lines[3] += b',"extra":' + deep + b"}\n"
    path = add_session(tmp_path, "main/sample", b"".join(lines))
    app = app_over(tmp_path, budget=BRIEF)
    base = "/api/sessions/main/sample"
    assert ask(app, "GET", f"{base}/entries").status == 200
    assert ask(app, "GET", f"{base}/entries/#2").status == 200
    for method, body in (("GET", b""), ("PUT", b'{"set":{"message.x":1}}')):
        set_idle(path)
        reply = ask(app, method, f"{base}/entries/#3", body=body)
        assert reply.status in {404, 409}, reply.body
        assert reply.json()["error"]


def test_the_header_is_shown_and_stays(tmp_path: Path) -> None:
    lines = list(session_lines(turns=2, seed=1))
    path = add_session(tmp_path, "main/sample", b"".join(lines))
    app = app_over(tmp_path, budget=BRIEF)
    base = "/api/sessions/main/sample/entries"
    shown = ask(app, "GET", f"{base}/#0")
    assert (shown.status, shown.json()["index"]) == (200, 0)
    assert shown.json()["entry"]["type"] == "session"
    by_id = ask(app, "GET", f"{base}/{shown.json()['entry']['id']}")
    assert by_id.json() == shown.json()
    assert ask(app, "GET", f"{base}/#0/meta").status == 200
    assert ask(app, "GET", f"{base}/#{'9' * 900}").status == 404
    assert ask(app, "GET", f"{base}/#{'9' * 5000}").status == 400
    assert ask(app, "PUT", f"{base}/#0", body=b'{"set":{"cwd":"/"}}').status == 404
    assert ask(app, "POST", f"{base}/#0/restore").status == 404
    assert path.read_bytes() == b"".join(lines)
