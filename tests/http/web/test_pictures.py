"""Pictures of the page for the README, made by this module if SCREENSHOTS=1 is set."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from bsd.actions.context import ActionContext, SearchState
from bsd.core.audit import AuditLog
from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.http.app import create_app
from bsd.http.server import ApiServer
from bsd.maintenance.catalog import names
from bsd.sessions.idle import RetryBudget
from bsd.transcripts.agents.programs import layout_of
from tests.http.api import settings_for
from tests.http.fake_daemon import FakeDaemon, sample_result
from tests.http.web.browser import SCREENSHOTS, Watched, screenshot, watched
from tests.http.web.sample import text
from tests.http.web.story import FLAKY, PROJECT, add_claude_story, session_of
from tests.maintenance.keeping import extract, keep
from tests.openclaw_tree import add_session
from tests.searching import read_all
from tests.session_files import Clock, jsonl, sample

pytestmark = [
    pytest.mark.web,
    pytest.mark.skipif(not SCREENSHOTS, reason="makes pictures only if SCREENSHOTS is set"),
]


_HOUR = 3600.0
_DAY = 24 * _HOUR
_KEY = "aZ3kQ9xWm2Lr7TtYv5BnC8dEfG1hJ4pS6uVw"  # fictional
_WHEN = "2026-01-05T09:00:00Z"
_OTHERS = (  # label, agent, session, turns, hours since, status, parent
    ("agent:main:telegram:dm:ada", "main", "tide-table-import", 16, 2, "done", None),
    ("agent:main:subagent:read-tide-tables", "main", "b3c1f7e2", 5, 2, "done", "tide-table-import"),
    ("agent:main:cron:nightly-report", "main", "nightly-report", 9, 7, "done", None),
    ("agent:research:main", "research", "crane-vendors", 12, 11, "running", None),
    ("agent:research:subagent:quotes", "research", "9d24aa10", 4, 12, "done", "crane-vendors"),
    ("agent:research:discord:channel:harbour", "research", "pilots-roster", 14, 40, "done", None),
    ("agent:main:signal:group:quay-4", "main", "quay-4-lights", 6, 70, "failed", None),
)


# --- sessions of OpenClaw and of Claude Code, and a daemon's answers about them ---


def tell_story(root: Path, daemon: FakeDaemon) -> None:
    """Fill a root, and let a daemon report on it."""
    now = time.time()
    registry: dict[str, dict[str, Any]] = {"main": {}, "research": {}}
    for seed, (key, agent, session, turns, hours, status, parent) in enumerate(_OTHERS):
        lines = sample(turns, seed)
        path = add_session(root, f"{agent}/{session}", lines)
        os.utime(path, (now - hours * _HOUR,) * 2)
        title = session.replace("-", " ").capitalize()
        entry = {"sessionId": session, "status": status, "displayName": title}
        registry[agent][key] = entry | ({"parentSessionId": parent} if parent else {})
    told = [
        {"type": "session", "version": 3, "id": "push-to-forge", "cwd": "/home/ada/harbour"},
        _message("0001c0de", "user", "Push it to the forge, please."),
        _message("0002c0de", "assistant", "I need a key for that.", stopReason="stop"),
        _message("0003c0de", "user", f"It is ghp_{_KEY}."),
        _message("0004c0de", "assistant", "Pushed.", stopReason="stop"),
    ]
    path = add_session(root, "main/crane-survey", _priced_session())
    os.utime(path, (now - 90 * _HOUR,) * 2)
    path = add_session(root, "main/push-to-forge", jsonl(*told))
    os.utime(path, (now - 30 * _HOUR,) * 2)
    for agent, listed in registry.items():
        (root / "agents" / agent / "sessions" / "sessions.json").write_text(json.dumps(listed))
    _keep_books(root, now)
    _say(daemon)


def _message(id: str, role: str, said: str, **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": [text(said)], **more}
    return {"type": "message", "id": id, "timestamp": _WHEN, "message": message}


def _priced_session() -> bytes:
    """Return a session whose usage fits its text: ten turns of 15 calls, with two pauses."""
    told: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "crane-survey"}]
    at, cached, tokens = datetime(2026, 11, 20, 8, tzinfo=UTC), 0, 12_000

    def add(kind: str, role: str, said: str, **more: Any) -> None:
        entry = _message(f"{kind}{len(told):07}", role, said, **more)
        told.append(entry | {"timestamp": at.isoformat(timespec="milliseconds")})

    for call in range(150):
        if call % 15 == 0:
            cached = 0 if call in {60, 105} else cached
            at += timedelta(hours=0 if cached else 3, minutes=2)
            add("a", "user", f"Read the survey of the cranes of quay {call // 15}.")
        at += timedelta(seconds=20)
        usage = {"input": 4, "output": 60, "cacheRead": cached, "cacheWrite": tokens - cached}
        tool = {"type": "toolCall", "id": f"c{call}", "name": "read", "arguments": {"path": call}}
        add(
            "b",
            "assistant",
            "".join(f"Bolt {bolt} of crane {call} is fine. " for bolt in range(40)),
            provider="anthropic",
            model="claude-opus-5-5",
            usage=usage | {"totalTokens": tokens + 64},
            stopReason="stop" if call % 15 == 14 else "toolUse",
        )
        result = "".join(f"{call}.{bolt} bolt {bolt * call % 97} mm\n" for bolt in range(120))
        if call % 15 != 14:
            told[-1]["message"]["content"].append(tool)
            add("c", "toolResult", result, toolCallId=f"c{call}", toolName="read")
        cached, tokens = tokens, tokens + 350 + len(result) // 3
    return jsonl(*told)


def _keep_books(root: Path, now: float) -> None:
    """Write a fortnight of extractions and a few restorations to the audit log."""
    for hour in range(14 * 24):
        at = now - 14 * _DAY + hour * _HOUR
        working = 7 <= (hour % 24) <= 19 and (hour // 24) % 7 not in {5, 6}
        if not working:
            continue
        log = AuditLog(Layout(root).audit_file, clock=lambda at=at: at)  # type: ignore[misc]
        saved = 180_000 + 9_000 * (hour % 17)
        agent = "research" if hour % 3 else "main"
        log.record(
            actor="daemon",
            action="extract",
            agent=agent,
            bytes_saved=saved,
            tokens_saved=saved // 4,
        )
        if hour % 50 == 9:
            log.record(actor="cli", action="restore", bytes_before=4_000, bytes_after=640_000)


def _say(daemon: FakeDaemon) -> None:
    document = daemon.document
    document["watcher"] |= {"directories": 14, "watched": 14, "scan_only": 0, "problems": []}
    document["queue"] |= {"parked": [], "debouncing": 0, "waiting": 0, "ready": 0, "gathering": 1}
    document["workers"] = [{**one, "session": None} for one in document["workers"]]
    document["totals"] |= {"sessions": 8 + len(_OTHERS), "bytes_saved": 8_400_000, "failed": 0}
    document["totals"] |= {"tokens_saved": 2_096_000, "values": 511, "entries": 497}
    document["notices"] = []
    document["orphans"] = {"count": 0, "bytes": 0}
    document["left_alone"] = {"count": 0, "reasons": {}}
    document["sessions"] = [
        sample_result("main/tide-table-import", "extracted", values=90, bytes_saved=508_000),
        sample_result("research/crane-vendors", "unchanged"),
    ]
    trash = {"keep": "14d", "sessions": 2, "bytes": 1_840_000, "next_expiry": None}
    trash |= {"all_sessions": 2, "all_bytes": 1_840_000}
    document["retention"] |= {"keep": "7d", "files": 41, "bytes": 3_300_000, "trash": trash}


_HARBOUR = f"claude-code:{PROJECT}"
_SESSION = f"{_HARBOUR}/{FLAKY}"
_HELPERS = f":{FLAKY}"
_LEAN = f"{_HARBOUR}/{session_of(1)}"
_PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 1.5}


@contextmanager
def _harbour(home: Path) -> Iterator[ApiServer]:
    """A page over both agents' sessions: most have extracted values, one is deleted."""
    root, daemon = home / ".openclaw", FakeDaemon()
    tell_story(root, daemon)
    add_claude_story(home, time.time())
    layout = layout_of(root, [SourceSettings(kind="claude-code", path=home / ".claude/projects")])
    clock = Clock()
    clock.ahead = -_HOUR  # each extraction advances the time by two minutes
    whole = {FLAKY, "crane-vendors", "crane-survey", session_of(3)}  # so that a value would leave
    for name in list(names(layout)):
        if name.session not in whole and _HELPERS not in name.agent:
            extract(layout, name, clock, keep_recent=3)
    clock.ahead = 0
    keep(layout, clock)
    layout.session_file(SessionName.parse(f"claude-code:-home-ada-notes/{session_of(6)}")).unlink()
    read_all(layout)
    context = ActionContext(
        layout=layout,
        config=ConfigService(layout.config_file),
        actor="api",
        budget=RetryBudget(wait=5.0, quiet=0.1),
        search_state=lambda: SearchState(complete=True, waiting=0, problem=None),
    )
    settings = settings_for(root, BRAINSURGEON_HTTP="127.0.0.1:0")
    server = ApiServer(create_app(daemon.as_daemon(), context), settings, daemon.beats)
    server.start()
    try:
        yield server
    finally:
        assert server.stop()


def test_pictures(browser: Browser, tmp_path: Path) -> None:
    with _harbour(tmp_path) as server:
        address = f"http://{server.addresses[0]}"
        for scheme in ("light", "dark"):
            with watched(browser, address, color_scheme=scheme) as seen:
                _views(seen, scheme)
        with watched(browser, address, color_scheme="light") as seen:
            _dialogs(seen)
        with watched(browser, address, **_PHONE) as seen:
            _take(_overview(seen), "overview", "phone")
            _take(_listed(seen), "sessions", "phone")
            page = _opened(seen, _SESSION)
            page.locator("main").evaluate("(main) => main.scrollBy(0, 1850)")
            _take(page, "session", "phone")


def _views(seen: Watched, scheme: str) -> None:
    _take(_overview(seen), "overview", scheme)
    _take(_listed(seen), "sessions", scheme)
    page = _opened(seen, _SESSION)
    page.locator("main").evaluate("(main) => main.scrollBy(0, 900)")
    _take(page, "session", scheme)
    page = _opened(seen, _SESSION)
    page.get_by_role("button", name="Bash").first.click()
    expect(page.locator(".terminal")).to_be_visible()
    page.locator("main").evaluate("(main) => main.scrollBy(0, 330)")
    _take(page, "output", scheme)


def _dialogs(seen: Watched) -> None:
    page = _opened(seen, _LEAN)
    _take(page, "taken-out", "light")
    page.get_by_role("button", name=re.compile("Actions on entry")).nth(2).click()
    page.get_by_role("button", name="Compare").first.click()
    expect(page.get_by_role("dialog").get_by_text("Was taken out")).to_be_visible()
    _take(page, "compare", "light")
    page = seen.open("cost/main/crane-survey")
    expect(page.locator(".plot canvas").first).to_be_visible()
    page.locator("main").evaluate("(main) => main.scrollBy(0, 450)")
    _take(page, "cost", "light")
    page = seen.open("secrets")
    page.get_by_role("button", name="Look for secrets").click()
    page.get_by_text("in 1 entry").click()
    _take(page, "secrets", "light")
    page = seen.open("archive")
    expect(page.get_by_role("button", name="Bring back").first).to_be_visible()
    _take(page, "archive", "light")
    page = seen.open("trash")
    expect(page.get_by_text("The trash is empty")).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_role("dialog").get_by_role("combobox").first.fill("tides")
    expect(page.locator(".finder-option mark").first).to_be_visible()
    _take(page, "finder", "light")


def _overview(seen: Watched) -> Page:
    page = seen.open()
    expect(page.locator(".plot canvas").first).to_be_attached()
    expect(page.locator(".large .fill-bar")).to_have_count(8)
    return page


def _listed(seen: Watched) -> Page:
    page = seen.open("sessions")
    expect(page.locator(".rows .row").nth(5)).to_be_visible()
    return page


def _opened(seen: Watched, session: str) -> Page:
    page = seen.open(f"s/{session}")
    expect(page.locator(".entry").nth(3)).to_be_attached()
    return page


def _take(page: Page, name: str, kind: str) -> None:
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("main h1")).to_have_text(re.compile("."))
    expect(page.locator("[aria-busy]")).to_have_count(0)
    expect(page.get_by_text("Loading")).to_have_count(0)
    page.evaluate("document.activeElement?.blur()")
    screenshot(page, f"{name}-{kind}")
