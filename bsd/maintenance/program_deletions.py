"""Sessions that agents' programs delete by age under their own rules. No session is read."""

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
    """A session that its program will delete. Size in bytes, times in epoch seconds.

    Attributes:
        rule: the program's own rule, as a sentence.
        due_at: time from which the program deletes it, usually at the program's next start.
        is_copied: True if the archive has a copy of it.
    """

    name: SessionName
    rule: str
    size: int
    due_at: float
    is_copied: bool


def due_sessions(layout: Layout, until: float) -> Iterator[DueSession]:
    """Yield the sessions that their programs will delete before `until`, agent by agent.

    Parts of sessions, such as subagents, are included. Raises ConfigError, Forbidden.
    """
    listed = catalog.with_stats(layout, strays=False)
    for agent, found in groupby(listed, lambda each: each[0].agent):
        sessions = list(found)
        with suppress(BsdError):  # the agent's directory was deleted meanwhile
            program = program_of(layout, agent)
            if program.deletes is None or program.kept_for_seconds is None:
                continue
            deleted_at = deletion_of(program)
            for name, status in sessions:
                if (due_at := deleted_at(Written.of(status))) <= until:
                    copied = layout.has_copy(name)
                    yield DueSession(name, program.deletes, status.st_size, due_at, copied)
