"""Hostile content: the page shows any session's content as text, and runs none of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.http.api import serving
from tests.http.web.browser import Watched, until, watched
from tests.http.web.sample import HOSTILE, fill_root
from tests.http.web.test_frame import OPEN, address_of

pytestmark = pytest.mark.web

# Reports each violation of the page's policy; it is loaded before the page's own scripts.
_DETECTOR = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
    window.violations.push(event.violatedDirective));
"""
# Shows a text as the view of a session does, and reports its elements and the time that took.
_RENDER = """
async ([type, text, hints]) => {
    const { renderText, renderRaw } = await import("./web/render.js");
    const began = performance.now();
    const element = renderText(type, text, hints ?? {});
    const main = document.getElementById("main");
    main.replaceChildren(element, renderRaw(text));
    element.getBoundingClientRect();
    return {
        text: element.textContent,
        raw: main.lastChild.textContent,
        tags: [...new Set([...element.querySelectorAll("*")].map((one) => one.localName))],
        links: [...element.querySelectorAll("a")].map((one) => [one.href, one.rel, one.target]),
        handlers: [...main.querySelectorAll("*")]
            .flatMap((one) => one.getAttributeNames())
            .filter((name) => name.startsWith("on") || name === "src"),
        seconds: (performance.now() - began) / 1000,
    };
}
"""
_SVG = (
    "<svg xmlns='http://www.w3.org/2000/svg' onload='window.hacked=3'>"
    "<script>window.hacked=4</script></svg>"
)
_MARKDOWN = f"""
{HOSTILE}

<script>window.hacked = 5</script> {_SVG}

[a](javascript:window.hacked=6) [b](JaVaScRiPt&#58;window.hacked=7)
[c](data:text/html,<script>x</script>)
[d](vbscript:x) [e](https://example.org/"onmouseover="window.hacked=8) <javascript:window.hacked=9>
![picture](http://192.0.2.1/x.png "t") ![svg](data:image/svg+xml;base64,PHN2Zz4=)
[f]: javascript:window.hacked=10
[f] www.example.org main.py mailto:a@example.org

```html"><script>window.hacked=11</script>
<script>window.hacked=12</script>
```

| <b>a</b> | b |
|:--|--:|
| {HOSTILE} | \u202e reversed \u2066 |
"""
_CALLS = [
    {"__proto__": {"polluted": 1}, "constructor": HOSTILE, "command": HOSTILE},
    {"file_path": f"../{HOSTILE}.html", "content": HOSTILE * 3},
    {"file_path": "a.svg", "old_string": _SVG, "new_string": f"{_SVG}\n{HOSTILE}"},
    {"edits": [{"oldText": HOSTILE, "newText": "__proto__"}, None, 3], "path": {"a": 1}},
    {"input": f"*** Begin Patch\n*** Update File: {HOSTILE}\n@@\n-{HOSTILE}\n+{_SVG}\n"},
]
_OUTPUT = (
    f"\x1b[31m{HOSTILE}\x1b[0m \x1b]8;;javascript:window.hacked=13\x07link\x1b]8;;\x07"
    f"\x1b[38;2;1;2;3;url(x)m{_SVG}\x1b[48;5;999m\x1b[<0;0;0M\x9b31m\r{HOSTILE}\n"
)
_DIFF = f"--- a/{HOSTILE}\n+++ b/{HOSTILE}\n@@ -1,2 +1,2 @@\n-{HOSTILE}\n+{_SVG}\n same\n"
_ALLOWED = frozenset(
    {"a", "blockquote", "br", "button", "code", "dd", "div", "dl", "dt", "em", "hr", "li", "ol"}
    | {"p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"}
)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    root = tmp_path / ".openclaw"
    fill_root(root)
    with serving(root, **OPEN) as (server, _):
        yield address_of(server)


def rendered(page: Page, type_: str, text: str, **hints: str) -> dict[str, Any]:
    told: dict[str, Any] = page.evaluate(_RENDER, [type_, text, hints])
    assert set(told["tags"]) <= _ALLOWED, told["tags"]
    assert not told["handlers"], told["handlers"]
    assert all(
        href.startswith(("http://", "https://", "mailto:"))
        and (rel, target) == ("noopener noreferrer", "_blank")
        for href, rel, target in told["links"]
    ), told["links"]
    return told


def test_the_detector_detects(browser: Browser, address: str) -> None:
    with watched(browser, address) as seen:
        seen.page.add_init_script(_DETECTOR)
        page = seen.open()
        expect(page.locator("#live")).to_have_text("Live")
        page.evaluate(
            "text => { try { document.createElement('p').innerHTML = text } catch {}"
            " document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.2:9/x'})) }",
            HOSTILE,
        )
        until(page, "window.violations.length >= 2")
        assert any("127.0.0.2" in one for one in seen.wrong), seen.wrong
        seen.wrong.clear()
    with watched(browser, address) as seen:
        seen.page.set_content(f"<body>{HOSTILE}</body>")
        until(seen.page, "window.hacked !== undefined")
        seen.page.evaluate("delete window.hacked")
        seen.wrong.clear()


def test_nothing_of_a_session_runs(browser: Browser, address: str) -> None:
    with watched(browser, address) as seen:
        seen.page.add_init_script(_DETECTOR)
        _show_what_is_hostile(seen)
        _show_what_takes_long(seen.page)
        page = seen.open("s/main/hostile")
        expect(page.locator("#main")).to_contain_text(HOSTILE)
        assert page.evaluate("window.violations") == []
        assert page.evaluate("({}).polluted") is None


def _show_what_is_hostile(seen: Watched) -> None:
    page = seen.open()
    expect(page.locator("#live")).to_have_text("Live")
    told = rendered(page, "assistant", _MARKDOWN)
    assert HOSTILE in told["text"]
    assert "U+202E reversed U+2066" in told["text"]
    hosts = [href for href, _, _ in told["links"]]
    named = [href.split("/")[2] for href in hosts if "//" in href]
    assert named == ["www.w3.org", "example.org"], "names of files and hosts alone are no links"
    assert "mailto:a@example.org" in hosts
    for text in (_MARKDOWN, HOSTILE, _SVG):
        for kind in ("user", "thinking", "tool_result", "system", "__proto__", HOSTILE):
            told = rendered(
                page, kind, text, tool=HOSTILE, path=f"{HOSTILE}.html", language=HOSTILE
            )
            assert told["raw"].replace("U+202E", "\u202e").replace("U+2066", "\u2066") == text
    for given in _CALLS:
        for tool in ("Bash", "__proto__", HOSTILE):
            told = rendered(page, "tool_call", json.dumps(given), tool=tool)
            assert "window.hacked" in told["text"]
    for path in ("a.html", "a.svg", "a.js", "constructor", "a.__proto__", HOSTILE):
        told = rendered(page, "tool_result", HOSTILE * 5, path=path)
        assert HOSTILE * 5 in told["text"]
    told = rendered(page, "tool_result", _OUTPUT, tool="Bash")
    assert HOSTILE in told["text"]
    assert "javascript:" not in told["text"]
    told = rendered(page, "tool_result", _DIFF)
    assert f"+{_SVG}" in told["text"]
    assert page.evaluate("window.violations") == []


def _show_what_takes_long(page: Page) -> None:
    line = "x" * 1_000_000
    deep = "[" * 4000 + "]" * 4000
    for kind, text in (
        ("assistant", line),
        ("tool_result", line),
        ("tool_call", json.dumps({"command": line})),
        ("assistant", "> " * 2000 + "deep"),
        ("assistant", "- " * 2000),
        ("assistant", "*_" * 20000),
        ("assistant", "[" * 50000 + "](" * 20000),
        ("assistant", "`" * 50000 + "a`b``" * 9000),
        ("assistant", "www." * 20000 + "http://" * 4000),
        ("tool_call", deep),
        ("tool_result", deep),
        ("tool_result", "\x1b[1m" * 25000),
        ("tool_result", "\x1b[" + ";" * 90000),
        ("tool_result", "@@ -1 +1 @@\n" + "+\n" * 40000),
    ):
        told = rendered(page, kind, text, tool="bash")
        assert told["seconds"] < 60, (kind, text[:40])
        assert len(told["text"]) <= 110_000


@pytest.mark.soak
def test_texts_look_as_they_are_meant(browser: Browser, address: str) -> None:
    with watched(browser, address) as seen:
        page = seen.open()
        expect(page.locator("#live")).to_have_text("Live")
        main = page.locator("#main .rendered").first
        rendered(
            page,
            "assistant",
            "# Plan\n\n1. *first*\n2. **second**\n\n| a | b |\n|-|-|\n| 1 | 2 |\n",
        )
        assert main.locator("ol li").all_text_contents() == ["first", "second"]
        assert main.locator("table td").all_text_contents() == ["1", "2"]
        told = rendered(page, "assistant", "```python\ndef f():\n    return 'a&b <c>'  # d\n```\n")
        assert "return 'a&b <c>'  # d" in told["text"]
        expect(main.locator(".hljs-keyword").first).to_have_text("def")
        rendered(page, "tool_result", "     7→def f():\n     8→    pass\n", path="a/b.py")
        expect(main.locator(".code-numbers")).to_have_text("7\n8")
        expect(main.locator(".hljs-keyword").first).to_have_text("def")
        rendered(page, "tool_result", "Replaced text in b.py", path="a/b.py", tool="edit")
        expect(main.locator("[class^=hljs]")).to_have_count(0)
        rendered(
            page, "tool_result", "\x1b[1;32mok\x1b[0m \x1b[38;2;9;8;7mgrey\x1b[m\n 10%\r 20%\n"
        )
        expect(main.locator(".sgr-front-2.sgr-bold")).to_have_text("ok")
        assert main.get_by_text("grey").evaluate("one => one.style.color") == "rgb(9, 8, 7)"
        told = rendered(page, "tool_result", "a\n 10%\r 20%\r100%\n", tool="bash")
        assert told["text"].splitlines()[:2] == ["a", "100%"]
        edit = {"file_path": "a.py", "old_string": "a\nb\nc", "new_string": "a\nB\nc\nd"}
        rendered(page, "tool_call", json.dumps(edit), tool="Edit")
        assert main.locator(".diff-line .diff-text").all_text_contents() == [
            " a",
            "-b",
            "+B",
            " c",
            "+d",
        ]
        expect(main.locator(".arguments")).to_contain_text("a.py")
        rendered(page, "tool_result", "@@ -3,2 +3,3 @@ f\n a\n-b\n+--- b\n+c\n-- \n")
        kinds = main.locator(".diff-line").evaluate_all("all => all.map((one) => one.classList[1])")
        assert kinds == ["note", "same", "removed", "added", "added", "same"]
        assert main.locator(".diff-number").all_text_contents()[2:8] == ["3", "3", "4", "", "", "4"]
        told = rendered(page, "tool_result", "line\n" * 30_000)
        assert "Show more (50,000 characters left)" in told["text"]
        main.get_by_role("button", name="Show more").click()
        expect(main.get_by_role("button", name="Show more")).to_have_count(0)
        assert main.evaluate("one => one.textContent") == "line\n" * 30_000
