"""Ten questions that users have: the search of the site finds the page that answers each."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.docs.pages import DOCS, TOP
from tests.http.web.browser import chromium, watched
from tests.waiting import wait_for

pytestmark = pytest.mark.web

# The question, the words that a user types, and the page without `.md`. A search shows only pages
# that hold all the words.
QUESTIONS = (
    ("Where do my values go after 24 hours?", "values after 24 hours", "archive"),
    ("Can it break my agent?", "break my agent", "promises"),
    (
        "How do I get a value back in Claude Code?",
        "get value back claude code",
        "start/claude-code",
    ),
    ("What is deleted, and when?", "what is deleted when", "archive"),
    ("How do I uninstall it?", "uninstall", "index"),
    ("Does any data leave my machine?", "data leave my machine", "promises"),
    ("Why is my session left alone?", "session left alone", "troubleshooting"),
    ("How do I back it up?", "back up", "recipes"),
    ("How do several users share a machine?", "several users", "recipes"),
    ("How do I find where something was discussed?", "search words", "reading"),
)
_MOST = 3  # hits among which the page must be


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Do not print requests."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    place = tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, place / "contrib" / "docs")
    shutil.copy(TOP / ".zensical.toml", place)
    program = Path(sys.executable).with_name("zensical")
    command = [str(program), "build", "--config-file", str(place / ".zensical.toml")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    return place / "build" / "docs"


@contextmanager
def _served(site: Path) -> Iterator[str]:
    """Serve the site on loopback; yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=site))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _hits(page: Page, words: str) -> list[str]:
    """Return the pages that a search shows so far, the best first, without `.html`."""
    field = page.locator("dialog input").first
    if not field.is_visible():
        page.get_by_role("button", name="Search").first.click()
    if field.input_value() != words:
        field.fill(words)
    found = page.locator(f"dialog ol a[href*='h={quote_plus(words)}']")
    expect(found.first).to_be_attached()
    addresses = found.evaluate_all("found => found.map(a => new URL(a.href).pathname)")
    return [address.removesuffix(".html") for address in addresses]


def _is_found(page: Page, words: str, name: str) -> bool:
    return any(hit.endswith(f"/{name}") for hit in _hits(page, words)[:_MOST])


def _unanswered(browser: Browser, address: str) -> list[str]:
    """Ask all questions; returns those whose page is not among the first hits."""
    wrong = []
    with watched(browser, address) as seen:
        seen.page.goto(f"{address}/index.html")
        for question, words, name in QUESTIONS:
            try:  # the site shows hits one after the other
                wait_for(partial(_is_found, seen.page, words, name), name)
            except AssertionError:
                wrong.append(f"{question} ({words}): {_hits(seen.page, words)[:_MOST]}")
    return wrong


def test_the_search_answers_ten_questions(site: Path) -> None:
    with chromium() as browser:
        with _served(site) as address:
            assert _unanswered(browser, address) == []
        assert _unanswered(browser, site.as_uri()) == []
