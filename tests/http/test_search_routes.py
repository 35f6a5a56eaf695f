"""GET /api/search with its filters, and GET /api/files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.core.layout import Layout
from tests.http.api import over_socket, serving
from tests.openclaw_tree import add_session
from tests.searching import entry, read_all
from tests.session_files import HEADER, jsonl

pytestmark = pytest.mark.daemon


def test_words_and_files(root: Path) -> None:
    call = {"type": "toolCall", "id": "c", "name": "edit", "arguments": {"path": "/p/src/auth.py"}}
    asked = entry(3, "assistant", "the numbat digs", 2)
    asked["message"]["content"].append(call)
    add_session(root, "main/one", jsonl(HEADER, entry(2, "user", "a numbat"), asked))
    add_session(root, "main/two", jsonl(HEADER, entry(2, "user", "a numbat", 20)))
    registry = {"agent:main:one": {"sessionId": "one"}}
    (root / "agents/main/sessions/sessions.json").write_text(json.dumps(registry))
    read_all(Layout(root))
    with serving(root) as (_, settings):

        def ask(path: str) -> tuple[int, Any]:
            return over_socket(settings.socket, f"/api/{path}")

        def hits(more: str) -> set[str]:
            status, found = ask(f"search?q=numbat{more}")
            assert status == 200, found
            return {f"{hit['session']} {hit['index']}" for hit in found["results"]}

        for way in ("", "&all"):
            assert hits(way) == {"main/one 1", "main/one 2", "main/two 1"}
            assert hits(f"{way}&session=main/one") == {"main/one 1", "main/one 2"}
            assert hits(f"{way}&role=user") == {"main/one 1", "main/two 1"}
            assert hits(f"{way}&since=2026-02-10") == {"main/two 1"}
            assert hits(f"{way}&until=2026-02-10") == {"main/one 1", "main/one 2"}
            assert hits(f"{way}&place=live&file=auth.py") == {"main/one 1", "main/one 2"}
            assert hits(f"{way}&place=archived") == hits(f"{way}&project=elsewhere") == set()
            assert hits(f"{way}&gone=false&session=main/two") == {"main/two 1"}
            assert hits(f"{way}&gone=true") == set()
            for odd in ("since=2026-02-10&until=2026-02-09", "project=%20", "file=%20"):
                status, found = ask(f"search?q=numbat{way}&{odd}")
                assert status == 400, found
        _, found = ask("search?q=edit&role=call&all")
        assert [hit["index"] for hit in found["results"]] == [2]
        _, found = ask("search?q=digs")
        [hit] = found["results"]
        assert hit["resume"] == "openclaw tui --session agent:main:one"
        assert (hit["role"], hit["time"]) == ("assistant", "2026-02-02T00:03:00.000Z")

        status, found = ask("files?path=src/auth.py")
        [session] = found["sessions"]
        assert (status, session["session"], found["more"]) == (200, "main/one", 0)
        assert session["files"] == [{"path": "/p/src/auth.py", "changed": [2]}]
        assert session["resume"] == "openclaw tui --session agent:main:one"
        assert ask("files?path=au*&agent=main")[1]["sessions"] == found["sessions"]
        for wrong in ("search?q=x&role=king", "search?q=x&place=x",
                      "search?q=x&until=2999-01-01", "search?q=x&since=soon",
                      "search?q=x&session=..", "files?path=..",
                      "files?path=a.py&limit=0"):  # fmt: skip
            status, told = ask(wrong)
            assert (status, bool(told["error"])) == (400, True), wrong
        assert ask("files?path=a.py&agent=nobody")[0] == 404
