"""Sessions of which only the prompts are left, in the history of their program.

Claude Code's `history.jsonl` still names sessions that the program deleted before bsd could copy
them. They can be listed, shown and found, but not brought back. The history is read on request,
once per call, and is not stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from bsd.core.errors import BsdError, ConfigError, os_problem
from bsd.core.files import is_there
from bsd.core.layout import Layout, SessionName
from bsd.core.sources import Source
from bsd.maintenance import catalog
from bsd.maintenance.trashed import transcripts
from bsd.store.snapshots import archive_directories, snapshot_directories, snapshots_in
from bsd.transcripts.agents.program import ENDING, RememberedPrompt
from bsd.transcripts.agents.programs import elsewhere, kind_of

# A session whose first prompt has just been typed may not have a transcript yet.
_JUST_NOW_SECONDS = 60.0
_LONGEST_TITLE = 200


@dataclass(slots=True)
class VanishedSession:
    """A session with neither a transcript nor a copy. Times are epoch seconds."""

    name: SessionName
    project: str  # the working directory
    first: float
    last: float
    prompts: int = 0
    title: str | None = None  # its first prompt that is not a command, on a single line


@dataclass(slots=True)
class Vanished:
    """The vanished sessions, most recently used first, and problems with histories."""

    sessions: list[VanishedSession] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def find(self, name: SessionName) -> VanishedSession | None:
        """Return the session with this name; None if there is no such session."""
        return next((each for each in self.sessions if each.name == name), None)


def _ignore(_: SessionName, _prompt: RememberedPrompt) -> None: ...


def vanished_sessions(
    layout: Layout,
    now: float,
    agent: str | None = None,
    *,
    look: Callable[[SessionName, RememberedPrompt], None] = _ignore,
) -> Vanished:
    """Return the sessions that exist only in the histories of their programs.

    Args:
        layout: the root.
        now: epoch seconds.
        agent: only sessions of this agent.
        look: called with each prompt of a session that may have vanished.
    """
    vanished = Vanished()
    for source in layout.sources:
        if elsewhere(layout, source) is None:  # otherwise another root has the copies
            _read_history(layout, source, agent, vanished, look)
    vanished.sessions = sorted(
        (
            each
            for each in vanished.sessions
            if each.title is not None and now - each.last > _JUST_NOW_SECONDS
        ),
        key=lambda each: each.last,
        reverse=True,
    )
    return vanished


def prompts_of(
    layout: Layout, name: SessionName, now: float
) -> tuple[Vanished, list[RememberedPrompt]]:
    """Return the vanished sessions, and the prompts of one session in the order of the history."""
    prompts: list[RememberedPrompt] = []

    def look(of: SessionName, prompt: RememberedPrompt) -> None:
        if of == name:
            prompts.append(prompt)

    return vanished_sessions(layout, now, name.agent, look=look), prompts


def prompts_of_agents(layout: Layout, agents: set[str]) -> int:
    """Return the number of prompts of all sessions of these agents in the histories."""
    count = 0
    for source in layout.sources:
        with suppress(OSError):
            for prompt in kind_of(source.kind).remembered(source.path, lambda _: None):
                count += source.agent_at(prompt.directory) in agents
    return count


def _read_history(
    layout: Layout,
    source: Source,
    agent: str | None,
    vanished: Vanished,
    look: Callable[[SessionName, RememberedPrompt], None],
) -> None:
    left_out: Counter[str] = Counter()
    found: dict[str, VanishedSession] = {}
    known: set[str] | None = None
    names: dict[str, SessionName | None] = {}  # by the ids of sessions
    try:
        prompts = kind_of(source.kind).remembered(source.path, lambda why: left_out.update([why]))
        for prompt in prompts:
            if known is None:
                known = _known_sessions(layout, source)
            if prompt.session in known:
                continue
            if prompt.session not in names:  # the first prompt tells the project
                names[prompt.session] = _name_of(layout, source, prompt)
            name = names[prompt.session]
            if name is None or agent not in (None, name.agent):
                continue
            _add(found, name, prompt)
            look(name, prompt)
    except OSError as error:
        where_ = error.filename or source.path
        vanished.problems.append(os_problem(error, f"reading {where_}").message)
    vanished.sessions += found.values()
    vanished.problems += [
        f"{count:,} line{'' if count == 1 else 's'} of the history of {source.name} left out: {why}"
        for why, count in sorted(left_out.items())
    ]


def _add(found: dict[str, VanishedSession], name: SessionName, prompt: RememberedPrompt) -> None:
    session = found.get(prompt.session)
    if session is None:
        session = VanishedSession(name, prompt.project, prompt.time, prompt.time)
        found[prompt.session] = session
    session.first = min(session.first, prompt.time)
    session.last = max(session.last, prompt.time)
    session.prompts += 1
    if session.title is None and not prompt.is_command:
        session.title = " ".join(prompt.text.split())[:_LONGEST_TITLE] or None


def _name_of(layout: Layout, source: Source, prompt: RememberedPrompt) -> SessionName | None:
    """Return the session's name; None if it is excluded, exists, or belongs to no agent.

    A session can exist without being listed, if its directory is a link or cannot be read.
    """
    agent = source.agent_at(prompt.directory)
    with suppress(BsdError, OSError):
        name = SessionName(agent, prompt.session) if agent else None
        there = prompt.directory / f"{prompt.session}{ENDING}"
        if name is not None and not layout.excluded(name) and not is_there(there):
            return name
    return None


def _known_sessions(layout: Layout, source: Source) -> set[str]:
    """Return the ids of sessions that exist in a source, have a copy, or are in the trash."""
    known: set[str] = set()
    with suppress(ConfigError):
        known.update(
            name.session for name in catalog.names(layout) if layout.source_of(name.agent) == source
        )
    for archive in archive_directories(layout):
        if any(snapshot_directories(archive)):
            name = layout.session_of_store(archive.name)
            # The directory's name may be shortened; the copy has the whole name.
            names = [copy.name for copy in snapshots_in(archive)] if name is None else [name]
            known.update(each.session for each in names)
    known.update(name.session for name, _ in transcripts(layout))
    return known
