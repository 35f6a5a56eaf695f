"""The interface between the program that writes an agent's sessions and the rest of bsd (SPEC §12).

It covers the names of its files, the signs that it is at work, its locks, and its list of sessions.
Code outside of `bsd/transcripts/agents/` never asks which program it is.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bsd.core.layout import SessionName
from bsd.core.locations import expand
from bsd.core.sources import ProgramArchive, Route
from bsd.transcripts.agents.entry import Entry
from bsd.transcripts.agents.format import NotOurs, TranscriptFormat
from bsd.transcripts.agents.page_size import OTHERS, PageSize
from bsd.transcripts.agents.setup_files import Addition, SetupCommands

if TYPE_CHECKING:
    from bsd.transcripts.agents.database import SessionDatabase

ENDING = ".jsonl"
COMPRESSED = ".zst"  # follows `ENDING` if a program has compressed the transcript

# How programs that keep a directory equal on two machines (Syncthing, Dropbox) name the second
# version of a file that was changed on both.
_SYNC_COPY = re.compile(r"\.sync-conflict-\d{8}-\d{6}|\bconflicted copy\b", re.IGNORECASE)
SYNC_COPY = "it is a sync program's copy of a session that was changed on two machines"


def is_sync_copy(name: str) -> bool:
    """Return whether a sync program made the transcript of this name; such files are no sessions.

    The session itself lies in the same directory, under its own name.
    """
    return name.endswith(ENDING) and _SYNC_COPY.search(name) is not None


# --- the program's list of conversations ---


@dataclass(frozen=True, slots=True)
class Registered:
    """A conversation in the program's list."""

    key: str  # `agent:<id>:main`, …
    session_id: str | None
    session_file: str | None  # file name, if the entry names one
    status: str | None  # running, done, failed, killed, timeout
    parent: str | None  # session id
    title: str | None = None  # the name that users see, on one line
    started_by: str | None = None  # key of the conversation that started it as a sub-agent

    @property
    def session(self) -> str | None:
        """The session of the conversation, as far as the record names it."""
        file = self.session_file
        return file.removesuffix(ENDING) if file and file.endswith(ENDING) else self.session_id


class Registry:
    """The content of a program's list of conversations, or why it cannot be read."""

    def __init__(self, sessions: Iterable[Registered] = (), problem: str | None = None) -> None:
        self.sessions = tuple(sessions)
        self.problem = problem
        self._by_name: dict[str, list[Registered]] = {}
        for record in self.sessions:
            for name in {record.session_id, record.session} - {None}:
                self._by_name.setdefault(str(name), []).append(record)

    def find(self, session: str) -> Iterator[Registered]:
        """Yield the conversations whose transcript is, or was, `<session>.jsonl`."""
        yield from self._by_name.get(session, ())

    def keys(self, session: str) -> list[str]:
        """Return the keys of the conversations whose transcript is this session."""
        return [record.key for record in self.find(session)]

    def children(self, session: str) -> list[str]:
        """Return the sessions whose parent is this session."""
        ids = {session} | {record.session_id for record in self.find(session)}
        return [one.session for one in self.sessions if one.session and one.parent in ids]

    def started(self, session: str) -> list[str]:
        """Return the sub-agents that this session started. Some of them outlive it."""
        keys = set(self.keys(session))
        return [one.session for one in self.sessions if one.session and one.started_by in keys]

    def title(self, session: str) -> str | None:
        """Return the title of a session: the first title among its conversations."""
        return next((record.title for record in self.find(session) if record.title), None)


@dataclass(frozen=True, slots=True)
class PutBack:
    """Keys that `list_again` listed again, and keys (`taken`) that now name other sessions."""

    keys: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()


# --- the program's lock of a session ---


@dataclass(frozen=True, slots=True)
class Free:
    """No process holds the lock."""


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A living process holds the lock."""

    pid: int
    created_at: str | None  # as the holder wrote it
    ours: bool  # whether the holder is this process
    seconds: float = field(default=0.0, compare=False)  # time since it wrote the lock


@dataclass(frozen=True, slots=True)
class Stale:
    """The holder is provably gone, so any process may take the lock."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The lock does not name its holder, but may have one, so it counts as held."""

    reason: str


LockState = Free | HeldLock | Stale | Unreadable


class AgentProgram(ABC):
    """The program that writes an agent's sessions. Subclasses override the methods that apply."""

    __slots__ = ()

    @property
    def quiet_seconds(self) -> float:
        """Seconds without a write that an edit requires, whatever the settings say."""
        return 0.0

    @property
    def keeps_mtime(self) -> bool:
        """Whether an edit must keep the mtime, or the program would take it for activity."""
        return False

    @property
    def owns_directory(self) -> bool:
        """Whether its directory holds a single session, to which all files there belong."""
        return False

    @property
    def undeletable(self) -> str | None:
        """Why bsd must not delete its sessions; None if it may."""
        return None

    @property
    def uncallable(self) -> str | None:
        """Why bsd does not carry out calls that stand in its sessions; None if it does."""
        return None

    # --- the program's files ---

    @abstractmethod
    def is_session_file(self, name: str) -> bool:
        """Return whether a file of this name in its directory is a live transcript.

        Copies of sync programs (`SYNC_COPY`) are not.
        """

    def why_no_session(self, name: str) -> str | None:
        """Return why a file of this name in its directory is no session; None if it is.

        Every interface calls this before it works on a session that a user or an agent has named.
        """
        return (
            None if self.is_session_file(name) else "its program does not give sessions such a name"
        )

    @abstractmethod
    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        """Return the format of a file with these first lines, or why bsd does not change it."""

    def renamed_by_program(self, name: str) -> str | None:
        """Return the session whose transcript the program renamed to `name`; None if it did not."""
        return None

    def compressed_session(self, name: str) -> str | None:
        """Return the session whose transcript the program compressed into the file `name`.

        None for any other file. A plain file of the session takes precedence.
        """
        return None

    def belongings(self, session: str) -> Iterator[Path]:
        """Yield the other files that belong to a session and are not transcripts."""
        yield from ()

    @property
    def memory(self) -> str | None:
        """Name of the directory of notes for all sessions of this agent, or None."""
        return None

    @property
    def part_of(self) -> Path | None:
        """Transcript of the session of which all sessions of this agent are parts; usually None."""
        return None

    @property
    def deletes(self) -> str | None:
        """The program's own rule for deleting sessions, as a sentence; None if it has none.

        A session that is brought back may be deleted by this rule again.
        """
        return None

    @property
    def kept_for_seconds(self) -> float | None:
        """Seconds after the last write at which the rule deletes a session; None: not by age."""
        return None

    def ids_in(self, session: str) -> tuple[str, ...]:
        """Return the ids by which the program may know a session; its name comes first."""
        return (session,)

    def resume_command(self, session: str, directory: str | None) -> str | None:
        """Return the shell command with which a user resumes a session; None if there is none.

        `directory`: the session's working directory, if known.
        """
        return None

    def conversations(self, entry: Entry) -> set[str]:
        """Return the ids of the conversation, and of its origin, that a header or entry names."""
        return set()

    def files_of(self, session_id: str) -> Iterator[str]:
        """Yield the names of the files of the session with this id, in any of its directories."""
        yield from ()

    def is_named(self, entry: Entry) -> bool:
        """Return whether an entry has an id: two equal lines are then one entry, written twice."""
        return "id" in entry or "__id" in entry

    def keeps_offsets(self, first_lines: Iterable[bytes]) -> bool:
        """Return whether the program keeps byte offsets into a file with these first lines."""
        found = self.detect(first_lines)
        fmt = found.reads if isinstance(found, NotOurs) else found
        return fmt is not None and fmt.keeps_length

    def database(self) -> SessionDatabase | None:
        """Return the database that holds its sessions; None if they are files."""
        return None

    # --- signs that the program is at work ---

    def in_use(self, session: str) -> str | None:
        """Return why a session counts as in use; None if it does not."""
        return None

    def lock(
        self,
        name: SessionName,
        transcript: Path,
        wait: float = 0.0,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> AbstractContextManager[object]:
        """Return the program's own lock of a session, as a context manager.

        Entering it raises Busy after at most `wait` seconds.
        """
        return nullcontext()

    def lock_state(self, transcript: Path) -> LockState:
        """Return the state of a lock that is a file beside the transcript."""
        return Free()

    def lock_files(self) -> Iterator[tuple[Path, LockState]]:
        """Yield all such lock files with their states."""
        yield from ()

    # --- the program's list of sessions ---

    def registry(self) -> Registry:
        """Return the list of conversations."""
        return Registry()

    def listed(self, session: str) -> str | None:
        """Return the excerpt with which `list_again` lists a session; None: it is not listed."""
        return None

    def unlist(  # noqa: B027 - programs without a list do nothing
        self, session: str, keep: Callable[[str], None], *, wait: float
    ) -> None:
        """Remove a session from the list.

        Args:
            session: the session.
            keep: receives the excerpt for `list_again`, which is durable when it returns. It may be
                called more than once.
            wait: seconds to wait for a lock.

        Raises:
            Busy: the list is locked.
            Conflict: the list cannot be edited.
            OSError: the list cannot be read or written.
        """

    def list_again(self, excerpt: str, *, wait: float) -> PutBack:
        """Put the conversations that `unlist` removed back at their places; raises as `unlist`."""
        return PutBack()

    def is_written_by_us(self, name: str) -> bool:
        """Return whether bsd may have made a file of this name beside the sessions."""
        return False


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a program that may be at work on a session."""

    pid: int
    started: int | None = None  # clock ticks after boot, if the system tells
    begun: float | None = None  # the same in epoch seconds
    cwd: Path | None = None
    argv: tuple[str, ...] = ()


class RememberedPrompt(NamedTuple):
    """A prompt in the history that a program keeps beside its sessions."""

    session: str
    project: str  # the working directory
    directory: Path  # the directory of the session, below the source's, even if it no longer exists
    time: float  # epoch seconds
    text: str
    is_command: bool  # a command for the program itself, which is not sent to the model


def _remembers_nothing(_: Path, _left_out: Callable[[str], None]) -> Iterator[RememberedPrompt]:
    yield from ()


@dataclass(frozen=True, slots=True)
class HookCall:
    """The call of a program's hook for one session.

    Attributes:
        transcript: absolute path of the session as the program names it; not verified.
        is_idle: a turn or the session has ended, so the program writes only notes for now.
        tell_model: returns the hook's answer that passes a sentence to the model; None: this hook
            passes none.
    """

    transcript: Path
    is_idle: bool = False
    tell_model: Callable[[str], dict[str, Any]] | None = None


class FilesOfProgram(NamedTuple):
    """Files in a program's directory that count together in the disk use of the directory."""

    what: str  # for users
    paths: tuple[Path, ...]  # files, and directories with everything below them
    advice: str | None = None  # how users can get the space back, as a sentence


class SourceKind(NamedTuple):
    """A program whose directory may be a source."""

    routes: tuple[Route, ...]  # as in Source
    called: str | None  # the fixed name of its directory of sessions, if it has one
    program: Callable[[Path, Path], AgentProgram]  # by the directories of source and agent
    program_archive: ProgramArchive | None = None  # as in Source
    project_directory: Callable[[str], str] | None = None  # as in Source
    # The transcripts below the source's directory that a process has at work, if this is known.
    at_work: Callable[[Path, Process], Iterable[Path]] = lambda _source, _process: ()
    page_size: PageSize = OTHERS  # of an answer over MCP
    title: str = ""  # the program's name as users write it
    compresses: bool = False  # it compresses transcripts (`COMPRESSED`)
    # Returns the usual directory of its sessions, from the environment.
    usual_directory: Callable[[Mapping[str, str]], Path] | None = None
    # Yields the prompts in the program's history. Arguments: the source's directory, and a function
    # that is called with the reason for each skipped line. Raises OSError.
    remembered: Callable[[Path, Callable[[str], None]], Iterator[RememberedPrompt]] = (
        _remembers_nothing
    )
    # Reads the call of a hook from its JSON; None: bsd has no use for this call.
    read_hook: Callable[[Mapping[str, Any]], HookCall | None] = lambda _: None
    # Yields what fills the program's directory, its sessions too, by the source's directory. Empty:
    # nothing but sessions is worth naming.
    directory_files: Callable[[Path], Iterable[FilesOfProgram]] = lambda _: ()
    # Returns bsd's additions to the program's own files; None: there are none.
    additions: Callable[[SetupCommands, Mapping[str, str]], list[Addition]] | None = None


def directory_below(variable: str, usual: str, below: str) -> Callable[[Mapping[str, str]], Path]:
    """Return a function that finds `below` in the directory of a variable, else in `~/<usual>`."""

    def find(environ: Mapping[str, str]) -> Path:
        return expand(environ.get(variable) or f"~/{usual}", environ) / below

    return find
