"""An entry on the page: it is in view when found, and pictures appear as pictures."""

from __future__ import annotations

import base64
import json
import struct
import zlib
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
from tests.http.web.sample import message, text
from tests.openclaw_tree import add_session, set_idle
from tests.searching import read_all

pytestmark = pytest.mark.web

OPEN = {"BRAINSURGEON_HTTP": "127.0.0.1:0"}
# Only rows near the viewport are in the document: here it has room for all of them.
ROOM = {"width": 1280, "height": 9000}
_HEADER = b'{"type":"session","version":3,"id":"one"}\n'
_SVG = '<svg xmlns="http://www.w3.org/2000/svg" onload="window.hacked=1"><script>1</script></svg>'


def address_of(server: ApiServer) -> str:
    return f"http://{server.addresses[0]}"


def png(width: int = 6, height: int = 4, *, content: bytes | None = None) -> str:
    """Return a grey picture in base64; `content` replaces its pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    pixels = zlib.compress((b"\0" + b"\x80" * width) * height) if content is None else content
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    whole = chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + whole).decode()


def drawn(page: Page, media_type: str) -> str:
    """Return a picture of 8 × 6 pixels that the browser writes, as a data URL."""
    url: str = page.evaluate(
        """(type) => {
            const canvas = document.createElement("canvas");
            [canvas.width, canvas.height] = [8, 6];
            canvas.getContext("2d").fillRect(1, 1, 4, 4);
            return canvas.toDataURL(type);
        }""",
        media_type,
    )
    assert url.startswith(f"data:{media_type};base64,")
    return url


# True if the first entries of the session are in the viewport.
_AT_BEGINNING = """() => {
    const seen = [...document.querySelectorAll(".entry")].find(
        (entry) => entry.getBoundingClientRect().bottom > 200,
    );
    return seen !== undefined && Number(seen.dataset.index) <= 2;
}"""


def entry_of(page: Page, index: int) -> Locator:
    return page.locator(f".entry[data-index='{index}']")


def opened(page: Page, index: int) -> Locator:
    """Open the whole entry, and return it."""
    entry = entry_of(page, index)
    entry.get_by_role("button", name=f"Actions on entry {index}", exact=True).click()
    entry.get_by_role("button", name="Whole entry").click()
    expect(entry.get_by_role("button", name="Hide whole entry")).to_be_visible()
    expect(entry.locator(".full .actions")).to_be_visible()
    return entry


def expect_picture(entry: Locator, alt: str, at: int = 0) -> None:
    """Wait for a picture that the browser has decoded, without base64 in the text."""
    image = entry.locator("img").nth(at)
    expect(image).to_have_attribute("alt", alt)
    expect(image).to_have_js_property("complete", value=True)
    assert image.evaluate("(image) => image.naturalWidth") > 0


def test_an_entry_that_was_found_is_in_sight(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / ".openclaw"
    lines = [message(f"e{at}", "user", text(f"number {at} " * 30)) for at in range(1, 90)]
    lines[40] = message("e41", "user", text("the xylophonic one"))
    add_session(root, "main/one", _HEADER + b"".join(lines))
    read_all(Layout(root))
    with (
        serving(root, FakeDaemon(), **OPEN) as (server, _),
        watched(browser, address_of(server)) as seen,
    ):
        page = seen.open("s/main/one?at=41")
        expect(entry_of(page, 41).locator(".entry-open")).to_be_focused()
        expect(entry_of(page, 41)).to_be_in_viewport()
        page.goto("about:blank")

        page = seen.open("sessions")
        page.get_by_label("Search sessions").fill("xylophonic")
        hit = page.get_by_role("region", name="Found in the text").get_by_role("listitem")
        hit.get_by_role("link").click()
        expect(entry_of(page, 41).locator(".entry-open")).to_be_focused()
        expect(entry_of(page, 41)).to_be_in_viewport()
        # A view that was left keeps its position, and another view begins at its top.
        page.locator("main").evaluate("(main) => main.scrollTo(0, 300)")
        until(page, _AT_BEGINNING)
        page.locator("nav").get_by_role("link", name="Trash").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Trash")
        assert page.locator("main").evaluate("(main) => main.scrollTop") == 0
        page.go_back()
        expect(page.locator(".entry").first).to_be_visible()
        # If the bar above the entries comes later, the position differs by its height.
        until(page, _AT_BEGINNING)
        # A link leads to the entry again.
        page.go_back()
        hit.get_by_role("link").click()
        expect(entry_of(page, 41).locator(".entry-open")).to_be_focused()
        expect(entry_of(page, 41)).to_be_in_viewport()


@pytest.mark.soak
def test_pictures_are_shown_as_pictures(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / ".openclaw"
    with serving(root, FakeDaemon(), **OPEN) as (server, _):
        with watched(browser, address_of(server)) as seen:
            page = seen.open("sessions")
            jpeg, webp = (drawn(page, f"image/{name}") for name in ("jpeg", "webp"))
        gif = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
        claude = {"type": "base64", "media_type": "image/svg+xml", "data": png()}  # a wrong name
        result = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image"}]}
        result["content"] = [text("seen"), {"type": "image", "source": {**claude}}]
        lines = [
            message("p1", "user", {"type": "image", "data": png(), "mimeType": "image/png"}),
            message("p2", "user", {"type": "image", "source": claude}, text("What is this?")),
            message("p3", "user", {"type": "input_image", "image_url": jpeg}),
            message("p4", "user", {"type": "image_url", "image_url": {"url": webp}}),
            message("p5", "user", {"type": "image", "data": gif, "mimeType": "image/gif"}),
            message("p6", "user", result),
        ]
        add_session(root, "main/one", _HEADER + b"".join(lines))
        with watched(browser, address_of(server), viewport=ROOM) as seen:
            page = seen.open("s/main/one")
            size = len(base64.b64decode(png()))
            expect_picture(opened(page, 1), f"PNG picture, 6 × 4, {size} B")
            expect(entry_of(page, 1).locator("pre")).to_have_count(0)
            expect_picture(opened(page, 2), f"PNG picture, 6 × 4, {size} B")
            expect(entry_of(page, 2).locator("pre")).to_have_text("What is this?")
            for index, name in ((3, "JPEG"), (4, "WebP")):
                url = jpeg if name == "JPEG" else webp
                size = len(base64.b64decode(url.partition(",")[2]))
                expect_picture(opened(page, index), f"{name} picture, 8 × 6, {size} B")
            expect_picture(opened(page, 5), "GIF picture, 1 × 1, 42 B")
            entry = opened(page, 6)
            expect_picture(entry, f"PNG picture, 6 × 4, {len(base64.b64decode(png()))} B")
            expect(entry.locator("pre")).to_contain_text("seen")
            expect(entry.locator("pre")).not_to_contain_text("iVBOR")
            assert entry.locator("img").get_attribute("src").startswith("blob:")  # type: ignore[union-attr]
            # The exact spelling is available on request.
            entry.get_by_role("button", name="Entry as JSON").click()
            expect(entry.locator("pre")).to_contain_text("iVBOR")
            expect(entry.locator("img")).to_have_count(0)


@pytest.mark.soak
def test_what_is_no_picture_or_too_large_is_not_shown_as_one(
    browser: Browser, tmp_path: Path
) -> None:
    root = tmp_path / ".openclaw"

    def image(data: str, kind: str = "image/png") -> dict[str, Any]:
        return {"type": "image", "data": data, "mimeType": kind}

    svg = base64.b64encode(_SVG.encode()).decode()
    broken = bytearray(base64.b64decode(png()))
    broken[29] ^= 255  # the checksum of its head
    lines = [
        message("n1", "user", image(svg)),
        message("n2", "user", image(f"data:image/png;base64,{svg}")),
        message("n3", "user", image(png(30_000, 30_000, content=b""))),
        message("n4", "user", image(base64.b64encode(broken).decode())),
        message("n5", "user", image(base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"A" * 90).decode())),
        message("n6", "user", *[image(png()) for _ in range(25)]),
        message("n7", "user", image(png(6, 4, content=b"\0" * (5 << 20)))),
        message("n8", "user", image(png(6, 4, content=b"\0" * (9 << 20)))),
        message("n9", "user", text(f"data:text/html;base64,{svg}"), text(HTML)),
    ]
    add_session(root, "main/one", _HEADER + b"".join(lines))
    with (
        serving(root, FakeDaemon(), **OPEN) as (server, _),
        watched(browser, address_of(server), viewport=ROOM) as seen,
    ):
        page = seen.open("s/main/one")
        for index in (1, 2, 9):
            entry = opened(page, index)
            expect(entry.locator("pre").first).to_contain_text(svg[:40])
            expect(entry.locator("img")).to_have_count(0)
        told = {3: "too many pixels", 4: "damaged", 5: "damaged", 7: "larger than 5.0 MB"}
        for index, why in told.items():
            entry = opened(page, index)
            expect(entry).to_contain_text("It is not shown: it", use_inner_text=True)
            expect(entry).to_contain_text(why)
            expect(entry.locator("img")).to_have_count(0)
        entry = opened(page, 6)
        expect(entry.locator("img")).to_have_count(20)
        expect(entry.get_by_text("20 pictures of this entry are shown already")).to_have_count(5)
        expect(opened(page, 8)).to_contain_text("A PNG picture, too large to show.")


HTML = "<img src=x onerror='window.hacked=2'>"


def test_an_extracted_picture_is_shown_and_named_in_the_list(
    browser: Browser, tmp_path: Path
) -> None:
    root = tmp_path / ".openclaw"
    picture = png(60, 40, content=zlib.compress(bytes(range(61)) * 40))
    block = {"type": "image", "data": picture, "mimeType": "image/png"}
    call = {"type": "toolCall", "id": "c", "name": "look", "arguments": {}}
    lines = [
        message("c1", "assistant", call),
        message("r1", "toolResult", block, toolCallId="c", toolName="look"),
        *(message(f"m{at}", "user", text("Go on.")) for at in range(4)),
        message("last", "assistant", text("Done."), model="m", stopReason="stop"),
    ]
    path = add_session(root, "main/one", _HEADER + b"".join(lines))
    set_idle(path)
    assert run(["--root", str(root), "extract", "--min-value-length", "40"]) == 0
    close_logs()
    assert picture.encode() not in path.read_bytes()
    assert json.loads(path.read_bytes().splitlines()[2])["_extracted"]
    with (
        serving(root, FakeDaemon(), **OPEN) as (server, _),
        watched(browser, address_of(server)) as seen,
    ):
        page = seen.open("s/main/one")
        card = entry_of(page, 1)
        expect(card.locator(".preview")).to_contain_text("[image/png, ")
        card.locator(".entry-open").click()
        entry = opened(page, 2)
        size = len(base64.b64decode(picture))
        expect_picture(entry, f"PNG picture, 60 × 40, {size} B")
        expect(entry.locator("pre")).to_have_count(0)
        # Hiding it releases its memory.
        url = entry.locator("img").get_attribute("src")
        entry.get_by_role("button", name="Hide whole entry").click()
        loads = """(url) => new Promise((done) => {
            const image = new Image();
            image.onload = () => done(true);
            image.onerror = () => done(false);
            image.src = url;
        })"""
        assert page.evaluate(loads, url) is False
