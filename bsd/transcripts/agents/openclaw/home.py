"""OpenClaw's directories: agents/<agent>/{sessions/{*.jsonl, sessions.json}, agent/*.sqlite}.

Sessions of flat entries, the format of the seeds, lie there too.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsd.core.errors import BsdError
from bsd.core.layout import Layout, SessionName, check_name
from bsd.transcripts.agents.entry import Entry
from bsd.transcripts.agents.format import NotOurs, TranscriptFormat
from bsd.transcripts.agents.openclaw.database import OpenClawDatabase, database_of
from bsd.transcripts.agents.openclaw.format import detect, header_ids
from bsd.transcripts.agents.openclaw.lock import SessionLock, inspect_lock
from bsd.transcripts.agents.openclaw.registry import (
    REGISTRY_FILE,
    OpenClawRegistry,
    excerpt_of,
    ids_in,
    put_back,
    read_registry,
    registered,
    running,
    take_out,
)
from bsd.transcripts.agents.program import (
    ENDING,
    SYNC_COPY,
    AgentProgram,
    LockState,
    PutBack,
    Registry,
    is_sync_copy,
)

_PUT_ASIDE = re.compile(rf"(.+){re.escape(ENDING)}\.(?:reset|deleted|bak)[.-].+")
_CHECKPOINT = re.compile(r"\.checkpoint\.[0-9A-Fa-f-]+$")
_TRAJECTORY = ".trajectory"
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class RootAgent(AgentProgram):
    """An agent of the root. bsd may edit and delete its sessions, and carry out calls in them."""

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

    def why_no_session(self, name: str) -> str | None:
        if is_session_file(name):
            return None
        stem = name.removesuffix(ENDING)
        if stem.endswith(_TRAJECTORY):
            return "it is a trajectory, which the gateway writes beside a session"
        if _CHECKPOINT.search(stem):
            return "it is a checkpoint, a copy of a session that the gateway may go back to"
        if is_sync_copy(name):
            return SYNC_COPY
        if f"{ENDING}." in name:
            return "it is a backup of a session, or a leftover of a repair"
        return "the gateway does not give sessions such a name"

    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        return detect(first_lines)

    def renamed_by_program(self, name: str) -> str | None:
        """The gateway renames transcripts that were reset or deleted, and leaves backups."""
        found = _PUT_ASIDE.fullmatch(name)
        return found[1] if found and is_session_file(found[1] + ENDING) else None

    def ids_in(self, session: str) -> tuple[str, ...]:
        return ids_in(session)

    def resume_command(self, session: str, directory: str | None) -> str | None:
        """The gateway opens a conversation by its key; an unlisted conversation has none."""
        key = next(iter(self.registry().keys(session)), None)
        return f"openclaw tui --session {shlex.quote(key)}" if key else None

    def conversations(self, entry: Entry) -> set[str]:
        return header_ids(entry)

    def database(self) -> OpenClawDatabase | None:
        return database_of(self._directory)

    def in_use(self, session: str) -> str | None:
        if (database := self.database()) is not None:
            return database.running(session)
        return running(self._directory, session)

    def lock(
        self,
        name: SessionName,
        transcript: Path,
        wait: float = 0.0,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> AbstractContextManager[object]:
        return SessionLock(transcript, wait, name=name, sleep=sleep)

    def lock_state(self, transcript: Path) -> LockState:
        return inspect_lock(transcript)

    def lock_files(self) -> Iterator[tuple[Path, LockState]]:
        for path in sorted(self._sessions.glob(f"*{ENDING}{_LOCK}")):
            yield path, inspect_lock(path.with_suffix(""))

    def registry(self) -> Registry:
        database = self.database()
        return read_registry(self._directory) if database is None else database.registry()

    def listed(self, session: str) -> str | None:
        return excerpt_of(self._sessions, self.registry().keys(session))

    def unlist(self, session: str, keep: Callable[[str], None], *, wait: float) -> None:
        directory = self._sessions

        def keys(content: dict[str, Any]) -> list[str]:
            return OpenClawRegistry(registered(content), directory).keys(session)

        take_out(directory, keys, keep, wait=wait)

    def list_again(self, excerpt: str, *, wait: float) -> PutBack:
        return put_back(self._sessions, excerpt, wait=wait)

    def is_written_by_us(self, name: str) -> bool:
        return name == REGISTRY_FILE or name.endswith(_LOCK)


def is_session_file(name: str) -> bool:
    """Return whether a file of this name in a sessions directory is a live transcript.

    Not live: backups and resets (`x.jsonl.bak-…`), repairs (`x.jsonl.corrupt-….jsonl`),
    trajectories, checkpoints, locks, copies of sync programs, and names that are not valid.
    """
    stem = name.removesuffix(ENDING)
    if stem == name or stem.startswith(".") or f"{ENDING}." in name:
        return False
    if stem.endswith(_TRAJECTORY) or _CHECKPOINT.search(stem) or is_sync_copy(name):
        return False
    try:
        check_name(stem, "session")
    except BsdError:
        return False
    return True
