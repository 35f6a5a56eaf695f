"""What the rest of bsd may know of the program that writes an agent's sessions (SPEC §12).

How it calls its files, when it is at work, how it keeps others out while it is. Nothing outside
`bsd/agents/` asks which program it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from bsd.agents.base import Format, NotOurs
from bsd.foundation.immutable import immutable
from bsd.foundation.sources import PutAway, Route

ENDING = ".jsonl"


@immutable
class Registered:
    """One conversation that its owner lists."""

    key: str  # `agent:<id>:main`, …
    session_id: str | None
    session_file: str | None  # file name, if the entry names one
    status: str | None  # running, done, failed, killed, timeout
    updated_ms: float | None
    parent: str | None  # session id
    title: str | None = None  # how people call it, on one line


class Registry:
    """What an owner's list of conversations says, or why it says nothing."""

    def __init__(self, sessions: Iterable[Registered] = (), problem: str | None = None) -> None:
        self.sessions = tuple(sessions)
        self.problem = problem
        self._by_name: dict[str, list[Registered]] = {}
        for record in self.sessions:
            file = record.session_file
            stem = file.removesuffix(ENDING) if file and file.endswith(ENDING) else None
            for name in {record.session_id, stem}:
                if name is not None:
                    self._by_name.setdefault(name, []).append(record)

    def find(self, session: str) -> Iterator[Registered]:
        """The conversations whose transcript is `<session>.jsonl`.

        The id also stands in names of topics (`<id>-topic-<n>`) and of pi (`<time>_<id>`).
        """
        topic = session.partition("-topic-")[0]
        pi = session.rpartition("_")[2]
        for name in dict.fromkeys((session, topic, pi)):
            yield from self._by_name.get(name, ())

    def title(self, session: str) -> str | None:
        """How people call it: several conversations may have had it, some of them by no name."""
        return next((record.title for record in self.find(session) if record.title), None)


class Owner(Protocol):
    """The program whose sessions one agent is."""

    @property
    def quiet_seconds(self) -> float:
        """How long a session must have been left alone at least, whatever the settings say."""
        ...

    @property
    def keeps_mtime(self) -> bool:
        """Whether an edit must not look like news to it."""
        ...

    @property
    def undeletable(self) -> str | None:
        """Why its sessions are not for bsd to delete; None if they are."""
        ...

    @property
    def uncallable(self) -> str | None:
        """Why calls that stand in its sessions are not carried out; None if they are."""
        ...

    def is_session_file(self, name: str) -> bool:
        """Whether a file of this name in its directory is a live transcript."""
        ...

    def put_aside(self, name: str) -> str | None:
        """The session whose transcript a file of this name was, before its program put it aside."""
        ...

    def detect(self, first_lines: Iterable[bytes]) -> Format | NotOurs:
        """Tell the dialect of a file whose lines these are."""
        ...

    def in_use(self, session: str) -> str | None:
        """Say why a session counts as in use; None if it does not."""
        ...

    def registry(self) -> Registry:
        """Its list of conversations."""
        ...

    def database(self) -> Path | None:
        """Where its sessions are, if they are no longer in files."""
        ...

    def lock(self, session: str) -> AbstractContextManager[object] | None:
        """Its own lock of a session, which raises Busy at once; None is a file beside it."""
        ...


@immutable
class Process:
    """A process that may be a session's owner at work."""

    pid: int
    started: int | None = None  # in clock ticks after boot, if the system tells
    begun: float | None = None  # the same in epoch seconds
    cwd: Path | None = None
    argv: tuple[str, ...] = ()


class Kind(NamedTuple):
    """A program whose directory may be a source."""

    routes: tuple[Route, ...]  # as in Source
    called: str | None  # how its directory of sessions is always called
    owner: Callable[[Path, Path], Owner]  # from the source's directory, and the agent's
    put_away: PutAway | None = None  # as in Source
    # Transcripts below the source's directory that a process has at work, as far as can be told.
    at_work: Callable[[Path, Process], Iterable[Path]] = lambda _source, _process: ()
