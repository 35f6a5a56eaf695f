"""opencode's database: rows of messages and parts are read as lines, and never written."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.list_entries import list_entries
from bsd.actions.list_sessions import list_all_sessions
from bsd.actions.search import search_extracted
from bsd.actions.summary import summarize_session
from bsd.core.errors import LeftAlone
from bsd.core.layout import Layout, SessionName
from bsd.core.sources import Source
from bsd.daemon.scan import Scan
from bsd.mcp.restoring import restore_with_text
from bsd.planning.result import Status
from bsd.transcripts.agents.entry import Entry
from bsd.transcripts.agents.format import StartedSubagent
from bsd.transcripts.agents.installed import agents_with_sessions
from bsd.transcripts.agents.opencode import FILE, KIND, NEWEST_MIGRATION, OPENCODE
from bsd.transcripts.agents.opening import open_transcript, stat_transcript
from bsd.transcripts.change import Identity
from tests.session_files import Clock, make_caller

NAME = SessionName("opencode:.", "ses_1")
SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text,
  directory text NOT NULL, title text NOT NULL, version text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE event_sequence (aggregate_id text PRIMARY KEY, seq integer NOT NULL);
CREATE TABLE event (id text PRIMARY KEY, aggregate_id text NOT NULL, seq integer NOT NULL,
  type text NOT NULL, data text NOT NULL);
"""
AT = 1_795_743_472_000
TOKENS = {"input": 30, "output": 5, "reasoning": 0, "cache": {"read": 100, "write": 0}}
TOOL: dict[str, Any] = {
    "type": "tool",
    "tool": "bash",
    "callID": "toolu_0000000000000003",
    "state": {"status": "completed", "input": {"command": "seq 3"}, "output": "needle 1 2 3"},
}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    home = tmp_path / "opencode"
    home.mkdir()
    model = {"providerID": "mock", "modelID": "mock-1"}
    answer = {"role": "assistant", **model, "cost": 0.5, "tokens": TOKENS, "finish": "stop"}
    with closing(sqlite3.connect(home / "opencode.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(SCHEMA)
        session = ("ses_1", "global", None, "/home/me", "New session - 2026-11-27", "1.18.33")
        connection.execute(
            "INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*session, AT, AT)
        )
        _message(connection, "msg_1", {"role": "user"}, {"type": "text", "text": "Count to 3."})
        parts: list[dict[str, Any]] = [
            {"type": "step-start"},
            TOOL,
            {"type": "text", "text": "Done."},
        ]
        _message(connection, "msg_2", answer, *parts)
        connection.execute("INSERT INTO event_sequence VALUES ('ses_1', 5)")
        connection.commit()
    source = Source("opencode", "opencode", home, KIND.routes)
    return Layout(tmp_path / "root", (source,))


def _message(
    connection: sqlite3.Connection, name: str, data: dict[str, Any], *parts: dict[str, Any]
) -> None:
    row = (name, "ses_1", AT, AT, json.dumps(data))
    connection.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row)
    for number, part in enumerate(parts):
        columns = (f"prt_{name}_{number}", name, "ses_1", AT, AT, json.dumps(part))
        connection.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", columns)


def _changed(
    layout: Layout, *statements: str, newer: tuple[str, dict[str, Any]] = ("", {})
) -> None:
    """Change the database as opencode does; `newer` is a message with a text."""
    with closing(sqlite3.connect(layout.sources[0].path / FILE)) as connection:
        for statement in statements:
            connection.execute(statement)
        name, data = newer
        if name:
            _message(connection, name, data, {"type": "text", "text": f"Text of {name}."})
        connection.execute("UPDATE event_sequence SET seq = seq + 1")
        connection.commit()


def _part(layout: Layout, part: dict[str, Any]) -> Entry:
    """Give the database this part as its call; return the line."""
    data = json.dumps(part).replace("'", "''")
    _changed(layout, f"UPDATE part SET data = '{data}' WHERE id = 'prt_msg_2_1'")
    return next(line for line in _lines(layout) if line["id"] == "prt_msg_2_1")


def _raw(layout: Layout) -> bytes:
    with open_transcript(layout, NAME) as source:
        return b"".join(line.raw for line in source.lines())


def _lines(layout: Layout) -> list[Entry]:
    with open_transcript(layout, NAME) as source:
        return [json.loads(line.raw) for line in source.lines()]


def test_rows_are_lines_in_their_order(layout: Layout) -> None:
    with open_transcript(layout, NAME) as source:
        assert source.identity == Identity.of(stat_transcript(layout, NAME))
        lines = [json.loads(line.raw) for line in source.lines()]
    ids = [line["id"] for line in lines]
    assert ids[:4] == ["ses_1", "msg_1", "prt_msg_1_0", "msg_2"]
    assert lines[5]["part"] == TOOL
    caller = make_caller(layout, Clock())
    kinds = [entry.type for entry in list_entries(caller, NAME).entries]
    assert kinds[1:] == ["message", "user", "message", "step-start", "tool_result", "assistant"]
    [row] = list_all_sessions(caller).sessions
    assert row.title == "Count to 3."
    assert row.resume == "cd /home/me && opencode --session ses_1"


def test_it_is_searched_summed_up_and_never_edited(layout: Layout) -> None:
    before = layout.sources[0].path.joinpath("opencode.db").read_bytes()
    caller = make_caller(layout, Clock())
    [hit] = search_extracted(caller, NAME, "needle").results
    assert hit.entry_id == "prt_msg_2_1"
    texts = restore_with_text(caller, NAME, "toolu0000000000000003").texts
    assert "needle 1 2 3" in texts.values()
    found = summarize_session(caller, NAME)
    assert (found.summary.tools_used, found.summary.models_used) == (["bash"], ["mock-1"])
    assert "parts of messages (part)" in {files.what for files in found.directory}
    assert caller.extract(NAME).status is Status.LEFT_ALONE
    assert layout.sources[0].path.joinpath("opencode.db").read_bytes() == before


def test_a_part_that_changes_in_place_is_a_change_of_its_session(layout: Layout) -> None:
    scan = Scan(layout)
    assert [name for name, _ in scan.step()] == [NAME]
    assert list(scan.step()) == []
    with closing(sqlite3.connect(layout.sources[0].path / "opencode.db")) as connection:
        connection.execute('UPDATE part SET data = \'{"type":"text","text":"Changed."}\'')
        connection.execute("UPDATE event_sequence SET seq = 6")
        connection.commit()
    assert [name for name, _ in scan.step()] == [NAME]
    with open_transcript(layout, NAME) as source:
        assert sum(b"Changed." in line.raw for line in source.lines()) == 4


def test_a_call_is_answered_when_it_has_ended(layout: Layout) -> None:
    running = {**TOOL, "state": {"status": "running", "input": {"command": "seq 3"}}}
    info = OPENCODE.info(_part(layout, running))
    assert (info.kind, info.result_of) == ("tool_call", None)
    assert [call.answered for call in info.calls] == [False]
    state = {"status": "error", "input": {"command": "seq 3"}, "error": "No seq here."}
    entry = _part(layout, {**TOOL, "state": {**state, "time": {"start": 1000, "end": 3500}}})
    assert [flag for _, flag in OPENCODE.error_flags(entry)] == [True]
    assert OPENCODE.call_seconds(entry) == (TOOL["callID"], 2.5)
    summary = summarize_session(make_caller(layout, Clock()), NAME).summary
    assert summary.errors == ["No seq here."]


def test_a_sub_agent_belongs_to_its_session(layout: Layout) -> None:
    state = {"status": "completed", "input": {}, "output": "", "metadata": {"sessionId": "ses_2"}}
    entry = _part(layout, {**TOOL, "tool": "task", "state": state})
    assert OPENCODE.subagent(entry) == StartedSubagent(TOOL["callID"], "ses_2")
    columns = "id, project_id, parent_id, directory, title, version, time_created, time_updated"
    row = f"'ses_2', 'global', 'ses_1', '/home/me', 'Look\n(sub)', '1', {AT}, {AT}"
    _changed(layout, f"INSERT INTO session ({columns}) VALUES ({row})")
    home = KIND.program(layout.sources[0].path, layout.sources[0].path)
    assert home.registry().started("ses_1") == ["ses_2"]
    assert home.registry().title("ses_2") == "Look (sub)"


def test_what_opencode_does_not_send_is_never_sent(layout: Layout) -> None:
    pruned = {**TOOL["state"], "time": {"compacted": 1}, "metadata": {"output": "again"}}
    values = OPENCODE.values(_part(layout, {**TOOL, "state": pruned}))
    assert {value.path[-1] for value in values if value.display} == {"output"}
    assert sum(value.display for value in values) == 2
    text = {"role": "user", "part": {"type": "text", "text": "For you.", "ignored": True}}
    assert [value.display for value in OPENCODE.values(text)] == [True]


def test_a_summary_leaves_the_kept_messages_in_context(layout: Layout) -> None:
    kept = json.dumps({"type": "compaction", "auto": False, "tail_start_id": "msg_2"})
    _changed(layout, newer=("msg_3", {"role": "user"}))
    _changed(layout, f"UPDATE part SET data = '{kept}' WHERE message_id = 'msg_3'")
    summary = {"role": "assistant", "summary": True, "finish": "stop", "parentID": "msg_3"}
    _changed(layout, newer=("msg_4", {**summary, "error": {"name": "Aborted"}}))
    assert not any(OPENCODE.info(line).is_compaction for line in _lines(layout))
    data = json.dumps(summary)
    _changed(layout, f"UPDATE message SET data = '{data}' WHERE id = 'msg_4'")
    [info] = [info for line in _lines(layout) if (info := OPENCODE.info(line)).is_compaction]
    assert (info.id, info.kept_from) == ("msg_4", "msg_2")
    context = summarize_session(make_caller(layout, Clock()), NAME).context
    assert context is not None


def test_damaged_rows_stay_lines_of_their_own(layout: Layout) -> None:
    hostile = '{"type":"text","text":"a"},"id":"ses_other"'
    _changed(layout, f"UPDATE part SET data = '{hostile}}}' WHERE id = 'prt_msg_1_0'")
    _changed(layout, "UPDATE part SET data = x'ff00' WHERE id = 'prt_msg_2_0'")
    _changed(layout, "UPDATE message SET data = '[1,\n2]' WHERE id = 'msg_2'")
    lines = _lines(layout)
    assert [line["id"] for line in lines[:4]] == ["ses_1", "msg_1", "prt_msg_1_0", "msg_2"]
    assert lines[2]["part"] == hostile + "}"
    assert len(lines) == 7
    assert len(list_entries(make_caller(layout, Clock()), NAME).entries) == 7


def test_a_newer_schema_is_refused_in_words(layout: Layout) -> None:
    create = "CREATE TABLE migration (id text PRIMARY KEY, time_completed integer)"
    _changed(layout, create, f"INSERT INTO migration VALUES ('{NEWEST_MIGRATION}', 1)")
    assert len(_lines(layout)) == 7
    _changed(layout, "INSERT INTO migration VALUES ('20270101000000_other', 1)")
    with pytest.raises(LeftAlone, match=r"has the schema 20270101000000_other, .* update bsd"):
        open_transcript(layout, NAME)
    assert list_all_sessions(make_caller(layout, Clock())).sessions == ()


def test_a_session_without_a_number_of_events_changes_with_its_parts(layout: Layout) -> None:
    _changed(layout, "DELETE FROM event_sequence")
    before = Identity.of(stat_transcript(layout, NAME))
    assert b"Done." in _raw(layout)
    _changed(
        layout,
        "UPDATE part SET data = replace(data, 'Done.', 'Gone.'), time_updated = 1 + time_updated",
    )
    assert Identity.of(stat_transcript(layout, NAME)) != before
    assert b"Gone." in _raw(layout)


def test_its_directory_is_found_and_what_fills_it(layout: Layout) -> None:
    home = layout.sources[0].path
    [found] = agents_with_sessions({"XDG_DATA_HOME": str(home.parent)}, ["opencode"])
    assert found.directory == home
    (home / "snapshot" / "one").mkdir(parents=True)
    (home / "snapshot" / "one" / "pack").write_bytes(b"x" * 5000)
    (home / "snapshot" / "link").symlink_to(home)
    use = summarize_session(make_caller(layout, Clock()), NAME).directory
    assert {5000} == {each.bytes for each in use if each.what.endswith("(snapshot)")}
