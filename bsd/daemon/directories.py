"""Which directories hold sessions: one look at `agents/`, for the watcher and the scan."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from bsd.daemon.health import Problem, Trouble, no_access
from bsd.foundation.errors import BsdError, Invalid
from bsd.foundation.layout import Layout


@dataclass(slots=True)
class Directories:
    """What was found; paths are resolved, as events name them."""

    outer: list[Path] = field(default_factory=list)  # root, agents/ and each agent's own
    sessions: dict[Path, tuple[str, ...]] = field(default_factory=dict)  # → agents, links included
    problems: list[Problem] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)  # agents of whom nothing can be said now
    complete: bool = False  # agents/ could be listed, so who is not in it is gone


def look(layout: Layout) -> Directories:
    """List the directories under `agents/`; what cannot be read becomes a problem."""
    found = Directories()
    try:
        found.outer.append(Path(os.path.realpath(layout.root, strict=True)))
        with os.scandir(layout.agents) as entries:
            names = sorted(entry.name for entry in entries if _is_dir(entry))
        found.outer.append(Path(os.path.realpath(layout.agents)))
    except OSError as error:
        found.problems.append(_no_agents(layout, error))
        return found
    found.complete = True
    for name in names:
        _look_at(layout, name, found)
    return found


def _look_at(layout: Layout, agent: str, found: Directories) -> None:
    try:
        sessions = layout.sessions_dir(agent)
    except Invalid:
        return  # not a name that any command could use
    except BsdError as error:  # a link that leaves the root
        found.unreadable.add(agent)
        found.problems.append(Problem(Trouble.OUTSIDE, str(error), error.hint or "use --root"))
        return
    found.outer.append(Path(os.path.realpath(layout.agents / agent)))
    try:
        is_dir = stat.S_ISDIR(os.stat(sessions).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        found.unreadable.add(agent)
        found.problems.append(no_access(sessions, error))
        return
    if is_dir:
        found.sessions[sessions] = (*found.sessions.get(sessions, ()), agent)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False


def _no_agents(layout: Layout, error: OSError) -> Problem:
    if isinstance(error, FileNotFoundError):
        if not layout.root.exists():
            return Problem(
                Trouble.ROOT_MISSING,
                f"there is no {layout.root}",
                "start OpenClaw once, or name another directory with --root",
            )
        return Problem(
            Trouble.AGENTS_MISSING,
            f"there is no {layout.agents}: no agent has run yet",
            "nothing; agents are noticed when they appear",
        )
    return no_access(layout.agents, error)
