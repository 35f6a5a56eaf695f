"""The look of dialogs and notes: for screen readers, by day and by night, and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from bsd.actions.extract import extract
from bsd.core.layout import Layout, SessionName
from tests.http.api import serving
from tests.http.fake_daemon import FakeDaemon, sample_result
from tests.http.web.browser import Watched, watched
from tests.http.web.looks import findings, too_wide
from tests.openclaw_tree import add_session
from tests.searching import read_all
from tests.session_files import Clock, make_caller, sample

pytestmark = pytest.mark.web

_OF_SESSION = (
    *("Extract now", "History", "Summary", "Export", "Pause", "Leave out", "Delete", "Keys"),
    "Prompts",
)


_IS_INSIDE = """(note) => {
  const row = note.closest("tr, li").getBoundingClientRect();
  const box = note.getBoundingClientRect();
  return row.top <= box.top && box.bottom <= row.bottom && row.left <= box.left;
}"""


@pytest.mark.soak
def test_dialogs_and_notes_look_well(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / ".openclaw"
    for name in ("main/large", "main/gone"):
        add_session(root, name, sample(6))
    add_session(root, f"{'a-project-' * 8}/long", sample(2))
    extract(make_caller(Layout(root), Clock()), SessionName("main", "large"))
    read_all(Layout(root))
    daemon = FakeDaemon()
    daemon.document["sessions"] = [sample_result("main/large", "failed", reason="A reason.")]
    with (
        serving(root, daemon, BRAINSURGEON_HTTP="127.0.0.1:0") as (server, _),
        watched(browser, f"http://{server.addresses[0]}") as seen,
    ):
        notes_stand_where_they_belong(seen)
        page = seen.open("s/main/large")
        expect(page.locator(".entry").nth(3)).to_be_attached()
        page.set_viewport_size({"width": 360, "height": 740})
        page.get_by_role("button", name="Details and actions").click()
        for name in _OF_SESSION:
            opener = page.get_by_role("button", name=name).first
            look(page, opener)
        restore = page.get_by_role("button", name="Restore")
        page.locator(".entry", has=restore).first.locator(".tools").first.click()
        look(page, page.get_by_role("button", name="Edit…").first)
        look(page, page.get_by_role("button", name="Compare…").first)
        look(page, page.locator("#find-open"))
        page = seen.open()
        look(page, page.get_by_role("button", name="Undo what bsd did since…"))
        look(page, page.get_by_role("button", name="Extract now…"))
        look(seen.open("jobs"), page.get_by_role("button", name="Run retention now…"))
        seen.open("find")
        expect(page.locator(".finder-option").first).to_be_visible()
        assert too_wide(page) == []


def notes_stand_where_they_belong(seen: Watched) -> None:
    page = seen.open("status")
    assert page.get_by_text("A reason.").evaluate(_IS_INSIDE)
    page = seen.open("jobs")
    assert page.locator("td .note").first.evaluate(_IS_INSIDE)
    page = seen.open("sessions?q=harbour")
    assert page.locator(".hits mark").first.evaluate(_IS_INSIDE)
    # With agent names of any length, all filters are on one line.
    lines = "(all) => new Set(all.map((one) => one.offsetTop)).size"
    assert page.locator(".filters > select:visible").evaluate_all(lines) == 1


def look(page: Page, opener: Locator) -> None:
    """Open a dialog, check it in both colour schemes, and close it."""
    opener.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_text("Looking")).to_have_count(0)
    title = dialog.get_by_role("heading").first.inner_text()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert (title, scheme, findings(page, scheme)) == (title, scheme, [])
    assert (title, too_wide(page)) == (title, [])
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
