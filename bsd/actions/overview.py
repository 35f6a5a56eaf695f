"""The overview: sizes and savings by agent and project, and a forecast of an extraction.

`overview` uses only stat and the indexes, so 10,000 sessions take less than a second. `would_leave`
and `fills_of` read sessions, which takes longer; their callers pass a time limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Annotated, Any

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.actions.list_sessions import SessionInList, SessionOrder, list_sessions
from bsd.actions.session_outline import outline_session
from bsd.actions.setup import WouldLeave, foretell_extraction
from bsd.core.answers import OMIT_EMPTY
from bsd.core.errors import BsdError
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.core.sources import Source
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import deleted_sessions
from bsd.maintenance.disk_use import FilesInDirectory, directory_use
from bsd.maintenance.snapshots import SOON_SECONDS, deletion_of
from bsd.maintenance.titles import Titles
from bsd.planning.session_fills import Fill
from bsd.planning.survey import fingerprint
from bsd.store.state import state_at
from bsd.transcripts.agents.programs import elsewhere, kind_of, program_of
from bsd.transcripts.change import Written

_MARKERS_BUDGET = 32 << 20  # bytes to read of sessions that are not in the search index
_MOST_PROJECTS = 10  # of one agent's program
_MOST_LEAVING = 5  # sessions that are named
_OPENCLAW = "openclaw", "OpenClaw"


@dataclass(frozen=True, slots=True)
class ProjectShare:
    """The sessions of one project (for OpenClaw: of one agent), including those of subagents."""

    agent: Annotated[str, Field(description="Its name in /api/sessions and for --agent")]
    title: Annotated[str, Field(description="Its directory if known, else its name")]
    sessions: Annotated[int, Field(description="Number of sessions without subagents")]
    parts: Annotated[int, Field(description="Number of subagents")]
    bytes: int
    saved_bytes: Annotated[int, Field(description="Bytes that extraction saved")]
    archived: Annotated[
        int, Field(description="Sessions that their program deleted and the archive has")
    ]
    updated: Annotated[
        str | None, Field(description="Time of the last write to a session; null: there is none")
    ]


@dataclass(frozen=True, slots=True)
class LeavingSession:
    """A session that its program deletes soon."""

    session: str
    size: int
    deleted_at: str
    has_copy: Annotated[bool, Field(description="True if the archive has a copy")]


@dataclass(frozen=True, slots=True)
class AgentShare:
    """The sessions of one agent's program. Sizes are bytes, times ISO 8601."""

    kind: str
    title: str
    sessions: Annotated[int, Field(description="Number of sessions without subagents")]
    parts: Annotated[int, Field(description="Number of subagents")]
    bytes: int
    saved_bytes: Annotated[int, Field(description="Bytes that extraction saved")]
    archived: Annotated[
        int, Field(description="Sessions that the program deleted and the archive has")
    ]
    deleted_soon: Annotated[
        int, Field(description="Sessions that the program deletes within 7 days")
    ]
    without_copy: Annotated[
        int, Field(description="Those of `deleted_soon` that have no copy in the archive yet")
    ]
    leaving: Annotated[tuple[LeavingSession, ...], Field(description="The first of `deleted_soon`")]
    projects: Annotated[tuple[ProjectShare, ...], Field(description="The largest first")]
    more_projects: int
    left_alone: Annotated[
        str | None, Field(description="Why bsd only reads these sessions"), OMIT_EMPTY
    ] = None
    directory: Annotated[
        tuple[FilesInDirectory, ...],
        Field(description="What fills the program's directory, the largest first"),
        OMIT_EMPTY,
    ] = ()


@dataclass(frozen=True, slots=True)
class SessionFills:
    """The kinds of content of a session, the largest first; or the `problem` that prevents it."""

    session: str
    fills: tuple[Fill, ...] = ()
    problem: Annotated[str | None, OMIT_EMPTY] = None


@dataclass(frozen=True, slots=True)
class Overview:
    """The sessions of all agents, bytes saved in them, and deletions soon. Sizes are bytes."""

    root: str
    sessions: Annotated[int, Field(description="Number of sessions, including subagents")]
    bytes: int
    saved_bytes: Annotated[int, Field(description="Bytes that extraction saved")]
    uncounted: Annotated[int, Field(description="Sessions that `saved_bytes` does not include yet")]
    archived: Annotated[
        int, Field(description="Sessions that their program deleted and the archive has")
    ]
    agents: tuple[AgentShare, ...]
    largest: tuple[SessionInList, ...]
    # The command `bsd` fills the following members; the page requests them separately.
    disk: Annotated[
        Mapping[str, Any], Field(description="Disk use of bsd, as in the status"), OMIT_EMPTY
    ] = field(default_factory=dict)
    would_leave: Annotated[WouldLeave | None, OMIT_EMPTY] = None
    fills: Annotated[
        tuple[SessionFills, ...], Field(description="Content of the largest sessions"), OMIT_EMPTY
    ] = ()
    page: Annotated[
        str | None, Field(description="Address of the page, if a daemon serves it"), OMIT_EMPTY
    ] = None


def overview(context: ActionContext, *, largest: int = 5) -> Overview:
    """Sum up the sessions of each agent and project, and find those that are deleted soon.

    Args:
        largest: the number of largest sessions to list.

    Raises:
        ConfigError: the root has no agents, and the settings name no source.
    """
    layout = context.layout
    titles = Titles(layout)
    titles.budget = _MARKERS_BUDGET
    totals: dict[str, _Program] = {}
    for agent, found in groupby(catalog.with_stats(layout), lambda each: each[0].agent):
        source = layout.source_of(agent)
        kind = source.kind if source else _OPENCLAW[0]
        program = totals.setdefault(kind, _Program(kind))
        program.take(layout, source, agent, list(found), titles, context.now())
    for snapshot in deleted_sessions(layout):
        source = layout.source_of(snapshot.name.agent)
        kind = source.kind if source else _OPENCLAW[0]
        program = totals.setdefault(kind, _Program(kind))
        program.project(source, snapshot.name.agent).archived += 1
    agents = tuple(
        program.share(layout, titles)
        for program in sorted(totals.values(), key=lambda each: -each.bytes)
    )
    return Overview(
        root=str(layout.root),
        sessions=sum(agent.sessions + agent.parts for agent in agents),
        bytes=sum(agent.bytes for agent in agents),
        saved_bytes=sum(agent.saved_bytes for agent in agents),
        uncounted=sum(program.uncounted for program in totals.values()),
        archived=sum(agent.archived for agent in agents),
        agents=agents,
        largest=list_sessions(context, sort=SessionOrder.SIZE, limit=largest).sessions
        if largest
        else (),
    )


@dataclass(slots=True)
class _Project:
    agent: str
    directory: str  # the agent's name if the directory is not known
    sessions: int = 0
    parts: int = 0
    bytes: int = 0
    saved: int = 0
    archived: int = 0
    newest: tuple[float, SessionName, Any] | None = None  # with its stat


@dataclass(slots=True)
class _Program:
    """Sums up the sessions of one agent's program."""

    kind: str
    projects: dict[str, _Project] = field(default_factory=dict)
    leaving: list[tuple[float, SessionName, int]] = field(default_factory=list)
    left_alone: str | None = None
    uncounted: int = 0

    @property
    def bytes(self) -> int:
        return sum(project.bytes for project in self.projects.values())

    def project(self, source: Source | None, agent: str) -> _Project:
        """Return the project of an agent; for subagents, the project of their session."""
        key, directory = agent, agent
        if source is not None and source.project_directory is not None:
            directory = source.first_directory(agent) or agent
            key = source.agent(directory)
        elif source is not None:  # the program stores sessions by day, or all in one directory
            key = directory = ""
        return self.projects.setdefault(key, _Project(key, directory))

    def take(
        self,
        layout: Layout,
        source: Source | None,
        agent: str,
        found: Sequence[tuple[SessionName, Any]],
        titles: Titles,
        now: float,
    ) -> None:
        """Add the sessions of an agent, with their stat results."""
        project = self.project(source, agent)
        if source is not None and self.left_alone is None:
            self.left_alone = elsewhere(layout, source)
        is_part, deleted_at = False, None
        with suppress(BsdError):  # its directory has just disappeared
            program = program_of(layout, agent)
            is_part = program.part_of is not None
            deleted_at = None if is_part else deletion_of(program)
        for name, stat in found:
            project.sessions += not is_part
            project.parts += is_part
            project.bytes += stat.st_size
            out = titles.out(name, stat)
            self.uncounted += out is None
            project.saved += 0 if out is None else out.saved
            if not is_part and (project.newest is None or stat.st_mtime > project.newest[0]):
                project.newest = stat.st_mtime, name, stat
            if (
                deleted_at is not None
                and (time_ := deleted_at(Written.of(stat))) - now <= SOON_SECONDS
            ):
                self.leaving.append((time_, name, stat.st_size))

    def share(self, layout: Layout, titles: Titles) -> AgentShare:
        projects = sorted(self.projects.values(), key=lambda each: -each.bytes)
        self.leaving.sort()
        named = [project for project in projects if project.agent]
        lacking = sum(not layout.has_copy(name) for _, name, _ in self.leaving)
        return AgentShare(
            kind=self.kind,
            title=_OPENCLAW[1] if self.kind == _OPENCLAW[0] else kind_of(self.kind).title,
            sessions=sum(project.sessions for project in projects),
            parts=sum(project.parts for project in projects),
            bytes=self.bytes,
            saved_bytes=sum(project.saved for project in projects),
            archived=sum(project.archived for project in projects),
            deleted_soon=len(self.leaving),
            without_copy=lacking,
            leaving=tuple(
                LeavingSession(str(name), size, iso_utc(time_), layout.has_copy(name))
                for time_, name, size in self.leaving[:_MOST_LEAVING]
            ),
            projects=tuple(_project_share(each, titles) for each in named[:_MOST_PROJECTS]),
            more_projects=max(0, len(named) - _MOST_PROJECTS),
            left_alone=self.left_alone,
            directory=tuple(
                files
                for source in layout.sources
                if source.kind == self.kind
                for files in directory_use(source)
            ),
        )


def _project_share(project: _Project, titles: Titles) -> ProjectShare:
    title, updated = project.directory, None
    if project.newest is not None:
        mtime, name, stat = project.newest
        updated = iso_utc(mtime)
        if project.agent != project.directory:  # else the directory is the agent's own name
            title = titles.of(name, stat).directory or title
    return ProjectShare(
        agent=project.agent,
        title=title,
        sessions=project.sessions,
        parts=project.parts,
        bytes=project.bytes,
        saved_bytes=project.saved,
        archived=project.archived,
        updated=updated,
    )


# --- with a time limit ---


def would_leave(context: ActionContext, *, seconds: float) -> WouldLeave:
    """Compute which values an extraction would take out of all sessions now; changes no session.

    Sessions that the daemon has marked as idle without due values are not read. If reading takes
    longer than `seconds`, the result is an estimate from the sessions that were read.
    """
    layout, now = context.layout, context.now()
    idle = {
        left.session: left.file
        for left in state_at(layout.state_db).rests(fingerprint(context.config.current))
        if left.due_at is None or left.due_at > now
    }
    looked_at = {source.name for source in layout.sources if elsewhere(layout, source)}
    every, open_ = 0, []
    total = 0
    for name, stat in catalog.with_stats(layout, strays=False):
        source = layout.source_of(name.agent)
        every, total = every + 1, total + stat.st_size
        is_ours = source is None or source.name not in looked_at
        if is_ours and idle.get(name) != Written.of(stat):
            open_.append((name, stat.st_size))
    found = foretell_extraction(context, open_, seconds=seconds)
    # The other sessions have no due values.
    return replace(
        found,
        sessions=every,
        bytes=total,
        read_sessions=found.read_sessions + every - len(open_),
        read_bytes=found.read_bytes + total - sum(size for _, size in open_),
    )


class _TimeIsUp(Exception):
    """The time for reading sessions is over."""


def fills_of(
    context: ActionContext,
    sessions: Sequence[str],
    *,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[SessionFills, ...]:
    """Return the kinds of content of sessions, read one after the other until the time is over.

    A session that cannot be read, or not within `seconds`, has a `problem` instead.
    """
    end = clock() + seconds

    def progress(done: int, of: int | None = None) -> None:
        context.progress(done, of)
        if clock() >= end:
            raise _TimeIsUp

    timed = replace(context, progress=progress)
    return tuple(_fills_of(timed, session) for session in sessions)


def _fills_of(context: ActionContext, session: str) -> SessionFills:
    try:
        context.progress(0)
        found = outline_session(context, SessionName.parse(session))
    except _TimeIsUp:
        return SessionFills(session, problem="there was no time to read it")
    except BsdError as problem:
        return SessionFills(session, problem=problem.message)
    fills = (fill for fill in found.fills if fill.bytes or fill.extracted_bytes)
    return SessionFills(session, tuple(sorted(fills, key=lambda each: -each.bytes)))
