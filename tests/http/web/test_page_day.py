"""A day at the desk: a real daemon, a real browser, everything that users do with sessions."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.daemon.running import Running, configure, running
from tests.http.web.browser import watched
from tests.http.web.looks import findings, too_wide
from tests.http.web.sample import HOSTILE, NEEDLE, append_turn, fill_root
from tests.openclaw_tree import add_session, set_idle
from tests.waiting import wait_for

pytestmark = pytest.mark.web

SCHEMES: tuple[Literal["dark", "light"], ...] = ("dark", "light")
VIEWS = [
    *(
        "",
        "sessions",
        "s/main/harbour",
        "find?q=harbour",
        "cost",
        "cost/main/harbour",
        "trash",
        "archive",
        "secrets",
        "jobs",
        "settings",
    ),
    *("status", "nowhere"),
]


@dataclass
class Desk:
    """The daemon, the address of its page, and a browser."""

    daemon: Running
    address: str
    browser: Browser

    @property
    def root(self) -> Path:
        return self.daemon.root

    def path(self, name: str) -> Path:
        agent, _, session = name.partition("/")
        return self.root / "agents" / agent / "sessions" / f"{session}.jsonl"

    def lines(self, name: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.path(name).read_bytes().splitlines()]

    def rest(self, name: str) -> None:
        """Let the next change of a session skip its quiet time."""
        set_idle(self.path(name))


@pytest.fixture(scope="module")
def desk(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    tmp_path = tmp_path_factory.mktemp("day")
    root = tmp_path / ".openclaw"
    fill_root(root)
    configure(root)
    settings = {"BRAINSURGEON_HTTP": "127.0.0.1:0"}
    with running(root, tmp_path, **settings) as daemon:
        address = wait_for(lambda: _address(daemon), "an address")
        wait_for(lambda: _is_ready(daemon), "all to be extracted and indexed")
        yield Desk(daemon, f"http://{address}", browser)


def _address(daemon: Running) -> str:
    return next((event["http"] for event in daemon.events() if "http" in event), "")


def _is_ready(daemon: Running) -> bool:
    status = daemon.status()
    done = {one["session"] for one in status["sessions"]}
    return len(done) == 6 and bool(status["search"]["complete"])


def entry_of(page: Page, index: int) -> Locator:
    return page.locator(f".entry[data-index='{index}']")


def test_a_session_is_found_by_its_title_and_the_search_is_there_on_the_way_back(
    desk: Desk,
) -> None:
    with watched(desk.browser, desk.address) as seen:
        page = seen.open("sessions")
        page.get_by_label("Search sessions").fill("harbour master")
        rows = page.get_by_role("list", name="Sessions").get_by_role("link")
        expect(rows).to_have_count(1)
        rows.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("The harbour master")
        page.go_back()
        expect(page.get_by_label("Search sessions")).to_have_value("harbour master")


def test_the_command_that_continues_a_session_is_copied(desk: Desk) -> None:
    with watched(desk.browser, desk.address) as seen:
        page = seen.open("s/main/harbour")
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy the command that continues it").click()
        expect(page.get_by_text("the command that continues it copied")).to_be_visible()
        command = "openclaw tui --session agent:main:harbour-master"
        assert page.evaluate("navigator.clipboard.readText()") == command


def test_a_search_through_everything_is_stopped(desk: Desk) -> None:
    with watched(desk.browser, desk.address) as seen:
        page = seen.open("sessions")
        page.route("**/api/search?*all=true*", lambda _: None)  # an answer that takes a while
        page.get_by_label("Search sessions").fill(NEEDLE)
        everything = page.get_by_role("region", name="Search everything")
        everything.get_by_role("button", name="Search everything").click()
        everything.get_by_role("button", name="Stop").click()
        expect(everything.get_by_role("status")).to_have_text("0 entries; stopped")
        page.unroute("**/api/search?*all=true*")
        everything.get_by_role("button", name="Search everything").click()
        expect(everything.locator("mark")).to_have_text(NEEDLE)


def test_what_was_extracted_is_found_read_restored_pinned_edited_and_undone(desk: Desk) -> None:
    with watched(desk.browser, desk.address) as seen:
        page = seen.open("sessions")
        expect(page.get_by_role("list", name="Sessions").get_by_role("link")).to_have_count(6)
        expect(page.locator(".badge", has_text="stale")).to_have_count(1)
        expect(page.get_by_text("child", exact=True)).to_have_count(1)

        page.get_by_label("Status").select_option("stale")
        expect(page.get_by_role("list", name="Sessions").get_by_role("link")).to_have_count(1)
        page.get_by_label("Status").select_option("Any status")

        rows = page.get_by_role("list", name="Sessions").get_by_role("link")
        # Found by a text that no transcript and no index contains any more: a result of a tool.
        page.get_by_label("Search sessions").fill(NEEDLE)
        expect(rows).to_have_count(0)
        everything = page.get_by_role("region", name="Search everything")
        everything.get_by_role("button", name="Search everything").click()
        hit = everything.get_by_role("listitem")
        expect(hit).to_contain_text("📎 extracted")
        expect(hit.locator("mark")).to_have_text(NEEDLE)
        expect(everything.get_by_role("status")).to_contain_text("1 entry")
        expect(everything.get_by_role("button", name="Stop")).to_have_count(0)
        index = int(re.sub(r".*#", "", hit.get_by_role("link").inner_text()))
        assert NEEDLE not in json.dumps(desk.lines("main/harbour"))
        hit.get_by_role("link").click()

        # The entry: badge, beginning, size, then the whole content.
        entry = entry_of(page, index)
        expect(entry.locator(".entry-open")).to_be_focused()
        expect(entry).to_contain_text("📎 taken out")
        original = _stored(desk, "main_harbour", index)
        shown = " ".join(entry.locator(".value").inner_text().split())
        assert " ".join(original[:200].split()) in shown
        _read_whole(entry, index, original)

        entry.get_by_role("button", name="Restore").click()
        expect(page.get_by_text("Restored message.content[0].text.")).to_be_visible()
        expect(entry).not_to_contain_text("📎 taken out")
        expect(entry.locator(".badge.good", has_text="restored")).to_be_visible()
        assert NEEDLE in json.dumps(desk.lines("main/harbour")[index])

        desk.rest("main/harbour")
        entry.get_by_role("button", name="Pin", exact=True).click()
        expect(entry.locator(".badge", has_text="pinned")).to_be_visible()
        assert desk.lines("main/harbour")[index]["_extractable"] is False
        desk.rest("main/harbour")
        entry.get_by_role("button", name="Unpin").click()
        expect(entry.locator(".badge", has_text="pinned")).to_have_count(0)
        assert "_extractable" not in desk.lines("main/harbour")[index]

        desk.rest("main/harbour")
        _edit(desk, page, index)
        desk.rest("main/harbour")
        _undo(desk, page, index)


def _read_whole(entry: Locator, index: int, original: str) -> None:
    entry.get_by_role("button", name=f"Actions on entry {index}", exact=True).click()
    entry.get_by_role("button", name="Whole entry").click()
    expect(entry.locator("pre")).to_have_text(original)
    entry.get_by_role("button", name="Entry as JSON").click()
    expect(entry.locator("pre")).to_contain_text('"_extracted": {')
    entry.get_by_role("button", name="Hide whole entry").click()
    expect(entry.locator(".full")).to_have_count(0)


def _stored(desk: Desk, store: str, index: int) -> str:
    path = next((desk.root / "extracted" / store).glob(f"{index:04d}_*.json"))
    return str(json.loads(path.read_bytes())["message"]["content"][0]["text"])


def _edit(desk: Desk, page: Page, index: int) -> None:
    entry = entry_of(page, index)
    entry.get_by_role("button", name="Edit…").click()
    dialog = page.get_by_role("dialog")
    area = dialog.get_by_label("Entry as JSON")
    expect(area).to_have_value(re.compile(NEEDLE))
    whole = area.input_value()

    area.fill(whole[:-1])
    expect(dialog.locator(".field-error")).not_to_be_empty()
    area.fill(whole.replace('"id": "', '"id": "other', 1))
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.locator(".field-error")).to_contain_text("cannot be edited")

    # Another client was faster.
    desk.rest("main/harbour")
    at = desk.lines("main/harbour")[index]["id"]
    done = desk.daemon.bsd("set-extractable", "main/harbour", str(at), "7")
    assert done.returncode == 0, done.stderr
    area.fill(whole.replace(NEEDLE, f"{NEEDLE}, edited"))
    dialog.get_by_role("button", name="Save").click()
    desk.rest("main/harbour")
    dialog.get_by_role("button", name="Load the entry as it is now").click()
    expect(area).to_have_value(re.compile('"_extractable": 7'))
    area.fill(area.input_value().replace(NEEDLE, f"{NEEDLE}, edited"))
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Changed message.content[0].text.")).to_be_visible()
    expect(dialog).to_have_count(0)
    assert f"{NEEDLE}, edited" in json.dumps(desk.lines("main/harbour")[index])


def _undo(desk: Desk, page: Page, index: int) -> None:
    page.get_by_role("button", name="History…").click()
    dialog = page.get_by_role("dialog")
    rows = dialog.get_by_role("row")
    expect(rows.nth(1)).to_contain_text("edit")
    rows.nth(1).get_by_role("button").click()
    expect(dialog).to_contain_text("1 entry becomes what it was before")
    dialog.get_by_role("button", name="Undo it").click()
    expect(dialog.get_by_text("is undone")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="History…")).to_be_focused()
    assert "edited" not in json.dumps(desk.lines("main/harbour")[index])


def test_a_call_and_its_result_are_a_card_and_entries_are_chosen(desk: Desk) -> None:
    with watched(desk.browser, desk.address) as seen:
        page = seen.open("s/main/harbour")
        card = page.locator(".entry[data-kind=call]").first
        result = card.locator(".entry.is-result")
        expect(result).to_have_count(0)
        card.locator(".entry-open").first.click()
        expect(result.locator(".value")).not_to_be_empty()
        # An address leads to an entry, and “back” to the entries that were chosen.
        lines = [json.dumps(line) for line in desk.lines("main/harbour")]
        index = max(at for at, line in enumerate(lines) if '"role": "toolResult"' in line)
        page = seen.open(f"s/main/harbour?at={index}")
        expect(entry_of(page, index).first).to_be_in_viewport()
        page.get_by_label("Show", exact=True).select_option("Extracted")
        expect(page.locator(".entry:not(.extracted)")).to_have_count(0)
        expect(page.locator(".entry.extracted")).not_to_have_count(0)
        page.go_back()
        expect(page.locator(".entry:not(.extracted)").first).to_be_visible()

        page.get_by_role("button", name="Extract now…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("No value is due with these settings")
        dialog.get_by_label("Messages to keep").fill("-1")
        dialog.get_by_role("button", name="Preview").click()
        expect(dialog.locator("[aria-invalid]")).to_have_count(1)
        dialog.get_by_label("Messages to keep").fill("0")
        dialog.get_by_label("Smallest value").fill("60")
        dialog.get_by_role("button", name="Preview").click()
        expect(dialog).to_contain_text("would leave")
        desk.rest("main/harbour")
        dialog.get_by_role("button", name="Extract", exact=True).click()
        expect(page.get_by_text("left the session")).to_be_visible()

        page.get_by_role("button", name="Summary…").click()
        expect(dialog).to_contain_text("Tool calls")
        page.keyboard.press("Escape")


def test_markup_in_a_transcript_stays_text(desk: Desk) -> None:
    with watched(desk.browser, desk.address) as seen:
        page = seen.open("sessions")
        expect(page.get_by_text(HOSTILE).first).to_be_visible()
        page = seen.open("s/main/hostile")
        expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE)
        expect(page.locator(".entry").last).to_be_attached()
        page.set_viewport_size({"width": 1280, "height": 9000})  # room for all of them
        click_all = "(all) => all.forEach((one) => one.click())"
        page.locator(".entry-open[aria-expanded=false]").evaluate_all(click_all)
        expect(page.locator(".value", has_text=HOSTILE * 20)).to_have_count(1)
        result = page.locator(".entry.is-result")
        result.get_by_role("button", name=re.compile("^Actions on entry")).click()
        result.get_by_role("button", name="Whole entry").click()
        expect(page.locator("pre", has_text=HOSTILE * 20)).to_have_count(1)
        for name in ("Summary…", "History…", "Delete…"):
            page.get_by_role("button", name=name).click()
            expect(page.get_by_role("dialog")).not_to_contain_text("Reading")
            page.keyboard.press("Escape")
        assert page.locator("img[src=x], #main script").count() == 0


def test_a_missing_store_file_shows_as_unavailable(desk: Desk) -> None:
    with watched(desk.browser, desk.address) as seen:
        store = desk.root / "extracted" / "research_berths"
        path = min(store.glob("[0-9]*.json"))
        path.unlink()
        page = seen.open("s/research/berths?type=extracted")
        entry = entry_of(page, int(path.name[:4]))
        expect(entry.locator(".badge.bad")).to_have_text("unavailable")
        expect(entry.locator(".preview")).to_contain_text("Content unavailable")
        expect(entry.get_by_role("button", name="Restore")).to_be_disabled()
        entry.first.get_by_role("button", name=re.compile("^Actions on entry")).click()
        entry.first.get_by_role("button", name="Whole entry").click()
        expect(entry.first.locator("pre.missing")).to_contain_text("extracted file missing")


def test_a_session_goes_to_the_trash_with_its_child_and_comes_back(desk: Desk) -> None:
    with watched(desk.browser, desk.address) as seen:
        page = seen.open("s/main/harbour")
        page.get_by_role("button", name="Delete…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("1 child session: main/tides")
        expect(dialog).to_contain_text("keeps it for 14d")
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        page.keyboard.press("Escape")
        assert desk.lines("main/tides")
        page.get_by_role("button", name="Delete…").click()
        dialog.get_by_role("button", name="Move to the trash").click()
        rows = page.get_by_role("list", name="Sessions").get_by_role("link")
        expect(rows).to_have_count(4)
        assert not (desk.root / "extracted" / "main_harbour").exists()

        page.get_by_role("link", name="Trash").click()
        expect(page.get_by_role("row")).to_have_count(3)
        page.get_by_role("button", name="Restore main/harbour").click()
        expect(page.get_by_text("The trash is empty")).to_be_visible()
        page.get_by_role("link", name="main/harbour").click()
        expect(page.locator(".entry").first).to_be_visible()
        assert (desk.root / "extracted" / "main_harbour").exists()

        page = seen.open("s/research/last-week")
        page.get_by_role("button", name="Delete…").click()
        dialog.get_by_label("Delete it for good").check()
        dialog.get_by_role("button", name="Delete for good").click()
        expect(rows).to_have_count(5)
        page.get_by_role("link", name="Trash").click()
        expect(page.get_by_text("The trash is empty")).to_be_visible()

        page = seen.open("s/main/tides")
        page.get_by_role("button", name="Delete…").click()
        dialog.get_by_role("button", name="Move to the trash").click()
        expect(rows).to_have_count(4)
        page.get_by_role("link", name="Trash").click()
        page.get_by_role("button", name="Delete main/tides forever").click()
        expect(dialog).to_contain_text("This cannot be undone.")
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        dialog.get_by_role("button", name="Delete forever").click()
        expect(page.get_by_text("The trash is empty")).to_be_visible()


def test_a_session_that_its_program_has_deleted_comes_back(desk: Desk) -> None:
    name = "main/departed"
    lines = b'{"type":"session","version":3,"id":"departed"}\n' + b"".join(
        json.dumps(
            {
                "type": "message",
                "id": f"d{number}",
                "message": {"role": role, "content": [{"type": "text", "text": f"{text} ferry"}]},
            }
        ).encode()
        + b"\n"
        for number, (role, text) in enumerate((("user", "Which"), ("assistant", "The last")))
    )
    path = add_session(desk.root, name, lines)
    set_idle(path, 2 * 86_400)
    desk.daemon.bsd("archive", "keep", name)  # waits for a worker that scans it
    path.unlink()
    desk.daemon.bsd("jobs", "run", "keep_sessions")
    with watched(desk.browser, desk.address) as seen:
        page = seen.open("archive")
        row = page.get_by_role("row").filter(has_text=name)
        expect(row).to_contain_text("Which ferry")
        row.get_by_role("button", name="Show").click()
        expect(page.get_by_role("table", name=re.compile("Entries of"))).to_contain_text(
            "last ferry"
        )
        wait_for(lambda: _finds(desk, "ferry"), "it to be indexed")
        page.get_by_label("Words in sessions that are gone").fill("ferry")
        page.keyboard.press("Enter")
        expect(page.get_by_role("table", name="Search results")).to_contain_text("ferry")
        row.get_by_role("button", name="Bring back").click()
        expect(page.get_by_text("No deleted sessions")).to_be_visible()
        assert path.read_bytes() == lines

        path.unlink()
        desk.daemon.bsd("jobs", "run", "keep_sessions")
        page = seen.open("archive")
        row.get_by_role("button", name="Forget").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("This cannot be undone.")
        dialog.get_by_role("button", name="Forget it").click()
        expect(page.get_by_text("No deleted sessions")).to_be_visible()
    assert not (desk.root / "archive" / "main_departed").exists()


def _finds(desk: Desk, word: str) -> bool:
    return bool(desk.daemon.ask(f"archive/search?q={word}")["results"])


def test_settings_say_what_is_wrong_and_jobs_run_when_asked(desk: Desk) -> None:
    with watched(desk.browser, desk.address) as seen:
        page = seen.open("settings")
        recent, keep = page.get_by_label("Messages to keep"), page.get_by_label("Extracted content")
        recent.fill("many")
        keep.fill("5x")
        page.get_by_label("tool_call", exact=True).check()
        page.get_by_role("button", name="Save").click()
        expect(recent).to_be_focused()
        expect(recent).to_have_accessible_description(re.compile("valid integer"))
        expect(keep).to_have_accessible_description(re.compile("Invalid duration '5x'"))
        expect(page.get_by_text("2 fields are not valid")).to_be_visible()
        assert desk.daemon.ask("config")["keep_recent"] == 3
        recent.fill("4")
        keep.fill("30m")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("Saved; the settings are in force.")).to_be_visible()
        expect(page.locator("[aria-invalid]")).to_have_count(0)
        config = desk.daemon.ask("config")
        assert (config["keep_recent"], config["retention"]) == (4, "30m")
        assert config["trigger_types"] == ["thinking", "tool_call", "tool_result"]
        desk.daemon.bsd("config", "set", "keep_recent", "5")
        expect(recent).to_have_value("5")

        page.get_by_role("link", name="Jobs").click()
        page.get_by_role("button", name="Run scan now").click()
        expect(page.get_by_text(re.compile("scan has run"))).to_be_visible()
        page.get_by_role("button", name="Preview now").click()
        expect(page.get_by_text("Now it would move 0 extracted files")).to_be_visible()
        store = desk.root / "extracted" / "research_live"
        files = list(store.glob("[0-9]*.json"))
        for path in files:
            _make_old(path)
        page.get_by_role("button", name="Run retention now…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"It moves {len(files)} extracted files")
        dialog.get_by_role("button", name="Run retention").click()
        expect(page.get_by_text(re.compile(f"Moved: {len(files)} extracted files"))).to_be_visible()
        # A tool call may have left meanwhile, since the settings now permit it; it is not old.
        assert not [path.name for path in files if path.exists()]


def _make_old(path: Path) -> None:
    os.utime(path, (1_700_000_000, 1_700_000_000))


def test_what_an_agent_writes_arrives_by_itself(desk: Desk) -> None:
    path = desk.path("research/live")
    with watched(desk.browser, desk.address) as seen:
        page = seen.open("s/research/live")
        expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
        page.locator(".entry-open").first.focus()
        page.keyboard.press("End")
        last = page.locator(".entry").last
        known = int(last.get_attribute("data-index") or "")
        entry = entry_of(page, known).first
        entry.get_by_role("button", name=re.compile("^Actions on entry")).click()
        # The actions lengthen the entry: new entries are followed only by a reader at the end.
        page.locator("main").evaluate("(main) => main.scrollTo(0, main.scrollHeight)")
        append_turn(path, "lanterns")
        expect(last).to_contain_text("I have looked after lanterns.")
        expect(last).to_have_class(re.compile("arrived"))
        expect(last).to_be_in_viewport()
        expect(entry.get_by_role("button", name="Whole entry")).to_be_attached()  # still open
        page = seen.open("sessions")
        top = page.get_by_role("list", name="Sessions").get_by_role("link").first
        path.touch()
        append_turn(path, "oars")
        path.touch()
        expect(top).to_contain_text("research/live")


def test_every_view_can_be_read_operated_and_fits_a_phone(desk: Desk) -> None:
    found: dict[tuple[str, str], list[str]] = {}
    with watched(desk.browser, desk.address) as seen:
        for view in VIEWS:
            page = seen.open(view)
            expect(page.get_by_role("heading", level=1)).to_have_count(1)
            expect(page.locator("[aria-busy]")).to_have_count(0)
            if not view:
                expect(page.locator(".plot canvas").first).to_be_visible()
                expect(page.locator(".fill-bar").first).to_be_visible()
            for scheme in SCHEMES:
                page.emulate_media(color_scheme=scheme)
                found[view, scheme] = findings(page, scheme)
            page.set_viewport_size({"width": 320, "height": 800})
            found[view, "phone"] = too_wide(page)
            page.set_viewport_size({"width": 1280, "height": 800})
    assert {where: faults for where, faults in found.items() if faults} == {}
