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
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsd.core.files import is_there
from bsd.transcripts.agents.database import (
    DatabaseFill,
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
    StartedSubagent,
    Title,
    ToolCall,
    TranscriptFormat,
    Turn,
    Value,
    asked,
    in_short,
    named,
    path_text,
)
from bsd.transcripts.agents.program import (
    AgentProgram,
    FilesOfProgram,
    Registered,
    Registry,
    SourceKind,
    directory_below,
)
from bsd.transcripts.agents.values import leaf_values, text_value
from bsd.transcripts.reader import parse_entry
from bsd.transcripts.spans import ValuePath

_HEADER, _MESSAGE, _PART = "session", "message", "part"
# Members of the line of a message that sums up all earlier messages, except the latest.
_COMPACTS, _KEPT_FROM = "compacts", "keptFrom"
_STATE = (_PART, "state")
# The title of a session that has no other.
_UNNAMED = re.compile(r"(?:New|Child) session - \d{4}-.*")
_KINDS = {"reasoning": "thinking", "tool": "tool_result"}
_CONTENT = {"text", "file", *_KINDS}
_ENDED = ("completed", "error")  # states of a call with a result
_GOES_ON = ("tool-calls", "unknown")  # values of `finish` after which opencode asks again
_SENT_AS_TEXT = ("text/plain", "application/x-directory")  # files, which stand in texts beside them
_SUBAGENT = "task"  # the tool that starts one


# --- its lines ---


class OpenCode(TranscriptFormat):
    """The lines that `OpenCodeDatabase` makes of its rows."""

    name = "opencode"
    parent_key = None

    def info(self, entry: Entry) -> EntryInfo:
        part = _part_of(entry)
        kind = text_of(part.get("type")) or text_of(entry.get("type")) or "unknown"
        is_content, role = kind in _CONTENT, text_of(entry.get("role"))
        call = _call_in(part)
        is_result = call is not None and call.answered
        return EntryInfo(
            id=entry_id(entry),
            kind=_kind(kind, role, is_result=is_result),
            is_message=is_content,
            is_header=kind == _HEADER,
            is_assistant=is_content and role == "assistant",
            turn=_turn(entry, kind),
            role=("toolResult" if is_result else role) if is_content else None,
            time_ms=entry_time_ms(entry),
            is_note=not is_content,
            answer=_message_id(entry) if role == "assistant" else None,
            is_compaction=entry.get(_COMPACTS) is True,
            kept_from=text_of(entry.get(_KEPT_FROM)),
            calls=() if call is None else (call,),
            result_of=call.id if call and is_result else None,
            result_tool=call.name if call and is_result else None,
            cache=_cache_use(entry),
        )

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        part, type_ = _part_of(entry), self.info(entry).kind
        values = []
        if text := text_of(part.get("text")):
            is_unsent = part.get("ignored") is True and entry.get("role") == "user"
            values.append(text_value((_PART, "text"), text, type_, display=is_unsent))
        if url := _data_url(part):
            is_unsent = part.get("mime") in _SENT_AS_TEXT
            values.append(text_value((_PART, "url"), url, type_, display=is_unsent))
        state = part.get("state")
        return values + (_state_values(state, at_least) if isinstance(state, dict) else [])

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

    def error_flags(self, entry: Entry) -> Iterator[tuple[ValuePath, bool]]:
        status = _state_of(entry).get("status")
        if status in _ENDED:
            yield (*_STATE, "status"), status == "error"

    def call_seconds(self, entry: Entry) -> tuple[str, float] | None:
        call, time = _call_in(_part_of(entry)), _state_of(entry).get("time")
        if call is None or not isinstance(time, dict):
            return None
        start, end = time.get("start"), time.get("end")
        if not isinstance(start, (int, float)) or not isinstance(end, (int, float)):
            return None
        return call.id, max(0.0, (end - start) / 1000)

    def subagent(self, entry: Entry) -> StartedSubagent | None:
        call, metadata = _call_in(_part_of(entry)), _state_of(entry).get("metadata")
        if call is None or call.name != _SUBAGENT or not isinstance(metadata, dict):
            return None
        session = text_of(metadata.get("sessionId"))
        return None if session is None else StartedSubagent(call.id, session)

    def fillings(self, entry: Entry) -> Iterator[Filling]:
        if self.info(entry).is_note:
            yield Filling((), PROGRAM_NOTES)


OPENCODE = OpenCode()


def _part_of(entry: Entry) -> Entry:
    part = entry.get(_PART)
    return part if isinstance(part, dict) else {}


def _state_of(entry: Entry) -> Entry:
    state = _part_of(entry).get("state")
    return state if isinstance(state, dict) else {}


def _message_id(entry: Entry) -> str | None:
    return text_of(entry.get("messageID")) or entry_id(entry)


def _kind(kind: str, role: str | None, *, is_result: bool) -> str:
    if kind in {"text", "file"}:
        return role or kind
    return "tool_call" if kind == "tool" and not is_result else _KINDS.get(kind, kind)


def _call_in(part: Entry) -> ToolCall | None:
    call, tool, state = text_of(part.get("callID")), text_of(part.get("tool")), part.get("state")
    if call is None or tool is None:
        return None
    is_ended = isinstance(state, dict) and state.get("status") in _ENDED
    has_input = isinstance(state, dict) and "input" in state
    return ToolCall(
        call, tool, (_PART,), (*_STATE, "input") if has_input else None, answered=is_ended
    )


def _data_url(part: Entry) -> str | None:
    url = text_of(part.get("url"))
    return url if url and url.startswith("data:") else None


def _state_values(state: Entry, at_least: int) -> list[Value]:
    """List arguments and result of a call; opencode sends no result that it has pruned."""
    time = state.get("time")
    is_pruned = isinstance(time, dict) and bool(time.get("compacted"))
    result = "tool_result"
    values = leaf_values(state.get("input"), (*_STATE, "input"), "tool_call", at_least)
    for key in ("output", "error"):
        if text := text_of(state.get(key)):
            values.append(text_value((*_STATE, key), text, result, display=is_pruned))
    attachments = state.get("attachments")
    for index, file in enumerate(attachments if isinstance(attachments, list) else ()):
        if isinstance(file, dict) and (url := _data_url(file)):
            where = (*_STATE, "attachments", index, "url")
            values.append(text_value(where, url, result, display=is_pruned))
    metadata = (*_STATE, "metadata")
    return values + leaf_values(state.get("metadata"), metadata, result, at_least, display=True)


def _turn(entry: Entry, kind: str) -> Turn:
    if kind != _MESSAGE:
        return Turn.NONE
    if entry.get("role") == "user":
        return Turn.STARTS
    data = entry.get("data")
    data = data if isinstance(data, dict) else {}
    finish = text_of(data.get("finish"))
    is_end = data.get("error") is not None or (finish is not None and finish not in _GOES_ON)
    return Turn.CLOSES if is_end else Turn.OPEN


def _cache_use(entry: Entry) -> CacheUse | None:
    usage = usage_of(entry)
    if usage is None:
        return None
    message = entry[_MESSAGE]
    model = text_of(message.get("model"))
    in_use = bool(usage.read or usage.written)
    return CacheUse(model, in_use=in_use, provider=provider_of(entry), usage=usage)


# --- its database ---

FILE = "opencode.db"

_REQUIRED = {
    "session": {"id", "parent_id", "directory", "title", "version", "time_created", "time_updated"},
    "message": {"id", "session_id", "time_created", "data"},
    "part": {"id", "message_id", "time_created", "data"},
}
NEWEST_MIGRATION = "20260622202450_simplify_session_input"  # opencode 1.18.33
# A session without a number of events has a state made of its parts.
_PARTS_STATE = (
    "(SELECT count(*) || ' ' || max(time_updated) FROM part WHERE session_id = session.id)"
)
_EVENT_STATE = "(SELECT seq FROM event_sequence WHERE aggregate_id = session.id)"
_SESSION = "SELECT id, parent_id, directory, title, version, time_created FROM session WHERE id = ?"
_MESSAGES = "SELECT id FROM message WHERE session_id = ? ORDER BY time_created, id"
_COMPACT = "`opencode db VACUUM` rewrites the file without them"
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
        if columns_of(connection, "migration") >= {"id"}:
            [newest] = connection.execute("SELECT max(id) FROM migration").fetchone()
            if text_in(newest) > NEWEST_MIGRATION:
                return (
                    f"{self.path} has the schema {in_short(text_in(newest))}, and this bsd knows"
                    f" schemas up to {NEWEST_MIGRATION}: update bsd"
                )
        for table, required in _REQUIRED.items():
            if missing := required - columns_of(connection, table):
                names = ", ".join(sorted(missing))
                return (
                    f"{self.path} has a schema that bsd does not know ({table} has no {names}):"
                    " update bsd"
                )
        return None

    def versions(self, connection: sqlite3.Connection) -> Iterator[SessionVersion]:
        state = _PARTS_STATE
        if columns_of(connection, "event_sequence") >= {"aggregate_id", "seq"}:
            state = f"coalesce({_EVENT_STATE}, {_PARTS_STATE})"
        query = f"SELECT id, time_updated, {state} FROM session"  # noqa: S608 - constants
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
                title=None
                if _UNNAMED.fullmatch(text_in(title))
                else in_short(text_in(title)) or None,
                started_by=text_in(parent) or None,
            )
            for session, parent, title in rows
        )

    def fills(self) -> Iterator[DatabaseFill]:
        with self.connected() as connection:
            yield from table_fills(connection, _CONTENTS, _COMPACT)
        for files in _directories(self.path.parent):
            yield DatabaseFill(files.what, sum(map(_size, files.paths)), files.advice)


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
    about |= _compaction(connection, known)
    yield _line({**about, _MESSAGE: _told(known)}, "data", data)
    query = "SELECT id, time_created, CAST(data AS BLOB) FROM part WHERE message_id = ? ORDER BY id"
    for part, at, content in connection.execute(query, (message,)):
        about = {"type": _PART, "id": text_in(part), "messageID": message, "role": role}
        yield _line({**about, "timestamp": at}, _PART, content)


def _compaction(connection: sqlite3.Connection, message: Entry) -> Entry:
    """Return the members that mark a summary; a part of its prompt names the first message kept."""
    if message.get("summary") is not True or not message.get("finish") or message.get("error"):
        return {}
    query = "SELECT CAST(data AS BLOB) FROM part WHERE message_id = ?"
    for [data] in connection.execute(query, (text_of(message.get("parentID")),)):
        part = parse_entry(data or b"") or {}
        if part.get("type") == "compaction":
            return {_COMPACTS: True, _KEPT_FROM: text_of(part.get("tail_start_id"))}
    return {}


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
            "output": _sum(tokens.get("output"), tokens.get("reasoning")),
            "cacheRead": cache.get("read"),
            "cacheWrite": cache.get("write"),
            "cost": {"total": message.get("cost")},
        }
    return told


def _sum(*counts: object) -> int:
    """Return the sum of counts; opencode counts thinking apart from the rest of an answer."""
    return sum(count for count in counts if isinstance(count, int))


def _line(columns: Mapping[str, Any], name: str, content: bytes | None) -> bytes:
    """Return the line of a row. Its object stands in it as it is stored.

    Content that is not an object stands in it as a JSON string.
    """
    if content is None or parse_entry(content) is None:
        content = json.dumps(text_in(content)).encode()
    begin = json.dumps(columns, separators=(",", ":")).encode()[:-1]
    return begin + b',"' + name.encode() + b'":' + content.replace(b"\n", b" ") + b"}\n"


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
        path = self.directory / FILE
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


# By the name of the directory: its content.
_DIRECTORIES = {
    "snapshot": "copies of working directories, for undoing",
    "storage": "sessions of versions before the database",
    "tool-output": "whole outputs of tools",
    "log": "logs",
}


def _directories(directory: Path) -> Iterator[FilesOfProgram]:
    """Yield each directory that opencode fills beside its database."""
    for name, what in _DIRECTORIES.items():
        yield FilesOfProgram(f"{what} ({name})", (directory / name,))


def _directory_files(directory: Path) -> Iterator[FilesOfProgram]:
    files = tuple(directory / f"{FILE}{ending}" for ending in ("", "-wal", "-shm"))
    yield FilesOfProgram(f"database ({FILE})", files)
    yield from _directories(directory)


def _size(directory: Path) -> int:
    """Return the size of the files below a directory in bytes; links are not followed."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):
            found = path.lstat()
            total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


KIND = SourceKind(
    routes=((),),
    called="opencode",
    program=lambda _, directory: OpenCodeHome(directory),
    title="opencode",
    usual_directory=directory_below("XDG_DATA_HOME", ".local/share", "opencode"),
    directory_files=_directory_files,
    # Its settings have comments, so bsd adds nothing to them.
    additions=lambda _commands, _environ: [],
)
