"""The agents on this machine: number and size of their sessions, and imminent deletions.

Also finds programs that bsd does not manage yet, for `bsd init`. Costs a stat per session; no
session is opened, and no file is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

from bsd.core.errors import BsdError, os_problem
from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.core.sources import Source
from bsd.maintenance import catalog
from bsd.maintenance.snapshots import SOON_SECONDS, deletion_of
from bsd.transcripts.agents.installed import agents_with_sessions
from bsd.transcripts.agents.programs import agent_setups, elsewhere, layout_of, program_of
from bsd.transcripts.agents.setup_files import AgentSetup
from bsd.transcripts.change import Written

SOON_DAYS = round(SOON_SECONDS / 86_400)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAgent:
    """An agent's program that has sessions on this machine, or that the settings name.

    Attributes:
        kind: its name in `bsd agents`.
        is_root: its directory is a root of bsd; the directories of other programs are sources.
        served: bsd manages its sessions.
        layout: a layout in which its sessions have their present or future names; it contains no
            sources of other programs.
        problem: the reason why bsd cannot manage it at present.
    """

    kind: str
    title: str
    directory: Path
    is_root: bool
    layout: Layout
    served: bool = False
    problem: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class AgentSessions:
    """The sessions of an agent's program.

    Attributes:
        files: all transcripts, including those of sub-agents, with their sizes in bytes.
        parts: the number of transcripts that are parts of a session, such as sub-agents.
        deleted_soon: the sessions, without parts, that the program itself deletes within
            `SOON_DAYS` days, earliest deletion first.
        problems: the directories that cannot be read, with the reasons.
    """

    files: tuple[tuple[SessionName, int], ...]
    parts: int
    deleted_soon: tuple[SessionName, ...]
    problems: tuple[str, ...]

    @property
    def sessions(self) -> int:
        """The number of sessions, without their parts."""
        return len(self.files) - self.parts

    @property
    def bytes(self) -> int:
        """The size of all transcripts in bytes."""
        return sum(size for _, size in self.files)

    def without_copy(self, layout: Layout) -> list[SessionName]:
        """Return the sessions that are deleted soon and have no copy in bsd.

        An existing copy is up to date: a session that was written to since would not be deleted
        soon.
        """
        return [name for name in self.deleted_soon if not layout.has_copy(name)]


def find_agents(layout: Layout, environ: Mapping[str, str]) -> list[FoundAgent]:
    """Return the agents on this machine; an agent whose directory is a root comes first.

    Args:
        layout: the layout of the settings; its root may be missing.
    """
    found: list[FoundAgent | None] = []
    for kind, setup in agent_setups().items():
        find = _find_root_agent if setup.is_root else _find_source_agent
        try:
            found.append(find(layout, kind, setup, environ))
        except OSError as error:
            why = os_problem(error, f"looking for {setup.title}")
            found.append(
                FoundAgent(
                    kind=kind,
                    title=setup.title,
                    directory=setup.directory(environ),
                    is_root=setup.is_root,
                    layout=layout,
                    problem=why.message,
                    hint=why.hint,
                )
            )
    return sorted(filter(None, found), key=lambda agent: not agent.is_root)


def _find_root_agent(
    layout: Layout, kind: str, setup: AgentSetup, environ: Mapping[str, str]
) -> FoundAgent | None:
    found = partial(FoundAgent, kind=kind, title=setup.title, is_root=True)
    if layout.agents.is_dir():
        return found(directory=layout.root, layout=layout, served=layout.own.is_dir())
    other = Layout(setup.directory(environ))
    if not other.agents.is_dir():
        return None
    return found(
        directory=other.root,
        layout=other,
        problem=f"its directory is a root of its own, but this root is {layout.root}",
        hint=f"bsd --root {other.root} init",
    )


def _find_source_agent(
    layout: Layout, kind: str, setup: AgentSetup, environ: Mapping[str, str]
) -> FoundAgent | None:
    found = partial(FoundAgent, kind=kind, title=setup.title, is_root=False)
    if sources := [source for source in layout.sources if source.kind == kind]:
        problem, hint = _served_elsewhere(layout, sources)
        own = replace(layout, sources=tuple(sources))
        return found(directory=sources[0].path, layout=own, served=True, problem=problem, hint=hint)
    installed = next(iter(agents_with_sessions(environ, [kind])), None)
    if installed is None:
        return None
    directory = installed.directory
    if installed.problem is not None:
        problem = f"reading {directory}: {installed.problem}"
        return found(directory=directory, layout=layout, problem=problem)
    try:
        new = layout_of(layout.root, [SourceSettings(kind=kind, path=directory)])
    except BsdError as error:
        return found(directory=directory, layout=layout, problem=error.message, hint=error.hint)
    problem, hint = _served_elsewhere(new, new.sources)
    if hint is not None:  # a source can be claimed only after bsd.toml names it
        hint = f"bsd agents on {kind}, then {hint}"
    return found(directory=directory, layout=new, problem=problem, hint=hint)


def _served_elsewhere(layout: Layout, sources: Iterable[Source]) -> tuple[str | None, str | None]:
    """Return the other root that serves one of the sources, and a hint."""
    for source in sources:
        if why := elsewhere(layout, source):
            return f"{why}: this root only reads it", f"bsd sources claim {source.name}"
    return None, None


def sessions_of(layout: Layout, kind: str | None, now: float) -> AgentSessions:
    """Return the sessions in the sources of a kind, or in the root.

    Args:
        kind: the `kind` of a program in `[[sources]]`; None: the sessions in the root.
        now: epoch seconds.

    Raises:
        ConfigError: the root has no agents, and no source is named.
        Forbidden: the root is not readable.
    """
    files: list[tuple[SessionName, int]] = []
    leaving: list[tuple[float, SessionName]] = []
    parts = 0
    for agent, listed in groupby(
        catalog.with_stats(layout, strays=False), lambda one: one[0].agent
    ):
        if _kind_of(layout, agent) != kind:
            continue
        found = [(name, Written.of(status)) for name, status in listed]
        files += [(name, written.size) for name, written in found]
        with suppress(BsdError):  # the directory has just been deleted
            program = program_of(layout, agent)
            if program.part_of is not None:
                parts += len(found)
                continue
            deleted_at = deletion_of(program)
            times = ((deleted_at(written), name) for name, written in found)
            leaving += [each for each in times if each[0] - now <= SOON_SECONDS]
    problems = [
        error.message
        for where, error in catalog.unreadable(layout)
        if _kind_of(layout, where) == kind
    ]
    soon = tuple(name for _, name in sorted(leaving))
    return AgentSessions(tuple(files), parts, soon, tuple(problems))


def _kind_of(layout: Layout, name: str) -> str | None:
    """Return the kind of the source with this name, or of the source that contains this agent."""
    for source in layout.sources:
        if name == source.name:
            return source.kind
    found = layout.source_of(name)
    return None if found is None else found.kind
