"""Reading a session: a conversation of any length, its prompts, its hits, and its sub-agents."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from bsd.cli.main import run
from bsd.core.layout import Layout
from bsd.core.logs import close_logs
from bsd.http.server import ApiServer
from tests.http.api import serving
from tests.http.fake_daemon import FakeDaemon
from tests.http.web.browser import until, watched
from tests.http.web.looks import findings, too_wide
from tests.http.web.sample import message, text
from tests.openclaw_tree import add_session, set_idle
from tests.searching import read_all

pytestmark = pytest.mark.web

OPEN = {"BRAINSURGEON_HTTP": "127.0.0.1:0"}
MANY = int(os.environ.get("BSD_MANY_ENTRIES", "3000"))  # `make soak` has ten thousand
_BEGIN = datetime(2026, 1, 5, 9, tzinfo=UTC)
_LOG = "\n".join(f"line {at} of a long log about quays" for at in range(400))


def address_of(server: ApiServer) -> str:
    return f"http://{server.addresses[0]}"


def entry_of(page: Page, index: int) -> Locator:
    return page.locator(f".entry[data-index='{index}']").first


def shown(page: Page) -> list[int]:
    """Return the entries in the document, in their order."""
    return [
        int(one)
        for one in page.locator(".entries > .block:not(.gap) > .entry").evaluate_all(
            "(all) => all.map((one) => one.dataset.index)"
        )
    ]


def header(name: str) -> bytes:
    return json.dumps({"type": "session", "version": 3, "id": name}).encode() + b"\n"


def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": id, "name": name, "arguments": arguments}


def talk() -> bytes:
    """Two questions, with every kind of entry between a question and its answer."""
    note = {"type": "custom", "customType": "state", "data": {"open": 1}}
    lines = [
        header("talk"),
        message("q1", "user", text("Why do the **berth** tests fail?")),
        message("t1", "assistant", {"type": "thinking", "thinking": "The tide table, perhaps."}),
        message("c1", "assistant", text("I run them."), call("k1", "bash", command="pytest -q")),
        json.dumps({**note, "id": "n1"}).encode() + b"\n",
        json.dumps({**note, "id": "n2"}).encode() + b"\n",
        message("r1", "toolResult", text(_LOG), toolCallId="k1", toolName="bash", isError=True),
        message("a1", "assistant", text("On Sundays only."), stopReason="stop"),
        message("q2", "user", text("Please mend it.")),
        message(
            "c2",
            "assistant",
            call("k2", "edit", path="tides.py", oldText="weekday()", newText="isoweekday() % 7"),
        ),
        message("r2", "toolResult", text("Replaced."), toolCallId="k2", toolName="edit"),
        message("a2", "assistant", text("Mended: `isoweekday`, of quays."), stopReason="stop"),
    ]
    return b"".join(
        line.replace(
            b"2026-01-05T09:00:00.000Z",
            (_BEGIN + timedelta(seconds=7 * at)).isoformat().replace("+00:00", "Z").encode(),
        )
        for at, line in enumerate(lines)
    )


def test_a_session_is_read_as_a_conversation(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / ".openclaw"
    set_idle(add_session(root, "main/talk", talk()))
    asked = message("s1", "user", text("Read the tide tables."))
    asked = asked.replace(b"T09:00:00", b"T09:00:25")  # after the call that has started it
    add_session(root, "main/helper", header("helper") + asked)
    registry = {
        "agent:main:main": {"sessionId": "talk"},
        "agent:main:subagent:helper": {"sessionId": "helper", "parentSessionId": "talk"},
    }
    (root / "agents/main/sessions/sessions.json").write_text(json.dumps(registry))
    assert run(["--root", str(root), "extract", "main/talk", "--keep-recent", "2"]) == 0
    close_logs()
    read_all(Layout(root))
    with (
        serving(root, FakeDaemon(), **OPEN) as (server, _),
        watched(browser, address_of(server)) as seen,
    ):
        page = seen.open("s/main/talk")
        _cards(page)
        _contents_focus_and_raw(page)
        _hits(page)
        # Sub-agents are opened in place.
        helper = page.get_by_role("region", name="Sub-agent main/helper")
        helper.get_by_role("button", name="Open here").click()
        expect(helper).to_contain_text("Read the tide tables.")
        # An entry has its id as a name, too, and a link to copy.
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = seen.open("s/main/talk?at=a1")
        expect(entry_of(page, 7).locator(".entry-open")).to_be_focused()
        entry_of(page, 7).get_by_role("button", name="Actions on entry 7").click()
        page.get_by_role("button", name="Copy link to this entry").click()
        expect(page.get_by_text("link copied")).to_be_visible()
        link = page.evaluate("navigator.clipboard.readText()")
        assert link == f"{seen.address}/#/s/main/talk?at=7"
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            assert (scheme, findings(page, scheme)) == (scheme, [])
        page.keyboard.press("Escape")
        _keys(page, seen.address)
        page.set_viewport_size({"width": 360, "height": 800})
        assert too_wide(page) == []
        above = page.evaluate(_ABOVE_ENTRIES)
        assert 0 < above < 800 / 3
        unfold = page.get_by_role("button", name="Details and actions")
        expect(page.get_by_role("button", name="Export…")).to_be_hidden()
        unfold.click()
        expect(page.get_by_role("button", name="Export…")).to_be_visible()
        assert too_wide(page) == []
        page.get_by_role("button", name="Less", exact=True).press("Enter")
        expect(unfold).to_have_attribute("aria-expanded", "false")
        page.get_by_role("button", name="Prompts").click()
        page.get_by_role("dialog").get_by_role("link", name="Please mend it.").click()
        expect(entry_of(page, 8)).to_be_in_viewport()


def _cards(page: Page) -> None:
    card = page.locator(".entry[data-kind=call]").first
    expect(card.locator(".kind").first).to_have_text("bash")
    expect(card.locator(".summary").first).to_have_text("pytest -q")
    expect(card.locator(".seconds")).to_have_text("21 s")
    expect(card).to_contain_text("error")
    expect(card).to_contain_text("📎 taken out")
    expect(card.locator(".preview")).to_contain_text("line 0 of a long log")  # as before
    expect(entry_of(page, 6)).to_have_count(0)
    card.locator(".entry-open").click()
    expect(entry_of(page, 6).locator(".value")).to_contain_text("line 9 of a long log")
    entry_of(page, 6).get_by_role("button", name=re.compile(r"^Show all [\d,]+ characters")).click()
    expect(entry_of(page, 6).locator(".value")).to_contain_text("line 399 of a long log")
    # The program's own notes are one line; thoughts are folded.
    notes = page.get_by_role("button", name="2 entries of bookkeeping")
    expect(notes).to_be_visible()
    notes.click()
    expect(entry_of(page, 5)).to_be_visible()
    thought = page.locator(".entry[data-kind=thinking]")
    expect(thought.locator(".value")).to_have_count(0)
    thought.locator(".entry-open").click()
    expect(thought.locator(".value")).to_have_text("The tide table, perhaps.")
    seen = page.get_by_role("group", name="What the model sees")
    expect(seen).to_contain_text(re.compile("The model sees .* tokens.*limit"))


def _contents_focus_and_raw(page: Page) -> None:
    contents = page.get_by_role("navigation", name="Prompts")
    expect(contents.get_by_role("link")).to_have_count(2)
    contents.get_by_role("link").nth(1).click()
    expect(entry_of(page, 8).locator(".entry-open")).to_be_focused()
    assert "at=8" in page.url
    # A small change is open, shown as a comparison.
    expect(page.locator(".entry[data-kind=call]").last).to_contain_text("isoweekday() % 7")
    page.keyboard.press("f")
    expect(page.locator(".entry")).to_have_count(4)
    assert shown(page) == [1, 7, 8, 11]
    page.keyboard.press("f")
    expect(page.locator(".entry[data-kind=call]").first).to_be_visible()
    prompt = entry_of(page, 1)
    expect(prompt.locator("strong")).to_have_text("berth")
    prompt.locator(".entry-open").focus()
    page.keyboard.press("r")
    expect(prompt.locator(".value")).to_contain_text("**berth**")
    page.keyboard.press("r")
    page.keyboard.press("n")
    expect(entry_of(page, 6).locator(".entry-open")).to_be_focused()


# Pixels of the header and the head of a session before its entries, without notices.
_ABOVE_ENTRIES = """() => {
  const top = (name) => document.querySelector(name).getBoundingClientRect().top;
  const header = document.querySelector("header").offsetHeight;
  return header + top(".conversation") - top(".reading");
}"""


def _keys(page: Page, address: str) -> None:
    """Check the keys in the help: find, the next hit, the address of an entry."""
    page.locator("body").press("s")
    page.keyboard.type("berth")
    page.keyboard.press("Enter")
    state = page.get_by_role("search").get_by_role("status")
    expect(state).to_have_text("1 of 1")
    entry_of(page, 7).locator(".entry-open").focus()
    page.keyboard.press("c")
    until(
        page,
        "link => navigator.clipboard.readText().then((text) => text === link)",
        arg=f"{address}/#/s/main/talk?at=7",
    )
    page.keyboard.press("h")
    expect(entry_of(page, 1)).to_be_in_viewport()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_contain_text("the next hit")
    expect(keys).to_contain_text("copy the address")
    page.keyboard.press("Escape")


def _hits(page: Page) -> None:
    find = page.get_by_label("Find in this session")
    find.fill("Sundays")
    find.press("Enter")
    expect(page.get_by_role("search").get_by_role("status")).to_have_text("1 of 1")
    expect(entry_of(page, 7)).to_be_in_viewport()
    until(page, "() => [...CSS.highlights.get('hits')].length === 1")
    assert "q=Sundays" in page.url
    find.press("Escape")
    expect(find).to_have_value("")
    # Without focus an entry shows its words and its time; screen readers also get its number.
    entry, number = entry_of(page, 7), entry_of(page, 7).locator(".index")
    page.mouse.move(0, 0)
    expect(number).to_have_css("opacity", "0")
    expect(entry.locator(".meta > time")).to_have_css("opacity", "1")
    entry.hover()
    expect(number).to_have_css("opacity", "1")


def test_thousands_of_entries_are_a_handful_of_rows(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / ".openclaw"
    words = "number {} " + "and some more words " * 3
    roles = ("assistant", "user", "assistant", "assistant", "assistant")
    lines = [
        message(f"e{at}", roles[at % 5], text(words.format(at) * (1 + at % 7)))
        for at in range(1, MANY)
    ]
    path = add_session(root, "main/long", header("long") + b"".join(lines))
    daemon = FakeDaemon()
    with (
        serving(root, daemon, **OPEN) as (server, _),
        watched(browser, address_of(server)) as seen,
    ):
        page = seen.open(f"s/main/long?at={MANY // 2}")
        expect(entry_of(page, MANY // 2).locator(".entry-open")).to_be_focused()
        expect(entry_of(page, MANY // 2)).to_be_in_viewport()
        assert len(shown(page)) < 80
        # The visible entries stay in place while other entries are loaded and measured.
        place = f"document.querySelector(`[data-index='{MANY // 2}']`).getBoundingClientRect().top"
        before = page.evaluate(place)
        until(page, f"() => document.querySelector('#main').scrollHeight > 50 * {MANY}")
        # The bar above the entries may appear just now: the list follows it in the next frame.
        until(page, f"(before) => Math.abs({place} - before) <= 2", arg=before)
        # The scroll bar leads anywhere, and the page loads the entries there.
        main = page.locator("main")
        main.evaluate("(main) => main.scrollTo(0, main.scrollHeight / 4)")
        until(
            page,
            """() => [...document.querySelectorAll('.entries > .block:not(.gap)')].some((one) => {
                const { top, bottom } = one.getBoundingClientRect();
                return top < 400 && bottom > 300;
            })""",
        )
        assert MANY // 10 < shown(page)[0] < 0.45 * MANY
        known = shown(page)
        assert known == sorted(known)
        # New entries do not move the reader, and one step leads to them.
        _append(path, "later")
        daemon.events.publish("session", session="main/long", status="unchanged")
        new = page.get_by_role("button", name="1 new entry")
        expect(new).to_be_visible()
        new.click()
        expect(entry_of(page, MANY)).to_be_in_viewport()
        # At the end, the view follows new entries.
        _append(path, "still later")
        daemon.events.publish("session", session="main/long", status="unchanged")
        expect(entry_of(page, MANY + 1)).to_be_in_viewport()
        expect(new).to_have_count(0)


def _append(path: Path, id: str) -> None:
    with path.open("ab") as file:
        file.write(message(id, "assistant", text(f"This came {id}.")))
