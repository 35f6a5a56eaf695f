"""Views with plots: the first view, with sessions and their largest contents; and cost."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Route, expect

from bsd.actions.extract import extract
from bsd.core.audit import AuditLog
from bsd.core.layout import Layout, SessionName
from bsd.store.state import Left, StateDb
from bsd.transcripts.change import Written
from tests.http.api import over_tcp, serving
from tests.http.fake_daemon import FakeDaemon
from tests.http.web.browser import Watched, watched
from tests.http.web.looks import findings, too_wide
from tests.http.web.replays import replay_portion, session_replay
from tests.http.web.sample import HOSTILE, hostile_session
from tests.openclaw_tree import add_session
from tests.planning.timings import NOW, SAID, answer_with
from tests.session_files import Clock, make_caller, sample

pytestmark = pytest.mark.web

# The page asks for the status again after a second: a slow view must not take that long.
_SLOW_CLOCK = "const now = performance.now.bind(performance); performance.now = () => now() / 500;"


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


def _leave_waiting(layout: Layout, until: float) -> None:
    """Note that main/large waits for its prompt cache, as a daemon does."""
    name = SessionName("main", "large")
    seen = Written.of(layout.session_file(name).lstat())
    left = Left(name, "settings", seen, until, until, 38_123, 31_000, 0.124)
    StateDb(layout.state_db).note_rests({name: left})


def _look_at_waits(seen: Watched, until: float) -> None:
    """Look at the figures of a warm cache in all views, and compare the words."""
    page = seen.open()
    tile = page.locator(".tile", has_text="Waiting for a cold cache")
    expect(tile).to_contain_text("3 sessions120k tokens ready; next cold at ")
    tile.click()
    card = page.get_by_role("region", name="Prompt cache")
    expect(card).to_contain_text("90k cached tokens (about $0.40, without 1 of unknown price)")
    expect(card).to_contain_text("5 cuts since the start (4 cold cache, 1 pays)")
    results = page.get_by_role("table", name="Last results")
    expect(results).to_contain_text("because the cache was cold")
    waits = "38k tokens ready; a cut now rewrites 31k cached tokens (about $0.12)"
    for view in ("sessions", "s/main/large"):
        page = seen.open(view)
        clock = f"{datetime.fromtimestamp(until).astimezone():%H:%M}"
        expect(page.get_by_title(waits)).to_have_text(f"waits until {clock}")
    expect(page.locator(".facts")).to_contain_text(waits)
    said = page.evaluate(
        """async ([answers, now]) => {
            const [first] = document.querySelectorAll("script[type=module]");
            const { timingWords } = await import(new URL("timing.js", first.src));
            return answers.map((answer) => timingWords(answer, now));
        }""",
        [[answer_with(timing) for timing, _ in SAID], 1000 * NOW],
    )
    assert said == [words for _, words in SAID], "the terminal's words"


def test_the_first_view(browser: Browser, tmp_path: Path) -> None:  # noqa: PLR0915 - one page
    layout = _fill(tmp_path / ".openclaw")
    daemon = FakeDaemon()
    with (
        serving(tmp_path / ".openclaw", daemon, BRAINSURGEON_HTTP="127.0.0.1:0") as (server, _),
        watched(browser, f"http://{server.addresses[0]}") as seen,
    ):
        asked: list[str] = []
        answered: list[str] = []
        seen.page.on("request", lambda request: asked.append(urlsplit(request.url).path))
        seen.page.on("response", lambda response: answered.append(urlsplit(response.url).path))
        seen.page.add_init_script(_SLOW_CLOCK)
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
        until = datetime.now(UTC).timestamp() + 600
        _leave_waiting(layout, until)
        _look_at_waits(seen, until)


def test_the_cost_of_a_session_is_plotted_call_by_call(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / ".openclaw"
    add_session(root, "main/harbour", hostile_session())
    with (
        serving(root, FakeDaemon(), BRAINSURGEON_HTTP="127.0.0.1:0") as (server, _),
        watched(browser, f"http://{server.addresses[0]}") as seen,
    ):
        answers = iter(
            [session_replay("main/harbour"), session_replay("main/harbour", priced=False)]
        )
        seen.page.route("**/harbour/replay?*", lambda route: route.fulfill(json=next(answers)))
        page = seen.open("s/main/harbour")
        page.get_by_role("link", name="Call by call").click()
        expect(page.locator(".plot canvas")).to_have_count(2)
        expect(page.locator(".cost-sums")).to_have_text(
            re.compile(
                r"^\$\S+ without bsd, \$\S+ with the settings in force: 25 % less; "
                r"1 of 212 values was wanted again\. The lowest of these settings: \$\S+\.$"
            )
        )
        expect(page.get_by_text("differs from the recorded tokens by 4.2 %")).to_be_visible()
        expect(page.locator(".plot-legend")).to_contain_text("compactioncold restartprice step")
        call, told = page.get_by_role("slider", name="Call"), page.locator(".plot-readout")
        call.focus()
        page.keyboard.press("Home")
        expect(told).to_contain_text(re.compile(r"^Call 1 of 60, .*: 20k tokens without bsd \(\$0"))
        cuts = page.get_by_role("table", name="Cuts")
        cuts.get_by_role("button", name="Show call 41 in the plot").click()
        expect(call).to_have_attribute(
            "aria-valuetext", re.compile(f"Cut before it because .*{HOSTILE[:8]}")
        )
        expect(told).to_contain_text("260k tokens without bsd")
        expect(told).to_contain_text("170k with these settings")
        # The pointer tells the same as the slider.
        page.locator(".plot").first.hover(position={"x": 85, "y": 100})
        expect(told).to_contain_text(re.compile("^Call [1-9] of"))
        page.get_by_label("Settings shown").select_option(index=1)
        expect(cuts.get_by_role("button")).to_have_text("36")
        wanted = page.get_by_role("table", name="Wanted again").get_by_role("link")
        expect(wanted).to_have_attribute("href", "#/s/main/harbour?at=17")
        assert findings(page) == []
        page.set_viewport_size({"width": 360, "height": 800})
        assert too_wide(page) == []

        page.get_by_role("textbox", name="Messages to keep").fill("3, 10")
        page.keyboard.press("Enter")
        expect(page.get_by_text("No price is known")).to_be_visible()
        expect(page.locator(".plot canvas")).to_have_count(1)
        expect(page.locator("#main")).not_to_contain_text("$")
        assert "keep_recent=3%2C10&" in page.url
        assert page.locator("img[src=x], #main script").count() == 0


def test_settings_are_compared_over_all_sessions_and_taken_over(
    browser: Browser, tmp_path: Path
) -> None:
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(parse_qs(urlsplit(route.request.url).query).get("cursor", [""])[0])
        if len(asked) == 2:
            route.fulfill(status=409, json={"error": "another replay runs"})
        else:
            route.fulfill(json=replay_portion(1 + int(asked[-1] or 0), portions=2))

    root = tmp_path / ".openclaw"
    add_session(root, "main/harbour", hostile_session())
    with (
        serving(root, FakeDaemon(), BRAINSURGEON_HTTP="127.0.0.1:0") as (server, _),
        watched(browser, f"http://{server.addresses[0]}") as seen,
    ):
        seen.page.route("**/api/replay?*", answer)
        page = seen.open("settings")
        page.locator("main").get_by_role("link", name="Cost").click()
        page.get_by_role("button", name="Play back").click()
        told = page.get_by_text("Played back 2.0 MB of 2.0 MB: 6 sessions, 20 calls")
        expect(told).to_be_visible()
        assert asked == ["", "1", "1"]
        expect(page.get_by_text("The sessions record no tokens")).to_be_visible()
        row = page.get_by_role("table", name="Settings", exact=True).get_by_role("row").last
        expect(row).to_contain_text("lowest cost")
        expect(row).to_contain_text("worst session: 2 % more")
        page.evaluate("document.body.classList.add('readonly')")
        expect(row.get_by_role("button")).to_be_hidden()
        page.evaluate("document.body.classList.remove('readonly')")
        row.get_by_role("button", name="Take over").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("row").last).to_contain_text("when the cache is cold")
        dialog.get_by_role("button", name="Cancel").click()
        assert over_tcp(server, "/api/config")[1]["when"] == "pays"
        row.get_by_role("button", name="Take over").click()
        dialog.get_by_role("button", name="Take over").click()
        expect(row).to_contain_text("in force")
        assert over_tcp(server, "/api/config")[1]["when"] == "cold"
