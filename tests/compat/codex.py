"""The real Codex in a home of its own, used by its command line and its app-server."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.transcripts.agents.programs import layout_of
from tests.compat.provider import Json, Provider
from tests.openclaw_tree import set_idle
from tests.waiting import DEADLINE_SECONDS

_CONFIG = """
model = "{model}"
model_provider = "made-up"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
enable_request_compression = false
[model_providers.made-up]
name = "made-up"
base_url = "{url}"
wire_api = "responses"
supports_websockets = false
request_max_retries = 0
stream_max_retries = 0
"""


@dataclass(frozen=True)
class Codex:
    """A `CODEX_HOME`, and bsd's root."""

    program: str
    top: Path
    provider: Provider

    @classmethod
    def at(cls, program: str, top: Path, provider: Provider, model: str = "gpt-5") -> Codex:
        made = cls(program, top, provider)
        for directory in (made.home / "sessions", top / "root", top / "work"):
            directory.mkdir(parents=True)
        (made.home / "config.toml").write_text(_CONFIG.format(url=provider.url, model=model))
        return made

    @property
    def home(self) -> Path:
        return self.top / "codex"

    @property
    def layout(self) -> Layout:
        source = SourceSettings(kind="codex", path=self.home / "sessions")
        return layout_of(self.top / "root", [source])

    def files(self) -> dict[str, bytes]:
        """Return the content of all rollouts, by path below the home."""
        places = (self.home / "sessions", self.home / "archived_sessions")
        found = [path for place in places for path in place.rglob("rollout-*")]
        return {str(path.relative_to(self.home)): path.read_bytes() for path in found}

    def file(self, thread: str) -> Path:
        """The only file of a thread."""
        [path] = [self.home / name for name in self.files() if thread in name]
        return path

    def name(self, thread: str) -> SessionName:
        """Return bsd's name of a thread, by the day in its file's name."""
        stem = self.file(thread).name.partition(".")[0]
        year, month, day = stem.removeprefix("rollout-")[:10].split("-")
        return SessionName(f"codex:{year}:{month}:{day}", stem)

    def rest(self) -> None:
        """Let an hour pass since the last write."""
        for name in self.files():
            set_idle(self.home / name)

    def command(self, *arguments: str) -> list[str]:
        return [self.program, *arguments]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "CODEX_HOME": str(self.home), "RUST_LOG": "error"}

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.top / "work",
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def run(self, *arguments: str) -> None:
        """Run a command, which must succeed."""
        done = subprocess.run(
            self.command(*arguments),
            check=False,
            cwd=self.top / "work",
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    @contextmanager
    def server(self) -> Iterator[AppServer]:
        """Start its app-server, over pipes."""
        process = subprocess.Popen(
            self.command("app-server"),
            cwd=self.top / "work",
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        server = AppServer(process)
        try:
            about = {"clientInfo": {"name": "tests", "title": "tests", "version": "1"}}
            server.call("initialize", **about, capabilities={"experimentalApi": True})
            yield server
        finally:
            server.close()

    def legacy_thread(self, turns: int = 4) -> str:
        """Make a thread whose history is one file, in the form of earlier versions."""
        return self.thread(turns, historyMode="legacy")

    def thread(self, turns: int = 4, **how: str) -> str:
        """Make a thread; without a `historyMode`, its history is paginated."""
        with self.server() as server:
            thread = server.call("thread/start", **how)["thread"]["id"]
            for number in range(turns):
                server.turn(thread, f"please count {number}")
        self.rest()
        return str(thread)

    def resume(self, thread: str) -> list[Json]:
        """Resume a thread for one more turn, and return the input of its last request."""
        with self.server() as server:
            server.call("thread/resume", threadId=thread)
            server.turn(thread, "go on")
        self.rest()
        return list(self.provider.requests[-1]["input"])


class AppServer:
    """A JSON-RPC client of the app-server; each message is a line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._number = 0
        self._came: queue.Queue[Json] = queue.Queue()
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self._reader = threading.Thread(target=self._read, args=(self._out,), name="app-server")
        self._reader.start()

    def _read(self, out: IO[bytes]) -> None:
        for line in out:
            self._came.put(json.loads(line))

    def call(self, method: str, **params: Any) -> Json:
        """Return the result of a call, which must succeed."""
        answer = self.ask(method, **params)
        assert "error" not in answer, (method, answer)
        return dict(answer["result"])

    def ask(self, method: str, **params: Any) -> Json:
        """Return the answer of a call, which may be an error."""
        self._number += 1
        number = self._number
        self._in.write(
            json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n"
        )
        self._in.flush()
        return self._wait(lambda came: came.get("id") == number and "method" not in came)

    def turn(self, thread: str, text: str, *pictures: str) -> None:
        """Run a whole turn; pictures are data URLs."""
        said: list[Json] = [{"type": "text", "text": text, "text_elements": []}]
        said += [{"type": "image", "url": url} for url in pictures]
        self.call("turn/start", threadId=thread, input=said)
        self.completed()

    def completed(self) -> None:
        """Wait until a turn has ended, which must have succeeded."""
        done = self._wait(lambda came: came.get("method") == "turn/completed")
        assert done["params"]["turn"]["status"] == "completed", done

    def _wait(self, wanted: Any) -> Json:
        while not wanted(came := self._came.get(timeout=DEADLINE_SECONDS)):
            pass
        return came

    def close(self) -> None:
        self._in.close()
        try:
            self._process.wait(DEADLINE_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._out.close()
