"""The titles of found sessions, and the commands that continue them in their programs.

Deleted sessions are included. Their commands work after the sessions are brought back.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from bsd.core.errors import BsdError
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.deleted_sessions import is_deleted
from bsd.maintenance.titles import Ends, Titles
from bsd.store.search import ask
from bsd.store.snapshots import snapshots_of
from bsd.transcripts.agents.opening import stat_transcript
from bsd.transcripts.agents.program import ENDING
from bsd.transcripts.agents.programs import program_of


class FoundSession(NamedTuple):
    """A session found by a search."""

    title: str | None = None
    resume: str | None = None  # the command that continues it; None if its program has no command
    gone: bool = False  # its program has deleted it


def describe_found(
    layout: Layout, names: Collection[SessionName]
) -> dict[SessionName, FoundSession]:
    """Return a description of each session in `names`.

    Titles and directories come from the search index, even if a session was written to since. If
    the index does not know a session, they come from its transcript or its copy.
    """
    known: dict[str, tuple[str | None, str | None]] = {}
    with suppress(BsdError, OSError):  # without the index, each session is read
        known = ask(layout.search_db, lambda index: index.begun(map(str, names)), known)
    return {name: _describe(layout, name, known.get(str(name))) for name in names}


def _describe(
    layout: Layout, name: SessionName, known: tuple[str | None, str | None] | None
) -> FoundSession:
    gone, title, resume = is_deleted(layout, name), None, None
    with suppress(BsdError, OSError):  # just deleted, or its agent has no program
        program = program_of(layout, name.agent)
        if known is not None:
            title, directory = known
        elif gone:
            copy = next(iter(snapshots_of(layout, name)), None)
            title, directory = (copy.title, copy.working_directory) if copy else (None, None)
        else:
            ends = _ends_of(layout, name)
            title, directory = ends.title, ends.directory
        title = program.registry().title(name.session) or title
        if not program.why_no_session(f"{name.session}{ENDING}"):
            resume = program.resume_command(name.session, directory)
    return FoundSession(title, resume, gone)


def _ends_of(layout: Layout, name: SessionName) -> Ends:
    stat = stat_transcript(layout, name)
    return Titles(layout, only=name).of(name, stat)
