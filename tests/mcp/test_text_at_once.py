"""`restore`, `restore_remote`, `read_extracted`: the text at once, even if the session is in
use.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.context import ActionContext
from bsd.actions.context_tool import get_context
from bsd.actions.extract import extract_due
from bsd.core.config_file import ConfigService
from bsd.core.errors import Busy, Conflict, Invalid, NotFound
from bsd.core.layout import SessionName
from bsd.core.locks import own_lock
from bsd.daemon.instance import SingleInstance, is_running
from bsd.mcp.restoring import RestoredText
from bsd.mcp.scope import Scope
from bsd.sessions.idle import RetryBudget
from tests.actions import performed
from tests.actions.performed import Caller
from tests.mcp.conftest import LONG, NAME, Agent, Desk, Flat, agent_context, call, call_tool
from tests.openclaw_tree import set_idle, set_status
from tests.pictures import PNG
from tests.transcripts.agents.sources import CODEX, KINDS
from tests.transcripts.agents.sources.codex import codex_lines, codex_meta
from tests.transcripts.agents.sources.tree import EVERYTHING, Home, Kind, raw

TOOLS = [
    ("restore", {"entry_id": "msg-456"}),
    ("restore_remote", {"entry": "msg-456"}),
    ("purge_control", {"action": "restore", "entry": "msg-456"}),
]
BOTH = {"content": LONG, "output": LONG + LONG}


def in_use(desk: Desk) -> None:
    set_status(desk.layout.root, str(NAME), "running")


@pytest.mark.parametrize(("tool", "arguments"), TOOLS)
def test_a_session_in_use_is_not_waited_for(
    away: Desk, tool: str, arguments: dict[str, Any]
) -> None:
    in_use(away)
    before = away.path.read_bytes()
    answer = call(away, tool, session="s1", **arguments)
    assert answer.pop("note").startswith("The text is only here: the session is in use, and no bsd")
    assert answer == {
        "restored": False,
        "entry_id": "msg-456",
        "keys_restored": [],
        "sizes_bytes": {},
        "inline": "not now",
        "texts": BOTH,
    }
    assert away.path.read_bytes() == before


def test_nor_one_that_was_just_written_to_or_that_another_bsd_works_on(away: Desk) -> None:
    away.path.touch()
    asked: dict[str, Any] = {"session": "s1", "entry_id": "msg-456"}
    assert call(away, "restore", rest=False, **asked)["inline"] == "not now"
    with own_lock(away.layout, NAME, 0.0):
        answer = call(away, "restore", **asked)
    assert (answer["inline"], answer["texts"]) == ("not now", BOTH)
    assert call(away, "restore", **asked)["inline"] == "now"


@pytest.mark.parametrize(("tool", "arguments"), TOOLS)
def test_after_the_turn_is_said_only_if_somebody_does_it(
    away: Desk, tool: str, arguments: dict[str, Any]
) -> None:
    in_use(away)

    def asked(**more: Any) -> str:
        return str(call(away, tool, session="s1", **arguments, **more)["inline"])

    assert asked(inline=True) == "not now", "there is no daemon"
    with SingleInstance(away.layout):
        assert asked() == "not now"
        assert asked(inline=False) == "not now"
        assert asked(inline="true") == "after the turn"
        away.settings(enabled=False)
        assert asked(inline=True) == "not now", "the daemon looks at no session"


def test_whether_a_daemon_runs_is_told_without_keeping_one_from_starting(away: Desk) -> None:
    assert not is_running(away.layout)
    with SingleInstance(away.layout):
        assert is_running(away.layout)
    assert away.layout.instance_lock.exists()
    assert not is_running(away.layout)
    away.layout.instance_lock.write_text("1\n")
    assert not is_running(away.layout), "another process has that number now"


def test_the_text_alone_changes_nothing(away: Desk) -> None:
    before = away.path.read_bytes()
    answer = call(away, "restore", session="s1", entry_id="msg-456", inline=False)
    assert (answer["restored"], answer["texts"]) == (False, BOTH)
    read = call(away, "read_extracted", session="s1", entry="msg-456", keys="content")
    assert read == {"session": "main/s1", "entry_id": "msg-456", "texts": {"content": LONG}}
    assert away.path.read_bytes() == before


def test_a_bsd_that_only_reads_gives_the_text(away: Desk) -> None:
    context = agent_context(away.layout, away.config, writes=False)
    answer = call_tool(context, "restore", entry_id="msg-456", session="s1")
    assert (answer["inline"], answer["texts"]) == ("not now", BOTH)
    assert "read-only" in answer["note"]


def test_what_is_true_while_it_is_put_back(away: Desk) -> None:
    heard: list[RestoredText] = []
    set_idle(away.path)
    context = agent_context(away.layout, away.config, early_answer=heard.append)
    answer = call_tool(context, "restore", entry_id="msg-456", session="s1")
    assert [(one.restored, one.inline) for one in heard] == [(False, "under way")]
    assert heard[0].texts == answer["texts"] == BOTH
    assert answer["inline"] == "now"


def test_who_names_no_session_is_told_which_it_was(away: Desk) -> None:
    assert call(away, "read_extracted", entry="msg-456")["session"] == "main/s1"
    assert call(away, "restore", entry_id="msg-456")["session"] == "main/s1"


# --- programs that keep their sessions in memory ---


def extracted_home(home: Home, **settings: Any) -> tuple[ActionContext, list[str]]:
    """Extract all values of another program's session; return a context and the entries' ids."""
    context = agent_context(home.layout, ConfigService(home.layout.config_file))
    context.config.update({**EVERYTHING, **settings})
    result = extract_due(context, home.name)
    assert result is not None
    assert result.values
    return context, [str(one) for one in get_context(context, home.name).extracted_ids]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_other_programs_are_told_the_truth(tmp_path: Path, kind: Kind) -> None:
    home = Home.of(kind, tmp_path, kind.lines())
    original = home.path.read_bytes()
    context, entries = extracted_home(home)
    before = home.path.read_bytes()
    lines = zip(original.splitlines(), before.splitlines(), strict=True)
    gone = [json.loads(new) for old, new in lines if old != new]
    assert gone
    home.path.touch()  # the session is in use
    scope = Scope(session=home.name)
    with SingleInstance(home.layout):
        for entry in entries:
            answer = call_tool(context, "restore_remote", scope, entry=entry, inline=True)
            assert answer["inline"] == "not in this program"
            assert f"`bsd restore {home.name} {entry}`" in answer["note"]
            assert {*answer["texts"], *answer.get("beside", ())} == {
                key
                for one in gone
                if f"[[extracted-{entry}]]" in json.dumps(one)
                for key in one["_extracted"]["keys"]
            }
        pin: dict[str, Any] = {"action": "set_extractable", "entry": entry, "value": False}
        with pytest.raises(Busy) as busy:
            call_tool(context, "purge_control", scope, **pin)
        assert "its program keeps the session in use" in str(busy.value.hint)
    assert home.path.read_bytes() == before


def test_a_session_that_is_never_changed_is_read(tmp_path: Path) -> None:
    home = Home.of(CODEX, tmp_path, CODEX.lines())
    context, (entry, *_) = extracted_home(home)
    header, rest = home.path.read_bytes().split(b"\n", 1)
    meta = json.loads(header)
    meta["payload"]["history_mode"] = "new"
    home.path.write_bytes(json.dumps(meta).encode() + b"\n" + rest)
    set_idle(home.path)
    answer = call_tool(context, "restore", Scope(session=home.name), entry_id=entry)
    assert answer["inline"] == "not in this program"
    assert "of mode 'new'" in answer["note"]
    assert all(text and "[[" not in text for text in answer["texts"].values())


ORIGIN = CODEX.session[-36:]
OTHER = ORIGIN.replace("0", "1")


@pytest.mark.parametrize(
    ("session", "header"),
    [
        (CODEX.session.replace(ORIGIN, OTHER), {"id": OTHER, "forked_from_id": ORIGIN}),
        (f"{CODEX.session}_{OTHER}", {"id": ORIGIN}),  # taken back to an earlier turn
        (CODEX.session.replace(ORIGIN, OTHER), {"id": OTHER}),
    ],
    ids=["fork", "segment", "stranger"],
)
def test_a_thread_that_begins_in_the_file_of_another_gets_its_texts(
    tmp_path: Path, session: str, header: dict[str, str]
) -> None:
    home = Home.of(CODEX, tmp_path, [codex_meta(history_mode="paginated"), *codex_lines()[1:]])
    context, (entry, *_) = extracted_home(home)
    base = {"thread_id": ORIGIN, "end_byte_offset": home.path.stat().st_size}
    meta = codex_meta(history_mode="paginated", history_base=base)
    meta["payload"] |= header
    home.path.with_name(f"{session}.jsonl").write_bytes(raw([meta]))
    name = SessionName(home.name.agent, session)
    asked: dict[str, Any] = {"session": str(name), "entry": entry}
    with pytest.raises(NotFound):
        call_tool(context, "read_extracted", Scope(session=name), **asked)
    if header == {"id": OTHER}:
        with pytest.raises(NotFound):
            call_tool(context, "read_extracted", Scope(), **asked)
        return
    answer = call_tool(context, "read_extracted", Scope(), **asked)
    assert (answer["session"], bool(answer["texts"])) == (str(home.name), True)


def test_a_change_of_a_session_in_use_says_what_becomes_of_it(away: Desk) -> None:
    in_use(away)
    pin: dict[str, Any] = {"action": "set_extractable", "entry": "msg-456", "value": False}

    def hint() -> str:
        with pytest.raises(Busy) as busy:
            call(away, "purge_control", session="s1", **pin)
        return str(busy.value.hint)

    assert "no bsd daemon runs" in hint()
    with SingleInstance(away.layout):
        assert "do not repeat the call" in hint()


# --- time limits of waiting ---


@pytest.mark.parametrize(("quiet", "slept"), [(2.0, [2.0]), (10.0, [])])
def test_nobody_waits_for_what_will_not_be_over_in_time(
    away: Desk, quiet: float, slept: list[float]
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(round(seconds, 1))
        away.ahead += seconds

    then = time.time()
    os.utime(away.path, (then, then))
    budget = RetryBudget(3.0, quiet, clock=lambda: then + away.ahead)
    budget = replace(budget, sleep=sleep)
    caller = Caller(layout=away.layout, config=away.config, budget=budget)
    if slept:
        assert performed.restore(caller, NAME, "msg-456")["restored"]
    else:
        with pytest.raises(Busy, match="was written to"):
            performed.restore(caller, NAME, "msg-456")
    assert round(sum(waits)) == sum(slept)


def test_an_agents_own_session_is_not_waited_for(away: Desk) -> None:
    nobodys, own = Scope(client=lambda _: ()), Scope(client=lambda _: (NAME,))
    assert nobodys.may_wait(away.layout, NAME)
    assert not own.may_wait(away.layout, NAME)
    in_use(away)
    assert not nobodys.may_wait(away.layout, NAME)


# --- pages ---


def pages(desk: Desk, tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """Read pages as `next` says, until the end."""
    found = [call(desk, tool, session="s1", **arguments)]
    while following := found[-1].get("next"):
        further = {key: value for key, value in following.items() if key != "tool"}
        found.append(call(desk, following["tool"], session="s1", **further))
    return found


LARGE = "".join(f"line {number}: äöü €\n" for number in range(6000))


@pytest.fixture
def large(desk: Desk, flat: Flat) -> Desk:
    data = {"rows": [LARGE, {"n": 1.50}], "note": "x" * 600}
    flat({"__id": "big", "type": "tool_result", "content": LARGE, "output": LONG, "data": data})
    flat(*({"__id": f"m{n}", "type": "user", "content": "x"} for n in range(4)))
    desk.look()
    assert len(desk.entry("big")["_extracted"]["keys"]) > 3
    return desk


@pytest.mark.parametrize("inline", [False, True])
def test_long_texts_come_in_pages(large: Desk, inline: bool) -> None:
    asked = {"entry_id": "big", "inline": inline}
    found = pages(large, "restore", **asked)
    assert ("_extracted" in large.entry("big")) is not inline
    whole: dict[str, str] = {}
    for one in found:
        assert len(json.dumps(one, ensure_ascii=False).encode()) <= 18_000
        for key, text in one["texts"].items():
            whole[key] = whole.get(key, "") + text
    assert whole == {
        "content": LARGE,
        "output": LONG,
        "data.rows[0]": LARGE,
        "data.note": "x" * 600,
    }
    left = [one.get("characters_left", 0) for one in found]
    assert left == sorted(left, reverse=True)
    assert left[0] == sum(map(len, whole.values())) - len(found[0]["texts"]["content"])
    assert left[-1] == 0


def test_keys_are_named_as_in_a_restoration(large: Desk) -> None:
    def keys(*names: str) -> list[str]:
        return list(call(large, "read_extracted", session="s1", entry="big", keys=names)["texts"])

    assert keys("output") == ["output"]
    assert keys("note", "output") == ["data.note", "output"], "in the order of the names"
    assert keys("data") == ["data.rows[0]"], "and a page is full"
    assert keys("rows[0]") == ["data.rows[0]"]
    with pytest.raises(Invalid, match="no extracted key nothing, more") as refused:
        keys("output", "nothing", "more")
    assert "content" in str(refused.value.hint)


def test_there_is_nothing_behind_the_end(large: Desk) -> None:
    for offset in (len(LONG), 10**9):
        with pytest.raises(Invalid, match=f"output has {len(LONG)} characters"):
            call(large, "read_extracted", session="s1", entry="big", keys="output", offset=offset)
    last = call(
        large, "read_extracted", session="s1", entry="big", keys="output", offset=len(LONG) - 1
    )
    assert last["texts"] == {"output": LONG[-1]}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PNG},
        },
    ],
)
def test_pictures_are_given_as_such(desk: Desk, agent: Agent, block: dict[str, Any]) -> None:
    agent.user("look")
    agent.calls(("c0", "read", {"path": "p.png"}))
    result = agent.result("c0", "read", "a picture")
    entries = desk.entries()
    entries[-1]["message"]["content"].append(block)
    desk.path.write_text("")
    desk.append(*entries)
    for _ in range(4):
        agent.says("well")
        agent.user("go on")
    desk.look()
    answer = call(desk, "read_extracted", session="s1", entry=result)
    (key,) = answer["texts"]
    assert answer["texts"][key] == "[a picture: image/png, 900 bytes]"
    assert answer["pictures"] == {key: {"media_type": "image/png", "data": PNG}}


def test_an_object_is_json(desk: Desk, flat: Flat) -> None:
    rows = [[number, number * number] for number in range(300)]
    flat({"__id": "e", "type": "tool_result", "result": rows})
    flat(*({"__id": f"m{n}", "type": "user", "content": "x"} for n in range(4)))
    desk.look()
    texts = call(desk, "read_extracted", session="s1", entry="e")["texts"]
    assert json.loads(texts["result"]) == rows


# --- unavailable values ---


def test_a_missing_file_is_said(away: Desk) -> None:
    for path in away.layout.store_dir(NAME).glob("*_*.json"):
        path.unlink()
    missing = "[Content unavailable - extracted file missing]"
    read = call(away, "read_extracted", session="s1", entry="msg-456")
    assert (read["texts"], read["unavailable"]) == ({}, dict.fromkeys(BOTH, missing))
    restored = call(away, "restore", session="s1", entry_id="msg-456")
    assert (restored["restored"], restored["inline"]) == (False, "not now")
    assert restored["unavailable"] == dict.fromkeys(BOTH, missing)
    in_use(away)
    again = call(away, "restore", session="s1", entry_id="msg-456", keys="output")
    assert (again["texts"], again["unavailable"]) == ({}, {"output": missing})


def test_what_is_inline_is_read_where_it_stands(away: Desk) -> None:
    call(away, "restore", session="s1", entry_id="msg-456")
    assert call(away, "read_extracted", session="s1", entry="msg-456")["texts"] == BOTH
    for words in ("not currently extracted", "has no extracted content"):
        with pytest.raises(Conflict, match=words) as conflict:
            call(away, "restore", session="s1", entry_id="msg-456")
        assert "read_extracted with entry msg-456" in str(conflict.value.hint)
        in_use(away)


def test_a_key_that_came_back_beside_one_that_did_not(away: Desk) -> None:
    call(away, "restore", session="s1", entry_id="msg-456", keys="content")
    read = call(away, "read_extracted", session="s1", entry="msg-456", keys=["output", "content"])
    assert read["texts"] == BOTH
    assert call(away, "read_extracted", session="s1", entry="msg-456")["texts"] == {
        "output": LONG + LONG
    }


def test_an_entry_that_is_nowhere(away: Desk) -> None:
    for tool in ("restore_remote", "read_extracted"):
        with pytest.raises(NotFound, match="Entry not found in session"):
            call(away, tool, session="s1", entry="nowhere")
    with pytest.raises(Invalid, match="session parameter is required"):
        Scope(client=lambda _: ()).find(away.layout, None, "nowhere")
