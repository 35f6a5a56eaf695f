"""Machines on the page: the choice of one in the list and the search, and how to get a session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, expect

from bsd.core.fleet_settings import FleetSettings
from tests.fake_catalogue import FakeCatalogue, catalogue, session
from tests.http.api import serving
from tests.http.web.browser import watched
from tests.http.web.looks import findings, too_wide
from tests.http.web.sample import HOSTILE
from tests.openclaw_tree import add_session
from tests.session_files import sample

__all__ = ["catalogue"]

pytestmark = pytest.mark.web

OPEN = {"BRAINSURGEON_HTTP": "127.0.0.1:0"}
BACK = "bsd archive bring-back build-3:claude-code:-home-me/4f2a"


def test_machines(browser: Browser, tmp_path: Path, catalogue: FakeCatalogue) -> None:
    add_session(tmp_path, "main/alpha", sample(2, 1))
    odd = replace(session("main/odd", "build-3"), title=HOSTILE)
    catalogue.known_sessions = (*catalogue.known_sessions, odd)
    with (
        serving(tmp_path, **OPEN) as (server, _),
        watched(browser, (server.page or "").rstrip("/")) as seen,
    ):
        page = seen.open("sessions")
        expect(page.locator("a.row")).to_have_count(1)
        expect(page.get_by_label("Machine")).to_be_hidden()

        app = server._app
        assert isinstance(app, FastAPI)
        settings = FleetSettings(host="ours", database="postgresql://db.invalid/bsd")
        app.state.context = replace(app.state.context, fleet=settings)
        app.state.fleet.status._last = None
        page.reload()
        machine = page.get_by_label("Machine")
        expect(machine.get_by_role("option")).to_have_count(4)
        machine.select_option("build-3")
        rows = page.get_by_role("list", name="Sessions of machines").get_by_role("listitem")
        expect(rows).to_have_count(4)
        assert page.url.endswith("#/fleet?host=build-3")
        expect(rows.nth(2)).to_contain_text(BACK)
        expect(rows.nth(2).get_by_role("button", name="Copy")).to_be_visible()
        expect(rows.nth(0).get_by_role("link", name="About main/alpha")).to_be_visible()
        assert catalogue.asked[-1]["host"] == "build-3"
        page.get_by_role("button", name="Show more").click()
        expect(rows).to_have_count(8)
        assert catalogue.asked[-1]["after"] == "page-2"
        page.get_by_label("Search all machines").fill("deadlock")
        expect(rows).to_have_count(3)
        expect(page.get_by_role("status").filter(has_text="3 entries")).to_be_visible()
        assert findings(page) == []
        page.set_viewport_size({"width": 360, "height": 740})
        assert too_wide(page) == []
        page.set_viewport_size({"width": 1280, "height": 800})

        page.keyboard.press("Control+k")
        dialog = page.get_by_role("dialog", name="Search")
        dialog.get_by_label("Machine").select_option("*")
        dialog.get_by_role("combobox").first.fill("deadlock")
        options = dialog.get_by_role("group", name="Messages").get_by_role("option")
        expect(options).to_have_count(3)
        expect(options.nth(2)).to_contain_text(BACK)
        expect(options.nth(0)).not_to_contain_text("bring-back")
        dialog.get_by_label("Where").select_option("gone")
        expect(dialog.get_by_role("status")).to_contain_text("has no filter for Where")
        dialog.get_by_label("Machine").select_option("")
        expect(dialog.get_by_role("status")).not_to_contain_text("no filter")
        assert findings(page) == []
