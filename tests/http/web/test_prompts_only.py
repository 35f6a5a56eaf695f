"""The archive's page on sessions with only their prompts left."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from bsd.actions.context import ActionContext
from bsd.core.config_file import ConfigService
from bsd.http.app import create_app
from bsd.http.server import ApiServer
from tests.http.api import settings_for
from tests.http.fake_daemon import FakeDaemon
from tests.http.web.browser import watched
from tests.maintenance.keeping import ClaudeHome
from tests.maintenance.remembering import id_of, prompt, write_history

pytestmark = pytest.mark.web


def test_they_are_listed_shown_and_found(browser: Browser, tmp_path: Path) -> None:
    home = ClaudeHome.of(tmp_path, 1, small=True)
    write_history(home.source, prompt("why is the <b>basket</b> empty?", id_of(1)))
    layout, daemon = home.layout, FakeDaemon()
    config = ConfigService(layout.config_file)
    app = create_app(daemon.as_daemon(), ActionContext(layout=layout, config=config, actor="api"))
    settings = settings_for(layout.root, BRAINSURGEON_HTTP="127.0.0.1:0")
    server = ApiServer(app, settings, daemon.beats)
    server.start()
    try:
        with watched(browser, f"http://{server.addresses[0]}") as seen:
            page = seen.open("archive")
            expect(page.get_by_role("heading", name="Prompts only")).to_be_visible()
            expect(page.get_by_text("/home/me/project", exact=True)).to_be_visible()
            page.get_by_role("button", name="Show the prompts of").click()
            shown = page.get_by_role("table", name="Prompts of")
            expect(shown.get_by_text("why is the <b>basket</b> empty?")).to_be_visible()
            page.get_by_role("searchbox").fill("basket")
            page.get_by_role("searchbox").press("Enter")
            found = page.get_by_role("table", name="Search results")
            expect(found.get_by_text("prompt", exact=True)).to_be_visible()
    finally:
        assert server.stop()
