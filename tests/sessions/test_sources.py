"""Sessions of other programs are extracted and restored, and no other byte of them changes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import ConfigError, Invalid, LeftAlone
from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.maintenance import catalog
from bsd.maintenance.search import search
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import verify
from bsd.mcp.inband import InBand
from bsd.planning.edit import becoming, setting
from bsd.planning.result import Status
from bsd.sessions.commit.displaced import State
from bsd.transcripts.agents.programs import layout_of
from tests.actions import performed
from tests.logs import capture_logs
from tests.openclaw_tree import set_idle
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources import CLAUDE_CODE, CODEX, KINDS
from tests.transcripts.agents.sources.tree import (
    EVERYTHING,
    LONG,
    Home,
    Kind,
    away,
    recorded_homes,
    without_restored,
    written_lately,
)

each_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.kind for kind in KINDS])


@pytest.fixture(params=KINDS, ids=[kind.kind for kind in KINDS])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    kind: Kind = request.param
    return Home.of(kind, tmp_path, kind.lines())


def test_its_sessions_are_listed_and_nothing_is_put_beside_them(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    [info] = catalog.sessions(home.layout)
    assert info.name == home.name
    before = {path for path in home.path.parents[3].rglob("*") if "home" in path.parts}
    old, mtime = home.path.read_bytes(), home.path.stat().st_mtime_ns
    result = caller.extract(home.name, overrides=EVERYTHING)
    assert (result.status, result.reason) == (Status.EXTRACTED, None)
    new = home.path.read_bytes()
    assert away(old, new) == result.values > 0
    assert len(home.kind.reads(new)) == len(home.kind.reads(old))
    for proof in (b"c2lnc2ln", b"gAAAgAAA"):  # signatures, encrypted reasoning
        assert new.count(proof) == old.count(proof)
    assert {path for path in home.path.parents[3].rglob("*") if "home" in path.parts} == before
    assert home.layout.store_dir(home.name).is_dir()
    assert home.path.stat().st_mtime_ns == mtime
    assert verify(home.layout).clean


def test_everything_comes_back_exactly(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    old = home.path.read_bytes()
    assert caller.extract(home.name, overrides=EVERYTHING).values > 0
    assert performed.restore_all(caller, home.name).status is Status.RESTORED
    assert without_restored(home.path.read_bytes()) == old


@each_kind
def test_recorded_sessions_come_back_exactly(
    kind: Kind, tmp_path: Path, shared_data: Path, clock: Clock
) -> None:
    for home, old in recorded_homes(kind, tmp_path, shared_data):
        caller = make_caller(home.layout, clock)
        result = caller.extract(home.name, overrides=EVERYTHING | {"min_value_length": 800})
        new = home.path.read_bytes()
        assert away(old, new) == result.values > 0
        assert len(kind.reads(new)) == len(kind.reads(old))
        assert verify(home.layout).clean
        assert performed.restore_all(caller, home.name).status is Status.RESTORED
        assert without_restored(home.path.read_bytes()) == old
        set_idle(home.path)
        assert performed.restore_all(caller, home.name, leaving=True).status is Status.RESTORED
        assert home.path.read_bytes() == old


def test_one_entry_comes_back_and_what_was_done_can_be_undone(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    old = home.path.read_bytes()
    caller.extract(home.name, overrides=EVERYTHING)
    taken = home.path.read_bytes()
    entry = next(
        row["id"] for row in performed.context(caller, home.name)["entries"] if row["extracted"]
    )
    keys = performed.restore(caller, home.name, entry)["keys_restored"]
    assert away(old, without_restored(home.path.read_bytes())) == away(old, taken) - len(keys)
    performed.undo(caller, home.name)
    assert home.path.read_bytes() == taken
    performed.undo(caller, home.name)
    assert home.path.read_bytes() == old


def reasons(home: Home, clock: Clock, **settings: Any) -> Mapping[str, int]:
    found = performed.extraction(make_caller(home.layout, clock), home.name, overrides=settings)
    return found.reasons


def test_the_decision_table_holds(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    due = reasons(home, clock, keep_recent=0)["extract"]
    assert due > 0
    assert "extract" not in reasons(home, clock, keep_recent=100)
    assert reasons(home, clock, keep_recent=100)["too_recent"] > 0
    assert "extract" not in reasons(home, clock, min_value_length=50_000)
    assert "extract" not in reasons(home, clock, trigger_types=["system"])
    assert reasons(home, clock, keep_recent=0, scope="display")["extract"] <= due

    caller.extract(home.name, overrides={"keep_recent": 0})
    away = [
        row["id"] for row in performed.context(caller, home.name)["entries"] if row["extracted"]
    ]
    assert len(away) == due
    assert reasons(home, clock, keep_recent=0)["already_extracted"] > 0
    performed.restore(caller, home.name, away[0])
    assert reasons(home, clock, keep_recent=0)["recently_restored"] == 1
    performed.set_extractable(caller, home.name, away[0], False)
    assert reasons(home, clock, keep_recent=0)["pinned"] == 1
    performed.set_extractable(caller, home.name, away[0], True)
    assert reasons(home, clock, keep_recent=0)["extract"] == 1


_RESULTS = (
    *(b'"tool_result"', b'"function_call_output"', b'"toolResult"', b'"functionResponse"'),
    b'"tool.execution_complete"',
)


def test_a_last_turn_that_is_not_finished_is_never_touched(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    lines = home.path.read_bytes().splitlines(keepends=True)
    results = [n for n, line in enumerate(lines) if any(one in line for one in _RESULTS)]
    home.path.write_bytes(written_lately(b"".join(lines[: results[-1] + 1])))
    set_idle(home.path)
    lines = home.path.read_bytes().splitlines()
    prompt = max(number for number, line in enumerate(lines) if _is_prompt(json.loads(line)))
    for row in performed.context(caller, home.name)["entries"]:
        if row["index"] >= prompt and row["id"]:
            performed.set_extractable(caller, home.name, row["id"], True)
    old = home.path.read_bytes()
    assert caller.extract(home.name, overrides=EVERYTHING).values > 0
    new = home.path.read_bytes()
    assert new.splitlines()[prompt:] == old.splitlines()[prompt:]
    assert away(old, new) > 0
    # After a day without a new line it is over.
    clock.ahead += 86_400
    assert caller.extract(home.name, overrides=EVERYTHING).values > 0
    assert home.path.read_bytes().splitlines()[prompt:] != old.splitlines()[prompt:]


def _is_prompt(line: dict[str, Any]) -> bool:
    message = line.get("message", line.get("data", line))
    content = message.get("content", message.get("parts"))
    text = content if isinstance(content, str) else json.dumps(content)
    return "do it" in text or line.get("payload", {}).get("type") == "user_message"


def test_an_open_turn_and_a_name_used_twice_stay(home: Home, clock: Clock) -> None:
    lines = home.path.read_bytes().splitlines(keepends=True)
    due = reasons(home, clock, keep_recent=0)["extract"]
    third = (len(lines) + 2) // 3
    home.path.write_bytes(b"".join(lines[:-third] + lines[-third:][: third // 2 + 1]))
    set_idle(home.path)
    assert reasons(home, clock, keep_recent=0)["turn_open"] > 0
    others = [line.replace(b"long old text", b"another text") for line in lines[1:]]
    home.path.write_bytes(b"".join([*lines, *others]))
    set_idle(home.path)
    found = reasons(home, clock, keep_recent=0)
    assert found["duplicate_entry_id"] >= due
    home.path.write_bytes(b"".join([*lines, *lines[1:]]))
    set_idle(home.path)
    assert reasons(home, clock, keep_recent=0)["extract"] >= 2 * due


def test_the_context_tool_changes_texts(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    old = home.path.read_bytes()
    entry = next(
        row
        for row in performed.context(caller, home.name)["entries"]
        if row["type"] == "tool_result"
    )
    assert performed.change_context(caller, home.name, "discard", [[entry["hash"]]])["success"]
    assert b"[content discarded]" in home.path.read_bytes()
    performed.undo(caller, home.name)
    assert home.path.read_bytes() == old


def test_a_person_may_change_texts_and_nothing_that_ties_entries(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    old = home.path.read_bytes()
    entry = next(
        row["id"]
        for row in performed.context(caller, home.name)["entries"]
        if row["type"] == "tool_result"
    )
    document = json.loads(performed.show_entry(caller, home.name, entry).text)
    ties = {"codex": ("payload", "call_id"), "gemini": ("id",)}
    ties |= dict.fromkeys(("pi", "oh-my-pi", "copilot"), ("parentId",))
    tie = ties.get(home.kind.kind)
    with pytest.raises(Invalid):
        performed.edit(caller, home.name, entry, setting([(tie or ("parentUuid",), "another")]))
    assert home.path.read_bytes() == old
    text = json.dumps(document).replace(LONG, "short")
    performed.edit(caller, home.name, entry, becoming(text))
    assert home.path.read_bytes() == _with_line(old, document, LONG, "short")


def _with_line(content: bytes, document: Any, old: str, new: str) -> bytes:
    lines = content.splitlines(keepends=True)
    number = next(i for i, line in enumerate(lines) if json.loads(line) == document)
    lines[number] = lines[number].replace(old.encode(), new.encode())
    return b"".join(lines)


def late(home: Home) -> Path:
    """The file that an extraction has displaced and that a program may still write to."""
    [path] = home.layout.inflight.glob("*.file")
    return path


def test_late_lines_find_their_session(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    caller.extract(home.name)
    taken = home.path.read_bytes()
    with late(home).open("ab") as file:
        file.write(b'{"late": true}\n')
    clock.ahead += 120
    found = make_caller(home.layout, clock).recover()
    assert [each.lines for each in found] == [1]
    assert home.path.read_bytes() == taken + b'{"late": true}\n'


def test_a_source_that_is_named_no_longer_is_not_written_to(home: Home, clock: Clock) -> None:
    make_caller(home.layout, clock).extract(home.name)
    taken = home.path.read_bytes()
    with late(home).open("ab") as file:
        file.write(b'{"late": true}\n')
    clock.ahead += 120
    [found] = make_caller(Layout(home.layout.root), clock).recover()
    assert found.state is State.FAILED
    assert home.path.read_bytes() == taken
    assert late(home).read_bytes().endswith(b'{"late": true}\n')


def test_other_doors_know_these_sessions(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    caller.extract(home.name)
    assert performed.summary(home.layout, home.name)["summary"]["tool_calls"] == 6
    [hit] = search(home.layout, "done", agent=home.name.agent, limit=1)
    assert hit.session == home.name
    counted = catalog.warm(home.layout, list(catalog.sessions(home.layout)))[home.name]
    assert (counted.tool_calls, counted.tool_outputs) == (6, 6)
    assert counted.models
    assert counted.tokens["input"] == 9  # three answers, in however many lines


def test_calls_that_stand_in_them_are_not_carried_out_and_the_log_says_why(
    home: Home, clock: Clock
) -> None:
    tools = {"claude-code": b'"Write"', "codex": b'"shell"', "pi": b'"write"'}
    tools["oh-my-pi"] = tools["pi"]
    tool = tools.get(home.kind.kind, b'"write_file"')
    content = home.path.read_bytes().replace(tool, b'"mcp__bsd__restore_remote"')
    home.path.write_bytes(content)
    set_idle(home.path)
    caller = make_caller(home.layout, clock)
    with capture_logs() as logged:
        assert not InBand(caller, home.name).carry_out()
    [line] = [line for line in logged if "not carried out" in line["event"]]
    assert f"`bsd agents on {home.kind.kind}`" in line["why"]
    assert home.path.read_bytes() == content


def test_they_are_not_for_bsd_to_delete(home: Home) -> None:
    old = home.path.read_bytes()
    with pytest.raises(LeftAlone):
        Trash(home.layout, "14d").delete(home.name)
    assert home.path.read_bytes() == old


def test_what_is_not_known_is_left_alone_and_counted(home: Home, clock: Clock) -> None:
    lines = home.path.read_bytes().replace(b'"type"', b'"kind"')
    home.path.write_bytes(lines)
    os.utime(home.path, (1e9, 1e9))
    result = make_caller(home.layout, clock).extract(home.name, overrides=EVERYTHING)
    assert result.status is Status.LEFT_ALONE
    assert result.reason
    assert home.path.read_bytes() == lines


@pytest.mark.parametrize("kind", [CLAUDE_CODE, CODEX], ids=["claude-code", "codex"])
def test_openclaws_own_directories_hold_none_of_them(
    kind: Kind, tmp_path: Path, clock: Clock
) -> None:
    """Only where the settings request it, bsd checks the signs of life of the session's program."""
    home = Home.of(kind, tmp_path, kind.lines())
    layout = Layout(home.layout.root)
    path = layout.agents / "main" / "sessions" / "s.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(home.path.read_bytes())
    os.utime(path, (1e9, 1e9))
    result = make_caller(layout, clock).extract(SessionName("main", "s"), overrides=EVERYTHING)
    assert result.status is Status.LEFT_ALONE


def test_a_source_must_be_of_a_known_kind_and_the_right_directory(tmp_path: Path) -> None:
    for kind, path in (("cursor", tmp_path), ("claude-code", tmp_path / ".claude")):
        with pytest.raises(ConfigError) as caught:
            layout_of(tmp_path / "root", [SourceSettings(kind=kind, path=path)])
        assert caught.value.hint
