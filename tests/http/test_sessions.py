"""Sessions through the API: everything a person does with them, over a real socket and files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bsd.core.layout import Layout
from tests.http.api import over_socket, serving
from tests.openclaw_tree import add_session, set_idle, set_status
from tests.session_files import sample

pytestmark = pytest.mark.daemon

Ask = Callable[..., tuple[int, Any]]
SAMPLE = "/api/sessions/main/sample"
EXTRACT_ALL = b'{"trigger_types":["thinking","tool_result"],"prefix_bound":"extract"}'


@pytest.fixture
def root(root: Path) -> Path:
    add_session(root, "main/sample", sample(12, 1))
    add_session(root, "main/other", sample(2, 2))
    add_session(root, "second/sample", sample(2, 3))
    set_status(root, "main/sample", "done")
    set_status(root, "main/other", "failed")
    return root


@pytest.fixture
def ask(root: Path) -> Iterator[Ask]:
    with serving(root) as (_, settings):

        def once(method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
            return over_socket(settings.socket, path, method, body)

        yield once


def transcript(root: Path, name: str = "main/sample") -> Path:
    return Layout(root).agents / name.replace("/", "/sessions/").__add__(".jsonl")


def extract(ask: Ask, root: Path) -> dict[str, Any]:
    """Extract everything from the sample; return its first extracted entry."""
    status, done = ask("POST", f"{SAMPLE}/extract", EXTRACT_ALL)
    assert (status, done["status"]) == (200, "extracted")
    set_idle(transcript(root))
    status, found = ask("GET", f"{SAMPLE}/entries?limit=1000")
    assert status == 200
    entry: dict[str, Any] = next(row for row in found["entries"] if row["extracted"])
    return entry


# --- lists ----------------------------------------------------------------------------------


def test_agents_and_sessions_are_listed(ask: Ask) -> None:
    status, found = ask("GET", "/api/agents")
    assert (status, [one["name"] for one in found["agents"]]) == (200, ["main", "second"])
    status, found = ask("GET", "/api/sessions")
    names = {one["session"] for one in found["sessions"]}
    assert (status, names, found["next"]) == (
        200,
        {"main/sample", "main/other", "second/sample"},
        None,
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("agent=second", {"second/sample"}),
        ("status=done", {"main/sample"}),
        ("status=running", set()),
        ("q=SAMP", {"main/sample", "second/sample"}),
        ("q=sample+main", {"main/sample"}),
        ("q=agent:main:other", {"main/other"}),
        ("q=%00", set()),
        ("q=sample&agent=main&status=done", {"main/sample"}),
    ],
)
def test_the_list_is_filtered(ask: Ask, query: str, expected: set[str]) -> None:
    status, found = ask("GET", f"/api/sessions?{query}")
    assert (status, {one["session"] for one in found["sessions"]}) == (200, expected)


def test_paging_leaves_nothing_out_while_sessions_change(ask: Ask, root: Path) -> None:
    for number in range(9):
        path = add_session(root, f"main/n{number}", sample(1, 4))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    seen: list[str] = []
    cursor, pages = "", 0
    while True:
        status, found = ask("GET", f"/api/sessions?agent=main&limit=2{cursor}")
        assert status == 200
        assert len(found["sessions"]) <= 2
        seen += [one["session"] for one in found["sessions"]]
        pages += 1
        if pages == 1:  # a session of a later page moves to the front
            os.utime(transcript(root, "main/n1"))
            os.utime(transcript(root, "main/n5"))
            transcript(root, "main/n3").unlink()
        if found["next"] is None:
            break
        cursor = f"&cursor={found['next']}"
        assert pages < 20
    expected = {"main/sample", "main/other", *(f"main/n{n}" for n in range(9) if n != 3)}
    assert set(seen) == expected
    assert len(seen) == len(expected)
    assert seen[-2:] == ["main/n1", "main/n5"]


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("limit=0", {"limit"}),
        ("limit=x&cursor=" + "y" * 1001, {"limit", "cursor"}),
        ("cursor=nonsense", {"cursor"}),
        ("cursor=WzEsMiwzXQ==", {"cursor"}),
        ("cursor=%C3%A9", {"cursor"}),
    ],
)
def test_every_bad_parameter_is_named(ask: Ask, query: str, fields: set[str]) -> None:
    status, answer = ask("GET", f"/api/sessions?{query}")
    assert (status, {one["field"] for one in answer["errors"]}) == (400, fields)


def test_an_unknown_agent_is_not_found(ask: Ask) -> None:
    assert ask("GET", "/api/sessions?agent=nobody")[0] == 404
    assert ask("GET", "/api/sessions?agent=..")[0] == 400


# --- one session ----------------------------------------------------------------------------


def test_a_session_is_shown_with_its_first_entries(ask: Ask, root: Path) -> None:
    status, shown = ask("GET", SAMPLE)
    assert status == 200
    assert (shown["session"], shown["status"]) == ("main/sample", "done")
    assert shown["size"] == transcript(root).stat().st_size
    assert [row["index"] for row in shown["entries"]] == list(range(len(shown["entries"])))


def test_entries_are_paged_and_filtered(ask: Ask) -> None:
    _, everything = ask("GET", f"{SAMPLE}/entries?limit=1000")
    assert everything["next"] is None
    rows: list[dict[str, Any]] = []
    start = 0
    while start is not None:
        _, found = ask("GET", f"{SAMPLE}/entries?from={start}&limit=7")
        assert len(found["entries"]) <= 7
        rows += found["entries"]
        start = found["next"]
    assert rows == everything["entries"]
    _, found = ask("GET", f"{SAMPLE}/entries?type=compaction,model_change&limit=1000")
    kinds = ("compaction", "model_change")
    assert found["entries"] == [row for row in rows if row["type"] in kinds]
    assert found["entries"]
    assert ask("GET", f"{SAMPLE}/entries?from=-1&limit=0")[0] == 400


def test_extracted_content_comes_back_byte_for_byte(ask: Ask, root: Path) -> None:
    before = transcript(root).read_bytes()
    entry = extract(ask, root)
    assert transcript(root).read_bytes() != before
    status, content = ask("GET", f"{SAMPLE}/entries/{entry['id']}/extracted")
    assert status == 200
    assert (content["index"], list(content["content"])) == (entry["index"], entry["keys"])
    assert content["unavailable"] == {}
    line = json.loads(before.splitlines()[entry["index"]])
    assert all(json.dumps(value)[1:-1] in json.dumps(line) for value in content["content"].values())
    by_index = ask("GET", f"{SAMPLE}/entries/%23{entry['index']}/extracted")
    assert by_index == (200, content)
    assert ask("GET", f"{SAMPLE}/entries/{entry['index']}/extracted") == (200, content)
    assert ask("GET", f"{SAMPLE}/entries/1/extracted")[0] == 409

    status, done = ask("POST", f"{SAMPLE}/entries/{entry['id']}/restore")
    assert (status, done["restored"], done["keys_restored"]) == (200, True, entry["keys"])
    assert ask("POST", f"{SAMPLE}/entries/{entry['id']}/restore")[0] == 409


def test_content_that_is_gone_is_unavailable(ask: Ask, root: Path) -> None:
    entry = extract(ask, root)
    _, content = ask("GET", f"{SAMPLE}/entries/{entry['id']}/extracted")
    stored = Layout(root).extracted / "main_sample" / f"{content['ref']}.json"
    stored.write_bytes(stored.read_bytes()[:-10])
    status, damaged = ask("GET", f"{SAMPLE}/entries/{entry['id']}/extracted")
    assert (status, damaged["content"], set(damaged["unavailable"])) == (
        200,
        {},
        set(entry["keys"]),
    )
    assert "corrupted" in next(iter(damaged["unavailable"].values()))
    stored.unlink()
    status, gone = ask("GET", f"{SAMPLE}/entries/{entry['id']}/extracted")
    assert "missing" in next(iter(gone["unavailable"].values()))


def test_only_the_keys_that_are_named_are_restored(ask: Ask, root: Path) -> None:
    entry = extract(ask, root)
    path = f"{SAMPLE}/entries/{entry['id']}/restore"
    assert ask("POST", path, b'{"keys":["no.such.key"]}')[0] == 400
    status, answer = ask("POST", path, b'{"keys":[],"more":1}')
    assert (status, {one["field"] for one in answer["errors"]}) == (400, {"keys", "more"})
    assert ask("POST", path, b'{"keys":[]}')[0] == 400
    assert ask("POST", path, b'{"keys":[3]}')[0] == 400
    body = json.dumps({"keys": entry["keys"][:1]}).encode()
    status, done = ask("POST", path, body)
    assert (status, done["keys_restored"]) == (200, entry["keys"][:1])


def test_a_dry_run_changes_nothing(ask: Ask, root: Path) -> None:
    before = transcript(root).read_bytes()
    status, told = ask("POST", f"{SAMPLE}/extract?dry_run=true", EXTRACT_ALL)
    assert (status, told["dry_run"]) == (200, True)
    assert told["bytes_saved"] > 0
    assert transcript(root).read_bytes() == before


def test_bad_overrides_are_all_named(ask: Ask) -> None:
    body = b'{"keep_recent":101,"retention":"1d","nope":1,"min_value_length":"x"}'
    status, answer = ask("POST", f"{SAMPLE}/extract?dry_run=true", body)
    assert status == 400
    named = {one["field"] for one in answer["errors"]}
    assert named == {"keep_recent", "retention", "nope", "min_value_length"}


def test_context_counts_what_is_away(ask: Ask, root: Path) -> None:
    """The original's context always gave 0 extracted entries."""
    extract(ask, root)
    _, rows = ask("GET", f"{SAMPLE}/entries?limit=1000")
    status, told = ask("GET", f"{SAMPLE}/context")
    assert status == 200
    assert told["extracted_entries"] == sum(row["extracted"] for row in rows["entries"]) > 0


# --- changes --------------------------------------------------------------------------------


def test_a_pin_is_set_and_shown(ask: Ask, root: Path) -> None:
    entry = extract(ask, root)
    path = f"{SAMPLE}/entries/{entry['id']}/meta"
    for value in (False, 7, True, None):
        body = json.dumps({"_extractable": value}).encode()
        status, done = ask("PUT", path, body)
        set_idle(transcript(root))
        assert (status, done["updated"], done["extractable"]) == (200, True, value)
        status, shown = ask("GET", path)
        assert (status, shown["_extractable"], shown["keys"]) == (200, value, entry["keys"])


@pytest.mark.parametrize(
    "body", [b"{}", b'{"_extractable":"x"}', b'{"_extractable":-1}', b'{"_extractable":1.5}', b"[]"]
)
def test_a_pin_of_another_kind_is_refused(ask: Ask, root: Path, body: bytes) -> None:
    before = transcript(root).read_bytes()
    status, answer = ask("PUT", f"{SAMPLE}/entries/3/meta", body)
    assert (status, bool(answer["error"])) == (400, True)
    assert transcript(root).read_bytes() == before


def text_entry(ask: Ask) -> dict[str, Any]:
    _, found = ask("GET", f"{SAMPLE}/entries?limit=1000")
    row: dict[str, Any] = next(one for one in found["entries"] if one["role"] == "user")
    return row


def test_an_entry_is_edited_and_the_edit_undone(ask: Ask, root: Path) -> None:
    before = transcript(root).read_bytes()
    path = f"{SAMPLE}/entries/{text_entry(ask)['id']}"
    status, shown = ask("GET", path)
    assert status == 200
    entry = shown["entry"]
    entry["message"]["content"][0]["text"] = "shorter"
    body = json.dumps({"entry": entry, "seen": shown["seen"]}).encode()
    status, done = ask("PUT", path, body)
    assert (status, done["changed"]) == (200, ["message.content[0].text"])
    set_idle(transcript(root))
    stale = json.dumps({"set": {"message.content[0].text": "x"}, "seen": shown["seen"]}).encode()
    assert ask("PUT", path, stale)[0] == 409
    status, told = ask("GET", f"{SAMPLE}/history")
    assert (status, told["operations"][0]["action"]) == (200, "edit")
    assert told["operations"][0]["actor"] == "api"
    status, undone = ask("POST", f"{SAMPLE}/undo", b'{"op":%d}' % done["operation"])
    assert (status, undone["undone"]) == (200, done["operation"])
    assert transcript(root).read_bytes() == before
    assert ask("POST", f"{SAMPLE}/undo", b'{"op":999}')[0] == 404
    assert ask("POST", f"{SAMPLE}/undo", b'{"op":0,"x":1}')[0] == 400


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"", set()),
        (b"{", set()),
        (b"[]", set()),
        (b"\xff", set()),
        (b"{}", {"entry"}),
        (b'{"entry":{}}', {"entry"}),
        (b'{"entry":{"a":1},"set":{"a":1}}', {"entry"}),
        (b'{"set":[],"seen":4,"index":1}', {"set", "seen", "index"}),
        (b'{"set":{"a[":1,"b[":2}}', {"set.a[", "set.b["}),
        (b'{"set":{"id":"other"}}', set()),
        (b'{"entry":{"type":"message"}}', set()),
        (b'{"set":{"message.nowhere.text":1}}', set()),
    ],
)
def test_an_edit_that_makes_no_sense_changes_nothing(
    ask: Ask, root: Path, body: bytes, fields: set[str]
) -> None:
    """The original wrote an empty line where the request had no entry."""
    before = transcript(root).read_bytes()
    status, answer = ask("PUT", f"{SAMPLE}/entries/{text_entry(ask)['id']}", body)
    assert (status, {one["field"] for one in answer.get("errors", [])}) == (400, fields)
    assert transcript(root).read_bytes() == before


def test_a_session_is_deleted_listed_and_brought_back(ask: Ask, root: Path) -> None:
    before = transcript(root).read_bytes()
    status, done = ask("DELETE", SAMPLE)
    assert (status, done["deleted"], done["moved_to_trash"]) == (200, True, True)
    assert not transcript(root).exists()
    assert ask("GET", SAMPLE)[0] == 404
    status, listed = ask("GET", "/api/trash")
    assert (status, [one["id"] for one in listed["sessions"]]) == (200, [done["trash_id"]])
    status, back = ask("POST", f"/api/trash/{done['trash_id']}/restore")
    assert (status, back["session"]) == (200, "main/sample")
    assert transcript(root).read_bytes() == before
    assert ask("POST", f"/api/trash/{done['trash_id']}/restore")[0] == 404


def test_the_trash_is_emptied(ask: Ask, root: Path) -> None:
    _, one = ask("DELETE", SAMPLE)
    _, two = ask("DELETE", "/api/sessions/main/other")
    status, removed = ask("DELETE", f"/api/trash/{one['trash_id']}")
    assert (status, removed["deleted"]) == (200, True)
    status, emptied = ask("DELETE", "/api/trash")
    assert (status, emptied["ids"], emptied["failed"]) == (200, [two["trash_id"]], {})
    status, gone = ask("DELETE", "/api/sessions/second/sample?permanent")
    assert (status, gone["trash_id"]) == (200, None)
    assert list(Layout(root).trash.glob("*.jsonl")) == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [("?dry_run", True), ("?forget&dry_run", True), ("?dry_run=false", False), ("?dry_run=", 400)],
)
def test_a_switch_may_stand_alone(ask: Ask, query: str, expected: bool | int) -> None:
    status, told = ask("POST", f"/api/retention/run{query}")
    assert (status, told.get("dry_run")) == ((400, None) if expected == 400 else (200, expected))


def test_a_name_alone_is_no_number(ask: Ask) -> None:
    status, told = ask("GET", "/api/sessions?limit")
    assert (status, told["errors"][0]["field"]) == (400, "limit")


def test_retention_says_what_would_go_and_lets_it_go(ask: Ask, root: Path) -> None:
    extract(ask, root)
    status, told = ask("POST", "/api/retention/run?dry_run=true")
    assert (status, told["dry_run"], told["cleaned"]) == (200, True, 0)
    files = list((Layout(root).extracted / "main_sample").glob("0*.json"))
    assert told["staying"] == len(files) > 0
    for file in files:
        os.utime(file, (1, 1))
    status, done = ask("POST", "/api/retention/run")
    assert (status, done["dry_run"], done["cleaned"]) == (200, False, len(files))
    assert (
        set(done["history"])
        == set(done["trash"])
        == {*("keep", "held", "cleaned", "bytes", "errors")}
    )


def test_undo_says_what_it_changes_and_takes_many_sessions_back(ask: Ask, root: Path) -> None:
    whole = transcript(root).read_bytes()
    extract(ask, root)
    lean = transcript(root).read_bytes()
    status, foreseen = ask("POST", f"{SAMPLE}/undo?dry_run", b"{}")
    assert (status, foreseen["undone"]) == (200, 1)
    assert "come back into the session" in foreseen["effect"]["consequence"][0]
    status, foreseen = ask("POST", "/api/undo", b'{"since":"1h","dry_run":true}')
    assert (status, foreseen["undone"], foreseen["dry_run"]) == (200, 1, True)
    assert transcript(root).read_bytes() == lean
    status, problem = ask("POST", "/api/undo", b'{"since":"soon"}')
    assert (status, problem["errors"][0]["field"]) == (400, "since")
    status, done = ask("POST", "/api/undo", b'{"since":"1h","session":"main/sample"}')
    assert (status, done["sessions"][0]["operations"]) == (200, [1])
    assert transcript(root).read_bytes() == whole


def test_several_entries_are_restored_in_one_change(ask: Ask, root: Path) -> None:
    extract(ask, root)
    _, found = ask("GET", f"{SAMPLE}/entries?extracted=true&limit=3")
    ids = [row["id"] for row in found["entries"]]
    body = json.dumps({"entries": [*ids[:2], "nowhere"]}).encode()
    status, done = ask("POST", f"{SAMPLE}/restore", body)
    assert (status, done["status"], done["entries"]) == (200, "restored", 2)
    assert done["unavailable"] == {"nowhere": "Entry not found in session"}
    _, history = ask("GET", f"{SAMPLE}/history")
    assert (history["operations"][0]["action"], history["operations"][0]["entries"]) == (
        "restore",
        2,
    )
    set_idle(transcript(root))
    status, done = ask("POST", f"{SAMPLE}/restore")
    assert (status, done["status"]) == (200, "restored")
    _, found = ask("GET", f"{SAMPLE}/entries?extracted=true")
    assert found["entries"] == []
