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
from bsd.core.layout import Layout, SessionName
from bsd.core.sources import Source
from bsd.daemon.scan import Scan
from bsd.mcp.restoring import restore_with_text
from bsd.planning.result import Status
from bsd.transcripts.agents.opencode import KIND
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
TOOL = {
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
