"""Secrets and export on the page: masked, replaced, and exported to a file that is safe to open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.actions.test_redact_secret import TOKEN, entries
from tests.daemon.running import configure, running
from tests.http.web.browser import watched
from tests.http.web.looks import findings, too_wide
from tests.http.web.sample import HOSTILE
from tests.openclaw_tree import add_session
from tests.session_files import jsonl
from tests.waiting import wait_for

pytestmark = pytest.mark.web

SCHEMES: tuple[Literal["dark", "light"], ...] = ("dark", "light")


def test_a_secret_is_found_exported_without_it_and_replaced(
    browser: Browser, tmp_path: Path
) -> None:
    root = tmp_path / ".openclaw"
    lines = entries()
    lines[6]["message"]["content"][0]["text"] = f"## Done\n\n{HOSTILE}\n\n- `one`\n- **two**"
    path = add_session(root, "main/leaky", jsonl(*lines))
    conflict = path.with_name("leaky.sync-conflict-20261126-120000-ABCDEFG.jsonl")
    conflict.write_bytes(path.read_bytes())
    configure(root)
    settings = {"BRAINSURGEON_HTTP": "127.0.0.1:0"}
    with running(root, tmp_path, **settings) as daemon:
        address = wait_for(
            lambda: next((each["http"] for each in daemon.events() if "http" in each), ""),
            "an address",
        )
        # An extraction during the replacement would store the secret anew, and the page say so.
        stored = root / "extracted" / "main_leaky"
        wait_for(lambda: len(list(stored.glob("0*.json"))) == 2, "the daemon to extract")
        with watched(browser, f"http://{address}", accept_downloads=True) as seen:
            page = seen.open("secrets")
            page.get_by_role("button", name="Look for secrets").click()
            card = page.get_by_role("region", name="github-pat, ghp_… (40 characters)")
            expect(card).to_be_visible()
            expect(page.get_by_role("status").filter(has_text="2 secrets")).to_be_visible()
            card.get_by_text("in 4 entries").click()
            assert TOKEN not in page.content()
            for scheme in SCHEMES:
                page.emulate_media(color_scheme=scheme)
                assert findings(page) == []
            page.set_viewport_size({"width": 360, "height": 740})
            assert too_wide(page) == []
            page.set_viewport_size({"width": 1280, "height": 800})
            card.get_by_role("link").first.click()
            expect(page.get_by_role("button", name="Export…")).to_be_visible()

            page.get_by_role("button", name="Export…").click()
            dialog = page.get_by_role("dialog", name="Export")
            expect(dialog.get_by_text("2 secrets found")).to_be_visible()
            with page.expect_download() as download:
                dialog.get_by_role("button", name="Save").click()
            file = tmp_path / "leaky.html"
            download.value.save_as(file)
            assert download.value.suggested_filename == "leaky.html"
            assert TOKEN not in file.read_text()

            page = seen.open("secrets")
            page.get_by_role("button", name="Look for secrets").click()
            replace_it(page, conflict)
            expect(card).to_have_count(0)
        assert TOKEN.encode() not in path.read_bytes()
        assert b"[redacted-github-pat]" in path.read_bytes()
        assert json.loads(path.read_bytes().splitlines()[0])["type"] == "session"
        look_at_exported(browser, file)


def replace_it(page: Page, conflict: Path) -> None:
    """Replace a secret; as long as a sync program's copy exists, the page names it first."""
    page.get_by_role("button", name="Replace github-pat").click()
    asked = page.get_by_role("dialog", name="Replace it everywhere?")
    expect(asked.get_by_text(f"would still be in {conflict}")).to_be_visible()
    asked.get_by_text("Places that bsd cannot search").click()
    expect(asked.get_by_text("the model provider, to which")).to_be_visible()
    assert findings(page) == []
    asked.get_by_role("button", name="Cancel").click()
    conflict.unlink()
    # Right after the daemon's work on it the session is in use, and the page names it for that.
    wait_for(lambda: asks_without_copies(page), "a question that names no copy")
    asked.get_by_role("button", name="Replace it").click()
    expect(page.get_by_text("bsd knows of no other copy")).to_be_visible()


def asks_without_copies(page: Page) -> bool:
    """Ask again whether to replace the secret; leave the dialog open if no copy would stay."""
    page.get_by_role("button", name="Replace github-pat").click()
    asked = page.get_by_role("dialog", name="Replace it everywhere?")
    expect(asked.get_by_role("button", name="Replace it")).to_be_visible()
    if not asked.get_by_text("These copies would stay").count():
        return True
    asked.get_by_role("button", name="Cancel").click()
    return False


def look_at_exported(browser: Browser, file: Path) -> None:
    """Open the exported file as a reader does: no script runs, and it is readable everywhere."""
    with watched(browser, "file://") as seen:
        page = seen.page
        page.goto(file.as_uri())
        expect(page.get_by_role("heading", name="Done")).to_be_visible()
        assert page.evaluate("window.hacked") is None
        assert page.locator("script, img").count() == 0
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            assert findings(page) == []
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
