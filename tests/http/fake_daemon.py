"""A daemon that gives prepared answers, and a client for its application."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message

from bsd.actions.context import ActionContext
from bsd.core.config_file import ConfigService
from bsd.core.errors import NotFound
from bsd.core.layout import Layout
from bsd.daemon.loops import Beats
from bsd.daemon.notices import notices_of
from bsd.daemon.service import Daemon
from bsd.daemon.status import Events
from bsd.http.app import create_app
from bsd.sessions.idle import RetryBudget
from bsd.setup.additions import SetupContext
from bsd.transcripts.agents.setup_files import SetupCommands
from tests.waiting import DEADLINE_SECONDS

_MB = 1 << 20
_ROUTES: list[BaseRoute] = []  # of the first application; they are the same for all


def sample_status() -> dict[str, Any]:
    """Return a status as `bsd.daemon.status` describes it."""
    document = _sample()
    return document | {"notices": [notice.as_json() for notice in notices_of(document)]}


def _sample() -> dict[str, Any]:
    return {
        "state": "running",
        "pid": 4711,
        "version": "0.2.0",
        "root": "/home/ada/.openclaw",
        "page": None,
        "started_at": "2026-11-21T08:00:00.000Z",
        "uptime_seconds": 93_784.5,
        "enabled": True,
        "readonly": False,
        "auto_refresh_ms": 10_000,
        "roots": [
            {"path": "/home/ada/.openclaw", "level": "strong", "filesystem": "ext4", "why": ""}
        ],
        "watcher": {
            "directories": 12,
            "watched": 9,
            "scan_only": 2,
            "problems": [
                {
                    "kind": "watch_limit",
                    "text": "1 of 12 directories are not watched",
                    "remedy": "sudo sysctl fs.inotify.max_user_watches=1048576",
                }
            ],
        },
        "queue": {
            "debouncing": 2,
            "waiting": 3,
            "ready": 1,
            "working": 1,
            "gathering": 4,
            "refused": 0,
            "retried": 6,
            "parked": [{"session": "main/bad", "error": "disk full", "failures": 5}],
        },
        "prompt_cache": {
            "sessions": 3,
            "tokens_ready": 120_400,
            "tokens_rewritten": 90_000,
            "cost_now": 0.4,
            "unpriced": 1,
            "next_cold": "2026-11-22T11:25:00.000Z",
        },
        "children": [
            {"pid": 4242, "since": "2026-11-22T09:00:00.000Z", "session": "main/4f2a"},
        ],
        "workers": [
            {"name": "worker-1", "session": "main/a", "since": "2026-11-22T10:03:00.000Z"},
            {"name": "worker-2", "session": None, "since": None},
        ],
        "totals": {
            "sessions": 1234,
            "commits": 56,
            "give_ups": {"in use": 3, "changed": 1},
            "cuts": {"cold": 4, "pays": 1},
            "tokens_rewritten": 31_400,
            "values": 789,
            "entries": 345,
            "bytes_saved": 123_456_789,
            "tokens_saved": 30_864_197,
            "bytes_written": 23_456_789,
            "busy": 7,
            "failed": 5,
            "restores_failed": 0,
            "children_started": 2,
            "children_died": 1,
            "workers_replaced": 0,
            "crashes": 0,
        },
        "left_alone": {"count": 2, "reasons": {"the transcript is of version 1": 2}},
        "exclude": ["secret"],
        "pauses": [{"name": "main", "since": "2026-11-22T09:00:00.000Z", "until": None}],
        "sessions": [
            sample_result(
                "main/a", "extracted", values=12, bytes_saved=5_000_000, cut_reason="cold"
            ),
            sample_result("main/bad", "failed", reason="disk full", hint="free some space"),
            sample_result("main/idle", "unchanged"),
        ],
        "search": {"complete": True, "waiting": 0, "problem": None},
        "orphans": {"count": 1, "bytes": 17},
        "sources": [
            {
                "name": "claude",
                "kind": "claude-code",
                "path": "/home/ada/.claude/projects",
                "served_by": "/home/ada/.openclaw",
                "left_alone": None,
                "problem": None,
            }
        ],
        "unknown_forms": [],
        "unrecognised": [],
        "unserved": [],
        "not_copied": [],
        "room": {"free": 90 << 30, "size": 500 << 30},
        "clock": None,
        "disk": {
            "store": 40 * _MB,
            "archive": 6 * _MB,
            "copies": 9 * _MB,
            "index": 1 * _MB,
            "history": 2 * _MB,
            "trash": 0,
            "in_flight": {"files": 2, "bytes": 6 * _MB, "due_at": "2026-11-22T11:00:40.000Z"},
            "orphans": 0,
            "databases": 1 * _MB,
            "others": 0,
            "log": 1 * _MB,
            "saved": 200 * _MB,
            "uncounted": 0,
            "kept": 51 * _MB,
            "total": 66 * _MB,
            "net": 149 * _MB,
            "net_with_copies": 134 * _MB,
            "net_when_packed": 177 * _MB,
        },
        "config": {"path": "/home/ada/.openclaw/.brainsurgeon/config.json", "problem": None},
        "retention": {
            "keep": "24h",
            "next_run": "2026-11-22T12:00:00.000Z",
            "files": 4,
            "bytes": 4096,
            "next_expiry": "2026-11-22T13:00:00.000Z",
            "archive": {
                "keep": "90d",
                "held": None,
                "files": 0,
                "bytes": 0,
                "next_expiry": "2026-11-24T11:00:00.000Z",
                "on": True,
                "most_bytes": 0,
                "used_bytes": None,
                "nearly_full": False,
                "packs": 2,
                "lines": 812,
                "content": 41 * _MB,
                "kept": 6 * _MB,
                "ratio": 6.83,
                "oldest": "2026-11-20T11:00:00.000Z",
                "newest": "2026-11-22T06:00:00.000Z",
            },
        },
    }


def sample_result(session: str, status: str, **more: Any) -> dict[str, Any]:
    """Return the fields of a session's last result that matter here."""
    result = {"session": session, "status": status, "values": 0, "bytes_saved": 0}
    return {**result, "reason": None, "at": "2026-11-22T10:02:00.000Z", **more}


def sample_job(name: str = "retention") -> dict[str, Any]:
    return {
        "name": name,
        "schedule": "0 */6 * * *",
        "enabled": True,
        "running": False,
        "last_run": "2026-11-22T06:00:00.000Z",
        "last_result": {"ok": True, "error": None, "seconds": 0.25},
        "next_run": "2026-11-22T12:00:00.000Z",
    }


class FakeScheduler:
    """A scheduler with two jobs."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon

    def status(self) -> list[dict[str, Any]]:
        never = sample_job("auto")
        never |= {"schedule": None, "last_run": None, "last_result": None, "next_run": None}
        return [never, sample_job()]

    def run(self, name: str) -> None:
        if name not in {"retention", "auto_cron"}:
            raise NotFound(f"there is no job {name}", hint="`bsd jobs` lists them")
        self._daemon.running.set()
        if self._daemon.holding is not None:
            self._daemon.holding.wait(DEADLINE_SECONDS)
        self._daemon.ran.append(name)

    def status_of(self, name: str) -> dict[str, Any]:
        return sample_job(name)


@dataclass
class FakeDaemon:
    """Answers at once; `failing` is raised instead, `holding` makes a job run until it is set."""

    health_status: str = "ok"
    document: dict[str, Any] = field(default_factory=sample_status)
    failing: Exception | None = None
    holding: threading.Event | None = None
    running: threading.Event = field(default_factory=threading.Event)
    ran: list[str] = field(default_factory=list)
    events: Events = field(default_factory=Events)
    beats: Beats = field(default_factory=Beats)

    def health(self) -> dict[str, Any]:
        return {
            "status": self.health_status,
            "version": "0.2.0",
            "pid": 4711,
            "uptime_seconds": 1.5,
            "late": [],
            "problems": [],
            "not_understood": [],
        }

    def status(self) -> dict[str, Any]:
        if self.failing is not None:
            raise self.failing
        return self.document

    @property
    def report(self) -> FakeDaemon:
        return self

    @property
    def state(self) -> FakeDaemon:
        """Holds the events."""
        return self

    @property
    def hooks(self) -> FakeDaemon:
        """Takes calls of hooks."""
        return self

    def receive(self, kind: str, said: Mapping[str, Any]) -> dict[str, Any] | None:
        if kind != "claude-code":
            raise NotFound(f"there is no program of the kind {kind!r}")
        return {"said": dict(said)} if said else None

    @property
    def scheduler(self) -> FakeScheduler:
        return FakeScheduler(self)

    def as_daemon(self) -> Daemon:
        return cast(Daemon, self)


def app_over(
    root: Path, daemon: FakeDaemon | None = None, budget: RetryBudget | None = None, **how: Any
) -> FastAPI:
    """Return the application over a root, with a daemon that gives prepared answers."""
    layout = Layout(root)
    config = ConfigService(layout.config_file)
    context = ActionContext(
        layout=layout, config=config, budget=budget or RetryBudget(), actor="api"
    )
    how.setdefault("setup", lambda: _setup(layout))
    app = create_app((daemon or FakeDaemon()).as_daemon(), context, **how)
    # Routes know nothing of their application, and preparing them takes a fifth of a second.
    _ROUTES[:] = _ROUTES or app.router.routes
    app.router.routes = [*_ROUTES]
    return app


def _setup(layout: Layout) -> SetupContext:
    """Return the set-up of a user whose home is the root."""
    home, commands = layout.root, SetupCommands(("bsd", "mcp"), None, "")
    return SetupContext(layout, home / "bsd.toml", {"HOME": str(home)}, commands)


def description(app: ASGIApp) -> dict[str, Any]:
    """Return the content of the OpenAPI document."""
    told: dict[str, Any] = ask(app, "GET", "/api/openapi.json").json()
    return told


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    host: str | None = "127.0.0.1:8000",
) -> Reply:
    """Send a request to an application, without a network."""
    sent = dict(headers or {})
    if host is not None:
        sent["Host"] = host
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path.partition("?")[0],
        "raw_path": path.partition("?")[0].encode(),
        "query_string": path.partition("?")[2].encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }
    messages: list[Message] = []

    bodies = iter([body])

    async def receive() -> Message:
        if (rest := next(bodies, None)) is None:
            await asyncio.Event().wait()  # the client stays until the answer has arrived
        return {"type": "http.request", "body": rest, "more_body": False}

    async def send(message: Message) -> None:
        messages.append(dict(message))

    asyncio.run(_call(app, scope, receive, send))
    start = messages[0]
    return Reply(
        start["status"],
        {name.decode(): value.decode() for name, value in start["headers"]},
        b"".join(message.get("body", b"") for message in messages[1:]),
    )


async def _call(app: ASGIApp, *channel: Any) -> None:
    await app(*channel)
