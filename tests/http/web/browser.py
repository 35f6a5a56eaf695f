"""Chromium, and pages in it that record forbidden actions."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.needs import require_program
from tests.waiting import DEADLINE_SECONDS, wait_for

SCREENSHOTS = os.environ.get("SCREENSHOTS")  # set: they are recorded again
_FOLDER = Path(__file__).parents[3] / "contrib" / "docs" / "screenshots"
_LARGEST_SCREENSHOT = 200_000
_PATIENCE_MS = 1000 * DEADLINE_SECONDS
_ARGUMENTS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--renderer-process-limit=1",  # each opened view would start a process, half of its CPU time
]
# Chromium reports every answer of 400 and more, however well the page handles it.
_REFUSED = re.compile(r"Failed to load resource: (the server responded with a status of|net::ERR)")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium, without windows if there is one of that kind; skips without it."""
    path = shutil.which("chromium-headless-shell") or require_program("chromium")
    expect.set_options(timeout=_PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watched:
    """A page, its address, and the forbidden actions that it took."""

    page: Page
    address: str
    wrong: list[str] = field(default_factory=list)

    def open(self, where: str = "") -> Page:
        """Show a view by its address, as if typed."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}/#/{where}")
        return self.page

    def heard(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not _REFUSED.match(message.text):
            self.wrong.append(f"console: {message.text}")

    def asked(self, request: Request) -> None:
        there, here = urlsplit(request.url), urlsplit(self.address)
        if there.netloc != here.netloc and there.scheme not in {"about", "blob"}:
            self.wrong.append(f"request: {request.url}")


@contextmanager
def watched(browser: Browser, address: str, **how: Any) -> Iterator[Watched]:
    """A page of its own context; fails after an error in it or a request to another server."""
    how = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB", **how}
    context = browser.new_context(**how)
    page = context.new_page()
    page.set_default_timeout(_PATIENCE_MS)
    seen = Watched(page, address)
    page.on("console", seen.heard)
    page.on("pageerror", lambda error: seen.wrong.append(f"error: {error}"))
    page.on("request", seen.asked)
    try:
        yield seen
        assert page.evaluate("window.hacked") is None
        assert not seen.wrong, seen.wrong
    finally:
        context.close()


def until(page: Page, condition: str, arg: object = None) -> None:
    """Wait until a JavaScript expression, or a function of `arg`, is true.

    `Page.wait_for_function` evaluates text in the page again, which its policy forbids.
    """
    wait_for(lambda: page.evaluate(condition, arg), condition)


def screenshot(page: Page, name: str) -> None:
    """Save a screenshot for people, if the environment requests it."""
    if not SCREENSHOTS:
        return
    _FOLDER.mkdir(exist_ok=True)
    path = _FOLDER / f"{name}.png"
    # Not to a path: a thread of Playwright that stays would write the file.
    path.write_bytes(page.screenshot(animations="disabled"))
    assert path.stat().st_size < _LARGEST_SCREENSHOT
