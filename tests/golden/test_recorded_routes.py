"""Answers of each route, and its lines in the audit log."""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.daemon.running import Running, running
from tests.golden.book import check
from tests.golden.conftest import Ask
from tests.golden.steady import but, document, shape
from tests.golden.test_recorded_commands import PROGRAMS
from tests.golden.world import World
from tests.unix import UnixConnection
from tests.waiting import wait_for

# The answers of these routes depend on the machine and the hour.
_MACHINE = {"/api/status", "/api/health", "/api/savings", "/api/sizes"}
_JOB = ("seconds", "last_run", "last_result", "next_run")  # depends on the speed of the scheduler
# The daemon's work at this moment.
_MOMENT = (
    "notices",
    "room",
    "sessions",
    "problems",
    "late",
    "parked",
    "give_ups",
    "reasons",
    "next_expiry",
    "due_at",
)
_VOLATILE = ("age_hours", "bytes", "reclaimed_bytes")
_A = "/api/sessions/main/alpha"
_B = "/api/sessions/main/beta"


def _steady_job(job: dict[str, Any]) -> Any:
    # It runs for a minute after a commit.
    return but(job, "schedule", "enabled") if job["name"] == "recover" else job


class Routes:
    """Asks the routes in turn, and keeps their answers."""

    def __init__(self, daemon: Running, world: World) -> None:
        self._daemon = daemon
        self._world = world
        self._seen: dict[str, int] = {}
        self.answers: dict[str, Any] = {}
        self._asked: list[tuple[str, str]] = []
        self._audit()

    def __call__(self, method: str, path: str, body: Any = None, *, keep: bool = True) -> Any:
        if method != "GET":
            self._world.rest()
        status, content = self._ask(method, path, body)
        answer = document(content)
        said = self._world.steady(answer)
        if keep:
            said = but(shape(answer), *_MOMENT) if path in _MACHINE else said
            if isinstance(said, dict) and isinstance(said.get("next"), str):
                said["next"] = "<cursor>"
            said = but(said, *_VOLATILE if path.startswith("/api/workspaces") else _JOB)
            if path == "/api/jobs":
                said["jobs"] = [_steady_job(job) for job in said["jobs"]]
            which = f"{method} {self._world.steady.text(path)}"
            which += f" {json.dumps(self._world.steady(body))}" if body is not None else ""
            while which in self.answers:
                which += " (again)"
            audit = self._audit()
            self.answers[which] = {"status": status, "body": said}
            self.answers[which] |= {"audit": audit} if method != "GET" else {}
        return answer

    def get(self, path: str) -> Any:
        return self("GET", path)

    def raw(self, method: str, path: str, body: bytes) -> None:
        status, content = self._ask(method, path, body)
        self.answers[f"{method} {path} {body!r}"] = {"status": status, "body": document(content)}

    def missed(self, description: dict[str, Any]) -> set[str]:
        """Return the routes of the API that were not requested."""
        return {
            f"{method} {template}"
            for template, methods in description["paths"].items()
            for method in map(str.upper, methods)
            if not any(
                method == asked and re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path)
                for asked, path in self._asked
            )
        }

    def _ask(self, method: str, path: str, body: Any) -> tuple[int, str]:
        self._asked.append((method, path.partition("?")[0]))
        connection: http.client.HTTPConnection = UnixConnection(self._daemon.socket)
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, sent)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def _audit(self) -> list[Any]:
        return self._world.added(".brainsurgeon/audit.jsonl", self._seen)


@pytest.mark.daemon
def test_routes(ask: Ask, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask("config", "set", "age_threshold_hours", "0")
    ask("extract", "--keep-recent", "0")
    ask("delete", "other/old", "--yes")
    ask("memory", "store", "Ada prefers tea", "--entity", "Ada", "--key", "drink")
    ask("workspace", "create", "first")
    ask("config", "set", "age_threshold_hours", "87600")  # leave the daemon without work
    with running(world.root, tmp_path) as daemon:
        routes = Routes(daemon, world)
        wait_for(lambda: _is_known(routes), "all sessions to be counted and indexed")
        look(routes)
        hook(routes, world)
        change(routes)
        set_up(routes)
        remember(routes)
        fail(routes)
        secrets(routes)
        monkeypatch.setenv("BRAINSURGEON_SOCKET", str(daemon.socket))
        beside(routes, ask, world)
        description = routes("GET", "/api/openapi.json", keep=False)
    # The first never ends; after the second the daemon starts again.
    assert routes.missed(description) == {"GET /api/events", "POST /api/setup/restart"}
    check("routes", routes.answers)
    check("openapi", _by_part(description))


def secrets(routes: Routes) -> None:
    routes("GET", "/api/secrets", keep=False)  # the progress depends on the machine
    routes("POST", "/api/secrets/0123456789abcdef/redact", {"sessions": ["main/alpha"]})
    for form in ("html", "md", "jsonl"):
        routes("GET", f"/api/sessions/main/alpha/export?format={form}", keep=False)
    routes.get("/api/sessions/main/alpha/export/preview")


def _is_known(routes: Routes) -> bool:
    found = routes("GET", "/api/sessions?q=tide", keep=False)
    listed = routes("GET", "/api/sessions", keep=False)["sessions"]
    is_counted = all(one["counted"] for one in listed if one["id"] != "foreign")
    return bool(found["search"]["complete"]) and is_counted


def look(routes: Routes) -> None:
    for path in ("health", "status", "jobs", "config", "agents", "sessions", "trash", "savings"):
        routes.get(f"/api/{path}")
    metrics = routes("GET", "/api/metrics", keep=False)
    routes.answers["the names in /api/metrics"] = [one for one in metrics if one.startswith("#")]
    routes.get("/api/sessions?q=tide&limit=2&agent=main")
    routes.get("/api/sessions?status=done&limit=1")
    routes.get("/api/sessions?sort=cost&limit=2")
    routes.get("/api/prices?model=gpt-6-sol&provider=openai&at=2026-11-20")
    routes.get("/api/prices?model=no-model")
    routes("GET", "/api/fleet/status", keep=False)  # it has the name of the machine
    routes.get("/api/fleet/sessions")
    routes.get("/api/fleet/search?q=numbat&host=build-3")
    for path in ("overview?largest=2", "overview/would-leave", "sizes"):
        routes.get(f"/api/{path}")
    routes.get(f"{_A}/outline")
    routes.get(f"{_A}/replay?when=now")
    routes.get("/api/replay?keep_recent=3,x")
    routes.get("/api/search?q=tide&limit=3")
    routes.get("/api/files?path=b*&agent=main&limit=2")
    routes.get("/api/archive")
    routes.get("/api/archive/search?q=tide&limit=3")
    out = _out(routes, "main/alpha")
    for path in ("", "?limit=2", "/context", "/summary", "/outline", "/history"):
        routes.get(_A + path)
    for path in ("?limit=3", "?from=5&limit=2", "?before=5&limit=2", "?type=message&limit=1"):
        routes.get(f"{_A}/entries{path}")
    routes.get(f"{_A}/entries?texts=40&from=1&limit=3")
    for path in ("", "/extracted", "/meta"):
        routes.get(f"{_A}/entries/{out[0]}{path}")
    for agent, session in PROGRAMS.items():
        full = next(
            one["session"]
            for one in routes("GET", "/api/sessions", keep=False)["sessions"]
            if one["session"].endswith(session) and one["session"].startswith(agent)
        )
        where = "/api/sessions/" + quote(full, safe="/")
        routes.get(f"{where}?limit=3")
        routes.get(f"{where}/outline")
        routes.get(f"{where}/summary")
        [first, *_] = _out(routes, full)
        routes.get(f"{where}/entries/{quote(first)}/extracted")


def _out(routes: Routes, name: str) -> list[str]:
    found = routes("GET", f"/api/sessions/{quote(name, safe='/')}/context", keep=False)
    ids: list[str] = found["extracted_ids"]
    return ids


def hook(routes: Routes, world: World) -> None:
    """Requests of Claude Code's hooks, and the answers."""
    path = next(world.root.parent.rglob(f"{PROGRAMS['claude']}.jsonl"))
    said = {"hook_event_name": "SessionStart", "transcript_path": str(path), "source": "resume"}
    routes("POST", "/api/hooks/claude-code", said)
    routes("POST", "/api/hooks/claude-code", {**said, "hook_event_name": "Stop"})
    routes("POST", "/api/hooks/nobody", {})


def change(routes: Routes) -> None:
    routes("POST", "/api/pauses", {"name": "other"})
    routes.get("/api/pauses")
    routes("POST", "/api/pauses", {"name": "nobody", "length": "2h"})
    routes("POST", "/api/pauses/end", {"name": "other"})
    routes("POST", "/api/pauses/end", {"name": "other"})
    out = _out(routes, "main/alpha")
    routes("POST", f"{_A}/entries/{out[0]}/restore")
    routes("POST", f"{_A}/entries/{out[0]}/restore")
    routes("POST", f"{_A}/entries/{out[1]}/restore", {"keys": ["text"]})
    routes("PUT", f"{_A}/entries/{out[1]}/meta", {"_extractable": False})
    routes("PUT", f"{_A}/entries/{out[1]}/meta", {"_extractable": None})
    shown = routes.get(f"{_A}/entries/{out[0]}")
    routes("PUT", f"{_A}/entries/{out[0]}", {"set": {"parentId": "x"}, "seen": "0"})
    routes("PUT", f"{_A}/entries/{out[0]}", {"entry": shown["entry"] | {"note": "short"}})
    entries = routes("GET", f"{_A}/context", keep=False)["entries"]
    asked = [one["hash"] for one in entries if one["type"] == "user"]
    action = {"action": "discard", "targets": [[asked[0]]], "include_user": True}
    routes("POST", f"{_A}/context?dry_run=true", action)
    routes("POST", f"{_A}/context", action)
    action = {"action": "distill", "targets": [[asked[1], "Short"]], "include_user": True}
    routes("POST", f"{_A}/context", action)
    ways = {"start": "def ", "end": ":", "replacement": "nothing"}
    routes("POST", f"{_A}/replace?dry_run=true", ways)
    routes("POST", f"{_A}/replace", ways)
    routes("POST", f"{_A}/undo")
    routes("POST", f"{_A}/undo", {"op": 1})
    wanted = {"age_threshold_hours": 0, "keep_recent": 0, "keep_after_restore_seconds": 0}
    routes("POST", f"{_A}/extract?dry_run=true", wanted)
    routes("POST", f"{_A}/extract", wanted)
    routes.get(f"{_A}/history")
    routes("POST", f"{_A}/undo?dry_run=true")
    routes("POST", "/api/undo", {"since": "1h", "agent": "other", "dry_run": True})
    routes("POST", f"{_A}/restore", {"entries": ["nowhere"]})
    routes("POST", "/api/config", {"keep_recent": 9, "protected_tools": ["read"]})
    gone = routes("DELETE", "/api/sessions/other/gamma")
    routes("POST", f"/api/trash/{gone['trash_id']}/restore")
    gone = routes("DELETE", "/api/sessions/other/gamma")
    routes.get("/api/trash")
    routes("DELETE", f"/api/trash/{gone['trash_id']}")
    routes("DELETE", "/api/sessions/main/spare?permanent=true")
    routes("DELETE", "/api/trash")
    routes.get("/api/retention?at=soon")
    routes("POST", "/api/retention/run?dry_run=true")
    routes("POST", "/api/retention/run")
    routes("POST", "/api/jobs/retention/run")


def set_up(routes: Routes) -> None:
    """Show the agents and the changes for one of them; carry out changes that need no restart."""
    routes.get("/api/setup")
    routes("GET", "/api/setup/codex/would-leave", keep=False)
    routes("POST", "/api/setup/codex", {"turn": "off", "dry_run": True})
    routes("POST", "/api/setup/codex", {"turn": "on", "seen": "0"})
    routes("POST", "/api/setup/nobody", {"turn": "on"})
    routes("POST", "/api/notices/dismiss", {"id": "clock"})
    routes("DELETE", "/api/archive?project=other&dry_run")


def remember(routes: Routes) -> None:
    fact = {"text": "Bob likes rum", "entity": "Bob", "key": "drink", "tags": ["a", "b"]}
    made = routes("POST", "/api/memory/store", fact)
    for path in ("stats", "recall?query=tea", "lookup?entity=Ada", "checkpoint"):
        routes.get(f"/api/memory/{path}")
    routes("POST", "/api/memory/recall", {"query": "rum"})
    routes("POST", "/api/memory/lookup", {"entity": "Bob"})
    routes("POST", "/api/memory/confirm", {"id": made["id"]})
    routes("POST", "/api/memory/checkpoint", {"intent": "to sail", "state": "in port"})
    routes.get("/api/memory/checkpoint")
    routes("POST", "/api/memory/prune", {"dry_run": True})
    routes("POST", "/api/memory/prune", {"hard": True})
    routes("POST", "/api/memory/backfill")
    routes("POST", "/api/memory/forget", {"id": made["id"]})
    routes.get("/api/workspaces")
    routes("POST", "/api/workspaces", {"session_id": "second"})
    routes("POST", "/api/workspaces/second/touch")
    routes.get("/api/workspaces/second")
    routes("POST", "/api/workspaces/second/repair")
    routes("POST", "/api/workspaces/repair?dry_run=true")
    routes("POST", "/api/workspaces/prune?dry_run=true", {"max_count": 1})
    routes("POST", "/api/workspaces/prune", {"max_count": 2})


def fail(routes: Routes) -> None:
    for path in (
        "/api/nothing",
        "/api/sessions/main/nobody",
        "/api/sessions/main/nobody/entries",
        f"{_A}/entries/nobody",
        f"{_A}/entries?limit=0",
        "/api/sessions?limit=many",
        "/api/sessions?agent=nobody",
        "/api/sessions?cursor=x",
        "/api/search",
        "/api/sessions/main/foreign/context",
        "/api/workspaces/nobody",
        "/api/archive/main/nobody",
    ):
        routes.get(path)
    routes("DELETE", "/api/config")
    routes("POST", "/api/config", {"keep_recent": "many", "nothing": 1})
    routes("POST", "/api/jobs/nobody/run")
    routes("POST", f"{_A}/extract", {"keep_recent": -1, "nothing": 1})
    routes("POST", f"{_A}/undo", {"op": 99})
    routes("POST", "/api/undo", {"since": "soon"})
    routes("POST", f"{_A}/context", {"action": "nothing", "targets": []})
    routes("POST", f"{_A}/context", {"action": "discard", "targets": [["ffffff"], ["x"]]})
    routes("PUT", f"{_A}/entries/nobody/meta", {"_extractable": "x"})
    routes("POST", "/api/trash/nobody/restore")
    routes("DELETE", "/api/trash/nobody")
    routes("POST", "/api/archive/main/nobody/bring-back")
    routes("POST", "/api/archive/main/alpha/bring-back", {"as": "main/other"})
    routes("DELETE", "/api/archive/main/nobody")
    routes("DELETE", "/api/archive/main/nobody?entry=e1")
    routes("POST", "/api/memory/store", {"text": 1, "nothing": 2})
    routes("POST", "/api/memory/confirm", {"id": "nobody"})
    routes("POST", "/api/workspaces/nobody/touch")
    routes.raw("POST", "/api/config", b"{")
    routes.raw("POST", "/api/config", b"[]")


def beside(routes: Routes, ask: Ask, world: World) -> None:
    """Answers of commands that ask the daemon."""
    routes.answers["bsd status --json"] = but(shape(ask("status", "--json")["out"]), *_MOMENT)
    for words in (("jobs",), ("jobs", "run", "retention"), ("jobs", "run", "nobody")):
        said = ask(*words, "--json")
        kept = {name: world.steady(said[name]) for name in ("exit", "out", "err")}
        routes.answers["bsd " + " ".join(words)] = but(kept, *_JOB)


def _by_part(description: dict[str, Any]) -> dict[str, Any]:
    """Split the description by route and schema, so that a difference names its place."""
    parts: dict[str, Any] = {"info": description["info"] | {"version": "<version>"}}
    for path, methods in description["paths"].items():
        parts |= {f"{method.upper()} {path}": what for method, what in methods.items()}
    components = description.get("components", {})
    for kind, named in components.items():
        parts |= {f"{kind} {name}": what for name, what in named.items()}
    others = set(description) - {"info", "paths", "components"}
    return parts | {name: description[name] for name in sorted(others)}
