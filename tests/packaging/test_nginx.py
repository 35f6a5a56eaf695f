"""A daemon behind nginx with the sample configuration, as seen from other machines."""

from __future__ import annotations

import hashlib
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.daemon.running import Running, configure, running
from tests.needs import require_program
from tests.openclaw_tree import add_session, set_idle
from tests.packaging.nginx import NAME, nginx
from tests.session_files import sample
from tests.waiting import DEADLINE_SECONDS, wait_for

KEY = {"X-API-Key": "right"}
LARGE = "äöü " + "x" * 6_000_000
WHEN = "2026-01-05T08:30:00.000Z"


class Site:
    """bsd as a browser reaches it through nginx."""

    def __init__(self, daemon: Running, port: int) -> None:
        self.daemon = daemon
        self._port = port

    @contextmanager
    def open(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE_SECONDS)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"Host": NAME} | KEY | named)
        with connection.getresponse() as answer:
            yield answer
        connection.close()

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, Any]:
        with self.open(method, path, body, **headers) as answer:
            content = answer.read()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(content) if is_json else content.decode()


def _entry(number: int, role: str, text: str) -> bytes:
    message = {"role": role, "content": [{"type": "text", "text": text}], "toolCallId": "c"}
    entry = {"type": "message", "id": f"e{number}", "timestamp": WHEN, "message": message}
    return json.dumps(entry).encode() + b"\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    require_program("nginx")
    place = tmp_path_factory.mktemp("site")
    root = place / "root"
    root.mkdir(mode=0o700)
    configure(root)
    header = json.dumps({"type": "session", "version": 3, "id": "s", "timestamp": WHEN}).encode()
    recent = b"".join(_entry(number, "user", "next") for number in range(2, 9))
    large = header + b"\n" + _entry(1, "toolResult", LARGE) + recent
    path = add_session(root, "main/large", large)
    add_session(root, "main/sample", sample(2, 1))
    environ = {
        "BRAINSURGEON_HTTP": "127.0.0.1:0",
        "BRAINSURGEON_API_KEYS": "right",
        "BRAINSURGEON_CORS_ORIGINS": f"https://{NAME}",
    }
    with running(root, place, **environ) as daemon:
        wait_for(lambda: path.stat().st_size < len(large), "the extraction")
        (told,) = (event["http"] for event in daemon.events() if "http" in event)
        with nginx(place, int(told.rpartition(":")[2])) as port:
            yield Site(daemon, port)


@pytest.mark.daemon
def test_keys_names_and_origins_are_checked_behind_it(site: Site) -> None:
    assert site.ask("GET", "/api/health", X_API_Key="")[0] == 200
    assert site.ask("GET", "/api/status", X_API_Key="")[0] == 401
    assert site.ask("GET", "/api/status", X_API_Key="wrong")[0] == 403
    assert site.ask("GET", "/api/status")[0] == 200
    assert site.ask("GET", "/api/status", Origin=f"https://{NAME}")[0] == 200
    assert site.ask("GET", "/api/status", Origin="https://evil.example")[0] == 403
    assert site.ask("GET", "/api/status", Host="evil.example")[0] == 403
    assert "bsd_" in site.ask("GET", "/api/metrics")[1]
    status, page = site.ask("GET", "/", X_API_Key="")
    assert (status, "<script" in page) == (200, True)


@pytest.mark.daemon
def test_a_change_goes_through_and_is_signed(site: Site) -> None:
    path = site.daemon.root / "agents/main/sessions/sample.jsonl"
    set_idle(path)
    target = "/api/sessions/main/sample/entries/%233/meta"
    status, done = site.ask("PUT", target, b'{"_extractable":false}')
    assert (status, done["updated"]) == (200, True), done
    line = (site.daemon.root / ".brainsurgeon/audit.jsonl").read_text().splitlines()[-1]
    assert json.loads(line)["actor"] == hashlib.sha256(b"right").hexdigest()[:8]
    status, refused = site.ask("PUT", target, b" " * (2 << 20))
    assert (status, "larger than" in str(refused)) == (413, True), refused


@pytest.mark.daemon
def test_large_content_arrives_whole(site: Site) -> None:
    with site.open("GET", "/api/sessions/main/large/entries/e1/extracted") as answer:
        content = answer.read()
    assert (answer.status, int(answer.headers["Content-Length"])) == (200, len(content))
    assert list(json.loads(content)["content"].values()) == [LARGE]


@pytest.mark.daemon
def test_events_arrive_at_once(site: Site) -> None:
    with site.open("GET", "/api/events") as events:
        assert events.headers["Content-Type"].startswith("text/event-stream")
        assert events.readline() == b": listening\n"
        status, _ = site.ask("POST", "/api/config", b'{"keep_recent":4}')
        assert status == 200
        for line in iter(events.readline, b""):
            if line == b"event: config\n":
                break
        told = json.loads(events.readline().removeprefix(b"data: "))
    assert told["fields"] == ["keep_recent"]
