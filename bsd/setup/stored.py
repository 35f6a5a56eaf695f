"""Counts the sessions of an agent that have values in bsd's store or archive."""

from __future__ import annotations

import os
from pathlib import Path

from bsd.core.errors import os_problem
from bsd.core.layout import COPY, Layout


def stored_sessions(layout: Layout, kind: str) -> int:
    """Return the number of sessions, in sources of a kind, with stored values; raises BsdError."""
    names = {source.name for source in layout.sources if source.kind == kind}
    found = set()
    for place in (layout.extracted, layout.archive):
        for store in _names_in(place):
            session = layout.session_of_store(store)
            if session is None or session.agent.partition(":")[0] not in names:
                continue
            # Copies of whole sessions do not count: they leave no placeholders in the session.
            if any(not name.startswith(COPY) for name in _names_in(place / store)):
                found.add(session)
    return len(found)


def _names_in(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise os_problem(error, f"reading {directory}") from error
