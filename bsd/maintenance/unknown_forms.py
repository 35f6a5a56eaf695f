"""Finds files of known programs that bsd no longer understands, since a newer version wrote them.

There are two signs: a session states a version, or has lines, that bsd does not know; or files of a
source grew during the last day, and bsd recognises no session among them, as after a program has
changed the names or the records of its files. No file of either kind is changed. The archive has
copies of files that are named like sessions, but of no others.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from bsd.core.errors import BsdError, NotRecognised, UnknownForm
from bsd.core.layout import Layout, SessionName
from bsd.core.sources import Source
from bsd.maintenance import catalog
from bsd.sessions.session import Session
from bsd.transcripts.agents.program import ENDING, AgentProgram, is_sync_copy
from bsd.transcripts.agents.programs import (
    ROOT_KIND,
    elsewhere,
    kind_of,
    program_of,
    title_of,
)

_DAY_SECONDS = 86_400.0
# Smaller files are no sign: a session that was opened and closed has no message, and users keep
# notes beside sessions.
LEAST_BYTES = 100_000
_MOST_OPENED = 20  # sessions of a program that `look` opens


@dataclass(frozen=True, slots=True)
class UnknownSession:
    """A session in a form that bsd does not know. Times are epoch seconds."""

    name: SessionName
    reason: str
    mtime: float
    since: float  # the first time at which it was known to have this form


@dataclass(frozen=True, slots=True)
class UnknownForms:
    """The sessions of one source, or of the root, in a form that bsd does not know."""

    source: str
    title: str  # of the program
    sessions: int
    newest: UnknownSession
    since: float  # epoch seconds

    def __str__(self) -> str:
        have = "1 session has" if self.sessions == 1 else f"{self.sessions:,} sessions have"
        return f"{have} a form that bsd does not know ({self.newest.reason}): {self.newest.name}"


@dataclass(frozen=True, slots=True)
class UnrecognisedFiles:
    """The files of a source that grew during the last day; bsd recognises none of them."""

    source: str
    title: str  # of the program
    files: int
    newest: str  # path

    def __str__(self) -> str:
        files = "1 file" if self.files == 1 else f"{self.files:,} files"
        return f"{files} grew during the last day, and bsd recognises no session in them"


def by_source(layout: Layout, found: Iterable[UnknownSession]) -> list[UnknownForms]:
    """Return the sessions in a form that bsd does not know, by source."""
    groups: dict[str, list[UnknownSession]] = {}
    for each in found:
        source = layout.source_of(each.name.agent)
        groups.setdefault(source.name if source else ROOT_KIND, []).append(each)
    return [
        UnknownForms(
            source=name,
            title=title_of(layout, sessions[0].name.agent),
            sessions=len(sessions),
            newest=max(sessions, key=lambda each: (each.mtime, each.name)),
            since=min(each.since for each in sessions),
        )
        for name, sessions in sorted(groups.items())
    ]


def unrecognised_files(
    layout: Layout, source: Source, now: float, is_recognised: Callable[[SessionName], bool]
) -> UnrecognisedFiles | None:
    """Return the files of a source that grew during the last day without a recognised session.

    None if no large file grew, if a recognised session grew too, or if another root serves the
    source. In a source without any session, files with other names do not count: it may not be a
    directory of the program.

    Args:
        now: epoch seconds.
        is_recognised: returns False for a session in which bsd has found no message of a form that
            it knows.
    """
    if elsewhere(layout, source):
        return None
    grown: list[tuple[float, str]] = []
    has_sessions = False
    for agent, program, file in _files(layout, source):
        is_session = program.is_session_file(file.name)
        has_sessions |= is_session
        with suppress(OSError):
            state = file.stat(follow_symlinks=False)
            if not stat.S_ISREG(state.st_mode) or state.st_mtime <= now - _DAY_SECONDS:
                continue
            if is_session:
                name = SessionName(agent, file.name.removesuffix(ENDING))
                if layout.excluded(name):
                    continue
                if is_recognised(name):
                    return None
            if state.st_size >= LEAST_BYTES:
                grown.append((state.st_mtime, file.path))
    if not grown or not has_sessions:
        return None
    title = kind_of(source.kind).title
    return UnrecognisedFiles(source.name, title, len(grown), max(grown)[1])


def _files(layout: Layout, source: Source) -> Iterator[tuple[str, AgentProgram, os.DirEntry[str]]]:
    """Yield the files beside and among the sessions of a source, with agent and program."""
    with suppress(OSError):  # it is reported as a problem of the source
        for agent, directory in source.directories():
            program = program_of(layout, agent)
            if layout.exclusions().agent(agent) or program.database() is not None:
                continue
            with suppress(OSError), os.scandir(directory) as files:
                for file in files:
                    if not (file.name.startswith(".") or is_sync_copy(file.name)):
                        yield agent, program, file


def look(layout: Layout, now: float) -> Iterator[UnknownForms | UnrecognisedFiles]:
    """Open the newest sessions of each program, and yield the signs; `now` is in epoch seconds."""
    newest: dict[str, list[tuple[float, SessionName]]] = {}
    for name, state in catalog.with_stats(layout, strays=False):
        source = layout.source_of(name.agent)
        newest.setdefault(source.name if source else ROOT_KIND, []).append((state.st_mtime, name))
    unknown: list[UnknownSession] = []
    unrecognised: set[SessionName] = set()
    for found in newest.values():
        for mtime, name in islice(sorted(found, reverse=True), _MOST_OPENED):
            try:
                Session(layout, name).open()[0].close()
            except UnknownForm as problem:
                unknown.append(UnknownSession(name, problem.message, mtime, mtime))
            except NotRecognised:
                unrecognised.add(name)
            except BsdError:  # other checks report it
                continue
    forms = by_source(layout, unknown)
    yield from forms
    told = {each.source for each in forms}
    for source in layout.sources:
        if source.name not in told:
            files = unrecognised_files(layout, source, now, lambda name: name not in unrecognised)
            if files is not None:
                yield files
