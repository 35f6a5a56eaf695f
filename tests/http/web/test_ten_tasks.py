"""The ten usual tasks of users, each in at most three steps from the first view."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from bsd.core.layout import Layout
from bsd.core.pauses import begin_pause
from tests.daemon.running import Running, running
from tests.http.web.browser import Watched, watched
from tests.http.web.looks import findings, too_wide
from tests.lived_in_home import LARGEST, LOGIN, OLD, SECRET, SEEN, VANISHED, make_home, path_of
from tests.openclaw_tree import set_idle
from tests.tasks import task
from tests.waiting import wait_for

pytestmark = pytest.mark.web

_MOST = 3


@dataclass
class Desk:
    home: Path
    daemon: Running
    seen: Watched

    def start(self) -> Page:
        """Open the first view, and wait until it is complete."""
        page = self.seen.open()
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        expect(tile(page, "Would leave now").locator("strong")).not_to_be_empty()
        return page


@contextmanager
def at_desk(browser: Browser, home: Path, tmp_path: Path) -> Iterator[Desk]:
    root = make_home(home)
    begin_pause(Layout(root), "main", None, time.time)  # so that a value would leave
    with running(root, tmp_path, BRAINSURGEON_HTTP="127.0.0.1:0") as daemon:
        address = wait_for(
            lambda: next((event["http"] for event in daemon.events() if "http" in event), ""),
            "an address",
        )
        wait_for(lambda: daemon.status()["search"]["complete"], "all to be indexed")
        with watched(browser, f"http://{address}") as seen:
            seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
            yield Desk(home, daemon, seen)


def tile(page: Page, name: str) -> Locator:
    return page.locator(".tile", has_text=name)


def looks_well(page: Page) -> None:
    assert findings(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert too_wide(page) == []
    page.set_viewport_size({"width": 1280, "height": 800})


def clipboard(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


@pytest.mark.soak  # each step has a test of its own
def test_ten_tasks(browser: Browser, clean_environment: Path, tmp_path: Path) -> None:
    with at_desk(browser, clean_environment, tmp_path) as desk:
        what_stands_on_the_first_view(desk)
        what_the_model_saw_of_a_file(desk)
        what_is_deleted_tonight(desk)
        where_it_was_discussed(desk)
        a_vanished_session(desk)
        bsd_stops_for_one_project(desk)
        what_bsd_did_since_yesterday(desk)
        leaving(desk)


def what_stands_on_the_first_view(desk: Desk) -> None:
    page = desk.start()
    with task("the largest session and why", most=0):
        largest = page.locator(".large").first
        expect(largest).to_contain_text(LARGEST)
        expect(largest.locator(".fills")).to_contain_text(re.compile(r"thinking \d+ %"))
    with task("what would I gain", most=0):
        expect(tile(page, "Would leave now")).to_contain_text(re.compile(r"KB\d+ % of all"))
    with task("what was saved", most=0):
        expect(tile(page, "Saved")).to_contain_text("KB left the sessions, bsd keeps")
    looks_well(page)


def what_the_model_saw_of_a_file(desk: Desk) -> None:
    page = desk.start()
    with task("what the model saw of a file", most=_MOST) as step:
        step("Ctrl-K")
        page.keyboard.press("Control+k")
        step("type the file, choose it")
        page.keyboard.type("auth.py")
        files = page.get_by_role("dialog").get_by_role("group", name="Files").get_by_role("option")
        expect(files).to_have_count(4)
        files.filter(has_text=LOGIN).click()
        entry = page.locator(".entry[data-index='1']")
        expect(entry).to_contain_text(SEEN)
        step("Restore")
        set_idle(path_of(desk.home, LOGIN), 3600)
        entry.get_by_role("button", name="Restore").click()
        wait_for(lambda: SEEN in path_of(desk.home, LOGIN).read_text(), "it to be back")


def what_is_deleted_tonight(desk: Desk) -> None:
    page = desk.start()
    with task("what is deleted tonight", most=_MOST) as step:
        tonight = tile(page, "Deleted tonight")
        expect(tonight).to_contain_text("1 session")
        step("click the tile")
        tonight.click()
        card = page.get_by_role("region", name="Deleted tonight")
        expect(card.get_by_role("link")).to_have_text(OLD)
        looks_well(page)


def where_it_was_discussed(desk: Desk) -> None:
    page = desk.start()
    with task("where Y was discussed, and go on there", most=_MOST) as step:
        step("Ctrl-K")
        page.keyboard.press("Control+k")
        step("type the words, Enter")
        page.keyboard.type("login quokka")
        page.keyboard.press("Enter")
        step("copy the command")
        page.get_by_role("button", name="Copy the command that continues it").click()
        expect(page.get_by_text("the command that continues it copied")).to_be_visible()
        session = LOGIN.split("/")[1]
        assert clipboard(page) == f"cd /home/me/shop && claude --resume {session}"


def a_vanished_session(desk: Desk) -> None:
    page = desk.start()
    with task("a vanished session", most=_MOST) as step:
        step("Archive")
        tile(page, "In the archive").click()
        step("Bring back")
        page.get_by_role("row").filter(has_text="Which ferry").get_by_role(
            "button", name="Bring back"
        ).click()
        step("copy the command")
        page.get_by_role("button", name="Copy command").click()
        expect(page.get_by_text("Command copied")).to_be_visible()
        assert f"claude --resume {VANISHED.split('/')[1]}" in clipboard(page)
        assert path_of(desk.home, VANISHED).exists()


def bsd_stops_for_one_project(desk: Desk) -> None:
    page = desk.start()
    with task("bsd stops for one project", most=_MOST) as step:
        step("the project")
        page.get_by_role("link", name="/home/me/secret", exact=True).click()
        expect(page.get_by_role("list", name="Sessions").get_by_role("link")).to_have_count(1)
        looks_well(page)
        step("Leave out…")
        page.get_by_role("button", name=f"Leave out… {SECRET}").click()
        step("Leave out")
        page.get_by_role("dialog").get_by_role("button", name="Leave out").click()
        expect(page.get_by_role("list", name="Sessions").get_by_role("link")).to_have_count(4)
        assert desk.daemon.ask("config")["exclude"] == [SECRET]


def what_bsd_did_since_yesterday(desk: Desk) -> None:
    page = desk.start()
    with task("undo what bsd did since yesterday", most=_MOST) as step:
        step("Undo what bsd did since…")
        page.get_by_role("button", name="Undo what bsd did since…").click()
        step("Undo")
        page.get_by_role("dialog").get_by_role("button", name=re.compile("^Undo \\d")).click()
        expect(page.get_by_text(re.compile("undone in . session"))).to_be_visible()
        assert SEEN in path_of(desk.home, OLD).read_text()


def leaving(desk: Desk) -> None:
    page = desk.start()
    with task("leave for good", most=_MOST) as step:
        step("Agents")
        page.get_by_role("link", name="Agents").click()
        card = page.get_by_role("region", name="Leave bsd")
        step("copy the command")
        card.get_by_role("button", name=re.compile("restores everything")).click()
        expect(page.get_by_text("copied")).to_be_visible()
        assert clipboard(page) == f"bsd --root {desk.daemon.root} leave"
        looks_well(page)
