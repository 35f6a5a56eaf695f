"""Properties of every view: thousands of rows, shortcuts, the keyboard, long days."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, CDPSession, Page, Route, expect

from bsd.http.server import ApiServer
from tests.http.api import serving
from tests.http.fake_daemon import FakeDaemon
from tests.http.web.browser import Watched, until, watched
from tests.http.web.looks import too_wide
from tests.http.web.sample import hostile_session, message, short_session, text
from tests.openclaw_tree import add_session
from tests.waiting import wait_for

pytestmark = pytest.mark.web

MANY = int(os.environ.get("BSD_MANY_SESSIONS", "2500"))  # `make soak` has ten thousand
OPEN = {"BRAINSURGEON_HTTP": "127.0.0.1:0"}


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make thousands of sessions; the higher the number, the older."""
    root = tmp_path_factory.mktemp("crowd") / ".openclaw"
    sessions = root / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    content = short_session()
    for number in range(MANY):
        path = sessions / f"s{number:05}.jsonl"
        path.write_bytes(content)
        os.utime(path, (1_790_000_000 - number, 1_790_000_000 - number))
    return root


def small_root(tmp_path: Path) -> Path:
    root = tmp_path / ".openclaw"
    add_session(root, "main/one", short_session())
    add_session(root, "main/two", hostile_session())
    return root


def address_of(server: ApiServer) -> str:
    return f"http://{server.addresses[0]}"


def rows_of(page: Page) -> Any:
    return page.get_by_role("list", name="Sessions").get_by_role("link")


@pytest.mark.soak  # the same list as that of entries: test_reading.py
def test_thousands_of_sessions_are_a_handful_of_rows(browser: Browser, crowd: Path) -> None:
    with (
        serving(crowd, FakeDaemon(), **OPEN) as (server, _),
        watched(browser, address_of(server)) as seen,
    ):
        asked: list[str] = []
        seen.page.on("request", lambda request: asked.append(request.url))
        page = seen.open("sessions")
        expect(rows_of(page).first).to_contain_text("main/s00000")
        assert sum("/api/sessions?" in url for url in asked) <= 2, "it asks for what it shows"
        page.evaluate("document.documentElement.style.fontSize = '200%'")  # as users set the keys
        page.locator("main").evaluate("(main) => main.scrollBy(0, 1)")
        second = page.locator(".rows > li").nth(1)
        expect(second).to_have_css("transform", re.compile(r", 156\.8\)"))
        assert rows_of(page).first.evaluate("(row) => row.scrollHeight <= row.clientHeight")
        page.evaluate("document.documentElement.style.fontSize = ''")
        rows_of(page).first.focus()
        focused = page.locator(":focus")
        page.keyboard.press("ArrowDown")
        expect(focused).to_contain_text("main/s00001")
        while "s01" not in focused.inner_text():
            page.keyboard.press("End")  # of the rows known so far
            assert page.locator(".rows > li").count() < 60
        name = focused.locator(".row-id").inner_text()
        page.keyboard.press("Enter")
        expect(page.locator(".row-id").first).to_contain_text(name)
        page.go_back()
        expect(rows_of(page).filter(has_text=name)).to_be_in_viewport()
        page.get_by_label("Search sessions").fill("s0177")
        expect(page.get_by_text("10 sessions found")).to_be_visible()
        assert "q=s0177" in page.url
        page.reload()
        expect(page.get_by_text("10 sessions found")).to_be_visible()
        page.get_by_label("Search sessions").fill("nothing like it")
        expect(page.get_by_text("No session matches")).to_be_visible()


@pytest.mark.soak
def test_a_long_session_is_read_without_end(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / ".openclaw"
    lines = [b'{"type":"session","version":3,"id":"long"}\n']
    lines += [message(f"e{at}", "user", text(f"number {at}")) for at in range(1, 2000)]
    huge = "a" * 9_000_000
    lines.append(message("huge", "assistant", text(huge), stopReason="stop"))
    add_session(root, "main/long", b"".join(lines))
    with (
        serving(root, FakeDaemon(), **OPEN) as (server, _),
        watched(browser, address_of(server)) as seen,
    ):
        page = seen.open("s/main/long")
        expect(page.locator(".entry").first).to_have_attribute("data-index", "0")
        page.locator(".entry-open").first.focus()
        page.keyboard.press("End")
        entry = page.locator(".entry[data-index='2000']")
        focused = "(at) => document.activeElement.closest('.entry')?.dataset.index === at"
        until(page, focused, arg="2000")
        assert page.locator(".entry").count() < 60
        page.keyboard.press("Home")
        until(page, focused, arg="0")
        page.keyboard.press("End")
        expect(entry.locator(".value")).to_have_text(re.compile("^a{1000}"))
        entry.get_by_role("button", name="Actions on entry 2000").click()
        entry.get_by_role("button", name="Whole entry").click()
        expect(entry).to_contain_text("only its beginning is shown")
        expect(entry.locator("pre")).to_have_text(re.compile("^a{1000}"))
        assert len(entry.locator("pre").inner_text()) <= 100_000
        entry.get_by_role("button", name="Show more").click()
        assert 100_000 < len(entry.locator("pre").inner_text()) <= 200_000
        entry.get_by_role("button", name="Edit…").click()
        expect(page.get_by_role("dialog")).to_contain_text("too large to edit on this page")


@pytest.mark.soak
def test_a_name_without_end_makes_no_page_wide(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / ".openclaw"
    name = "n" * 100_000
    call = {"type": "toolCall", "id": "c1", "name": name, "arguments": {"a": "b"}}
    lines = [
        b'{"type":"session","version":3,"id":"odd"}\n',
        message("e1", "user", text("go")),
        message("e2", "assistant", call, stopReason="toolUse"),
        message("e3", "toolResult", text("done"), toolCallId="c1", toolName=name),
    ]
    add_session(root, "main/odd", b"".join(lines))
    with (
        serving(root, FakeDaemon(), **OPEN) as (server, _),
        watched(browser, address_of(server)) as seen,
    ):
        page = seen.open("s/main/odd")
        card = page.locator(".entry[data-kind=call]")
        expect(card.locator(".kind")).to_contain_text("nnn")
        card.locator(".entry-open").click()
        result = card.locator(".entry[data-index='3']")
        expect(result).to_contain_text("done")
        result.get_by_role("button", name="Actions on entry 3").click()
        result.get_by_role("button", name="Whole entry").click()
        expect(result.locator("pre").first).to_be_visible()
        for width in (1200, 380):
            page.set_viewport_size({"width": width, "height": 800})
            assert too_wide(page) == []


def test_it_is_operated_by_keyboard_alone(browser: Browser, tmp_path: Path) -> None:
    with (
        serving(small_root(tmp_path), FakeDaemon(), **OPEN) as (server, _),
        watched(browser, address_of(server)) as seen,
    ):
        page = seen.open("sessions")
        focused = page.locator(":focus")
        expect(rows_of(page)).to_have_count(2)
        page.keyboard.press("Tab")
        expect(focused).to_have_text("Skip to the content")
        expect(focused).to_be_in_viewport()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        page.keyboard.press("/")
        expect(page.get_by_label("Search sessions")).to_be_focused()
        assert focused.evaluate("(one) => getComputedStyle(one).outlineStyle") == "solid"
        page.keyboard.type("main/two")
        expect(rows_of(page)).to_have_count(1)
        page.keyboard.press("Enter")
        expect(focused).to_contain_text("main/two")
        page.keyboard.press("Enter")
        expect(page.locator(".entry")).to_have_count(11)
        first = page.locator(".entry-open").first
        first.focus()
        page.keyboard.press("ArrowDown")
        expect(page.locator(".entry-open").nth(1)).to_be_focused()
        page.keyboard.press("Enter")
        expect(focused).to_have_attribute("aria-expanded", "false")
        page.keyboard.press("Enter")
        expect(focused).to_have_attribute("aria-expanded", "true")
        page.keyboard.press("Tab")
        expect(focused).to_have_accessible_name("Actions on entry 1")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(focused).to_have_text("Whole entry")
        page.keyboard.press("Enter")
        expect(focused).to_have_text("Hide whole entry")
        # Only then is there a target: the content of an entry is loaded when it opens.
        expect(page.get_by_role("button", name="Entry as JSON")).to_be_visible()
        for name in ("As text", "Pin", "Edit…", "Copy", "Copy link", "pre", "Entry as JSON"):
            while name not in f"{focused.inner_text()} {focused.evaluate('(e) => e.localName')}":
                page.keyboard.press("Tab")
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy entry id").click()
        expect(page.get_by_text("entry id copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == "h1"
        page.get_by_role("button", name="Pin", exact=True).focus()
        page.keyboard.press("Tab")
        expect(focused).to_have_text("Edit…")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog").get_by_label("Entry as JSON")).to_be_focused()
        page.keyboard.press("Escape")
        expect(focused).to_have_text("Edit…")
        page.keyboard.press("End")  # not in the list's heads: the key has no effect
        expect(focused).to_have_text("Edit…")


def test_a_key_is_asked_for_and_sent_and_forgotten_with_the_tab(
    browser: Browser, tmp_path: Path
) -> None:
    environ = {**OPEN, "BRAINSURGEON_API_KEYS": "right"}
    with (
        serving(small_root(tmp_path), FakeDaemon(), **environ) as (server, _),
        watched(browser, address_of(server)) as seen,
    ):
        page = seen.open("sessions")
        dialog = page.get_by_role("dialog", name="API key")
        expect(dialog.get_by_label("Key")).to_be_focused()
        page.keyboard.press("Escape")
        # The list shows the error, too, until the whole view is replaced.
        expect(page.get_by_role("heading", name="This view cannot be shown")).to_be_visible()
        expect(page.get_by_text("This server requires an API key")).to_be_visible()
        page.get_by_role("button", name="Try again").click()
        dialog.get_by_label("Key").fill("wrong")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("This key is not valid.")
        dialog.get_by_label("Key").fill("right")
        with page.expect_request(re.compile("/api/events")) as asked:
            page.keyboard.press("Enter")
        expect(rows_of(page)).to_have_count(2)
        assert asked.value.headers["x-api-key"] == "right"
        expect(page.locator("#live")).to_have_text("Live")
        assert "right" not in page.url
        page.reload()
        expect(rows_of(page)).to_have_count(2)
        assert page.evaluate("JSON.stringify([localStorage, document.cookie])") == '[{},""]'
        page.get_by_role("link", name="Settings").click()
        page.get_by_role("button", name="Forget the API key").click()
        expect(dialog).to_be_visible()


def test_a_read_only_server_shows_and_changes_nothing(browser: Browser, tmp_path: Path) -> None:
    daemon = FakeDaemon()
    daemon.document["readonly"] = True
    environ = {**OPEN, "BRAINSURGEON_READONLY": "true"}
    with (
        serving(small_root(tmp_path), daemon, **environ) as (server, _),
        watched(browser, address_of(server)) as seen,
    ):
        page = seen.open("s/main/two")
        expect(page.get_by_text("Read-only: this server refuses all changes")).to_be_visible()
        expect(page.locator(".entry")).to_have_count(11)
        for name in ("Restore", "Pin", "Edit…", "Extract now…", "Delete…"):
            expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
        page.get_by_role("button", name="Actions on entry 1", exact=True).click()
        page.get_by_role("button", name="Whole entry").click()
        expect(page.locator(".entry pre").first).to_be_visible()
        for name in ("Restore", "Pin", "Edit…"):
            expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
        page = seen.open("jobs")
        expect(page.get_by_role("row")).to_have_count(3)
        expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)
        page = seen.open("settings")
        expect(page.get_by_label("Messages to keep")).to_be_disabled()
        expect(page.get_by_role("button", name="Save")).to_have_count(0)
        page = seen.open("trash")
        expect(page.get_by_text("The trash is empty")).to_be_visible()


def test_a_daemon_that_goes_is_missed_and_found_again(browser: Browser, tmp_path: Path) -> None:
    root = small_root(tmp_path)
    with serving(root, FakeDaemon(), **OPEN) as (server, _):
        address = str(server.addresses[0])
        with watched(browser, f"http://{address}") as seen:
            page = seen.open("sessions")
            expect(page.locator("#live")).to_have_text("Live")
            server.stop()
            expect(page.locator("#live")).to_have_text("Disconnected")
            expect(page.get_by_text("No connection to bsd.")).to_be_visible()
            expect(rows_of(page)).to_have_count(2)
            page.get_by_role("link", name="Trash").click()
            expect(page.get_by_role("alert")).to_contain_text("bsd does not answer")
            add_session(root, "main/three", short_session())
            with serving(root, FakeDaemon(), BRAINSURGEON_HTTP=address):
                expect(page.locator("#live")).to_have_text("Live")
                expect(page.get_by_text("No connection to bsd.")).to_have_count(0)
                page.get_by_role("button", name="Try again").click()
                expect(page.get_by_text("The trash is empty")).to_be_visible()
                page.get_by_role("link", name="Sessions").click()
                expect(rows_of(page)).to_have_count(3)


@pytest.mark.soak
def test_without_events_it_looks_for_itself(browser: Browser, tmp_path: Path) -> None:
    root = small_root(tmp_path)
    daemon = FakeDaemon()
    daemon.document["auto_refresh_ms"] = 1000
    refusal = json.dumps({"error": "32 connections listen already"})
    with (
        serving(root, daemon, **OPEN) as (server, _),
        watched(browser, address_of(server)) as seen,
    ):

        def refuse(route: Route) -> None:
            route.fulfill(status=503, content_type="application/json", body=refusal)

        seen.page.route("**/api/events", refuse)
        page = seen.open("sessions")
        expect(rows_of(page)).to_have_count(2)
        add_session(root, "main/three", short_session())
        expect(rows_of(page)).to_have_count(3)
        page = seen.open("s/main/three")
        expect(page.locator(".entry")).to_have_count(2)
        with (root / "agents/main/sessions/three.jsonl").open("ab") as file:
            file.write(message("later", "user", text("later")))
        expect(page.locator(".entry")).to_have_count(3)


@pytest.mark.soak
def test_a_long_day_leaves_nothing_behind(browser: Browser, tmp_path: Path) -> None:
    root = small_root(tmp_path)
    daemon = FakeDaemon()
    path = root / "agents/main/sessions/one.jsonl"
    with (
        serving(root, daemon, **OPEN) as (server, _),
        watched(browser, address_of(server)) as seen,
    ):
        answers: list[str] = []
        seen.page.on("requestfinished", lambda request: answers.append(request.url))
        seen.page.clock.install()
        page = seen.open("sessions")
        expect(page.locator("#live")).to_have_text("Live")
        measured = page.context.new_cdp_session(page)
        for view, ask in (
            ("sessions", "/api/sessions?"),
            ("", "/api/overview?"),
            ("s/main/one", "entries?"),
            ("status", "status"),
        ):
            page.evaluate("(view) => { location.hash = `#/${view}`; }", view)
            expect(page.locator("main h1").first).to_be_attached()
            sizes = []
            for round_ in range(3):
                for at in range(4 if round_ else 3):
                    with path.open("ab") as file:
                        file.write(message(f"{view[:1]}{round_}-{at}", "user", text("more")))
                    answers.clear()
                    daemon.events.publish("session", session="main/one", status="unchanged")
                    while not any(ask in url for url in answers):
                        page.clock.run_for(300)
                sizes.append(_size(measured))
            before, after = sizes[1:]
            # Rows are added up to a limit (entries); no other count may grow.
            assert after["Nodes"] < before["Nodes"] * 1.5 + 300, (view, sizes)
            assert after["JSEventListeners"] < before["JSEventListeners"] * 1.5 + 60, (view, sizes)
            assert after["JSHeapUsedSize"] < before["JSHeapUsedSize"] + 1_500_000, (view, sizes)
        # Opening and closing leaves no listeners either.
        counts = []
        for _ in range(6):
            page.evaluate("location.hash = '#/jobs'")
            expect(page.locator("main h1")).to_have_text("Jobs")
            page.evaluate("location.hash = '#/sessions'")
            expect(rows_of(page)).to_have_count(2)
            counts.append(_size(measured)["JSEventListeners"])
        # A leak shows in each round; a single measurement may fall into the middle of drawing.
        assert min(counts[-2:]) <= counts[0] + 4, counts


def _size(measured: CDPSession) -> dict[str, float]:
    measured.send("HeapProfiler.collectGarbage")
    measured.send("Performance.enable")
    metrics = measured.send("Performance.getMetrics")["metrics"]
    return {one["name"]: one["value"] for one in metrics}


def test_tiles_say_what_is_saved_and_all_that_lies_in_the_trash(
    browser: Browser, tmp_path: Path
) -> None:
    daemon = FakeDaemon()
    trash = {"keep": "30d", "held": None, "sessions": 0, "bytes": 0, "next_expiry": None}
    trash |= {"all_sessions": 3, "all_bytes": 5 << 20}
    daemon.document["retention"]["trash"] = trash
    with (
        serving(small_root(tmp_path), daemon, **OPEN) as (server, _),
        watched(browser, address_of(server)) as seen,
    ):
        for view in ("status", ""):
            page = seen.open(view)
            saved = page.locator(".tile", has_text="left the sessions")
            expect(saved).to_contain_text("149 MB")
            expect(saved).to_contain_text("200 MB left the sessions, bsd keeps 51.0 MB")
            if view:
                expect(page.get_by_label("On disk")).to_contain_text("177 MB")
                expect(page.locator(".tiles")).to_contain_text("tokens of text")
        daemon.document["disk"] |= {"saved": 2 << 20, "net": -(49 << 20)}
        words = (
            "bsd takes 49.0 MB more than it has saved so far: 2.0 MB left the sessions, bsd keeps"
        )
        page = seen.open()
        expect(page.locator(".tile", has_text="Saved")).to_contain_text("Not yet")
        expect(page.locator(".tile", has_text="Saved")).to_contain_text(words)
        gone = page.locator(".tile", has_text="In the trash")
        expect(gone).to_contain_text("3")
        expect(gone).to_contain_text("5.0 MB, kept for 30d")


class Held:
    """The first request of a kind, held back until the test lets it go on; others pass."""

    def __init__(self, page: Page, pattern: str) -> None:
        self.page, self.pattern = page, pattern
        self.routes: list[Route] = []
        page.route(pattern, self._hold)

    def _hold(self, route: Route) -> None:
        if self.routes:
            route.continue_()
        else:
            self.routes.append(route)

    def wait(self) -> None:
        wait_for(lambda: self.page.evaluate("true") and self.routes, self.pattern)


def test_a_user_is_faster_than_the_daemon(browser: Browser, tmp_path: Path) -> None:
    root, daemon = small_root(tmp_path), FakeDaemon()
    with (
        serving(root, daemon, **OPEN) as (server, _),
        watched(browser, address_of(server)) as seen,
    ):
        _late_connection(seen, root)
        _older_answer(seen, daemon)
        _view_left_early(seen)
        _click_on_a_redrawn_link(seen, daemon)
        _early_keys_and_closed_dialog(seen)


def _late_connection(seen: Watched, root: Path) -> None:
    """A change before the connection for events is shown after it."""
    connects = False
    seen.page.route("**/api/events", lambda route: route.continue_() if connects else route.abort())
    page = seen.open("sessions")
    expect(rows_of(page)).to_have_count(2)
    expect(page.locator("#live")).to_have_text("Disconnected")
    add_session(root, "main/three", short_session())
    connects = True
    expect(rows_of(page)).to_have_count(3)
    page.unroute("**/api/events")


def _older_answer(seen: Watched, daemon: FakeDaemon) -> None:
    """An older answer is not drawn over a newer one."""
    page = seen.open("jobs")
    rows = page.get_by_role("row")
    expect(rows).to_have_count(3)
    held = Held(page, "**/api/jobs")
    daemon.events.publish("job", job="retention", ok=True)
    held.wait()
    with page.expect_event("requestfinished", lambda request: request.url.endswith("/jobs")):
        page.get_by_role("button", name="Preview now").click()
    held.routes[0].fulfill(json={"jobs": []})
    page.evaluate("new Promise((done) => setTimeout(done))")
    assert rows.count() == 3
    page.unroute("**/api/jobs")


def _view_left_early(seen: Watched) -> None:
    """A view that was left before its data arrived is not drawn over the next view."""
    page = seen.open("trash")
    expect(page.get_by_text("The trash is empty")).to_be_visible()
    for view, data in (
        ("settings", "config"),
        ("secrets", "agents"),
        ("s/main/two", "sessions/main/two?*"),
    ):
        held = Held(page, f"**/api/{data}")
        page.evaluate("(view) => { location.hash = `#/${view}`; }", view)
        held.wait()
        page.evaluate("location.hash = '#/status'")
        heading = page.get_by_role("heading", level=1)
        expect(heading).to_have_text("Status")
        with page.expect_event("requestfinished"):
            held.routes[0].continue_()
        page.unroute(held.pattern)
        page.evaluate("new Promise((done) => setTimeout(done))")
        assert (heading.all_inner_texts(), page.title()) == (["Status"], "Status · bsd")


def _click_on_a_redrawn_link(seen: Watched, daemon: FakeDaemon) -> None:
    """A click is not lost if the element is drawn again between press and release."""
    page = seen.page
    page.get_by_role("link", name="main/bad").hover()
    page.mouse.down()
    with page.expect_event("requestfinished", lambda request: "status" in request.url):
        daemon.events.publish("session", session="main/bad", status="unchanged")
    page.evaluate("new Promise((done) => setTimeout(done))")
    page.mouse.up()
    page.wait_for_url("**/#/s/main/bad")


def _early_keys_and_closed_dialog(seen: Watched) -> None:
    """Keys work before the hits are found; a closed dialog leaves the focus where the user is."""
    Held(seen.page, "**/api/search?*")
    page = seen.open("s/main/two?q=words")
    expect(page.locator(".entry").first).to_be_visible()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    held = page.evaluate(
        """() => {
            const field = document.querySelector("input[name=find]");
            document.querySelector("dialog").close();
            field.focus();
            const isHeld = (done) => done(document.activeElement === field);
            return new Promise((done) => setTimeout(isHeld, 0, done));
        }"""
    )
    assert (held, dialog.count()) == (True, 0)
