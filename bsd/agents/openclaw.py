"""OpenClaw and pi: message entries (versions 2 and 3), and what their directories tell."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bsd.agents.base import Entry, Facts, Turn, Value
from bsd.agents.content import block_values, calls_in, leaf_values, text_value
from bsd.agents.owner import ENDING, Registered, Registry
from bsd.agents.reading import (
    TYPE_OF_NAME,
    entry_id,
    entry_role,
    entry_time_ms,
    entry_type,
    message_of,
    text_of,
)
from bsd.agents.titles import Rank, Title, asked, in_short, named, texts_in
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import check_name
from bsd.foundation.parsed_size import is_too_large
from bsd.foundation.plain import LARGEST_RECORD, plain_stream, read_plain
from bsd.foundation.times import UNCERTAIN_NS
from bsd.foundation.value_path import ValuePath

_CONTENT = ("message", "content")

# What the gateway puts before what somebody wrote in a channel: who and when, notes of its own.
_BEFORE_A_PROMPT = re.compile(
    r"(?:[A-Z][^\n:]{0,60}\(untrusted[^\n]{0,60}:\n```json\n.*?\n```"
    r"|System: [^\n]*"
    r"|\[(?:[^\]\n]{0,200}\d\d:\d\d[^\]\n]{0,40})\]"
    r"|A new session was started via .*)\s*",
    re.DOTALL,
)

# Records of what was summed up: the owner rebuilds its context from them.
_RECORDS = frozenset(("branchSummary", "compactionSummary"))


class OpenClaw:
    """Entries below a header of version 2 or 3."""

    name = "openclaw"

    def facts(self, entry: Entry) -> Facts:
        kind = text_of(entry.get("type")) or "unknown"
        message = message_of(entry)
        role = text_of(message.get("role")) if kind == "message" else None
        calls = calls_in(message.get("content"), _CONTENT) if role == "assistant" else ()
        is_result = role == "toolResult"
        return Facts(
            id=entry_id(entry),
            kind=TYPE_OF_NAME.get(role, role) if role else kind,
            is_message=kind in {"message", "custom_message"},
            is_header=kind == "session",
            is_assistant=role == "assistant",
            turn=_turn(role, message, has_calls=bool(calls)),
            role=role or entry_role(entry),
            time_ms=entry_time_ms(entry),
            signed_by=_signed_by(message) if role == "assistant" else None,
            is_compaction=kind == "compaction",
            kept_from=text_of(entry.get("firstKeptEntryId")) if kind == "compaction" else None,
            calls=calls,
            result_of=text_of(message.get("toolCallId")) if is_result else None,
            result_tool=text_of(message.get("toolName")) if is_result else None,
        )

    def made_of(self, entry_id: str) -> re.Pattern[bytes] | None:  # noqa: ARG002
        return None

    def title(self, entry: Entry) -> Title | None:
        if entry.get("type") == "session_info":
            return named(entry.get("name"), Rank.GIVEN)
        message = message_of(entry) if entry.get("type") == "message" else {}
        if message.get("role") != "user":
            return None
        return asked(texts_in(message.get("content")), _BEFORE_A_PROMPT)

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        kind = entry.get("type")
        if kind == "message":
            return _message_values(message_of(entry), entry_type(entry), at_least)
        if kind == "custom_message":
            return _conversation(entry, (), entry_type(entry), at_least)
        if kind == "custom":
            return _state(entry, at_least)
        return []


def _turn(role: str | None, message: Entry, *, has_calls: bool) -> Turn:
    """Say what a message does to its turn.

    Commands that a person runs (`bashExecution`) and what extensions add stand between turns.
    An assistant message without `stopReason` waits for its results if it calls a tool.
    """
    if role == "user":
        return Turn.STARTS
    if role == "toolResult":
        return Turn.OPEN
    if role == "assistant":
        reason = message.get("stopReason")
        waits = reason == "toolUse" if isinstance(reason, str) else has_calls
        return Turn.OPEN if waits else Turn.CLOSES
    return Turn.NONE


def _signed_by(message: Entry) -> str | None:
    """Return the model whose thinking signature this message carries, if it carries one."""
    blocks = message.get("content")
    for block in blocks if isinstance(blocks, list) else ():
        if not isinstance(block, dict) or block.get("type") != "thinking":
            continue
        if text_of(block.get("thinkingSignature")):
            return text_of(message.get("model")) or ""
    return None


def _message_values(message: Entry, type_: str | None, at_least: int) -> list[Value]:
    role = message.get("role")
    if isinstance(role, str) and role in _RECORDS:
        return []
    values = _conversation(message, ("message",), type_, at_least)
    if role == "bashExecution" and (output := text_of(message.get("output"))):
        values.append(text_value(("message", "output"), output, type_))
    return values


def _conversation(holder: Entry, path: ValuePath, type_: str | None, at_least: int) -> list[Value]:
    """List what an object with `content` and `details` holds, in its own order."""
    values: list[Value] = []
    for key, value in holder.items():
        if key == "content" and isinstance(value, list):
            api = text_of(holder.get("api")) or ""
            values.extend(block_values(value, (*path, key), type_, at_least, api=api))
        elif key == "content" and text_of(value):
            values.append(text_value((*path, key), value, type_))
        elif key == "details":
            values.extend(leaf_values(value, (*path, key), type_, at_least, display=True))
    return values


def _state(entry: Entry, at_least: int) -> list[Value]:
    """List an extension's state, which the model never sees."""
    data, type_ = entry.get("data"), entry_type(entry)
    if isinstance(data, str):
        if len(data) < max(at_least, 1):
            return []
        return [text_value(("data",), data, type_, display=True, leaf=True, custom=True)]
    return leaf_values(data, ("data",), type_, at_least, display=True, custom=True)


OPENCLAW = OpenClaw()


# --- directories: agents/<agent>/{sessions/*.jsonl, sessions/sessions.json, agent/*.sqlite} ---

_PUT_ASIDE = re.compile(rf"(.+){re.escape(ENDING)}\.(?:reset|deleted|bak)[.-].+")
_CHECKPOINT = re.compile(r"\.checkpoint\.[0-9A-Fa-f-]+$")


def put_aside(name: str) -> str | None:
    """The session whose transcript the gateway put aside as a file of this name, if it is one.

    It renames those that were reset or deleted, and leaves backups.
    """
    if f"{ENDING}." not in name:
        return None
    found = _PUT_ASIDE.fullmatch(name)
    return found[1] if found and is_session_file(found[1] + ENDING) else None


def is_session_file(name: str) -> bool:
    """Whether a file of this name in a sessions directory is a live transcript.

    Not so: backups and resets (`x.jsonl.bak-…`), repairs (`x.jsonl.corrupt-….jsonl`),
    trajectories, checkpoints, locks, and names that no session may have.
    """
    stem = name.removesuffix(ENDING)
    if stem == name or stem.startswith(".") or f"{ENDING}." in name:
        return False
    if stem.endswith(".trajectory") or _CHECKPOINT.search(stem):
        return False
    try:
        check_name(stem, "session")
    except BsdError:
        return False
    return True


# By agent: what was read, and from which state of the file. The registry of a busy gateway holds
# thousands of conversations, and is asked for each of them.
_registries: dict[Path, tuple[tuple[int, int, int], Registry]] = {}


def read_registry(agent_dir: Path) -> Registry:
    """Read an agent's `sessions.json`. No file is an empty registry, a broken one is a problem."""
    path = agent_dir / "sessions" / "sessions.json"
    try:
        found = path.lstat()
        state = (found.st_ino, found.st_size, found.st_mtime_ns)
        known = _registries.get(path)
        if known and known[0] == state:
            return known[1]
        registry = _parsed_registry(path, read_plain(path, LARGEST_RECORD))
    except (FileNotFoundError, NotADirectoryError):
        return Registry()
    except OSError as error:
        return Registry(problem=f"{path}: {error.strerror}")
    # A file just written may change again without its time showing it.
    if abs(time.time_ns() - found.st_mtime_ns) > UNCERTAIN_NS:
        _registries[path] = (state, registry)
    return registry


def _parsed_registry(path: Path, data: bytes) -> Registry:
    if is_too_large(data):
        return Registry(problem=f"{path} would take too much memory to be read")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return Registry(problem=f"{path} is not valid JSON")
    if not isinstance(content, dict):
        return Registry(problem=f"{path} is not a map of sessions")
    return Registry(registered(content))


def registered(content: dict[str, Any]) -> Iterator[Registered]:
    """List the conversations in a registry's content."""
    for key, value in content.items():
        if isinstance(value, dict):
            updated = value.get("updatedAt")
            file = text_of(value.get("sessionFile"))
            yield Registered(
                key,
                session_id=text_of(value.get("sessionId")),
                session_file=Path(file).name if file else None,
                status=text_of(value.get("status")),
                updated_ms=float(updated) if isinstance(updated, (int, float)) else None,
                parent=text_of(value.get("parentSessionId")),
                title=_called(value),
            )


def _called(record: dict[str, Any]) -> str | None:
    """How a conversation is called by its record."""
    origin = record.get("origin")
    named_by = [record.get(key) for key in ("label", "displayName", "subject")]
    named_by.append(origin.get("label") if isinstance(origin, dict) else None)
    texts = (in_short(text) for text in named_by if isinstance(text, str))
    return next(filter(None, texts), None)


def running(agent_dir: Path, session: str) -> str | None:
    """Say why a session counts as in use by its registry; None if it does not.

    A registry that cannot be read counts as "in use": waiting costs some disk space, editing
    under a run costs that run. It is usually whole again with the gateway's next write.
    """
    registry = read_registry(agent_dir)
    if registry.problem:
        return f"cannot tell whether it is running: {registry.problem}"
    for record in registry.find(session):
        if record.status == "running":
            return f"sessions.json says that {record.key} is running"
    return None


_SQLITE_MAGIC = b"SQLite format 3\0"
_EVENTS = "transcript_events"
_WAL_LOOK = 8 * 1024 * 1024


def sqlite_database(agent_dir: Path) -> Path | None:
    """Return the database that holds this agent's sessions, if they have moved to SQLite.

    The database is looked at, not the version of the program. It is opened as an immutable
    file, so no lock, journal or shared memory is ever created; what a fresh database still has
    in its write-ahead log only is found by its text.
    """
    path = agent_dir / "agent" / "openclaw-agent.sqlite"
    try:
        with plain_stream(path) as file:
            if file.read(len(_SQLITE_MAGIC)) != _SQLITE_MAGIC:
                return None
    except OSError:
        return None
    return path if _has_events(path) or _log_mentions_events(path) else None


def _has_events(path: Path) -> bool:
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as database:
            return database.execute(query, (_EVENTS,)).fetchone() is not None
    except sqlite3.Error:
        return False


def _log_mentions_events(path: Path) -> bool:
    try:
        with plain_stream(path.with_name(path.name + "-wal")) as file:
            return _EVENTS.encode() in file.read(_WAL_LOOK)
    except OSError:
        return False
