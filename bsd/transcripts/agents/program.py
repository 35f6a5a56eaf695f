"""The interface of the program that writes an agent's sessions to the rest of bsd (SPEC §12).

The names of its files, when it is at work, its locks, its list of sessions.
Nothing outside `bsd/transcripts/agents/` asks which program it is.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bsd.core.layout import SessionName
from bsd.core.locations import expand
from bsd.core.sources import ProgramArchive, Route
from bsd.transcripts.agents.entry import Entry
from bsd.transcripts.agents.format import NotOurs, TranscriptFormat
from bsd.transcripts.agents.page_size import OTHERS, PageSize
from bsd.transcripts.agents.setup_files import Addition, SetupCommands

ENDING = ".jsonl"

# How programs that keep a directory alike on two machines (Syncthing, Dropbox) name their second
# version of a file that both have changed.
_SYNC_COPY = re.compile(r"\.sync-conflict-\d{8}-\d{6}|\bconflicted copy\b", re.IGNORECASE)
SYNC_COPY = "a sync program has made it from a session that was written to on two machines"


def is_sync_copy(name: str) -> bool:
    """Return True for a transcript's name that a sync program has made; such files are no sessions.

    The session itself lies beside it, under its own name.
    """
    return name.endswith(ENDING) and _SYNC_COPY.search(name) is not None


# --- its list of conversations ---


@dataclass(frozen=True, slots=True)
class Registered:
    """One conversation that its owner lists."""

    key: str  # `agent:<id>:main`, …
    session_id: str | None
    session_file: str | None  # file name, if the entry names one
    status: str | None  # running, done, failed, killed, timeout
    parent: str | None  # session id
    title: str | None = None  # how people call it, on one line
    started_by: str | None = None  # key of the conversation of which it is a sub-agent

    @property
    def session(self) -> str | None:
        """The session it is of, as far as it names one itself."""
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
        """The conversations whose transcript is, or was, `<session>.jsonl`."""
        yield from self._by_name.get(session, ())

    def keys(self, session: str) -> list[str]:
        """The keys of those that are of this very transcript."""
        return [record.key for record in self.find(session)]

    def children(self, session: str) -> list[str]:
        """The sessions that this one began."""
        ids = {session} | {record.session_id for record in self.find(session)}
        return [one.session for one in self.sessions if one.session and one.parent in ids]

    def started(self, session: str) -> list[str]:
        """The sub-agents that this one started. Some of them live on without it."""
        keys = set(self.keys(session))
        return [one.session for one in self.sessions if one.session and one.started_by in keys]

    def title(self, session: str) -> str | None:
        """How people call it: several conversations may have had it, some of them by no name."""
        return next((record.title for record in self.find(session) if record.title), None)


@dataclass(frozen=True, slots=True)
class PutBack:
    """Which keys came back into a program's list, and which stand for other sessions now."""

    keys: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()


# --- its lock of a session ---


@dataclass(frozen=True, slots=True)
class Free:
    """No process holds the lock."""


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A living process holds the lock."""

    pid: int
    created_at: str | None  # as the owner wrote it
    ours: bool  # this very process
    seconds: float = field(default=0.0, compare=False)  # since it wrote the lock


@dataclass(frozen=True, slots=True)
class Stale:
    """The holder is provably gone: any process may take the lock."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The lock does not name its holder, and nothing proves that it has none: it counts."""

    reason: str


LockState = Free | HeldLock | Stale | Unreadable


class AgentProgram(ABC):
    """The program that writes one agent's sessions. It overrides only the methods it can answer."""

    __slots__ = ()

    @property
    def quiet_seconds(self) -> float:
        """The least time that a session must have been left alone, whatever the settings say."""
        return 0.0

    @property
    def keeps_mtime(self) -> bool:
        """Whether an edit must not look like news to it."""
        return False

    @property
    def undeletable(self) -> str | None:
        """Why its sessions are not for bsd to delete; None if they are."""
        return None

    @property
    def uncallable(self) -> str | None:
        """Why calls that stand in its sessions are not carried out; None if they are."""
        return None

    # --- its files ---

    @abstractmethod
    def is_session_file(self, name: str) -> bool:
        """Whether a file of this name in its directory is a live transcript; no `SYNC_COPY` is."""

    def why_no_session(self, name: str) -> str | None:
        """Return why a file of this name in its directory is no session; None if it is one.

        Every interface asks this before it works on a session that a user or an agent has named.
        """
        return None if self.is_session_file(name) else "its program gives no session such a name"

    @abstractmethod
    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        """Tell the dialect of a file whose lines these are."""

    def renamed_by_program(self, name: str) -> str | None:
        """The session whose transcript a file of this name was, before its program put it aside."""
        return None

    def belongings(self, session: str) -> Iterator[Path]:
        """Files that belong to a session beside its transcript, and are no transcripts."""
        yield from ()

    @property
    def memory(self) -> str | None:
        """How its directory of notes for all sessions of this agent is called, beside these."""
        return None

    @property
    def part_of(self) -> Path | None:
        """The transcript of the session of which all of this agent's are parts; mostly none."""
        return None

    @property
    def deletes(self) -> str | None:
        """By which rule of its own it deletes sessions, and would do so again; None: by none."""
        return None

    @property
    def kept_for_seconds(self) -> float | None:
        """How long after its last write it deletes a session by that rule; None: not by age."""
        return None

    def ids_in(self, session: str) -> tuple[str, ...]:
        """By which ids it may know a session, told by its name: that comes first."""
        return (session,)

    def resume_command(self, session: str, directory: str | None) -> str | None:
        """Return the command by which a user goes on with a session, for a shell.

        None if its program has none. `directory`: the session's working directory, if it is known.
        """
        return None

    def conversations(self, entry: Entry) -> set[str]:
        """Ids of the conversation that a header, or a first entry, names, and of its origin."""
        return set()

    def is_named(self, entry: Entry) -> bool:
        """Whether an entry has an id: then two lines of the same bytes are one, written twice."""
        return "id" in entry or "__id" in entry

    def database(self) -> Path | None:
        """Where its sessions are, if they are no longer in files."""
        return None

    # --- whether it is at work ---

    def in_use(self, session: str) -> str | None:
        """Say why a session counts as in use; None if it does not."""
        return None

    def lock(
        self,
        name: SessionName,
        transcript: Path,
        wait: float = 0.0,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> AbstractContextManager[object]:
        """Its own lock of a session; entering it raises Busy, after `wait` seconds at most."""
        return nullcontext()

    def lock_state(self, transcript: Path) -> LockState:
        """The holder of a lock that is a file beside the transcript."""
        return Free()

    def lock_files(self) -> Iterator[tuple[Path, LockState]]:
        """All such locks there are, and their holders."""
        yield from ()

    # --- the program's list of sessions ---

    def registry(self) -> Registry:
        """Its list of conversations."""
        return Registry()

    def listed(self, session: str) -> str | None:
        """Return the data by which `list_again` lists a session as now; None: it is not listed."""
        return None

    def unlist(  # noqa: B027 - one that keeps no list
        self, session: str, keep: Callable[[str], None], *, wait: float
    ) -> None:
        """Take a session out of its list; `keep` gets the excerpt that `list_again` needs.

        `keep` has made it durable when it returns, and may be called again. Raises Busy, Conflict
        for a list that cannot be edited, OSError.
        """

    def list_again(self, excerpt: str, *, wait: float) -> PutBack:
        """Put the conversations back that `unlist` took out, at their place; raises the same."""
        return PutBack()

    def is_written_by_us(self, name: str) -> bool:
        """Whether a file of this name beside its sessions may be one that bsd has made."""
        return False


@dataclass(frozen=True, slots=True)
class Process:
    """A process that may be a session's owner at work."""

    pid: int
    started: int | None = None  # in clock ticks after boot, if the system tells
    begun: float | None = None  # the same in epoch seconds
    cwd: Path | None = None
    argv: tuple[str, ...] = ()


class RememberedPrompt(NamedTuple):
    """A prompt in the history that a program keeps beside its sessions."""

    session: str
    project: str  # the working directory
    directory: Path  # below the source's: that in which the session lies, or lay
    time: float  # epoch seconds
    text: str
    is_command: bool  # of the program itself: the model is asked nothing


def _remembers_nothing(_: Path, _left_out: Callable[[str], None]) -> Iterator[RememberedPrompt]:
    yield from ()


@dataclass(frozen=True, slots=True)
class HookCall:
    """The call of a program's hook for one session.

    Attributes:
        transcript: of the session, absolute, as the program names it; it may be any path.
        is_idle: a turn has ended, or the session: its program writes only notes for now.
        tell_model: returns the answer to the hook that hands a sentence to the model; None: this
            hook hands it none.
    """

    transcript: Path
    is_idle: bool = False
    tell_model: Callable[[str], dict[str, Any]] | None = None


class SourceKind(NamedTuple):
    """A program whose directory may be a source."""

    routes: tuple[Route, ...]  # as in Source
    called: str | None  # how its directory of sessions is always called
    program: Callable[[Path, Path], AgentProgram]  # from the source's directory, and the agent's
    program_archive: ProgramArchive | None = None  # as in Source
    project_directory: Callable[[str], str] | None = None  # as in Source
    # Transcripts below the source's directory that a process has at work, as far as can be told.
    at_work: Callable[[Path, Process], Iterable[Path]] = lambda _source, _process: ()
    page_size: PageSize = OTHERS  # of an answer that it takes over MCP
    title: str = ""  # the program's name as people write it
    # Where its sessions usually lie, by the environment.
    usual_directory: Callable[[Mapping[str, str]], Path] | None = None
    # The prompts in its own history, by the source's directory; the second argument is told why a
    # line is left out. Raises OSError.
    remembered: Callable[[Path, Callable[[str], None]], Iterator[RememberedPrompt]] = (
        _remembers_nothing
    )
    # Reads the call of a hook from its JSON; None: it matters to nothing here.
    read_hook: Callable[[Mapping[str, Any]], HookCall | None] = lambda _: None
    # bsd's additions to the program's own files, by the environment; None: none.
    additions: Callable[[SetupCommands, Mapping[str, str]], list[Addition]] | None = None


def directory_below(variable: str, usual: str, below: str) -> Callable[[Mapping[str, str]], Path]:
    """Return a function that finds `below` in a variable's directory, else in `~/<usual>`."""

    def find(environ: Mapping[str, str]) -> Path:
        return expand(environ.get(variable) or f"~/{usual}", environ) / below

    return find
