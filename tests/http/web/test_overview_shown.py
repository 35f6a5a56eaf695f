"""The first view: sessions and their largest contents, sort orders in the address, plots."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from bsd.actions.extract import extract
from bsd.core.audit import AuditLog
from bsd.core.layout import Layout, SessionName
from tests.http.api import serving
from tests.http.fake_daemon import FakeDaemon
from tests.http.web.browser import chromium, watched
from tests.http.web.looks import findings, too_wide
from tests.http.web.sample import hostile_session
from tests.openclaw_tree import add_session
from tests.session_files import Clock, make_caller, sample

pytestmark = pytest.mark.web


def _fill(root: Path) -> Layout:
    layout = Layout(root)
    add_session(root, "main/large", sample(20))
    add_session(root, "main/saved", sample(9, seed=2))
    add_session(root, "other/hostile", hostile_session())
    extract(make_caller(layout, Clock()), SessionName("main", "saved"))
    now = datetime.now(UTC)
    for days in range(3):
        moment = (now - timedelta(days=days)).timestamp()
        log = AuditLog(layout.audit_file, clock=lambda moment=moment: moment)  # type: ignore[misc]
        log.record(actor="x", action="extract", agent="main", bytes_saved=5 << 20, tokens_saved=70)
    lines = [
        {
            "at": (now - timedelta(days=days)).isoformat(),
            "sessions": {"openclaw": 3 << 20, "claude-code": 1 << 20},
            "counts": {"openclaw": 3, "claude-code": 1},
            "disk": {"store": 2 << 20, "archive": 1 << 20},
        }
        for days in (2, 1)
    ]
    layout.sizes_file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return layout


def test_the_first_view(tmp_path: Path) -> None:  # noqa: PLR0915 - one browser for all of it
    _fill(tmp_path / ".openclaw")
    daemon = FakeDaemon()
    with (
        chromium() as browser,
        serving(tmp_path / ".openclaw", daemon, BRAINSURGEON_HTTP="127.0.0.1:0") as (server, _),
        watched(browser, f"http://{server.addresses[0]}") as seen,
    ):
        asked: list[str] = []
        answered: list[str] = []
        seen.page.on("request", lambda request: asked.append(urlsplit(request.url).path))
        seen.page.on("response", lambda response: answered.append(urlsplit(response.url).path))
        page = seen.open()
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        largest = page.locator(".large")
        expect(largest.first).to_contain_text("main/large")
        expect(largest.first).to_contain_text("tool results: ")
        expect(largest.first.locator(".fill-bar > span").first).to_be_visible()
        expect(largest.nth(1).locator(".fill-bar > span").first).to_be_visible()
        parts = largest.locator(".plot-legend > li").evaluate_all(
            "(all) => all.map((one) => [one.textContent, one.querySelector('.swatch').className])"
        )
        colours = {(re.sub(r" \d+ %$", "", words), colour) for words, colour in parts}
        assert len(colours) < len(parts), "no part stands in two sessions"
        assert len({words for words, _ in colours}) == len(colours)
        leaves = page.locator(".tile", has_text="Would leave now")
        expect(leaves.locator("strong")).to_have_text(re.compile(r"^\d.* [KM]B$"))
        table = page.get_by_role("table", name="Agents and projects")
        expect(table.get_by_role("row")).to_have_count(4)
        expect(table.get_by_role("link", name="other")).to_have_attribute(
            "href", "#/sessions?agent=other&sort=size"
        )

        # Plots, and the same as a table.
        expect(page.locator(".plot canvas")).to_have_count(3)
        # If the connection for events is open first, it causes no second load.
        events, data = (answered.index(f"/api/{name}") for name in ("events", "sessions"))
        for path in ("/api/status", "/api/sessions", "/api/overview"):
            assert asked.count(path) == 1 or data < events, asked
        saved = page.get_by_role("region", name="Saved by day", exact=True)
        saved.get_by_text("As a table").click()
        days = saved.get_by_role("table", name="Saved by day").get_by_role("row")
        expect(days).to_have_count(4)
        expect(days.nth(2)).to_contain_text("5.0 MB")
        saved.get_by_label("Tokens").check()
        expect(days.nth(2)).to_contain_text("70")
        sizes = page.get_by_role("region", name="Sizes of sessions", exact=True)
        expect(sizes.locator(".plot-legend")).to_have_text("OpenClawClaude Code")
        expect(sizes.get_by_role("img")).to_have_accessible_name(re.compile("Sizes .*: .* KB$"))
        sizes.get_by_text("As a table").click()
        yesterday = sizes.get_by_role("table", name="Sizes of sessions").get_by_role("row").nth(2)
        expect(yesterday).to_contain_text("3.0 MB")

        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            assert (scheme, findings(page, scheme)) == (scheme, [])
        page.set_viewport_size({"width": 360, "height": 800})
        assert too_wide(page) == []
        page.set_viewport_size({"width": 1280, "height": 800})

        # The order is chosen by arrow keys, and is part of the address.
        page.get_by_label("Size", exact=True).focus()
        page.keyboard.press("ArrowRight")
        expect(largest.first).to_contain_text("main/saved")
        assert page.url.endswith("#/overview?sort=saved")
        page.reload()
        expect(page.get_by_label("Saved", exact=True)).to_be_checked()
        page.get_by_role("link", name="All 3 sessions").click()
        expect(page.get_by_label("Order")).to_have_value("saved")
        rows = page.get_by_role("list", name="Sessions").get_by_role("link")
        expect(rows.first).to_contain_text("main/saved")
        page.get_by_label("Order").select_option("Largest first")
        expect(rows.first).to_contain_text("main/large")
        assert page.url.endswith("#/sessions?sort=size")
        seen.open("?agent=other")  # an address of the list before there was an overview
        expect(rows).to_have_count(1)

        page.get_by_role("link", name="Overview").click()
        page.get_by_role("button", name="Extract now…").click()
        page.get_by_role("dialog").get_by_role("button", name="Extract").click()
        expect(page.get_by_text("Extraction has started.")).to_be_visible()
        assert daemon.ran == ["auto_cron"]
        largest.first.get_by_role("link").click()
        expect(page.locator("main h1").first).to_be_visible()
        assert "#/s/main/large" in page.url
