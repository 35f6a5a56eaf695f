"""Requests that the OpenAPI document allows, and others, over TCP and the socket: no internal
error.

Every route of the document is asked (schemathesis makes the requests), with the names of
existing objects as well as with any other text. The answers must match the document.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.http.server import ApiServer
from bsd.sessions.idle import RetryBudget
from tests.actions import performed
from tests.actions.performed import Caller
from tests.http.api import settings_for
from tests.http.fake_daemon import app_over, description
from tests.openclaw_tree import add_session, set_idle
from tests.searching import read_all
from tests.session_files import sample
from tests.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:  # its import takes long, and each of the workers would make it
    from schemathesis import Case
    from schemathesis.generation import GenerationMode

pytestmark = pytest.mark.daemon

EXAMPLES = 3  # for each route, of valid and of invalid requests
# It never ends; `test_api_sessions_events` listens.
ENDLESS = "/api/events"
SAMPLE = SessionName("main", "sample")
_CONTENT = sample(4, 1)


class _ToSocket(HTTPAdapter):
    """Lets `requests` connect to a Unix socket, for any host in the URL."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> HTTPConnectionPool:
        path = self._path

        class Connection(HTTPConnection):
            def connect(self) -> None:
                self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self.sock.settimeout(DEADLINE_SECONDS)
                self.sock.connect(str(path))

        class Pool(HTTPConnectionPool):
            ConnectionCls = Connection

        return Pool("bsd")


class Stage:
    """An API over a real root, reached by TCP and by its socket."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root)
        self._config = ConfigService(self.layout.config_file)
        self._budget = RetryBudget(wait=0.0, quiet=0.0)
        self.app = app_over(root, budget=self._budget)
        self._settings = settings_for(root, BRAINSURGEON_HTTP="127.0.0.1:0")
        self.server = ApiServer(self.app, self._settings)
        self.sessions: list[tuple[str, requests.Session]] = []

    def start(self) -> None:
        self.server.start()
        local = requests.Session()
        local.mount("http://", _ToSocket(self._settings.socket))
        tcp = requests.Session()
        self.sessions = [(f"http://{self.server.addresses[0]}", tcp), ("http://bsd", local)]

    def stop(self) -> None:
        for _, session in self.sessions:
            session.close()
        assert self.server.stop()

    def put_back(self) -> None:
        """Put back files that an earlier request may have changed or deleted."""
        path = self.layout.agents / "main/sessions/sample.jsonl"
        if not path.exists() or path.read_bytes() != self._extracted:
            set_idle(add_session(self.layout.root, str(SAMPLE), self._extracted))

    def prepare(self) -> None:
        """Make a session with some extracted values, and another session in the trash."""
        path = add_session(self.layout.root, str(SAMPLE), _CONTENT)
        caller = Caller(layout=self.layout, config=self._config, budget=self._budget)
        assert caller.extract(SAMPLE, overrides={"prefix_bound": "extract"}).values
        self._extracted = path.read_bytes()
        set_idle(path)
        read_all(self.layout)
        entries = performed.entries(caller, SAMPLE)
        away = next(entry for entry in entries if entry.extracted)
        self.real = {
            "agent": ["main"],
            "session": ["sample"],
            "entry": [str(away.id), str(away.index), str(entries[1].id), "2"],
            "name": ["retention", "nothing"],
        }


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    stage = Stage(root)
    stage.prepare()
    stage.start()
    yield stage
    stage.stop()


@pytest.mark.parametrize("about_sessions", [True, False])
def test_no_request_leads_to_an_error_of_ours(stage: Stage, *, about_sessions: bool) -> None:
    import schemathesis
    from schemathesis.core.result import Ok
    from schemathesis.generation import GenerationMode

    schema = schemathesis.openapi.from_dict(description(stage.app))
    asked = 0
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        of_sessions = operation.path.startswith("/api/sessions")
        if operation.path == ENDLESS or of_sessions is not about_sessions:
            continue
        asked += 1
        _ask(stage, operation, GenerationMode.POSITIVE, valid=True)
        if operation.body or any(True for _ in operation.iter_parameters()):
            _ask(stage, operation, GenerationMode.NEGATIVE, valid=False)
    assert asked > 10


def _ask(stage: Stage, operation: Any, mode: GenerationMode, *, valid: bool) -> None:
    cases = operation.as_strategy(generation_mode=mode)

    @given(case=cases, door=st.integers(0, 1), choice=st.integers(0, 7))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Case[Any], door: int, choice: int) -> None:
        stage.put_back()
        if choice:  # mostly names of existing objects
            parameters = case.path_parameters or {}
            for name in parameters:
                known = stage.real.get(name, ["nothing"])
                parameters[name] = known[choice % len(known)]
        base, session = stage.sessions[door]
        answer = case.call(base_url=base, session=session, timeout=DEADLINE_SECONDS)
        assert answer.status_code < 500, (case.as_curl_command(), answer.text)
        # Otherwise a name may be empty, or a dot, which makes the path another route's.
        if choice and valid:
            operation.validate_response(answer)

    with suppress(Unsatisfiable):  # some routes accept any text
        ask()
