"""The search of the page: its dialog by the keyboard, its view by its address."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, Page, expect

from bsd.core.layout import Layout
from bsd.maintenance.snapshots import take_snapshots
from bsd.sessions.idle import RetryBudget
from tests.http.api import serving
from tests.http.fake_daemon import FakeDaemon
from tests.http.web.browser import screenshot, watched
from tests.http.web.looks import findings, too_wide
from tests.http.web.sample import HOSTILE, message, text
from tests.openclaw_tree import add_session, set_idle
from tests.searching import read_all

pytestmark = pytest.mark.web

OPEN = {"BRAINSURGEON_HTTP": "127.0.0.1:0"}
_HEADER = b'{"type":"session","version":3,"id":"s"}\n'
_TWO_DAYS = 2 * 86_400.0


def fill(root: Path) -> None:
    """A session that mends a file, a deleted session, and a hostile session."""
    call = {"type": "toolCall", "id": "c1", "name": "edit", "arguments": {"path": "/p/src/auth.py"}}
    add_session(
        root,
        "main/mend",
        _HEADER
        + message("m1", "user", text("mend the authentication of the quokka"))
        + message("m2", "assistant", call, text("the quokka may come in"), stopReason="toolUse"),
    )
    gone = message("g1", "user", text("feed the quokka"))
    path = add_session(root, "main/feed", _HEADER + gone)
    set_idle(path, _TWO_DAYS)
    hostile = message("h1", "user", text(f"{HOSTILE} quokka"))
    add_session(root, "research/odd", _HEADER + hostile)
    layout = Layout(root)
    take_snapshots(layout, "180d", RetryBudget())
    read_all(layout)
    path.unlink()


def marked(page: Page) -> str:
    """The option that the field points at, by its text."""
    at = page.get_by_role("combobox").first.get_attribute("aria-activedescendant")
    assert at is not None
    option = page.locator(f"#{at}")
    expect(option).to_have_attribute("aria-selected", "true")
    return option.inner_text()


def look_by_keyboard(page: Page) -> None:
    """Check words, filters and the options in the dialog."""
    page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog", name="Search")
    field = dialog.get_by_role("combobox").first
    expect(field).to_be_focused()
    expect(dialog.get_by_role("group", name="Newest sessions")).to_contain_text("main/mend")
    page.keyboard.type("quokka")
    messages = dialog.get_by_role("group", name="Messages").get_by_role("option")
    expect(messages).to_have_count(4)
    expect(dialog.get_by_role("status")).to_contain_text("4 messages")
    expect(messages.filter(has_text="main/feed")).to_contain_text("gone")
    sessions = dialog.get_by_role("group", name="Sessions").get_by_role("option")
    assert "quokka" in marked(page)
    page.keyboard.press("ArrowUp")
    assert "Search everything" in marked(page)
    page.keyboard.press("ArrowDown")
    assert marked(page) == sessions.first.inner_text()
    expect(field).to_be_focused()
    assert findings(page) == []
    screenshot(page, "finder")
    dialog.get_by_label("Where").select_option("gone")
    expect(messages).to_have_count(1)
    link = messages.first.get_attribute("href") or ""
    assert unquote(link) == "#/archive?session=main/feed&at=1"
    dialog.get_by_label("Where").select_option("live")
    expect(messages).to_have_count(3)
    dialog.get_by_label("Role").select_option("assistant")
    expect(messages).to_have_count(1)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def follow(page: Page) -> None:
    """Follow a file and a message to their places."""
    page.keyboard.press("/")  # this view has no search of its own
    dialog = page.get_by_role("dialog", name="Search")
    field = dialog.get_by_role("combobox").first
    field.fill("auth")
    file = dialog.get_by_role("group", name="Files").get_by_role("option")
    expect(file).to_contain_text("auth.py")
    expect(file).to_contain_text("changed #2")
    expect(file).to_contain_text("/p/src/")
    field.fill("auth.py")
    field.press("Enter")  # before the answer arrives
    expect(dialog).to_be_hidden()
    page.wait_for_url(re.compile(r"#/s/main/mend\?at=2&q=auth\.py$"))
    # otherwise the view closes dialogs
    expect(page.locator(".pointed[data-index='2']")).to_be_visible()
    page.keyboard.press("Control+k")
    field.fill("quokka mend")
    message = dialog.get_by_role("group", name="Messages").get_by_role("option")
    expect(message).to_have_count(1)
    message.click()
    page.wait_for_url(re.compile(r"#/s/main/mend\?at=1&q=quokka\+mend$"))


def open_by_address(page: Page) -> None:
    """Open a search by its address, which includes the filters."""
    found = page.get_by_role("group", name="Messages").get_by_role("option")
    expect(found).to_have_count(2)
    expect(page.get_by_label("Role")).to_have_value("user")
    page.get_by_label("Role").select_option("")
    expect(found).to_have_count(3)
    page.wait_for_url(re.compile(r"#/find\?q=quokka&place=live$"))
    page.set_viewport_size({"width": 360, "height": 700})
    page.get_by_text("More filters").click()
    assert too_wide(page) == []
    page.get_by_label("File touched").fill("auth.py")
    expect(found).to_have_count(2)
    page.get_by_label("Where").select_option("")
    page.get_by_label("File touched").fill("")
    page.get_by_label("Role").select_option("call")
    page.get_by_role("combobox", name="Search sessions").fill("edit")
    page.wait_for_url(re.compile(r"#/find\?q=edit&role=call$"))
    expect(found).to_have_count(0)
    expect(page.get_by_role("option", name="Search everything for “edit”")).to_be_visible()
    page.get_by_role("option", name="Search everything").click()
    expect(page.get_by_text(re.compile("Searched .*: 1 entry"))).to_be_visible()
    page.wait_for_url(re.compile(r"#/find\?q=edit&role=call&all=1$"))
    page.get_by_role("link", name="main/mend #2").click()
    expect(page.locator(".pointed[data-index='2']")).to_be_visible()
    page.go_back()
    page.get_by_label("Role").select_option("")
    page.get_by_role("combobox", name="Search sessions").fill("quokka")
    page.get_by_role("option", name="Search everything for “quokka”").click()
    expect(page.get_by_text(re.compile("Searched .*: 4 entries"))).to_be_visible()


def export_gone(page: Page) -> None:
    """Follow a hit in a deleted session to its entry, and export the session there."""
    page.get_by_role("link", name="main/feed").click()
    page.wait_for_url(re.compile(r"#/archive\?session=main%2Ffeed&at=1$"))
    expect(page.locator("tr.pointed")).to_contain_text("feed the quokka")
    page.get_by_role("button", name="Export…", exact=True).last.click()
    dialog = page.get_by_role("dialog", name="Export")
    expect(dialog).to_contain_text("2 lines: 0 secrets found")
    dialog.get_by_label("Form").select_option("jsonl")
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Save").click()
    assert b"feed the quokka" in Path(download.value.path()).read_bytes()


def test_all_is_found_by_the_keyboard_and_by_its_address(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / ".openclaw"
    fill(root)
    with (
        serving(root, FakeDaemon(), **OPEN) as (server, _),
        watched(browser, f"http://{server.addresses[0]}") as seen,
    ):
        page = seen.open("status")
        expect(page.get_by_role("heading", name="Status")).to_be_visible()
        look_by_keyboard(page)
        follow(page)
        open_by_address(seen.open("find?q=quokka&role=user&in=live"))
        export_gone(seen.open("archive?q=quokka"))
