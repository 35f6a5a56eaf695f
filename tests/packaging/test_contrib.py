"""Samples for other programs: the program itself, or a parser of its language, reads each."""

from __future__ import annotations

import gzip
import http.client
import json
import logging
import os
import plistlib
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bsd.core.logs import LogFile
from bsd.http.metrics import MetricsPage
from tests.http.fake_daemon import FakeDaemon
from tests.needs import require_program
from tests.packaging.nginx import nginx, nginx_config
from tests.packaging.units import TOP
from tests.waiting import DEADLINE_SECONDS, wait_for

_CONTRIB = TOP / "contrib"
_PACKAGING = TOP / "packaging"

# --- logrotate --------------------------------------------------------------------------------


class _Writer(threading.Thread):
    """Logs numbered lines until it is told to stop."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._output = LogFile(path)
        self._enough = threading.Event()
        self.written = 0

    def run(self) -> None:
        while not self._enough.is_set():
            line = json.dumps({"number": self.written})
            self._output.handle(logging.makeLogRecord({"msg": line}))
            self.written += 1

    def stop(self) -> None:
        self._enough.set()
        self.join()
        self._output.close()


def _lines_of(path: Path) -> list[bytes]:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).splitlines()


def test_no_line_is_lost_when_the_log_is_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logrotate = require_program("logrotate")
    log = tmp_path / "root" / "logs" / "brainsurgeon.log"
    log.parent.mkdir(parents=True, mode=0o700)
    text = (_CONTRIB / "logrotate" / "bsd").read_text(encoding="utf-8")
    text = text.replace("/home/ada/.openclaw/logs/brainsurgeon.log", str(log))
    text = text.replace("su ada ada", "")
    assert "ada ada" not in text
    config = tmp_path / "config"
    config.write_text(text)
    config.chmod(0o600)
    fake = tmp_path / "bin" / "systemctl"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "$*" >>"{tmp_path}/told"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    rotate = [logrotate, "--force", "--state", str(tmp_path / "state"), str(config)]

    writer = _Writer(log)
    writer.start()
    try:
        for _ in range(5):
            _wait_for_growth(log)
            subprocess.run(rotate, check=True, capture_output=True)
            _wait_for_growth(log)
            assert log.stat().st_mode & 0o777 == 0o600
        _wait_for_growth(log)
    finally:
        writer.stop()
    files = sorted(log.parent.iterdir())
    assert len(files) == 6
    numbers = [json.loads(line)["number"] for path in files for line in _lines_of(path)]
    assert sorted(numbers) == list(range(writer.written))
    told = (tmp_path / "told").read_text().splitlines()
    assert told == ["kill --kill-who=main --signal=HUP bsd@ada.service"] * 5


def _wait_for_growth(path: Path) -> None:
    wait_for(lambda: path.exists() and path.stat().st_size, "lines in it")


# --- nginx ------------------------------------------------------------------------------------


class _Echo(BaseHTTPRequestHandler):
    """Takes bsd's place, and reports the name under which it was called."""

    protocol_version = "HTTP/1.1"
    wbufsize = 65_536

    def do_GET(self) -> None:
        body = f"{self.headers['Host']} {self.headers.get('X-API-Key')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *args: Any) -> None:
        """Log no messages."""


@pytest.fixture
def upstream() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            serving.join()


def test_nginx_has_no_objection(tmp_path: Path) -> None:
    config = nginx_config(tmp_path, 8443, 8000)
    done = subprocess.run(
        [require_program("nginx"), "-e", "stderr", "-t", "-q", "-c", str(config)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_nginx_passes_on_and_limits(tmp_path: Path, upstream: int) -> None:
    with nginx(tmp_path, upstream, slow=True) as port:
        assert _answers(port, "POST", 12) == [200] * 11 + [429], "changes are limited first …"
        status, body = _ask(port, "GET", "/api/status")
        assert (status, body) == (200, "bs.example.com secret"), "… and reading still works"
        assert _answers(port, "GET", 60)[-1] == 429


def _answers(port: int, method: str, count: int) -> list[int]:
    return [_ask(port, method, "/api/x")[0] for _ in range(count)]


def _ask(port: int, method: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
    headers = {"Host": "bs.example.com", "X-API-Key": "secret"}
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


# --- Grafana and Prometheus -------------------------------------------------------------------


@pytest.fixture(scope="module")
def metrics() -> dict[str, list[dict[str, str]]]:
    """Return every sample that bsd offers: name → its labels."""
    daemon = FakeDaemon()
    page = MetricsPage(daemon.status, daemon.scheduler.status, daemon.health).render().decode()
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def _dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((_CONTRIB / "grafana" / "bsd.json").read_bytes())
    return document


def _rules() -> list[dict[str, Any]]:
    """Return the alerts; Ruby, which has a YAML parser, reads the file."""
    path = _CONTRIB / "prometheus" / "bsd.rules.yml"
    program = "require 'yaml'; require 'json'; puts YAML.load_file(ARGV[0]).to_json"
    command = [require_program("ruby"), "-e", program, str(path)]
    done = subprocess.run(command, check=True, capture_output=True)
    rules: list[dict[str, Any]] = json.loads(done.stdout)["groups"][0]["rules"]
    return rules


def _objections(expression: str, metrics: dict[str, list[dict[str, str]]]) -> list[str]:
    """Return metrics and label values in a PromQL expression that bsd does not offer."""
    objections = []
    for name, selector in re.findall(r"\b(bsd_\w+)(?:\{([^}]*)\})?", expression):
        if name not in metrics:
            objections.append(name)
            continue
        for label, value in re.findall(r'(\w+)="([^"]*)"', selector):
            if value not in {labels.get(label) for labels in metrics[name]}:
                objections.append(f"{name}{{{label}={value}}}")
    for labels in re.findall(r"\bby \(([\w, ]+)\)", expression):
        known = {label for each in metrics.values() for one in each for label in one}
        objections += [label for label in re.split(r", *", labels) if label not in known]
    return objections


def test_objections_are_seen(metrics: dict[str, list[dict[str, str]]]) -> None:
    wrong = 'sum by (nobody) (bsd_nothing) + bsd_watch_directories{state="lost"}'
    assert len(_objections(wrong, metrics)) == 3


def test_the_dashboard_asks_for_what_there_is(metrics: dict[str, list[dict[str, str]]]) -> None:
    dashboard = _dashboard()
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [one["expr"] for one in dashboard["annotations"]["list"]]
    expressions += [
        one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"
    ]
    assert all("bsd_" in expression for expression in expressions)
    assert [wrong for each in expressions for wrong in _objections(each, metrics)] == []


def test_the_dashboards_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    panels = _dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_alerts_ask_for_what_there_is(metrics: dict[str, list[dict[str, str]]]) -> None:
    rules = _rules()
    assert len({rule["alert"] for rule in rules}) == len(rules) > 0
    for rule in rules:
        assert _objections(rule["expr"], metrics) == []
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}


# --- macOS and containers ---------------------------------------------------------------------


def test_launchd_gets_what_it_needs() -> None:
    document = plistlib.loads((_PACKAGING / "launchd" / "brainsurgeond.plist").read_bytes())
    assert document["Label"] == "brainsurgeond"
    assert document["ProgramArguments"][-1] == "run"
    assert document["ProgramArguments"][0].startswith("/")
    assert document["RunAtLoad"] is True
    assert document["KeepAlive"] == {"SuccessfulExit": False}
    assert document["ProcessType"] == "Background"
    assert document["LowPriorityIO"] is True
    assert document["ThrottleInterval"] >= 10
    assert document["ExitTimeOut"] > 5
    assert document["Umask"] == 0o077
    assert "PATH" in document["EnvironmentVariables"]


def test_ruby_accepts_the_formula() -> None:
    formula = _PACKAGING / "homebrew" / "bsd.rb"
    subprocess.run([require_program("ruby"), "-c", str(formula)], check=True, capture_output=True)
    named = re.findall(r'"((?:contrib|config|requirements)[^"]*)"', formula.read_text())
    assert [name for name in named if not (TOP / name).exists()] == []


def test_the_image_is_made_of_what_is_there() -> None:
    lines = (_PACKAGING / "docker" / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert bases == ["python:3.11-slim", "python:3.11-slim"]
    ignore = _PACKAGING / "docker" / "Dockerfile.dockerignore"
    kept = [line[1:] for line in ignore.read_text().splitlines() if line.startswith("!")]
    assert [name for name in kept if not (TOP / name).exists()] == []
    needed = {"bsd", "pyproject.toml", "requirements.lock", "README.md", "LICENSE"}
    assert set(kept) >= needed
    assert os.access(_PACKAGING / "docker" / "entrypoint.sh", os.X_OK)


def test_the_image_refuses_where_it_cannot_see_who_holds_a_lock(tmp_path: Path) -> None:
    entry = str(_PACKAGING / "docker" / "entrypoint.sh")
    fake = tmp_path / "bsd"
    fake.write_text("#!/bin/sh\necho started $*\n")
    fake.chmod(0o755)
    environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    seeing = subprocess.run(
        ["sh", entry, "run"], check=False, capture_output=True, text=True, env=environ
    )
    assert (seeing.returncode, seeing.stdout) == (0, "started run\n")
    namespace = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*namespace, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("may not make a PID namespace")
    blind = subprocess.run(
        [*namespace, "sh", entry, "run"], check=False, capture_output=True, text=True, env=environ
    )
    assert blind.returncode == 78
    assert "Try: docker run --pid=host" in blind.stderr
    assert blind.stdout == ""
