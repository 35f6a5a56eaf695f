"""One file of a session: whole, escaped, and without secrets on request."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from bsd.actions.export import ExportFormat, export_session
from bsd.core.errors import Conflict
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.deleted_sessions import deleted_sessions
from tests.actions.test_redact_secret import KEY, TOKEN, entries, session
from tests.maintenance.keeping import ClaudeHome, extract, keep
from tests.openclaw_tree import add_session
from tests.session_files import HEADER, LONG, NAME, Clock, entry, jsonl, make_caller

HOSTILE = (
    "<script>alert(1)</script> [x](javascript:alert(2)) ![y](https://evil.example/z.png)\n\n"
    "<img src=x onerror=alert(3)> \x1b[31mred\x1b[0m \u202egnp.exe\n\n```\n<svg onload=alert(4)>\n"
)


class _Tags(HTMLParser):
    """Collects the elements of a page, and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


@pytest.mark.parametrize("is_gone", [False, True], ids=["live", "gone"])
def test_jsonl_is_the_session_as_it_was(
    layout: Layout, clock: Clock, tmp_path: Path, *, is_gone: bool
) -> None:
    path = session(layout)
    was = path.read_bytes()
    extract(layout, NAME, clock, trigger_types=("tool_result",))
    assert path.read_bytes() != was
    if is_gone:
        keep(layout, clock)
        path.unlink()
    file = tmp_path / "out.jsonl"
    done = export_session(make_caller(layout, clock), NAME, ExportFormat.JSONL, file)
    assert file.read_bytes() == was
    assert file.stat().st_mode & 0o777 == 0o600
    assert (done.bytes, done.entries, done.unavailable) == (len(was), 10, 0)
    assert {(one.rule, one.count) for one in done.secrets} == {
        ("github-pat", 4),
        ("private-key", 1),
    }
    with pytest.raises(Conflict):
        export_session(make_caller(layout, clock), NAME, ExportFormat.JSONL, file)
    if is_gone:
        [copy] = deleted_sessions(layout)
        assert copy.id != str(NAME)
        by_id = tmp_path / "by-id.jsonl"
        named = SessionName.parse(copy.id)
        export_session(make_caller(layout, clock), named, ExportFormat.JSONL, by_id)
        assert by_id.read_bytes() == was


@pytest.mark.parametrize("format", list(ExportFormat))
def test_redacted_it_has_no_secret(
    layout: Layout, clock: Clock, tmp_path: Path, format: ExportFormat
) -> None:
    path = session(layout)
    was = path.read_bytes()
    extract(layout, NAME, clock, trigger_types=("tool_result",))
    file = tmp_path / "out"
    caller = make_caller(layout, clock)
    plan = export_session(caller, NAME, format, file, redact=True, dry_run=True)
    assert not file.exists()
    done = export_session(caller, NAME, format, file, redact=True)
    assert done.secrets == plan.secrets
    text = file.read_text()
    assert TOKEN not in text
    assert KEY.split("\n")[2] not in text
    assert text.count("[redacted-github-pat]") >= 4
    assert LONG in text
    assert TOKEN not in repr(done)
    if format is ExportFormat.JSONL:
        assert [json.loads(line)["id"] for line in text.splitlines()] == [
            each["id"] for each in entries()
        ]
    assert was != path.read_bytes()


def test_a_title_has_no_piece_of_a_secret(layout: Layout, clock: Clock, tmp_path: Path) -> None:
    path = session(layout)
    lines = entries()
    lines[1]["message"]["content"][0]["text"] = f"take this key:\n{KEY}\nand do it"
    path.write_bytes(jsonl(*lines))
    caller = make_caller(layout, clock)
    for form in (ExportFormat.HTML, ExportFormat.MARKDOWN):
        export_session(caller, NAME, form, tmp_path / form, redact=True)
        text = (tmp_path / form).read_text()
        assert "take this key: " in text
        assert not [piece for piece in KEY.split("\n")[1:-1] if piece in text]


def test_a_file_that_another_process_has_just_made_stays(
    layout: Layout, clock: Clock, tmp_path: Path
) -> None:
    session(layout)
    file = tmp_path / "out.md"
    caller = make_caller(layout, clock)

    def meanwhile(done: int, of: int | None = None) -> None:
        file.write_text("of another")

    with pytest.raises(Conflict):
        export_session(
            replace(caller, progress=meanwhile), NAME, ExportFormat.MARKDOWN, file, redact=True
        )
    assert file.read_text() == "of another"


def test_hostile_content_stays_text(layout: Layout, clock: Clock, tmp_path: Path) -> None:
    call = {"type": "toolCall", "id": "c", "name": "<b>bash</b>", "arguments": {"x": HOSTILE}}
    lines = [HEADER, entry(0, "user", HOSTILE), entry(1, "assistant", HOSTILE)]
    lines[2]["message"]["content"].append(call)
    lines.append(entry(2, "toolResult", HOSTILE))
    png = {"type": "image", "mimeType": 'image/png" onload="x', "data": "AAAA"}
    lines[1]["message"]["content"].append(png)
    add_session(layout.root, str(NAME), jsonl(*lines))
    caller = make_caller(layout, clock)
    export_session(caller, NAME, ExportFormat.HTML, tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    seen = _Tags(text).seen
    tags = {tag for tag, _ in seen}
    assert {"html", "article", "details", "pre", "code"} <= tags
    assert not tags & {"script", "img", "svg", "iframe", "object", "form", "b "}
    for tag, attributes in seen:
        assert not any(name.startswith("on") for name in attributes)
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith(("#", "https://")), attributes
        if tag == "meta" and "http-equiv" in attributes:
            assert "default-src 'none'" in str(attributes["content"])
    assert "\x1b" not in text
    assert "\u202e" not in text
    export_session(caller, NAME, ExportFormat.MARKDOWN, tmp_path / "a.md")
    marked = (tmp_path / "a.md").read_text()
    assert "\n\\<script>alert(1)" in marked
    assert marked.count("```") % 2 == 0


@pytest.mark.parametrize(
    "before",
    [
        *("", "\\", "\\\\", "text ", "``` a`b\n", "```\n```\u00a0\n```\n```\n", "- a\n  ```\n"),
        *("~~~\n  ~~~ \t\n", "```\n    ```\n```\n", "    ```\n", "\t~~~\n", "``\n", "> ```\n"),
    ],
)
def test_no_html_begins_in_markdown_wherever_it_stands(
    layout: Layout, clock: Clock, tmp_path: Path, before: str
) -> None:
    hostile = f"{before}<img src=x onerror=alert(1)>\n{before}![z](https://evil.example/z.png)"
    add_session(layout.root, str(NAME), jsonl(HEADER, entry(0, "user", hostile)))
    export_session(make_caller(layout, clock), NAME, ExportFormat.MARKDOWN, tmp_path / "a.md")
    shown = MarkdownIt("commonmark").render((tmp_path / "a.md").read_text())
    assert "img" not in {tag for tag, _ in _Tags(shown).seen}, shown
    assert "onerror" in shown


def test_sub_agents_follow(tmp_path: Path, clock: Clock) -> None:
    home = ClaudeHome.of(tmp_path, 1, small=True)
    file = tmp_path / "out.html"
    caller = make_caller(home.layout, clock)
    done = export_session(caller, home.names[0], ExportFormat.HTML, file)
    assert len(done.sessions) == 2
    assert done.sessions[1].startswith(str(home.names[0].agent))
    assert ">Sub-agent: " in file.read_text()
    keep(home.layout, clock)
    for name in done.sessions:
        home.layout.transcript(SessionName.parse(name)).unlink()
    gone = export_session(caller, home.names[0], ExportFormat.HTML, tmp_path / "gone.html")
    assert gone.sessions == done.sessions
    assert (tmp_path / "gone.html").read_bytes() == file.read_bytes()
