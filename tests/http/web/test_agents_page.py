"""Agents are set up from the page: shown, turned on and off, left out and paused; and notices."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.daemon.running import Running, running
from tests.http.web.browser import screenshot, watched
from tests.http.web.looks import findings, too_wide
from tests.setup.homes import fill_home, foreign
from tests.waiting import wait_for

pytestmark = pytest.mark.web

KEY = "a-key"
PROJECT = "claude-code:-home-me"


@dataclass
class Desk:
    """A home with all agents, a daemon that serves none of them but OpenClaw, and a browser."""

    home: Path
    daemon: Running
    address: str
    browser: Browser

    def files(self) -> dict[str, tuple[int, bytes | None]]:
        """The files in the home, without sessions, and those of the browser and of the root."""
        others = ("run", ".openclaw/extracted", ".openclaw/archive")
        return {
            name: each
            for name, each in foreign(self.home).items()
            if not name.startswith(others) and not name.endswith(".jsonl")
        }


@pytest.fixture
def desk(browser: Browser, clean_environment: Path, tmp_path: Path) -> Iterator[Desk]:
    home = fill_home(clean_environment)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    settings = {"BRAINSURGEON_HTTP": address, "BRAINSURGEON_API_KEYS": KEY}
    with running(home / ".openclaw", tmp_path, **settings) as daemon:
        yield Desk(home, daemon, f"http://{address}", browser)


@pytest.mark.soak
def test_an_agent_is_turned_on_left_out_and_paused(desk: Desk) -> None:
    before, pid = desk.files(), desk.daemon.process.pid
    with watched(desk.browser, desk.address) as seen:
        key = f"sessionStorage.setItem('bsd-api-key', '{KEY}')"
        seen.page.add_init_script(f"if (location.protocol === 'http:') {key}")  # not about:blank
        _dismiss_notice(seen.open("jobs"))
        page = seen.open("agents")
        claude = page.get_by_role("region", name="Claude Code")
        expect(claude.get_by_text("off", exact=True)).to_be_visible()
        expect(claude.get_by_text("Would leave by default")).to_be_visible()
        expect(claude.get_by_text("looking…")).to_have_count(0)
        _look(page, "agents")

        claude.get_by_role("button", name="Turn on…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text('+kind = "claude-code"')).to_be_visible()
        expect(dialog.get_by_text("mcp__bsd")).to_be_visible()
        dialog.get_by_label("call bsd's tools without asking").uncheck()
        expect(dialog.get_by_text("mcp__bsd")).to_have_count(0)
        screenshot(page, "turn-on-light")
        assert findings(page) == []
        assert desk.files() == before
        dialog.get_by_role("button", name="Turn on", exact=True).click()
        expect(claude.get_by_text("on", exact=True)).to_be_visible()
        # The same process has started again, and serves the new source.
        assert [one["kind"] for one in desk.daemon.status()["sources"]] == ["claude-code"]
        assert desk.daemon.status()["pid"] == pid
        assert "mcp__bsd" not in (desk.home / ".claude/settings.json").read_text()

        # From here bsd stops for one project in three steps.
        claude.get_by_text("1 project").click()
        claude.get_by_role("button", name=f"Leave out… {PROJECT}").click()
        page.get_by_role("dialog").get_by_role("button", name="Leave out").click()
        lists = page.get_by_role("region", name="Left out and paused")
        expect(lists.get_by_text(PROJECT)).to_be_visible()
        assert _excluded(desk) == [PROJECT]
        lists.get_by_role("button", name=f"Look at {PROJECT} again").click()
        claude.get_by_role("button", name=f"Pause… {PROJECT}").click()
        choice = page.get_by_role("dialog")
        choice.get_by_label("all sessions of claude-code", exact=True).check()
        choice.get_by_label("For").select_option("2 hours")
        choice.get_by_role("button", name="Pause").click()
        expect(lists.get_by_text("paused", exact=True)).to_be_visible()
        assert [one["name"] for one in desk.daemon.status()["pauses"]] == ["claude-code"]
        assert _excluded(desk) == []
        lists.get_by_role("button", name="End the pause of claude-code").click()
        expect(lists.get_by_text("No agent, project or session is left out")).to_be_visible()
        lists.get_by_label("A directory, an agent or AGENT/SESSION").fill("a b")
        lists.get_by_role("button", name="Leave out").click()
        expect(lists.locator(".field-error")).to_contain_text("is not an AGENT")

        claude.get_by_role("button", name="Turn off…").click()
        expect(dialog.get_by_text('-kind = "claude-code"')).to_be_visible()
        page.keyboard.press("Escape")
        expect(claude.get_by_role("button", name="Turn off…")).to_be_focused()
        _show_commands(page, desk)


def _excluded(desk: Desk) -> list[str]:
    config = json.loads((desk.home / ".openclaw/.brainsurgeon/config.json").read_text())
    excluded: list[str] = config["exclude"]
    return excluded


def _dismiss_notice(page: Page) -> None:
    """Check that a dismissed notice does not come back."""
    banners = page.locator("#banners")
    codex = "Codex has sessions here that bsd does not manage"
    expect(banners.get_by_text(codex)).to_be_visible()
    banners.get_by_role("button", name=f"Dismiss: {codex}").click()
    expect(banners.get_by_text(codex)).to_have_count(0)
    page.reload()
    expect(banners.get_by_text("pi has sessions here")).to_be_visible()
    expect(banners.get_by_text(codex)).to_have_count(0)


def _look(page: Page, name: str) -> None:
    """Check the page in light and dark, on a desk and a phone."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert not findings(page)
        screenshot(page, f"{name}-{scheme}")
    page.set_viewport_size({"width": 360, "height": 740})
    assert not too_wide(page)
    screenshot(page, f"{name}-phone")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(color_scheme="light")


def _show_commands(page: Page, desk: Desk) -> None:
    """If the page may not turn agents on, it names the command."""

    def lock(route: Route) -> None:
        real = route.fetch()
        route.fulfill(response=real, json=real.json() | {"locked": "anyone can reach this page"})

    page.route("**/api/setup", lock)
    page.reload()
    pi = page.get_by_role("region", name="pi", exact=True)
    expect(pi.locator("code", has_text="agents on pi")).to_be_visible()
    expect(page.get_by_text("Anyone can reach this page, so")).to_have_count(1)
    expect(pi.get_by_role("button", name="Turn on…")).to_have_count(0)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=desk.address)
    pi.get_by_role("button", name="Copy the command that turns pi on").click()
    wait_for(lambda: "agents on pi" in page.evaluate("navigator.clipboard.readText()"), "a copy")
