"""Opens sessions for reading, wherever their programs keep them: in a file, or in a database.

Code that edits a session opens its file by itself: bsd edits no other form.
"""

from __future__ import annotations

import os
from pathlib import Path

from bsd.core.errors import LeftAlone
from bsd.core.layout import Layout, SessionName
from bsd.transcripts.agents.compressed import is_compressed, open_compressed
from bsd.transcripts.agents.database import SessionDatabase
from bsd.transcripts.agents.program import AgentProgram
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import InBlocks, TranscriptFile


def open_transcript(layout: Layout, name: SessionName) -> InBlocks:
    """Open the transcript of a session for reading.

    Raises:
        NotFound, Forbidden: there is no such session, or its file is not a plain file.
        LeftAlone: bsd does not read the program's database.
        Busy, Unavailable: the database cannot be read now.
    """
    if (database := database_with(layout, name)) is not None:
        return database.open(name.session)
    return open_file(layout.session_file(name))


def stat_transcript(layout: Layout, name: SessionName) -> os.stat_result:
    """Return the state of a transcript: size, mtime, mode, and so on.

    It equals the identity of `open_transcript` if the session does not change in between. For a
    session in a database the result is made up; its inode stands for the session's id. Raises as
    `open_transcript`, and OSError.
    """
    if (database := database_with(layout, name)) is not None:
        found = database.find(name.session)
        if found is not None:
            return found
        raise layout.no_session(name)
    return layout.session_file(name).lstat()


def open_file(path: Path) -> InBlocks:
    """Open a transcript by its path, compressed or not; raises NotFound, Forbidden, BsdError."""
    return open_compressed(path) if is_compressed(path) else TranscriptFile(path)


def require_transcript(layout: Layout, name: SessionName) -> None:
    """Raise NotFound or Forbidden if a session has no transcript that can be opened."""
    if database_with(layout, name) is None:
        layout.session_file(name)


def has_transcript(layout: Layout, name: SessionName) -> bool:
    """Return True if something stands at the transcript's place; raises BsdError."""
    if database_with(layout, name) is not None:
        return True
    return os.path.lexists(layout.transcript(name))


def database_with(layout: Layout, name: SessionName) -> SessionDatabase | None:
    """Return the database that holds a session; None if the session is a file or is missing.

    A session that is in the database and also a file is read from the database, since its program
    does so. Raises LeftAlone if there is no file and the database cannot be read.
    """
    program: AgentProgram = program_of(layout, name.agent)
    database = program.database()
    if database is None:
        return None
    problem = database.problem
    if problem is None:
        return database if database.has(name.session) else None
    if os.path.lexists(layout.transcript(name)):
        return None
    raise LeftAlone(problem, hint="nothing in the database is changed")
