"""OpenClaw's directories: agents/<agent>/{sessions/{*.jsonl, sessions.json}, agent/*.sqlite}.

There also lie the sessions of whoever writes the seeds' flat entries.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bsd.agents.dialect import Format, NotOurs
from bsd.agents.entry import Entry, in_short, text_of
from bsd.agents.openclaw import registry_edit
from bsd.agents.openclaw.dialect import detect, header_ids
from bsd.agents.openclaw.lock_file import inspect_lock
from bsd.agents.openclaw.registry_edit import REGISTRY_FILE
from bsd.agents.owner import ENDING, LockState, Owner, PutBack, Registered, Registry
from bsd.foundation.errors import BsdError
from bsd.foundation.files import LARGEST_RECORD, UNCERTAIN_NS, plain_stream, read_plain
from bsd.foundation.json_text import is_too_large
from bsd.foundation.layout import Layout, SessionName, check_name

_PUT_ASIDE = re.compile(rf"(.+){re.escape(ENDING)}\.(?:reset|deleted|bak)[.-].+")
_CHECKPOINT = re.compile(r"\.checkpoint\.[0-9A-Fa-f-]+$")
_LOCK = ".lock"


# --- what its `sessions.json` says: which conversations there are, and whose they are ---


def ids_in(session: str) -> tuple[str, ...]:
    """The ids that a transcript's name may hold: whole, of a topic, of a session of pi's.

    As in `<id>-topic-<n>` and `<time>_<id>`.
    """
    return session, session.partition("-topic-")[0], session.rpartition("_")[2]


class OpenClawRegistry(Registry):
    """The conversations of one agent, whose transcripts lie in a directory."""

    def __init__(self, sessions: Iterable[Registered], directory: Path) -> None:
        super().__init__(sessions)
        self._directory = directory

    def find(self, session: str) -> Iterator[Registered]:
        for name in dict.fromkeys(ids_in(session)):
            yield from super().find(name)

    def keys(self, session: str) -> list[str]:
        return [record.key for record in self.sessions if self._is_of(record, session)]

    def children(self, session: str) -> list[str]:
        ids = {session}
        ids |= {r.session_id for r in self.sessions if r.session_id and self._is_of(r, session)}
        return [r.session for r in self.sessions if r.parent in ids and r.session]

    def _is_of(self, record: Registered, session: str) -> bool:
        """Whether a record is of this very transcript, not of another with the same id in it."""
        if record.session == session:
            return True
        # If the record names no file, the one that is named like the id comes first.
        identifier = record.session_id
        if record.session_file or not identifier:
            return False
        if (self._directory / f"{identifier}{ENDING}").exists():
            return False
        if topic := re.fullmatch(re.escape(identifier) + r"-topic-(.+)", session):
            return record.key.endswith((f":topic:{topic[1]}", f":thread:{topic[1]}"))
        return session.rpartition("_")[2] == identifier


# By agent: what was read, and from which state of the file. The registry of a busy gateway holds
# thousands of conversations, and is asked for each of them.
_registries: dict[Path, tuple[tuple[int, int, int], Registry]] = {}


def read_registry(agent_dir: Path) -> Registry:
    """Read an agent's `sessions.json`. No file is an empty registry, a broken one is a problem."""
    path = agent_dir / "sessions" / REGISTRY_FILE
    try:
        found = path.lstat()
        state = (found.st_ino, found.st_size, found.st_mtime_ns)
        known = _registries.get(path)
        if known and known[0] == state:
            return known[1]
        registry = _parsed(path, read_plain(path, LARGEST_RECORD))
    except (FileNotFoundError, NotADirectoryError):
        return Registry()
    except OSError as error:
        return Registry(problem=f"{path}: {error.strerror}")
    # A file just written may change again without its time showing it.
    if abs(time.time_ns() - found.st_mtime_ns) > UNCERTAIN_NS:
        _registries[path] = (state, registry)
    return registry


def _parsed(path: Path, data: bytes) -> Registry:
    if is_too_large(data):
        return Registry(problem=f"{path} would take too much memory to be read")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return Registry(problem=f"{path} is not valid JSON")
    if not isinstance(content, dict):
        return Registry(problem=f"{path} is not a map of sessions")
    return OpenClawRegistry(registered(content), path.parent)


def registered(content: dict[str, Any]) -> Iterator[Registered]:
    """List the conversations in a registry's content."""
    for key, value in content.items():
        if isinstance(value, dict):
            file = text_of(value.get("sessionFile"))
            yield Registered(
                key,
                session_id=text_of(value.get("sessionId")),
                session_file=Path(file).name if file else None,
                status=text_of(value.get("status")),
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
        return (
            f"cannot tell whether it is running: {registry.problem};"
            " mend that file, or move it away if this stays"
        )
    for record in registry.find(session):
        if record.status == "running":
            return f"{REGISTRY_FILE} says that {record.key} is running"
    return None


# --- its directories ---


@dataclass(frozen=True, slots=True)
class RootAgent(Owner):
    """An agent of the root: its sessions are bsd's to edit, delete and carry calls out in."""

    layout: Layout
    agent: str

    @property
    def _directory(self) -> Path:
        return self.layout.agents / self.agent

    @property
    def _sessions(self) -> Path:
        return self.layout.sessions_dir(self.agent)

    def is_session_file(self, name: str) -> bool:
        return is_session_file(name)

    def detect(self, first_lines: Iterable[bytes]) -> Format | NotOurs:
        return detect(first_lines)

    def put_aside(self, name: str) -> str | None:
        return put_aside(name)

    def ids_in(self, session: str) -> tuple[str, ...]:
        return ids_in(session)

    def conversations(self, entry: Entry) -> set[str]:
        return header_ids(entry)

    def database(self) -> Path | None:
        return sqlite_database(self._directory)

    def in_use(self, session: str) -> str | None:
        return running(self._directory, session)

    def lock(
        self,
        name: SessionName,
        transcript: Path,
        wait: float = 0.0,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> AbstractContextManager[object]:
        from bsd.agents.openclaw.lock import SessionLock  # noqa: PLC0415 - most calls only look

        return SessionLock(transcript, wait, name=name, sleep=sleep)

    def lock_state(self, transcript: Path) -> LockState:
        return inspect_lock(transcript)

    def lock_files(self) -> Iterator[tuple[Path, LockState]]:
        for path in sorted(self._sessions.glob(f"*{ENDING}{_LOCK}")):
            yield path, inspect_lock(path.with_suffix(""))

    def registry(self) -> Registry:
        return read_registry(self._directory)

    def listed(self, session: str) -> str | None:
        return registry_edit.excerpt_of(self._sessions, self.registry().keys(session))

    def unlist(self, session: str, keep: Callable[[str], None], *, wait: float) -> None:
        directory = self._sessions

        def keys(content: dict[str, Any]) -> list[str]:
            return OpenClawRegistry(registered(content), directory).keys(session)

        registry_edit.take_out(directory, keys, keep, wait=wait)

    def list_again(self, excerpt: str, *, wait: float) -> PutBack:
        return registry_edit.put_back(self._sessions, excerpt, wait=wait)

    def is_written_by_us(self, name: str) -> bool:
        return name == REGISTRY_FILE or name.endswith(_LOCK)


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
