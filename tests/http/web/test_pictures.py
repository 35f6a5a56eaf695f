"""Pictures of the page for the README, made by this module if SCREENSHOTS=1 is set."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from bsd.core.audit import AuditLog
from bsd.core.layout import Layout
from tests.http.api import over_socket, serving
from tests.http.fake_daemon import FakeDaemon, sample_result
from tests.http.web.browser import SCREENSHOTS, chromium, screenshot, watched
from tests.http.web.sample import text
from tests.openclaw_tree import add_session
from tests.searching import read_all
from tests.session_files import jsonl, sample

pytestmark = [
    pytest.mark.web,
    pytest.mark.skipif(not SCREENSHOTS, reason="makes pictures only if SCREENSHOTS is set"),
]


_MODEL = "claude-opus-4-5"
_HOUR = 3600.0
_DAY = 24 * _HOUR
_LOG = "\n".join(
    f"tests/test_berths.py::test_{what}[{day}] {'FAILED' if day == 'sunday' else 'PASSED'}"
    for what in ("assigns_the_nearest", "waits_for_the_tide", "lets_pilots_rest", "counts_cranes")
    for day in ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
)
_THOUGHT = (
    "The failing cases are all on Sunday. The tide table is read by weekday, and Python counts "
    "weekdays from Monday = 0, while the table counts from Sunday = 0. "
)
_KEY = "aZ3kQ9xWm2Lr7TtYv5BnC8dEfG1hJ4pS6uVw"  # made up
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


# --- sessions with something to read in them, for pictures: a fortnight of work on a harbour ---


def tell_story(root: Path, daemon: FakeDaemon) -> None:
    """Fill a root, and let a daemon say what it would of it."""
    now = time.time()
    registry: dict[str, dict[str, Any]] = {"main": {}, "research": {}}
    add_session(root, "main/flaky-berth-tests", b"".join(_conversation(now)))
    registry["main"]["agent:main:main"] = {"sessionId": "flaky-berth-tests", "status": "done"}
    for seed, (key, agent, session, turns, hours, status, parent) in enumerate(_OTHERS):
        lines = sample(turns, seed)
        path = add_session(root, f"{agent}/{session}", lines)
        os.utime(path, (now - hours * _HOUR,) * 2)
        title = session.replace("-", " ").capitalize()
        entry = {"sessionId": session, "status": status, "displayName": title}
        registry[agent][key] = entry | ({"parentSessionId": parent} if parent else {})
    told = [
        {"type": "session", "version": 3, "id": "push-to-forge", "cwd": "/home/ada/harbour"},
        _message("0001c0de", "user", f"Push it, please: the key is ghp_{_KEY}."),
        _message("0002c0de", "assistant", "Pushed.", stopReason="stop"),
    ]
    path = add_session(root, "main/push-to-forge", jsonl(*told))
    os.utime(path, (now - 30 * _HOUR,) * 2)
    for agent, listed in registry.items():
        (root / "agents" / agent / "sessions" / "sessions.json").write_text(json.dumps(listed))
    _keep_books(root, now)
    _say(daemon)


def _message(id: str, role: str, said: str, **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": [text(said)], **more}
    return {"type": "message", "id": id, "timestamp": _WHEN, "message": message}


def _conversation(now: float) -> list[bytes]:
    call = {"type": "toolCall", "id": "call_1", "name": "bash"}
    look = {"type": "toolCall", "id": "call_2", "name": "read"}
    mend = {"type": "toolCall", "id": "call_3", "name": "edit"}
    turns: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = [
        ("user", [text("The berth tests fail every now and then. Can you find out why?")], {}),
        (
            "assistant",
            [
                text("I'll run them first."),
                {**call, "arguments": {"command": "pytest tests/test_berths.py"}},
            ],
            {"stopReason": "toolUse"},
        ),
        ("toolResult", [text(_LOG)], {"toolCallId": "call_1", "toolName": "bash"}),
        (
            "assistant",
            [
                {"type": "thinking", "thinking": _THOUGHT * 6},
                text("Only Sundays fail. Let me look at how the tide table is read."),
                {**look, "arguments": {"path": "harbour/tides.py"}},
            ],
            {"stopReason": "toolUse"},
        ),
        (
            "toolResult",
            [text("def tide_of(day: date) -> Tide:\n    return TABLE[day.weekday()]\n" * 12)],
            {"toolCallId": "call_2", "toolName": "read"},
        ),
        (
            "assistant",
            [
                text("The table begins on Sunday, `weekday()` on Monday. I mend that."),
                {**mend, "arguments": {"path": "harbour/tides.py", "new": "day.isoweekday() % 7"}},
            ],
            {"stopReason": "toolUse"},
        ),
        (
            "toolResult",
            [text("Successfully replaced 1 block in harbour/tides.py.")],
            {"toolCallId": "call_3", "toolName": "edit"},
        ),
        (
            "assistant",
            [text("The tests pass now on all seven days: 28 passed.")],
            {"stopReason": "stop"},
        ),
        ("user", [text("Wonderful. Please write a line for the change log, too.")], {}),
        (
            "assistant",
            [text("Done: “Berths: tides of Sundays are those of Sundays.”")],
            {"stopReason": "stop"},
        ),
    ]
    lines = [b'{"type":"session","version":3,"id":"flaky-berth-tests","cwd":"/home/ada/harbour"}\n']
    for number, (role, content, more) in enumerate(turns, 1):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 1500 + 40 * number))
        made = {"model": _MODEL, **more} if role == "assistant" else more
        entry = {
            "type": "message",
            "id": f"{number:04x}b7e1",
            "timestamp": at,
            "message": {"role": role, "content": content, **made},
        }
        lines.append(json.dumps(entry).encode() + b"\n")
    return lines


def _keep_books(root: Path, now: float) -> None:
    """A fortnight of extractions and a few restorations in the audit log."""
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
    document["totals"] |= {"sessions": 1 + len(_OTHERS), "bytes_saved": 8_400_000, "failed": 0}
    document["totals"] |= {"tokens_saved": 2_096_000, "values": 511, "entries": 497}
    document["notices"] = []
    document["orphans"] = {"count": 0, "bytes": 0}
    document["left_alone"] = {"count": 0, "reasons": {}}
    document["sessions"] = [
        sample_result("main/flaky-berth-tests", "extracted", values=3, bytes_saved=5_210),
        sample_result("research/crane-vendors", "unchanged"),
    ]
    trash = {"keep": "14d", "sessions": 2, "bytes": 1_840_000, "next_expiry": None}
    trash |= {"all_sessions": 2, "all_bytes": 1_840_000}
    document["retention"] |= {"keep": "7d", "files": 41, "bytes": 3_300_000, "trash": trash}


_SESSION = "main/flaky-berth-tests"


def test_pictures(tmp_path: Path) -> None:
    root = tmp_path / ".openclaw"
    daemon = FakeDaemon()
    tell_story(root, daemon)
    with (
        chromium() as browser,
        serving(root, daemon, BRAINSURGEON_HTTP="127.0.0.1:0") as (server, settings),
    ):
        for name in (_SESSION, "main/tide-table-import", "main/nightly-report"):
            status, _ = over_socket(settings.socket, f"/api/sessions/{name}/extract", "POST")
            assert status == 200
        read_all(Layout(root))
        address = f"http://{server.addresses[0]}"
        light: dict[str, Any] = {"color_scheme": "light"}
        with watched(browser, address, **light) as seen:
            page = seen.open()
            expect(page.locator(".plot canvas").first).to_be_visible()
            expect(page.locator(".fill-bar > span").nth(9)).to_be_visible()
            _take(page, "overview", "light")
            _take(_opened(seen.open(f"s/{_SESSION}")), "session", "light")
            page = seen.open("secrets")
            page.get_by_role("button", name="Look for secrets").click()
            page.get_by_text("in 1 entry").click()
            _take(page, "secrets", "light")
            page = seen.open("trash")
            expect(page.get_by_text("The trash is empty")).to_be_visible()
            page.keyboard.press("Control+k")
            page.get_by_role("dialog").get_by_role("combobox").first.fill("tides")
            expect(page.locator(".finder-option mark").first).to_be_visible()
            _take(page, "finder", "light")
        with watched(browser, address, color_scheme="dark") as seen:
            _take(_opened(seen.open(f"s/{_SESSION}")), "session", "dark")
        phone = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 1.5}
        with watched(browser, address, **phone) as seen:
            page = _opened(seen.open(f"s/{_SESSION}"))
            page.locator("main").evaluate("(main) => main.scrollBy(0, 560)")
            _take(page, "session", "phone")


def _opened(page: Page) -> Page:
    expect(page.locator(".entry").nth(3)).to_be_attached()
    page.locator("main").evaluate("(main) => main.scrollBy(0, 330)")
    return page


def _take(page: Page, name: str, kind: str) -> None:
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("main h1")).to_have_text(re.compile("."))
    expect(page.locator("[aria-busy]")).to_have_count(0)
    expect(page.get_by_text("Loading")).to_have_count(0)
    page.evaluate("document.activeElement?.blur()")
    screenshot(page, f"{name}-{kind}")
