"""The page in Chromium: its first rows, a large session, and scrolling.

Each row also gives the time of a view that loads no session (Settings), in the same run: the
cost of the browser and of the page's own start. `BENCH_SESSIONS` and `BENCH_APPEND_MB` as for
the daemon's rows; browser and daemon share the machine, and are not bound to one core.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from bsd.sample import session_lines
from tests.bench.api_rows import write_large
from tests.bench.daemon import Daemon, configure
from tests.bench.daemon_rows import APPEND_MB, NEVER, SESSIONS, fill, row
from tests.bench.measure import Failed
from tests.bench.row import Row, Rows
from tests.http.web.browser import chromium

_MB = 1 << 20
_REPEATS = 7
_ENTRIES = 10_000
_FRAMES, _STEP = 400, 300  # frames that are scrolled, and pixels in each
_LONGEST_TASK_SECONDS = 0.050
_DEADLINE_MS = 300_000

_PLAIN = "settings", "form"
_LIST = "sessions", ".rows li a"
_OVERVIEW = "", ".largest li"
_LARGE = "s/agent000/large", ".entry"

_SCROLL = """async ([frames, step]) => {
    const main = document.getElementById("main");
    for (let frame = 0; frame < frames; frame += 1) {
        main.scrollTop += step;
        await new Promise(requestAnimationFrame);
    }
}"""


def page(scratch: Path, _cache: Path) -> Rows:
    """First rows while the daemon looks at all sessions for the first time, and at idle."""
    if shutil.which("chromium") is None:
        raise Failed("chromium is not installed")
    root = scratch / "root"
    fill(root, SESSIONS)
    directory = root / "agents" / "agent000" / "sessions"
    write_large(directory / "large.jsonl", APPEND_MB * _MB)
    _write_long(directory / "long.jsonl")
    configure(root, retention_cron=NEVER)
    with chromium() as browser, Daemon(root, http="127.0.0.1:0") as daemon:
        address = str(daemon.status()["page"])
        # A browser that has never loaded the page, and a daemon without any cache.
        first = _opened(browser, address, _LIST)
        again = _again(browser, address)
        yield _timed(f"first rows of {SESSIONS:,}, nothing known", [first], again, 2.0)
        yield from _views(browser, address, again, "first pass", 2.0)
        daemon.wait_until_idle()
        daemon.wait_until_indexed()
        again = _again(browser, address)
        yield from _views(browser, address, again, "idle", 1.0)
        daemon.wait_until_alone()
        cold = _opened(browser, address, _LARGE)
        yield _timed(f"open {APPEND_MB} MB, no child process", [cold], again, 1.0)
        yield from _scrolling(browser, address)


def _views(browser: Browser, address: str, plain: float, when: str, limit: float) -> Rows:
    """The three views, in a browser that has seen the page."""
    names = (
        (f"first rows of {SESSIONS:,}, {when}", _LIST),
        (f"overview of {SESSIONS:,}, {when}", _OVERVIEW),
        (f"open {APPEND_MB} MB, {when}", _LARGE),
    )
    for what, view in names:
        yield _timed(what, list(_times(browser, address, view)), plain, limit)


def _again(browser: Browser, address: str) -> float:
    return statistics.median(_times(browser, address, _PLAIN))


def _times(browser: Browser, address: str, view: tuple[str, str]) -> Iterator[float]:
    """Seconds until a view shows its first rows, each in a new page of one context."""
    context = browser.new_context()
    shown = context.new_page()
    _seconds(shown, address, view)  # the files of the page are kept from now on
    for _ in range(_REPEATS):
        yield _seconds(shown, address, view)
    context.close()


def _opened(browser: Browser, address: str, view: tuple[str, str]) -> float:
    context = browser.new_context()
    seconds = _seconds(context.new_page(), address, view)
    context.close()
    return seconds


def _seconds(shown: Page, address: str, view: tuple[str, str]) -> float:
    where, rows = view
    shown.goto("about:blank")
    began = time.perf_counter()
    shown.goto(f"{address}#/{where}")
    shown.locator(rows).first.wait_for(state="visible", timeout=_DEADLINE_MS)
    return time.perf_counter() - began


def _timed(what: str, times: list[float], plain: float, limit: float) -> Row:
    median, worst = statistics.median(times), max(times)
    return row(
        what,
        f"{median:.2f} s" + (f", at most {worst:.2f}" if len(times) > 1 else ""),
        f"Settings {plain:.2f} s",
        median / plain,
        f"≤ {limit:g} s",
        met=median <= limit,
    )


def _scrolling(browser: Browser, address: str) -> Rows:
    """The longest task of the page's thread while a long session is scrolled, by CPU time."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    shown = context.new_page()
    _seconds(shown, address, ("s/agent000/long", ".entry"))
    traced = context.new_cdp_session(shown)
    events: list[dict[str, Any]] = []
    ended: list[bool] = []
    traced.on("Tracing.dataCollected", lambda part: events.extend(part["value"]))
    traced.on("Tracing.tracingComplete", lambda _: ended.append(True))
    categories = ["toplevel", "devtools.timeline"]
    traced.send("Tracing.start", {"traceConfig": {"includedCategories": categories}})
    shown.evaluate(_SCROLL, [_FRAMES, _STEP])
    traced.send("Tracing.end")
    while not ended:
        shown.wait_for_timeout(50)
    context.close()
    drawing = {(each["pid"], each["tid"]) for each in events if each["name"] == "FunctionCall"}
    tasks = [
        each.get("tdur", 0) / 1e6
        for each in events
        if each["name"].endswith("RunTask") and (each["pid"], each["tid"]) in drawing
    ]
    longest, usual = max(tasks), sum(tasks) / _FRAMES
    yield row(
        f"scroll {_ENTRIES:,} entries, longest task",
        f"{longest * 1000:.0f} ms CPU",
        f"a frame {usual * 1000:.1f} ms",
        longest / usual,
        f"≤ {_LONGEST_TASK_SECONDS * 1000:.0f} ms",
        met=longest <= _LONGEST_TASK_SECONDS,
    )


def _write_long(path: Path) -> None:
    with path.open("wb") as file:
        for _, line in zip(range(_ENTRIES), session_lines(size=1 << 40, seed=5), strict=False):
            file.write(line)
