"""opencode: its database, `~/.local/share/opencode/opencode.db`, which bsd only reads.

A session is a row of `session`, its messages are rows of `message`, and their content rows of
`part`: a text, a thought, or a call with its result. bsd reads a session as JSON lines: a header,
then each message followed by its parts. A line holds the columns of its row and, unchanged, the
object in it.
"""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsd.core.files import is_there
from bsd.transcripts.agents.database import (
    Fill,
    SessionDatabase,
    SessionVersion,
    columns_of,
    shared_database,
    table_fills,
    text_in,
)
from bsd.transcripts.agents.entry import (
    Entry,
    entry_id,
    entry_time_ms,
    first_entries,
    provider_of,
    text_of,
    usage_of,
)
from bsd.transcripts.agents.format import (
    PROGRAM_NOTES,
    CacheUse,
    EntryInfo,
    Filling,
    NotOurs,
    Rank,
    Title,
    ToolCall,
    TranscriptFormat,
    Turn,
    Value,
    asked,
    named,
    path_text,
)
from bsd.transcripts.agents.program import (
    AgentProgram,
    Registered,
    Registry,
    SourceKind,
    directory_below,
)
from bsd.transcripts.agents.values import leaf_values, text_value
from bsd.transcripts.reader import parse_entry

_HEADER, _MESSAGE, _PART = "session", "message", "part"
_STATE = (_PART, "state")
# The title of a session that has no other.
_UNNAMED = re.compile(r"(?:New|Child) session - \d{4}-.*")
_KINDS = {"reasoning": "thinking", "tool": "tool_result"}


# --- its lines ---


class OpenCode(TranscriptFormat):
    """The lines that `OpenCodeDatabase` makes of its rows."""

    name = "opencode"
    parent_key = None

    def info(self, entry: Entry) -> EntryInfo:
        part = _part_of(entry)
        kind = text_of(part.get("type")) or text_of(entry.get("type")) or "unknown"
        is_content = kind in {"text", *_KINDS}
        role = text_of(entry.get("role")) if is_content else None
        call = _call_in(part)
        return EntryInfo(
            id=entry_id(entry),
            kind=(role or kind) if kind == "text" else _KINDS.get(kind, kind),
            is_message=is_content,
            is_header=kind == _HEADER,
            is_assistant=is_content and role == "assistant",
            turn=_turn(entry, kind),
            role="toolResult" if kind == "tool" else role,
            time_ms=entry_time_ms(entry),
            is_note=not is_content,
            answer=text_of(entry.get("messageID")),
            calls=() if call is None else (call,),
            result_of=None if call is None else call.id,
            result_tool=None if call is None else call.name,
            cache=_cache_use(entry),
        )

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        part, type_ = _part_of(entry), self.info(entry).kind
        text = text_of(part.get("text"))
        values = [] if text is None else [text_value((_PART, "text"), text, type_)]
        state = part.get("state")
        if isinstance(state, dict):
            values += leaf_values(state.get("input"), (*_STATE, "input"), "tool_call", at_least)
            if output := text_of(state.get("output")) or text_of(state.get("error")):
                key = "output" if text_of(state.get("output")) else "error"
                values.append(text_value((*_STATE, key), output, type_))
            metadata = state.get("metadata")
            where = (*_STATE, "metadata")
            values += leaf_values(metadata, where, type_, at_least, display=True)
        return values

    def title(self, entry: Entry) -> Title | None:
        if entry.get("type") == _HEADER:
            title = text_of(entry.get("title")) or ""
            return None if _UNNAMED.fullmatch(title) else named(title, Rank.MADE)
        part = _part_of(entry)
        if entry.get("role") != "user" or part.get("synthetic") is True:
            return None
        text = text_of(part.get("text"))
        return asked([text]) if text else None

    def directory(self, entry: Entry) -> str | None:
        return path_text(entry.get("cwd")) if entry.get("type") == _HEADER else None

    def origins(self, entry: Entry) -> tuple[str, ...]:
        own = text_of(entry.get("id")) if entry.get("type") == _HEADER else None
        return () if own is None else (own,)

    def fillings(self, entry: Entry) -> Iterator[Filling]:
        if self.info(entry).is_note:
            yield Filling((), PROGRAM_NOTES)


OPENCODE = OpenCode()


def _part_of(entry: Entry) -> Entry:
    part = entry.get(_PART)
    return part if isinstance(part, dict) else {}


def _call_in(part: Entry) -> ToolCall | None:
    call, tool = text_of(part.get("callID")), text_of(part.get("tool"))
    if call is None or tool is None:
        return None
    return ToolCall(call, tool, (_PART,), (*_STATE, "input"), answered=True)


def _turn(entry: Entry, kind: str) -> Turn:
    if kind == _MESSAGE:
        if entry.get("role") == "user":
            return Turn.STARTS
        data = entry.get("data")
        finish = data.get("finish") if isinstance(data, dict) else None
        return Turn.CLOSES if finish == "stop" else Turn.OPEN
    return Turn.NONE


def _cache_use(entry: Entry) -> CacheUse | None:
    usage = usage_of(entry)
    if usage is None:
        return None
    message = entry[_MESSAGE]
    model = text_of(message.get("model"))
    in_use = bool(usage.read or usage.written)
    return CacheUse(model, in_use=in_use, provider=provider_of(entry), usage=usage)


# --- its database ---

_REQUIRED = {
    "session": {"id", "parent_id", "directory", "title", "version", "time_created", "time_updated"},
    "message": {"id", "session_id", "time_created", "data"},
    "part": {"id", "message_id", "time_created", "data"},
}
_SESSIONS = (
    "SELECT id, time_updated, (SELECT seq FROM event_sequence WHERE aggregate_id = session.id)"
    " FROM session"
)
# For a database without numbers of events.
_COUNTED = (
    "SELECT id, time_updated, (SELECT count(*) || ' ' || max(time_updated) FROM part"
    " WHERE session_id = session.id) FROM session"
)
_SESSION = "SELECT id, parent_id, directory, title, version, time_created FROM session WHERE id = ?"
_MESSAGES = "SELECT id FROM message WHERE session_id = ? ORDER BY time_created, id"
_CONTENTS = {
    "event": "log of events (event)",
    "part": "parts of messages (part)",
    "message": "messages (message)",
    "session": "sessions and their inputs",
}


class OpenCodeDatabase(SessionDatabase):
    """The sessions of one user of opencode."""

    left_alone = "no other program than opencode may write to it"

    def find_problem(self, connection: sqlite3.Connection) -> str | None:
        for table, required in _REQUIRED.items():
            if missing := required - columns_of(connection, table):
                names = ", ".join(sorted(missing))
                return (
                    f"{self.path} has a schema that bsd does not know ({table} has no {names}):"
                    " update bsd"
                )
        return None

    def versions(self, connection: sqlite3.Connection) -> Iterator[SessionVersion]:
        query = _SESSIONS if columns_of(connection, "event_sequence") else _COUNTED
        for session, updated, state in connection.execute(query).fetchall():
            token = f"{updated} {text_in(state) or state}"
            time_ms = updated if isinstance(updated, int) else 0
            yield SessionVersion(text_in(session), 0, token, time_ms)

    def measure(
        self,
        connection: sqlite3.Connection,
        version: SessionVersion,
        after: int | None,
    ) -> int:
        return sum(map(len, self.lines(connection, version)))

    def lines(self, connection: sqlite3.Connection, version: SessionVersion) -> Iterator[bytes]:
        row = connection.execute(_SESSION, (version.session,)).fetchone()
        if row is None:
            return
        own, parent, directory, title, number, created = row
        header = {
            "type": _HEADER,
            "id": text_in(own),
            "parentSession": text_in(parent) or None,
            "cwd": text_in(directory),
            "title": text_in(title),
            "version": text_in(number),
            "timestamp": created,
        }
        yield json.dumps(header, separators=(",", ":")).encode() + b"\n"
        for [message] in connection.execute(_MESSAGES, (version.session,)).fetchall():
            yield from _lines_of(connection, text_in(message))

    def read_list(self, connection: sqlite3.Connection) -> Registry:
        rows = connection.execute("SELECT id, parent_id, title FROM session").fetchall()
        return Registry(
            Registered(
                text_in(session),
                session_id=text_in(session),
                session_file=None,
                status=None,
                parent=text_in(parent) or None,
                title=None if _UNNAMED.fullmatch(text_in(title)) else text_in(title) or None,
            )
            for session, parent, title in rows
        )

    def fills(self) -> Iterator[Fill]:
        with self.connected() as connection:
            yield from table_fills(connection, _CONTENTS)


def _lines_of(connection: sqlite3.Connection, message: str) -> Iterator[bytes]:
    """Yield the line of a message and those of its parts. Each message is a read of its own."""
    query = "SELECT time_created, CAST(data AS BLOB) FROM message WHERE id = ?"
    row = connection.execute(query, (message,)).fetchone()
    if row is None:
        return
    created, data = row
    known = parse_entry(data or b"") or {}
    role = text_of(known.get("role"))
    about = {"type": _MESSAGE, "id": message, "role": role, "timestamp": created}
    yield _line({**about, _MESSAGE: _told(known)}, "data", data)
    query = "SELECT id, time_created, CAST(data AS BLOB) FROM part WHERE message_id = ? ORDER BY id"
    for part, at, content in connection.execute(query, (message,)):
        about = {"type": _PART, "id": text_in(part), "messageID": message, "role": role}
        yield _line({**about, "timestamp": at}, _PART, content)


def _told(message: Entry) -> Entry:
    """Return model and tokens of a message in the form of other programs' messages."""
    told: Entry = {"role": message.get("role")}
    for name, key in (("model", "modelID"), ("provider", "providerID")):
        if value := text_of(message.get(key)):
            told[name] = value
    tokens = message.get("tokens")
    if isinstance(tokens, dict) and message.get("role") == "assistant":
        cache = tokens.get("cache")
        cache = cache if isinstance(cache, dict) else {}
        told["usage"] = {
            "input": tokens.get("input"),
            "output": tokens.get("output"),
            "cacheRead": cache.get("read"),
            "cacheWrite": cache.get("write"),
            "cost": {"total": message.get("cost")},
        }
    return told


def _line(columns: Mapping[str, Any], name: str, content: bytes | None) -> bytes:
    """Return the line of a row. Its object stands in it as it is stored."""
    begin = json.dumps(columns, separators=(",", ":")).encode()[:-1]
    object_ = (content or b"null").replace(b"\n", b" ")
    return begin + b',"' + name.encode() + b'":' + object_ + b"}\n"


# --- its directory ---


@dataclass(frozen=True, slots=True)
class OpenCodeHome(AgentProgram):
    """The sessions of all projects, which are the sessions of one agent."""

    directory: Path
    undeletable = "only opencode may delete it"
    uncallable = "opencode keeps its sessions in a database, from which bsd takes no calls"

    def is_session_file(self, name: str) -> bool:
        return False

    def why_no_session(self, name: str) -> str | None:
        return None

    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        first = next(first_entries(first_lines), {})
        return OPENCODE if first.get("type") == _HEADER else NotOurs("not a session of opencode")

    def database(self) -> OpenCodeDatabase | None:
        path = self.directory / "opencode.db"
        try:
            if not is_there(path):
                return None
        except OSError:
            return None
        database = shared_database(OpenCodeDatabase, path)
        return database if database.has_table("session") else None

    def registry(self) -> Registry:
        database = self.database()
        return Registry() if database is None else database.registry()

    def resume_command(self, session: str, directory: str | None) -> str | None:
        command = f"opencode --session {shlex.quote(session)}"
        return f"cd {shlex.quote(directory)} && {command}" if directory else command


KIND = SourceKind(
    routes=((),),
    called="opencode",
    program=lambda _, directory: OpenCodeHome(directory),
    title="opencode",
    usual_directory=directory_below("XDG_DATA_HOME", ".local/share", "opencode"),
)
