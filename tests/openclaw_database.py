"""OpenClaw's database of an agent as version 2026.9 makes it, with the tables that bsd reads.

SQLite before 3.43 has no octet_length, so the checks of OpenClaw's tables are left out.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from bsd.core.zstd import zstd

SCHEMA = """
CREATE TABLE schema_meta (meta_key TEXT NOT NULL PRIMARY KEY, role TEXT NOT NULL,
  schema_version INTEGER NOT NULL, agent_id TEXT, app_version TEXT, created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL) STRICT;
CREATE TABLE session_nodes (session_key TEXT NOT NULL PRIMARY KEY,
  current_session_id TEXT NOT NULL, entry_json TEXT NOT NULL, updated_at INTEGER NOT NULL,
  status TEXT, parent_session_key TEXT, spawned_by TEXT, fork_source_session_id TEXT, label TEXT,
  display_name TEXT) STRICT;
CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT,
  created_at INTEGER NOT NULL, event_zstd BLOB, event_utf8_bytes INTEGER, navigation_json TEXT,
  PRIMARY KEY (session_id, seq)) STRICT;
CREATE TABLE session_transcript_cold_archives (session_id TEXT NOT NULL PRIMARY KEY,
  generation TEXT NOT NULL, archive_name TEXT NOT NULL, archive_sha256 TEXT NOT NULL,
  event_count INTEGER NOT NULL, raw_bytes INTEGER NOT NULL, archive_bytes INTEGER NOT NULL,
  last_seq INTEGER NOT NULL, archived_at INTEGER NOT NULL, storage TEXT NOT NULL,
  archive_blob BLOB) STRICT;
CREATE TABLE transcript_rewrite_watermarks (session_id TEXT NOT NULL PRIMARY KEY,
  generation TEXT NOT NULL, updated_at INTEGER NOT NULL) STRICT;
CREATE TABLE trajectory_runtime_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL,
  run_id TEXT, event_json TEXT NOT NULL, created_at INTEGER NOT NULL,
  PRIMARY KEY (session_id, seq)) STRICT;
CREATE TABLE session_transcript_active_events (session_id TEXT NOT NULL,
  active_position INTEGER NOT NULL, event_seq INTEGER NOT NULL, message_position INTEGER,
  context_eligible INTEGER, PRIMARY KEY (session_id, active_position)) STRICT;
"""
BEGAN_MS = 1_795_000_000_000


def database_path(root: Path, agent: str = "main") -> Path:
    """Return the path of an agent's database in a root."""
    return root / "agents" / agent / "agent" / "openclaw-agent.sqlite"


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for writing, which is committed at the end and created if it is missing."""
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        if new:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(SCHEMA)
            meta = ("primary", "agent", 23, path.parent.parent.name, "2026.9.6", 0, 0)
            connection.execute("INSERT INTO schema_meta VALUES (?, ?, ?, ?, ?, ?, ?)", meta)
        yield connection
        connection.commit()


def conversation(session: str, *texts: str) -> list[bytes]:
    """Return events of a session: each text is a prompt, with a call, its result and an answer."""
    entries: list[dict[str, Any]] = [{"type": "session", "version": 4, "id": session, "cwd": "/w"}]
    for number, text in enumerate(texts):
        call = {
            "type": "toolCall",
            "id": f"call_{number:08}",
            "name": "exec",
            "arguments": {"n": 1},
        }
        result = {"role": "toolResult", "toolCallId": f"call_{number:08}", "toolName": "exec"}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": text},
            {"role": "assistant", "content": [call], "stopReason": "toolUse"},
            {**result, "isError": False, "content": [{"type": "text", "text": f"out of {text}"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        ]
        for message in messages:
            index = len(entries)
            entries.append(
                {
                    "type": "message",
                    "id": f"{session}-{index}",
                    "parentId": f"{session}-{index - 1}" if index > 1 else None,
                    "timestamp": BEGAN_MS + index,
                    "message": message,
                }
            )
    return [json.dumps(entry, separators=(",", ":")).encode() for entry in entries]


def add_events(
    connection: sqlite3.Connection,
    session: str,
    events: Iterable[bytes],
    *,
    compressed: bool = False,
) -> None:
    """Append events to a session, as text or compressed."""
    query = "SELECT coalesce(max(seq), -1) FROM transcript_events WHERE session_id = ?"
    [last] = connection.execute(query, (session,)).fetchone()
    for seq, event in enumerate(events, last + 1):
        text = None if compressed else event.decode()
        packed = zstd.compress(event) if compressed else None
        connection.execute(
            "INSERT INTO transcript_events VALUES (?, ?, ?, ?, ?, ?, NULL)",
            (session, seq, text, BEGAN_MS + seq, packed, len(event)),
        )
    connection.execute(
        "INSERT OR IGNORE INTO transcript_rewrite_watermarks VALUES (?, 'first', 0)", (session,)
    )


def add_node(connection: sqlite3.Connection, key: str, session: str, **columns: str) -> None:
    """List a conversation."""
    query = (
        "INSERT INTO session_nodes (session_key, current_session_id, entry_json, updated_at)"
        " VALUES (?, ?, '{}', 0)"
    )
    connection.execute(query, (key, session))
    for column, value in columns.items():
        query = f"UPDATE session_nodes SET {column} = ? WHERE session_key = ?"
        connection.execute(query, (value, key))


def cold_archive(session: str, events: Iterable[bytes]) -> bytes:
    """Return the file of a session in OpenClaw's cold storage."""
    records: list[dict[str, Any]] = [
        {"kind": "header", "version": 1, "sessionId": session, "generation": "first"}
    ]
    for seq, event in enumerate(events):
        row = {"seq": seq, "event_json": event.decode(), "created_at": BEGAN_MS + seq}
        records.append({"kind": "event", "row": row})
    return zstd.compress(b"\n".join(json.dumps(record).encode() for record in records) + b"\n")
