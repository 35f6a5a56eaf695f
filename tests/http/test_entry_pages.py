"""Pages of entries: forwards, backwards, filtered, with extracted values, and the family."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bsd.actions import list_entries
from bsd.actions.outlines import Outlines
from bsd.core.settings import Settings
from bsd.http.server import ApiServer
from bsd.planning import view
from tests.http.api import over_socket, serving
from tests.openclaw_tree import add_session, fill

pytestmark = pytest.mark.daemon

_PLACES = ("from=0", "from=9", "before=1000000000", "before=20", "before=3", "from=5000")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Settings]]:
    root = fill(tmp_path_factory.mktemp("pages") / ".openclaw")
    with serving(root) as (server, settings):
        assert isinstance(server, ApiServer)
        status, done = over_socket(
            settings.socket, "/api/sessions/main/sample/extract", "POST", b"{}"
        )
        assert (status, done["status"]) == (200, "extracted")
        yield root, settings


def entries(settings: Settings, query: str) -> dict[str, Any]:
    status, page = over_socket(settings.socket, f"/api/sessions/main/sample/entries?{query}")
    assert status == 200, page
    assert isinstance(page, dict)
    return page


def test_backwards_is_the_reverse_of_forwards(served: tuple[Path, Settings]) -> None:
    _, settings = served
    every = entries(settings, "limit=1000")
    rows = every["entries"]
    assert (every["next"], every["previous"]) == (None, None)
    for more in ("", "&extracted=true", "&extracted=false", "&type=tool_result,user"):
        wanted = [
            row
            for row in rows
            if not more
            or (row["extracted"] == (more == "&extracted=true") and "extracted" in more)
            or (row["type"] in {"tool_result", "user"} and "type" in more)
        ]
        assert wanted
        seen: list[Any] = []
        before: int | None = 10**9
        while before is not None:
            page = entries(settings, f"limit=7&before={before}{more}")
            assert len(page["entries"]) <= 7
            after = seen[0]["index"] if seen else None
            assert page["next"] == after
            seen = page["entries"] + seen
            before = page["previous"]
        assert seen == wanted


def test_what_is_away_begins_as_it_began(served: tuple[Path, Settings]) -> None:
    root, settings = served
    rows = entries(settings, "extracted=true&limit=1000")["entries"]
    row = next(row for row in rows if row["keys"] == ["message.content[0].text"])
    assert row["preview"].startswith("[[extracted-")
    stored = next(
        document
        for path in (root / "extracted" / "main_sample").glob("*.json")
        if (document := json.loads(path.read_bytes())).get("id") == row["id"]
    )
    assert row["extracted_preview"] == stored["message"]["content"][0]["text"][:200]
    assert row["unavailable"] is None
    inline = entries(settings, "extracted=false&limit=5")["entries"]
    assert {(one["extracted_preview"], one["unavailable"]) for one in inline} == {(None, None)}


def test_calls_and_results_name_each_other(served: tuple[Path, Settings]) -> None:
    _, settings = served
    rows = entries(settings, "limit=1000")["entries"]
    calls = {call["id"]: call["name"] for row in rows for call in row["calls"]}
    results = {row["result_of"]: row["tool"] for row in rows if row["result_of"]}
    assert calls
    assert results == calls


def test_pages_of_a_large_session_are_the_same(
    served: tuple[Path, Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, settings = served
    queries = [f"texts=50&limit={limit}&{at}" for limit in (7, 1000) for at in _PLACES]
    known = [entries(settings, query) for query in queries]
    assert all(row["texts"] for page in known for row in page["entries"] if row["preview"])
    monkeypatch.setattr(list_entries, "_LARGE", 0)
    monkeypatch.setattr(Outlines, "has", lambda *_: False)
    monkeypatch.setattr(view, "BLOCK", 1000)  # reading the beginning does not read the end
    for query, page in zip(queries, known, strict=True):
        alone = entries(settings, query)
        assert alone.pop("damaged") is None
        page.pop("damaged")
        for row, same in zip(alone["entries"], page["entries"], strict=True):
            assert row.pop("hash").startswith(same.pop("hash"))
            assert (row.pop("position"), same.pop("position") >= 0) == (None, True)
        assert alone == page, query


def test_a_missing_or_spoilt_file_is_said(served: tuple[Path, Settings]) -> None:
    root, settings = served
    rows = entries(settings, "extracted=true&limit=1000")["entries"]
    store = root / "extracted" / "main_sample"
    first, second = sorted(store.glob("[0-9]*.json"))[:2]
    first.unlink()
    second.write_bytes(second.read_bytes().replace(b"e", b"E", 1))
    after = entries(settings, "extracted=true&limit=1000")["entries"]
    told = {one["unavailable"] for one in after} - {None}
    assert len(told) == 2
    assert all("unavailable" in text for text in told)
    assert [one["id"] for one in after] == [one["id"] for one in rows]


def test_a_session_names_its_children(served: tuple[Path, Settings]) -> None:
    root, settings = served
    for name in ("parent", "child", "grandchild"):
        add_session(root, f"kin/{name}", b'{"type":"session","version":3,"id":"x"}\n')
    listed = {
        "agent:kin:parent": {"sessionId": "parent"},
        "agent:kin:child": {"sessionId": "child", "parentSessionId": "parent"},
        "agent:kin:grandchild": {"sessionId": "grandchild", "parentSessionId": "child"},
        "agent:kin:gone": {"sessionId": "gone", "parentSessionId": "child"},
    }
    (root / "agents" / "kin" / "sessions" / "sessions.json").write_text(json.dumps(listed))
    _, parent = over_socket(settings.socket, "/api/sessions/kin/parent")
    assert parent["children"] == ["kin/child", "kin/grandchild"]
    _, last = over_socket(settings.socket, "/api/sessions/kin/grandchild")
    assert last["children"] == []
