"""Pictures of the page for the README, made by this module if SCREENSHOTS=1 is set."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from bsd.foundation.layout import Layout
from tests.doors.http.api import over_socket, serving
from tests.doors.http.fake_daemon import FakeDaemon
from tests.doors.http.web.browser import SCREENSHOTS, chromium, screenshot, watched
from tests.doors.http.web.story import tell_story
from tests.searching import read_all

pytestmark = [
    pytest.mark.web,
    pytest.mark.skipif(not SCREENSHOTS, reason="makes pictures only if SCREENSHOTS is set"),
]

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
        for scheme in ("light", "dark"):
            with watched(browser, address, color_scheme=scheme) as seen:
                _take(seen.open(), "sessions", scheme)
                _take(_opened(seen.open(f"s/{_SESSION}?order=oldest")), "session", scheme)
                page = seen.open("status")
                page.get_by_label("30 days").check()
                _take(page, "status", scheme)
                if scheme == "light":
                    page = seen.open("settings")
                    page.get_by_label("Messages to keep").fill("300")
                    page.get_by_label("Extracted content").fill("5x")
                    page.get_by_role("button", name="Save").click()
                    expect(page.locator("[aria-invalid]")).to_have_count(2)
                    _take(page, "settings", scheme)
        phone = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 1.5}
        with watched(browser, address, **phone) as seen:
            _take(seen.open(), "sessions", "phone")
            page = _opened(seen.open(f"s/{_SESSION}?order=oldest"))
            page.locator(".filters").scroll_into_view_if_needed()
            page.locator("main").evaluate("(main) => main.scrollBy(0, 640)")
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
