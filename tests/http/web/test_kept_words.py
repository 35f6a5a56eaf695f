"""The page says how long content is kept: in the store, and then in the archive."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.http.api import serving
from tests.http.fake_daemon import FakeDaemon
from tests.http.web.browser import watched
from tests.http.web.sample import short_session
from tests.openclaw_tree import add_session

pytestmark = pytest.mark.web

KEPT = "24h in the store, then for 90d in the archive"


@pytest.mark.soak
def test_the_archive_counts(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / ".openclaw"
    add_session(root, "main/one", short_session())
    with (
        serving(root, FakeDaemon(), BRAINSURGEON_HTTP="127.0.0.1:0") as (server, _),
        watched(browser, f"http://{server.addresses[0]}") as seen,
    ):
        for view in ("status", "jobs"):
            expect(seen.open(view).get_by_text(KEPT)).to_be_visible()
        page = seen.open("s/main/one")
        page.get_by_role("button", name="Extract now…").click()
        expect(page.get_by_role("dialog")).to_contain_text(f"They are kept {KEPT}.")
