"""Getting back from the page: a deleted session, bsd's recent changes, single values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from bsd.actions.context import ActionContext
from bsd.core.config_file import ConfigService
from bsd.core.layout import SessionName
from bsd.http.app import create_app
from bsd.http.server import ApiServer
from bsd.sessions.idle import RetryBudget
from tests.http.api import settings_for
from tests.http.fake_daemon import FakeDaemon
from tests.http.web.browser import Watched, watched
from tests.http.web.looks import findings, too_wide
from tests.maintenance.keeping import ClaudeHome, extract, keep
from tests.openclaw_tree import set_idle
from tests.session_files import Clock

pytestmark = pytest.mark.web

# A view with one list of the entries that have extracted values, independent of the session's view.
_VIEW = """async ([session]) => {
    const { entryPath, get, sessionPath } = await import("/web/api.js");
    const { restoreButtons } = await import("/web/restoring.js");
    const { h } = await import("/web/dom.js");
    const main = document.getElementById("main");
    const view = {
        session,
        page: { main },
        pathOf: (row, ...more) => entryPath(session, row, ...more),
        async refreshAll() {
            const { entries } = await get(`${sessionPath(session, "entries")}?extracted=true`);
            const items = entries.map((row) =>
                h("li", { "data-index": row.index }, `#${row.index} `, restoreButtons(view, row)));
            main.querySelector("ol")?.remove();
            main.prepend(h("ol", { "aria-label": "Away" }, items));
        },
    };
    main.replaceChildren(h("h1", null, "Away"));
    await view.refreshAll();
}"""


@dataclass
class Desk:
    """A page over Claude Code's sessions: the first deleted, the second with extracted values."""

    seen: Watched
    gone: SessionName
    lean: SessionName
    path: Path
    whole: bytes

    def has_away(self) -> bool:
        return b"[[extracted-" in self.path.read_bytes()


@contextmanager
def at_desk(browser: Browser, top: Path) -> Iterator[Desk]:
    clock = Clock()
    home = ClaudeHome.of(top, 2, small=True)
    gone, lean = home.names
    keep(home.layout, clock)
    home.layout.session_file(gone).unlink()
    path = home.layout.session_file(lean)
    whole = path.read_bytes()
    extract(home.layout, lean, clock)
    context = ActionContext(
        layout=home.layout,
        config=ConfigService(home.layout.config_file),
        actor="api",
        budget=RetryBudget(wait=5.0, quiet=0.0),
    )
    daemon = FakeDaemon()
    settings = settings_for(home.layout.root, BRAINSURGEON_HTTP="127.0.0.1:0")
    server = ApiServer(create_app(daemon.as_daemon(), context), settings, daemon.beats)
    server.start()
    try:
        with watched(browser, f"http://{server.addresses[0]}") as seen:
            yield Desk(seen, gone, lean, path, whole)
    finally:
        assert server.stop()


def test_all_ways_back(browser: Browser, tmp_path: Path) -> None:
    with at_desk(browser, tmp_path) as desk:
        a_session_that_is_gone(desk)
        what_bsd_did_since(desk)
        an_operation_whose_consequence_is_said(desk)
        single_values(desk)


def looks_well(page: Page) -> None:
    assert findings(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert too_wide(page) == []
    page.set_viewport_size({"width": 1280, "height": 800})


def a_session_that_is_gone(desk: Desk) -> None:
    page = desk.seen.open(f"archive?session={desk.gone}&at=8")
    expect(page.locator("tr.pointed")).to_contain_text("do it")
    page.get_by_role("button", name="From the beginning").click()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(page.get_by_role("table", name="Entries of")).to_contain_text("do it")
    page.get_by_role("button", name="Bring back", exact=True).last.click()
    back = page.get_by_role("region", name="Back again")
    expect(back.get_by_role("link")).to_have_text(str(desk.gone))
    expect(page.get_by_text("No deleted sessions")).to_be_visible()
    looks_well(page)
    copy = back.get_by_role("button", name="Copy command")
    expect(copy).to_be_focused()
    copy.press("Enter")
    expect(page.get_by_text("Command copied")).to_be_visible()
    assert f"claude --resume {desk.gone.session}" in page.evaluate("navigator.clipboard.readText()")


def what_bsd_did_since(desk: Desk) -> None:
    page = desk.seen.page
    page.get_by_role("button", name="Undo what bsd did since…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(re.compile("values come back into the session"))).to_be_visible()
    row = dialog.get_by_role("row").filter(has_text=str(desk.lean))
    expect(row).to_contain_text("would be undone")
    assert desk.has_away()
    looks_well(page)
    dialog.get_by_label("Agent", exact=True).select_option(str(desk.lean.agent))
    dialog.get_by_role("button", name="Undo 1 operation in 1 session").click()
    expect(page.get_by_text("1 operation undone in 1 session.")).to_be_visible()
    expect(row).to_contain_text("undone")
    assert desk.path.read_bytes() == desk.whole
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Undo what bsd did since…")).to_be_focused()


def an_operation_whose_consequence_is_said(desk: Desk) -> None:
    set_idle(desk.path)
    page = desk.seen.open(f"s/{desk.lean}")
    page.get_by_role("button", name="History…").click()
    dialog = page.get_by_role("dialog")
    undo = dialog.get_by_role("button", name="Undo operation 2")
    undo.click()
    expect(dialog).to_contain_text("values leave the session again")
    dialog.get_by_role("button", name="Leave it").click()
    expect(dialog).not_to_contain_text("values leave")
    assert not desk.has_away()
    undo.click()
    expect(dialog.get_by_role("button", name="Undo it")).to_be_focused()
    dialog.get_by_role("button", name="Undo it").press("Enter")
    expect(dialog.get_by_text("Operation 2 is undone.")).to_be_visible()
    assert desk.has_away()
    page.keyboard.press("Escape")


# Two texts of 60 lines in place of the compared texts.
_COMPARED = """async () => {
  const base = document.querySelector("script[type=module]").src;
  const { textComparison } = await import(new URL("text_comparison.js", base));
  const was = Array.from({ length: 60 }, (_, at) => `line ${at}`);
  const now = was.toSpliced(30, 2, "changed");
  const [before, after] = [was, now].map((lines) => lines.join("\\n"));
  const made = textComparison(before, after, ["Was taken out", "Stands there now"]);
  document.querySelector(".comparison").replaceWith(made);
}"""


def single_values(desk: Desk) -> None:
    set_idle(desk.path)
    page = desk.seen.page
    page.evaluate(_VIEW, [str(desk.lean)])
    rows = page.get_by_role("list", name="Away").get_by_role("listitem")
    at_first = rows.count()
    assert at_first > 3
    rows.first.get_by_role("button", name="Compare…").click()
    dialog = page.get_by_role("dialog")
    section = dialog.locator(".compared").first
    expect(section.locator(".diff-line.added")).to_contain_text("[[extracted-")
    expect(section.locator(".diff-line.removed").first).to_contain_text("long old text")
    looks_well(page)
    page.evaluate(_COMPARED)
    compared = dialog.locator(".comparison").first
    expect(compared.locator(".diff-line.removed")).to_have_text(
        ["removed-line 30", "removed-line 31"]
    )
    expect(compared.locator(".diff-line.added")).to_have_text(["added+changed"])
    fold = compared.get_by_role("button", name="unchanged lines")
    expect(fold).to_have_text(["27 unchanged lines", "25 unchanged lines"])
    wide = page.viewport_size
    assert wide is not None
    page.set_viewport_size({"width": 360, "height": 740})
    expect(compared.locator(".diff-pair")).to_have_count(0)
    fold.first.press("Enter")
    expect(compared.locator(".diff-line.same").first).to_have_text(" line 0")
    assert too_wide(page) == []
    page.set_viewport_size(wide)
    expect(compared.locator(".diff-pair").first).to_contain_text("line 0")
    dialog.get_by_role("button", name="Restore all of the entry").click()
    expect(rows).to_have_count(at_first - 1)

    set_idle(desk.path)
    for at in (0, 1):
        rows.nth(at).get_by_role("checkbox").check()
    bar = page.get_by_role("region", name="Ticked entries")
    expect(bar).to_contain_text("2 entries ticked")
    looks_well(page)
    bar.get_by_role("button", name="Restore them").click()
    expect(rows).to_have_count(at_first - 3)
    expect(bar).to_have_count(0)

    set_idle(desk.path)
    rows.first.get_by_role("checkbox").check()
    bar.get_by_role("button", name="All of the session…").click()
    page.get_by_role("dialog").get_by_role("button", name="Put everything back").click()
    expect(rows).to_have_count(0)
    assert not desk.has_away()
