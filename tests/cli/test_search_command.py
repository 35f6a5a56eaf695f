"""`bsd search` and `bsd summary` as people and programs call them."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from bsd.core.layout import Layout
from bsd.maintenance.scan import FullScan
from tests.cli.conftest import Call, out_of
from tests.openclaw_tree import add_session
from tests.searching import index_holds

_LINE = {
    "type": "message",
    "id": "e1",
    "message": {"role": "user", "content": "the \x1b[31mwombat\x07 digs"},
}
_HEADER = b'{"type":"session","version":3,"id":"s"}\n'


@pytest.fixture
def with_a_wombat(bsd: Call) -> Call:
    add_session(bsd.root, "main/dig", _HEADER + json.dumps(_LINE).encode() + b"\n")
    return bsd


def test_the_document_of_a_search(with_a_wombat: Call) -> None:
    ended = with_a_wombat("search", "WOMBAT", "digs", "--json")
    assert ended.code == 0
    document = ended.document
    assert set(document) == {"query", "sessions", "results"}
    assert document["sessions"] == []
    (hit,) = document["results"]
    known = {"session", "entry_id", "index", "where", "snippet", "matches", "score"}
    assert set(hit) == known | {"resume", "role", "title"}
    assert (hit["session"], hit["entry_id"], hit["index"]) == ("main/dig", "e1", 1)
    assert [hit["snippet"][a:b] for a, b in hit["matches"]] == ["wombat", "digs"]


def test_sessions_are_found_by_their_titles(with_a_wombat: Call, root: Path) -> None:
    registry = root / "agents/main/sessions/sessions.json"
    known = json.loads(registry.read_bytes()) if registry.exists() else {}
    known["agent:main:x"] = {"sessionId": "alpha", "displayName": "Numbat\x1b[31m walk"}
    registry.write_text(json.dumps(known))
    document = with_a_wombat("search", "numbat", "--json").document
    command = "openclaw tui --session agent:main:alpha"
    [found] = document["sessions"]
    assert found == {"session": "main/alpha", "title": "Numbat[31m walk", "resume": command}
    assert document["results"] == []
    ended = with_a_wombat("search", "NUMBAT")
    assert "main/alpha\n  Numbat[31m walk" in ended.out
    assert "1 session" in ended.out
    assert "main/alpha" in with_a_wombat("sessions", "-q", "numbat").out
    assert "main/dig" in with_a_wombat("sessions", "-q", "wombat dig").out
    assert "0 sessions" in with_a_wombat("sessions", "-q", "numbat dig").out


def test_people_get_lines_that_no_terminal_obeys(with_a_wombat: Call) -> None:
    ended = with_a_wombat("search", "wombat")
    assert "main/dig  #1  e1" in ended.out
    assert "1 entry" in ended.out
    assert "\x1b" not in ended.out
    assert "\x07" not in ended.out


def test_nothing_found_is_no_failure(bsd: Call) -> None:
    ended = bsd("search", "zyzzyva")
    assert (ended.code, ended.out) == (0, "Nothing was found.\n")


@pytest.mark.parametrize("words", ["()", "*", "->", '""'])
def test_no_word_is_a_mistake_with_a_hint(bsd: Call, words: str) -> None:
    ended = bsd("search", words)
    assert ended.code == 2
    assert "Try: " in ended.err
    assert not (bsd.root / ".brainsurgeon" / "search.db").exists()


def test_the_list_has_figures_of_what_was_searched(with_a_wombat: Call) -> None:
    before = with_a_wombat("sessions", "--json").document
    assert out_of(before, "main/dig")["messages"] is None
    with_a_wombat("search", "wombat")
    after = with_a_wombat("sessions", "--json").document
    dig = out_of(after, "main/dig")
    assert (dig["messages"], dig["entry_count"], dig["is_stale"]) == (1, 2, False)
    assert out_of(after, "main/alpha")["tokens"]["total"] > 0


def test_the_document_of_a_summary(bsd: Call) -> None:
    document = bsd("summary", "main/alpha", "--json").document
    named = {"session_id", "agent", "summary", "generated_at", "damaged", "left_alone", "resume"}
    assert set(document) == named | {"fills", "context"}
    assert document["summary"]["user_messages"] > 0
    told = bsd("summary", "main/alpha").out
    assert told.startswith(f"main/alpha: {document['summary']['session_type']}, ")
    assert not (bsd.root / ".brainsurgeon").exists()


def test_an_agent_that_is_not_there_is_not_searched(bsd: Call) -> None:
    ended = bsd("search", "wombat", "--agent", "nobody")
    assert ended.code == 1
    assert ended.err.startswith("Error: there is no agent nobody\nTry: ")


def with_a_result(bsd: Call) -> None:
    message = {"role": "toolResult", "content": "ECONNREFUSED by the quokka"}
    line = json.dumps(_LINE | {"id": "e2", "message": message}).encode()
    add_session(bsd.root, "main/result", _HEADER + line + b"\n")


def test_all_text_is_searched_if_asked(with_a_wombat: Call) -> None:
    with_a_result(with_a_wombat)
    assert with_a_wombat("search", "quokka").out == "Nothing was found.\n"
    ended = with_a_wombat("search", "--all", "econnrefused", "quokka", "--json")
    (hit,) = ended.document["results"]
    assert (ended.code, hit["session"], hit["entry_id"]) == (0, "main/result", "e2")
    assert [hit["snippet"][a:b] for a, b in hit["matches"]] == ["ECONNREFUSED", "quokka"]
    told = with_a_wombat("search", "--all", "wombat")
    assert (told.code, "main/dig  #1  e1" in told.out) == (0, True)
    assert with_a_wombat("search", "--all", "zyzzyva").out == "Nothing was found.\n"


def test_an_interrupt_ends_a_search_through_all_with_what_it_has(
    with_a_wombat: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_result(with_a_wombat)
    before = FullScan._look_at

    def interrupted(*arguments: Any, **more: Any) -> None:
        before(*arguments, **more)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(FullScan, "_look_at", interrupted)
    ended = with_a_wombat("search", "--all", "by", "the", "quokka")
    assert ended.code == 130
    assert "main/result  #1  e2" in ended.out
    assert "Stopped before all text was searched." in ended.err


def test_without_an_index_titles_are_found_and_all_is_offered(
    with_a_wombat: Call, root: Path
) -> None:
    assert with_a_wombat("search", "wombat").code == 0
    assert index_holds(Layout(root), "wombat")
    assert with_a_wombat("config", "set", "search_index", "false").code == 0
    ended = with_a_wombat("search", "wombat")
    assert ended.code == 1
    assert "search_index" in ended.err
    assert "Try: bsd search --all wombat" in ended.err
    assert not index_holds(Layout(root), "wombat")
    title = with_a_wombat("sessions", "--json").document["sessions"][0]["title"]
    assert title.split()[0] in with_a_wombat("search", title.split()[0]).out
    assert "search_index" in with_a_wombat("sessions", "-q", "digs quickly").err
    assert "main/dig" in with_a_wombat("search", "--all", "wombat").out
    assert out_of(with_a_wombat("sessions", "--json").document, "main/dig")["messages"] == 1
    assert with_a_wombat("config", "set", "search_index", "true").code == 0
    assert "main/dig" in with_a_wombat("search", "wombat").out


def with_a_file(bsd: Call) -> str:
    call = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "/p/src/auth.py"}}
    said = {"role": "assistant", "content": [call], "stopReason": "toolUse"}
    got = {"role": "toolResult", "toolCallId": "c1", "content": [{"type": "text", "text": "x = 1"}]}
    lines = [_LINE, _LINE | {"id": "e2", "message": said}, _LINE | {"id": "e3", "message": got}]
    content = _HEADER + b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    add_session(bsd.root, "main/dig", content)
    return "main/dig"


def test_sessions_are_found_by_a_file_and_what_was_seen_of_it(bsd: Call) -> None:
    name = with_a_file(bsd)
    registry = bsd.root / "agents/main/sessions/sessions.json"
    registry.write_text(json.dumps({"agent:main:x": {"sessionId": "dig"}}))
    document = bsd("search", "--file", "src/auth.py", "--json").document
    [session] = document["sessions"]
    assert set(session) == {"session", "title", "updated", "files", "resume"}
    assert session["files"] == [{"path": "/p/src/auth.py", "read": [2]}]
    assert session["resume"] == "openclaw tui --session agent:main:x"
    told = bsd("search", "--file", "auth.py").out
    assert "  /p/src/auth.py: read #2\n" in told
    assert f"bsd show {name} --file auth.py" in told
    assert "    openclaw tui --session agent:main:x\n" in told
    assert bsd("search", "--file", "gate.py").out == "Nothing was found.\n"
    [touch] = bsd("show", name, "--file", "auth.py", "--json").document["touches"]
    assert (touch["index"], touch["result_index"], touch["result"]) == (2, 3, "x = 1")
    told = bsd("show", name, "--file", "auth.py").out
    assert told.startswith("#2  read  read  /p/src/auth.py")
    assert "→ #3\nx = 1\n" in told
    ended = bsd("show", name, "--file", "gate.py")
    assert (ended.code, "Try: `bsd search --file gate.py`" in ended.err) == (1, True)


def test_hits_name_the_command_that_continues_the_session(with_a_wombat: Call) -> None:
    registry = with_a_wombat.root / "agents/main/sessions/sessions.json"
    registry.write_text(json.dumps({"agent:main:x": {"sessionId": "dig"}}))
    [hit] = with_a_wombat("search", "wombat", "--json").document["results"]
    assert hit["resume"] == "openclaw tui --session agent:main:x"
    told = with_a_wombat("search", "wombat").out
    assert told.endswith("  main/dig\n    openclaw tui --session agent:main:x\n")
    assert with_a_wombat("search", "wombat", "--role", "assistant").out == "Nothing was found.\n"
    assert with_a_wombat("search", "wombat", "--since", "2h").code == 0
    for wanted, count in (
        ("--until yesterday", 0),
        ("--place live", 1),
        ("--place gone", 0),
        ("--role thinking", 0),
        ("--project main", 1),
        ("--project ./other", 0),
        ("--file a.py", 0),
    ):
        ended = with_a_wombat("search", "wombat", *wanted.split(), "--json")
        assert len(ended.document["results"]) == count, wanted
    for wrong in (
        ("search",),
        ("search", "wombat", "--since", "soon"),
        ("search", "--file", "a.py", "--role", "user"),
        ("search", "wombat", "--until", "2999-01-01"),
        ("search", "--file", ".."),
        ("show", "main/dig", "--file", "a.py", "--entry", "e1"),
    ):
        ended = with_a_wombat(*wrong)
        assert (ended.code, "Try: " in ended.err) == (2, True), wrong
