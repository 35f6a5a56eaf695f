"""`bsd show SESSION ENTRY`: one entry to read, Markdown on a terminal, and a pager."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.conftest import Call
from tests.openclaw_tree import add_session
from tests.session_files import entry

PROSE = "# A **bold** plan\n\n- one\n- [two](https://example.com/two)\n\n```python\nx = 1\n```\n"
HOSTILE = "\x1b]0;owned\x07 \x1b[2J &#x202e; <script>alert(1)</script> \u202e end"


def with_texts(root: Path, *texts: str) -> str:
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-02-01T00:00:00Z"}
    lines: list[dict[str, Any]] = [header, entry(1, "user", "hello")]
    lines += [entry(n, "assistant", text) for n, text in enumerate(texts, 2)]
    lines.append(entry(9, "toolResult", "y" * 600))
    lines += [entry(n, "assistant", f"answer {n}") for n in (10, 11, 12, 13)]
    content = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    add_session(root, "main/read", content)
    return "main/read"


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "500")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_without_a_terminal_the_text_is_as_it_was_written(bsd: Call, root: Path) -> None:
    session = with_texts(root, PROSE)
    shown = bsd("show", session, "e2")
    assert shown.code == 0
    assert PROSE.rstrip("\n") in shown.out
    assert bsd("show", session, "e2", "--json").document["entries"][0]["id"] == "e2"
    assert bsd("show", session, "e2", "--entry", "e2").code == 2


def test_what_is_out_of_the_session_is_read_from_where_it_is_kept(bsd: Call, root: Path) -> None:
    session = with_texts(root, PROSE)
    assert bsd("extract", session).code == 0
    shown = bsd("show", session, "e9").out
    assert "y" * 600 in shown
    assert "📎 extracted" in shown
    assert "[[extracted-" not in shown


def test_on_a_terminal_markdown_is_rendered_and_nothing_commands_it(
    bsd: Call, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch)
    session = with_texts(root, PROSE, HOSTILE)
    shown = bsd("show", session, "e2").out
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "**bold**" not in plain
    assert "```" not in plain
    assert "two (https://example.com/two)" in plain
    assert PROSE.rstrip("\n") in bsd("show", session, "e2", "--raw").out
    for more in ((), ("--raw",)):
        hostile = bsd("show", session, "e3", *more).out
        left = re.sub(r"\x1b\[[0-9;]*m", "", hostile)
        assert "\x1b" not in left
        assert "\x07" not in left
        assert "\u202e" not in left
        assert "end" in left


def test_only_what_is_longer_than_the_screen_is_paged(
    bsd: Call, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch)
    paged: list[str] = []
    monkeypatch.setattr(click, "echo_via_pager", paged.append)
    session = with_texts(root, "line\n\n" * 40)
    assert "line" in bsd("show", session, "e2").out
    monkeypatch.setenv("LINES", "20")
    assert bsd("show", session, "e2").out == ""
    assert paged[0].count("line") == 40
    assert bsd("show", session, "e2", "--no-pager").out.count("line") == 40
    assert len(paged) == 1
