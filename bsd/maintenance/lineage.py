"""Sessions that begin in the files of other sessions, as forks do in some programs.

The program reads the beginning from the other file, so a session can be read whole, or continued,
only while that file exists.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bsd.core.errors import BsdError
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.deleted_sessions import open_or_snapshot
from bsd.sessions.session import format_of
from bsd.store.snapshots import archive_directories
from bsd.transcripts.agents.program import COMPRESSED, ENDING
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import InBlocks, Transcript, parse_entry

_MOST_FILES = 1000  # that one session continues, one after another


@dataclass(frozen=True, slots=True)
class BegunElsewhere:
    """The beginning of a session: the first `end` bytes of another session's file.

    `session`: None if there is neither a file of the id nor a copy in the archive.
    """

    id: str
    end: int
    session: SessionName | None


@dataclass(frozen=True, slots=True)
class BeginsIn:
    """A session whose file holds the first lines of another session."""

    session: Annotated[
        str | None, Field(description="null: there is neither its file nor a copy of it")
    ]
    id: Annotated[str, Field(description="Its id in its program")]
    bytes: Annotated[int, Field(description="Size of the lines, from the beginning of its file")]

    def in_words(self) -> str:
        """Return a sentence for users."""
        if self.session is None:
            return f"It begins in the file of {self.id}, which is gone"
        where = f"It begins in {self.session}, with {self.bytes:,} bytes of that file"
        return f"{where} (`bsd show {self.session}`; `bsd export` writes both)"


class OpenBeginning(InBlocks):
    """The first bytes of an open session, which it closes."""

    def __init__(self, source: InBlocks, end: int) -> None:
        super().__init__(source.identity, size=min(end, source.size))
        self._source = source

    def close(self) -> None:
        self._source.close()

    def read(self, offset: int, length: int) -> bytes:
        """As `Transcript.read`."""
        return self._source.read(offset, length)

    def _fill(self, view: memoryview, offset: int) -> None:
        view[:] = self._source.read(offset, len(view))


def beginning_of(layout: Layout, name: SessionName, source: Transcript) -> BegunElsewhere | None:
    """Return the beginning of a session in another file; None if it has none.

    `source`: the open session `name`.
    """
    program = program_of(layout, name.agent)
    first = next(iter(source.lines()), None)
    entry = None if first is None else parse_entry(first.raw)
    fmt = None if entry is None else format_of(source, program)
    begun = None if entry is None or fmt is None else fmt.continues(entry)
    return begun and BegunElsewhere(
        begun.session, begun.end, _session_of(layout, name, begun.session)
    )


def begins_in(layout: Layout, name: SessionName, source: Transcript) -> BeginsIn | None:
    """Return the session in whose file an open session begins, for users; None: it has none."""
    begun = beginning_of(layout, name, source)
    if begun is None:
        return None
    return BeginsIn(str(begun.session) if begun.session else None, begun.id, begun.end)


def _session_of(layout: Layout, name: SessionName, session_id: str) -> SessionName | None:
    """Return the session with an id of the same program: in its place, else in the archive."""
    source = layout.source_of(name.agent)
    for file in program_of(layout, name.agent).files_of(session_id):
        plain = file.removesuffix(COMPRESSED)
        if source is not None and (agent := source.agent_of(plain)):
            return SessionName(agent, plain.removesuffix(ENDING))
    for archive in archive_directories(layout):
        kept = layout.session_of_store(archive.name)
        is_near = kept is not None and layout.source_of(kept.agent) == source
        if kept is not None and is_near and kept.session.endswith(session_id):
            return kept
    return None


def open_beginnings(
    layout: Layout, name: SessionName, source: Transcript, opened: ExitStack
) -> tuple[list[tuple[SessionName, OpenBeginning]], str | None]:
    """Open all files in which a session begins, the first lines first.

    Args:
        name: the session.
        source: the session, open.
        opened: closes the files.

    Returns:
        The files, and the reason why a further one cannot be read, or None.
    """
    found: list[tuple[SessionName, OpenBeginning]] = []
    seen = {name}
    while (begun := beginning_of(layout, name, source)) is not None:
        name, told = begun.session or name, f"the file of {begun.id}, in which {name} begins"
        if begun.session is None:
            return found, f"{told}, is gone"
        if name in seen or len(seen) > _MOST_FILES:
            return found, f"{told}, begins in itself"
        seen.add(name)
        try:
            source = OpenBeginning(open_or_snapshot(layout, name), begun.end)
        except BsdError as error:
            return found, f"{told}, cannot be read: {error.message}"
        found.insert(0, (name, opened.enter_context(source)))
    return found, None
