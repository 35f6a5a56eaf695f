"""Sessions that agents' programs delete by their age, by rules of their own. Reads no session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from bsd.core.errors import BsdError
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.snapshots import deletion_of
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.change import Written


@dataclass(frozen=True, slots=True)
class DueSession:
    """A session that its program deletes. Size in bytes, times in epoch seconds.

    Attributes:
        rule: the program's own rule, as a sentence.
        due_at: from then on the program deletes it; mostly when it is started the next time.
        is_copied: the archive has a copy of it.
    """

    name: SessionName
    rule: str
    size: int
    due_at: float
    is_copied: bool


def due_sessions(layout: Layout, until: float) -> Iterator[DueSession]:
    """Yield the sessions that their programs delete until a moment, an agent after the other.

    Parts of sessions, such as subagents, are among them. Raises ConfigError, Forbidden.
    """
    listed = catalog.with_stats(layout, strays=False)
    for agent, found in groupby(listed, lambda each: each[0].agent):
        sessions = list(found)
        with suppress(BsdError):  # its directory is gone meanwhile
            program = program_of(layout, agent)
            if program.deletes is None or program.kept_for_seconds is None:
                continue
            deleted_at = deletion_of(program)
            for name, status in sessions:
                if (due_at := deleted_at(Written.of(status))) <= until:
                    copied = layout.has_copy(name)
                    yield DueSession(name, program.deletes, status.st_size, due_at, copied)
