"""What fills OpenClaw's database of an agent, and the JSON lines that were imported into it.

OpenClaw keeps the transcripts of older versions after it has imported them; `openclaw update
cleanup` deletes them. It also leaves a file for each session that a user deletes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import orjson

from bsd.core.errors import BsdError
from bsd.transcripts.agents.compressed import is_compressed, open_compressed
from bsd.transcripts.agents.database import DatabaseFill, ImportedFile, table_fills
from bsd.transcripts.agents.openclaw.database import OpenClawDatabase
from bsd.transcripts.reader import InBlocks, TranscriptFile, parse_entry

_ARCHIVE = "session-sqlite-import-archive"
_EVENTS = "events of sessions"
_COMPACT = "`openclaw doctor --session-sqlite compact` rewrites the file without them"
_CLEANUP = (
    "`bsd verify` tells whether the database has every line; `openclaw update cleanup` deletes them"
)
# By the beginning of a table's name.
_CONTENTS = {
    "transcript_events": _EVENTS,
    "transcript_event_identities": "bookkeeping of events",
    "session_transcript_active_events": "bookkeeping of events",
    "session_transcript_fts": "full-text index",
    "session_transcript_archives": "transcripts of deleted sessions",
    "session_transcript_cold_archives": "sessions in cold storage",
    "trajectory_runtime_events": "trajectories (records of runs, never sent)",
    "memory_": "memory index",
    "session_": "list of conversations",
}


def fills(database: OpenClawDatabase) -> Iterator[DatabaseFill]:
    """Yield what fills the database and the directories of files beside it; raises BsdError."""
    with database.connected() as connection:
        yield from table_fills(connection, _CONTENTS, _COMPACT)
    agent = database.path.parent.parent
    imported = list(_jsonl_in(agent / _ARCHIVE))
    yield DatabaseFill(f"imported JSONL ({_ARCHIVE})", _size(imported), _CLEANUP)
    deleted = [path for path in _files_in(agent / "sessions") if ".jsonl.deleted." in path.name]
    yield DatabaseFill("files of deleted sessions (sessions/*.deleted.*)", _size(deleted), None)


def _files_in(directory: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from (path for path in sorted(directory.rglob("*")) if _is_plain(path))


def _jsonl_in(directory: Path) -> Iterator[Path]:
    return (path for path in _files_in(directory) if ".jsonl" in path.name)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _size(paths: list[Path]) -> int:
    total = 0
    for path in paths:
        with suppress(OSError):
            total += path.lstat().st_size
    return total


def imported_files(database: OpenClawDatabase) -> Iterator[ImportedFile]:
    """Yield the imported transcripts, compared with the database; raises BsdError for none."""
    for path in _jsonl_in(database.path.parent.parent / _ARCHIVE):
        try:
            with _opened(path) as source:
                yield _compared(path, source, database)
        except BsdError as problem:
            yield ImportedFile(path, 0, 0, problem.message)


def _opened(path: Path) -> InBlocks:
    return open_compressed(path) if is_compressed(path) else TranscriptFile(path)


def _compared(path: Path, source: InBlocks, database: OpenClawDatabase) -> ImportedFile:
    """Count the lines of a file that the database lacks: verbatim, or with the same members.

    The header is not counted: OpenClaw writes a new one.
    """
    first = next((line.raw for line in source.lines()), b"")
    header = parse_entry(first) or {}
    named = header.get("id") if header.get("type") == "session" else None
    session = named if isinstance(named, str) else path.name.partition(".jsonl")[0]
    known: set[bytes] = set()
    if database.has(session):
        with database.open(session) as rows:
            for line in rows.lines():
                known.add(_digest(line.raw))
                known.add(_digest(_members(line.raw)))
    count = missing = 0
    for line in source.lines():
        if (line.index == 0 and named is not None) or not line.raw.strip():
            continue
        count += 1
        is_there = _digest(line.raw) in known or _digest(_members(line.raw)) in known
        missing += not is_there
    return ImportedFile(path, count, missing)


def _digest(line: bytes) -> bytes:
    return hashlib.sha256(line.strip()).digest()


def _members(line: bytes) -> bytes:
    entry = parse_entry(line)
    with suppress(TypeError):  # lone surrogates, which orjson does not write
        return line if entry is None else orjson.dumps(entry, option=orjson.OPT_SORT_KEYS)
    return line
