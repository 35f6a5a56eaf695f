"""The program GitHub Copilot CLI: `~/.copilot/session-state/<uuid>/events.jsonl`, and its locks.

Each session has a directory of its own, so bsd treats it as the only session of an agent. Beside
the events, the directory holds the session's name and plan (`workspace.yaml`, `plan.md`), summaries
(`checkpoints/`), files, and a database of its agent (`session.db`); these belong to the session.

A process holds the session as long as it is open: `inuse.<pid>.lock` names it, and it locks
`inuse.<pid>.hold`. While it takes hold of a session, it locks
`.session-operation-locks/<uuid>.lock`, and waits up to 30 seconds for it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bsd.core import processes
from bsd.core.errors import Busy
from bsd.core.layout import SessionName
from bsd.core.locations import expand
from bsd.transcripts.agents.copilot.format import COPILOT, detect
from bsd.transcripts.agents.entry import Entry
from bsd.transcripts.agents.format import NotOurs, TranscriptFormat
from bsd.transcripts.agents.program import (
    ENDING,
    SYNC_COPY,
    AgentProgram,
    Process,
    SourceKind,
    directory_below,
    is_sync_copy,
)
from bsd.transcripts.agents.program_locks import held, is_held
from bsd.transcripts.agents.setup_files import (
    Addition,
    SetupCommands,
    server_and_skill,
)

_EVENTS = f"events{ENDING}"
_IN_USE = re.compile(r"inuse\.([0-9]{1,10})\.lock")
# Locks, and files that SQLite keeps only while a database is open.
_NOT_KEPT = re.compile(r"inuse\..*|\..*\.lock|.*\.db-(?:wal|shm|journal)")
_QUIET_SECONDS = 10.0
# Versions without locks of operations: a process may be about to open the session.
_UNLOCKED_QUIET_SECONDS = 60.0
_OPEN = "Copilot has the session open"
_OPENING = "Copilot is opening or closing the session"
_CLOCKS_DIFFER_SECONDS = 5.0
# The session of the program that started this process.
_OWN = "COPILOT_AGENT_SESSION_ID"


@dataclass(frozen=True, slots=True)
class CopilotSession(AgentProgram):
    """The directory of one session, which is the only session of its agent."""

    sessions: Path
    directory: Path
    owns_directory = True
    keeps_mtime = True  # it lists the latest sessions first
    undeletable = "only Copilot may delete it, since it keeps an index of its sessions"
    uncallable = (
        "Copilot reads its sessions only when they are resumed, so bsd takes no calls out of them;"
        " `bsd agents on copilot` gives its agents the tools"
    )

    @property
    def quiet_seconds(self) -> float:
        return _QUIET_SECONDS if self._operations.is_dir() else _UNLOCKED_QUIET_SECONDS

    @property
    def _operations(self) -> Path:
        return self.sessions / ".session-operation-locks"

    def is_session_file(self, name: str) -> bool:
        return name == _EVENTS

    def why_no_session(self, name: str) -> str | None:
        if self.is_session_file(name):
            return None
        return SYNC_COPY if is_sync_copy(name) else f"Copilot keeps a session in {_EVENTS}"

    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        return detect(first_lines)

    def belongings(self, session: str) -> Iterator[Path]:
        """Yield all files beside the events, except locks.

        Unreadable directories, and links to directories, are included; their files are not.
        """
        unread: list[OSError] = []
        for directory, names, files in os.walk(self.directory, onerror=unread.append):
            names.sort()
            here = Path(directory)
            for name in sorted(files):
                is_events = here == self.directory and name == _EVENTS
                if not is_events and not _NOT_KEPT.fullmatch(name):
                    yield here / name
            yield from (path for name in names if (path := here / name).is_symlink())
        for error in unread:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                yield Path(error.filename)

    def ids_in(self, session: str) -> tuple[str, ...]:
        return session, self.directory.name

    def resume_command(self, session: str, directory: str | None) -> str | None:
        """Return a command without a directory: Copilot works in the session's own."""
        return f"copilot --resume={self.directory.name}"

    def conversations(self, entry: Entry) -> set[str]:
        return set(COPILOT.origins(entry))

    def in_use(self, session: str) -> str | None:
        """Return whether a process holds the session."""
        try:
            holders = list(_holders(self.directory))
        except OSError:  # `lock` will find out
            return None
        return _OPEN if any(_is_open(pid, lock) for pid, lock in holders) else None

    @contextmanager
    def lock(
        self,
        name: SessionName,
        transcript: Path,
        wait: float = 0.0,  # a session stays open for a long time
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Iterator[None]:
        """Keep Copilot from opening the session, and check that no process has it open."""
        with ExitStack() as holding:
            try:
                # Versions that do not lock operations have left no such file.
                with suppress(FileNotFoundError):
                    holding.enter_context(held(self._operation_lock, _OPENING))
                for pid, lock in _holders(self.directory):
                    if _is_open(pid, lock):
                        raise Busy(_OPEN, hint="again later")
                    with suppress(FileNotFoundError), held(lock.with_suffix(".hold"), _OPEN):
                        pass  # its process is gone
            except OSError as error:
                why = f"Copilot's locks are not as expected: {error.strerror}"
                raise Busy(why, hint="check whether this is a newer version of Copilot") from error
            yield

    @property
    def _operation_lock(self) -> Path:
        return self._operations / f"{self.directory.name}.lock"


def _holders(directory: Path) -> Iterator[tuple[int, Path]]:
    """Yield the processes that a session's locks name, with these locks; raises OSError."""
    with os.scandir(directory) as found:
        for each in found:
            if named := _IN_USE.fullmatch(each.name):
                yield int(named[1]), Path(each.path)


def _is_open(pid: int, lock: Path) -> bool:
    """Return whether a process holds a session, by the locks that stay if it is killed."""
    hold = lock.with_suffix(".hold")
    return is_held(hold) if os.path.lexists(hold) else _is_process_of(pid, lock)


def _is_process_of(pid: int, lock: Path) -> bool:
    """Return whether the process that wrote a lock may be alive, or else another has its number."""
    if not processes.alive(pid):
        return False
    started = processes.starttime(pid)
    begun = None if started is None else processes.begun(started)
    try:
        return begun is None or begun <= lock.stat().st_mtime + _CLOCKS_DIFFER_SECONDS
    except FileNotFoundError:
        return False


def _at_work(sessions: Path, process: Process) -> Iterator[Path]:
    """Yield the sessions that a process holds; only the caller's own if it is one of them."""
    locks = sessions.glob(f"*/inuse.{process.pid}.lock")
    found = [lock.parent for lock in locks if _is_process_of(process.pid, lock)]
    own = [each for each in found if each.name == os.environ.get(_OWN)]
    yield from (each / _EVENTS for each in sorted(own or found))


def _additions(commands: SetupCommands, environ: Mapping[str, str]) -> list[Addition]:
    """Return bsd's additions to the files of a user of Copilot."""
    directory = expand(environ.get("COPILOT_HOME") or "~/.copilot", environ)
    return server_and_skill(directory, "mcp-config.json", commands, type="local", tools=["*"])


KIND = SourceKind(
    routes=((None,),),
    called="session-state",
    program=CopilotSession,
    at_work=_at_work,
    title="GitHub Copilot CLI",
    usual_directory=directory_below("COPILOT_HOME", ".copilot", "session-state"),
    additions=_additions,
)
