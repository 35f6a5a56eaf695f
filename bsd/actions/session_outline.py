"""outline_session: the parts of a session, including its sub-agents."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.core.errors import BsdError
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.catalog import ListedSession
from bsd.planning.originals import original_of
from bsd.planning.session_fills import Fill
from bsd.planning.session_outline import (
    ContextInOutline,
    PromptInOutline,
    SessionMeter,
    SessionParts,
    ToolInOutline,
)
from bsd.sessions.session import OpenSession
from bsd.store.originals import Missing
from bsd.transcripts.agents.entry import Entry, Marker, entry_time_ms, first_entries
from bsd.transcripts.agents.opening import open_transcript, stat_transcript
from bsd.transcripts.agents.program import ENDING, Registry
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import Line

# Limit for transcripts of sub-agents that are read to find the sub-agents that they started.
_MOST_READ = 64 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Subagent:
    """A session that a call started, with the sub-agents that it started. Sizes are bytes."""

    session: str
    call_index: Annotated[
        int | None, Field(description="Line of the call in the session above it; null: not known")
    ]
    title: str | None
    size: int
    total_size: Annotated[int, Field(description="Including the sessions below it")]
    extracted_bytes: int
    subagents: tuple[Subagent, ...] = ()


@dataclass(frozen=True, slots=True)
class TotalSize:
    """The sums over a session and all its sub-agents."""

    sessions: int
    size: int
    extracted_bytes: int


@dataclass(frozen=True, slots=True)
class SessionOutline:
    """The parts of a session. Sizes are bytes."""

    session: str
    lines: int
    entries: int
    size: int
    extracted_bytes: Annotated[int, Field(description="Size of its extracted values")]
    prompts: tuple[PromptInOutline, ...]
    tools: tuple[ToolInOutline, ...]
    context: ContextInOutline
    fills: tuple[Fill, ...]
    subagents: tuple[Subagent, ...]
    total: TotalSize


def outline_session(context: ActionContext, session: SessionName) -> SessionOutline:
    """Return the prompts, tools, context, kinds of content and sub-agents of a session.

    Raises:
        NotFound: there is no such session.
        LeftAlone: bsd does not know the format of its lines.
    """
    with context.reader(session) as opened, metered(context, opened) as meter:
        size = opened.transcript.size
        parts, below = meter.parts(), _subagents(context, session, meter)
    return _answer(session, size, parts, below)


@contextmanager
def metered(context: ActionContext, opened: OpenSession) -> Iterator[SessionMeter]:
    """Lend the meter of an open session after it has read all lines of the session."""
    source = opened.transcript
    with context.outlines.meter_of(opened.name, source, opened.format) as meter:
        meter.read(
            source,
            lambda marker: _sizes(opened, marker),
            lambda line, entry, marker: _original(opened, line, entry, marker),
            lambda done: context.progress(done, source.size),
        )
        yield meter


def _answer(
    session: SessionName, size: int, parts: SessionParts, below: tuple[Subagent, ...]
) -> SessionOutline:
    every = list(_with_all_below(below))
    return SessionOutline(
        session=str(session),
        lines=parts.lines,
        entries=parts.entries,
        size=size,
        extracted_bytes=parts.extracted_bytes,
        prompts=parts.prompts,
        tools=parts.tools,
        context=parts.context,
        fills=parts.fills,
        subagents=below,
        total=TotalSize(
            sessions=1 + len(every),
            size=size + sum(one.size for one in every),
            extracted_bytes=parts.extracted_bytes + sum(one.extracted_bytes for one in every),
        ),
    )


def _with_all_below(subagents: Iterable[Subagent]) -> Iterator[Subagent]:
    for one in subagents:
        yield one
        yield from _with_all_below(one.subagents)


def _sizes(opened: OpenSession, marker: Marker) -> Mapping[str, int]:
    """Return the sizes of extracted values from the store's index; empty if it lacks them."""
    record = opened.store.index.records.get(f"{marker.ref}.json")
    return record.sizes_bytes if record and record.hash == marker.hash else {}


def _original(opened: OpenSession, line: Line, entry: Entry, marker: Marker) -> Entry | None:
    with suppress(OSError, BsdError):
        original = original_of(line.raw, entry, marker, opened.format, opened.store)
        return None if isinstance(original, Missing) else original.entry
    return None


# --- sub-agents ---


class _StartingCall(NamedTuple):
    """The call that started a sub-agent."""

    session: SessionName  # the session that contains the call
    line: int | None  # its line number, if known


def _subagents(
    context: ActionContext, head: SessionName, meter: SessionMeter
) -> tuple[Subagent, ...]:
    """Return the sub-agents of a session, each below the session that started it."""
    layout = context.layout
    names, meters = _Names(layout, head), _Meters(context, head, meter)
    listed, calls = names.listed, dict[SessionName, _StartingCall]()

    def follow(parents: list[SessionName]) -> None:
        """Record the sub-agents that these sessions started, and their sub-agents in turn."""
        for parent in parents:  # the list grows during the loop
            if not names.may_have_more(calls, parent):
                continue
            started = meters.of(parent)
            for session, index in started.subagents.items() if started else ():
                name = names.find(session)
                if name is not None and name != head and name not in calls:
                    calls[name] = _StartingCall(parent, index)
                    parents.append(name)

    follow([head])
    if names.is_part:  # the other listed sessions are sub-agents of other sessions
        for name in listed.keys() - calls.keys():
            del listed[name]
    follow([name for name in listed if name not in calls])
    for name, parent in names.unlinked(calls):
        known, at = meters.of(parent), _started_ms(layout, name)
        line = known.call_before(at) if known is not None and at is not None else None
        calls[name] = _StartingCall(parent, line)
    described = {name: catalog.describe(layout, name, listed[name]) for name in calls}
    return _below(head, described, calls, frozenset((head,)))


def _below(
    parent: SessionName,
    listed: Mapping[SessionName, ListedSession],
    calls: Mapping[SessionName, _StartingCall],
    above: frozenset[SessionName],
) -> tuple[Subagent, ...]:
    """Return the sub-agents that a session started, in the order of the calls.

    `above`: the session and all sessions above it, which guards against cycles.
    """
    found = []
    for name, call in calls.items():
        if call.session != parent or name in above:
            continue
        info, inside = listed[name], _below(name, listed, calls, above | {name})
        found.append(
            Subagent(
                session=str(name),
                call_index=call.line,
                title=info.title,
                size=info.size,
                total_size=info.size + sum(one.total_size for one in inside),
                extracted_bytes=info.extracted_bytes,
                subagents=inside,
            )
        )
    found.sort(key=lambda one: (one.call_index is None, one.call_index or 0))
    return tuple(found)


class _Names:
    """The sessions that may be sub-agents of a session, or of its sub-agents."""

    def __init__(self, layout: Layout, head: SessionName) -> None:
        self._layout = layout
        self._head = head
        self._program = program_of(layout, head.agent)
        self.is_part = self._program.part_of is not None
        registry = self._program.registry()
        self._parents = _parents(registry, head)
        self._keys = {record.key: record.session for record in registry.sessions if record.session}
        self.listed = dict(self._related())
        self._by_id = {name.session: name for name in self.listed}
        source = layout.source_of(head.agent)
        # Some programs store all sessions, those of sub-agents too, in one directory or by day.
        self._source = source if source is not None and source.project_directory is None else None

    def _related(self) -> Iterator[tuple[SessionName, os.stat_result]]:
        layout, head = self._layout, self._head
        top = self._program.part_of or layout.transcript(head)
        below = top.with_name(top.name.removesuffix(ENDING))
        for agent, directory in layout.session_dirs():
            if not directory.is_relative_to(below):
                continue
            if program_of(layout, agent).part_of == top:
                with suppress(BsdError):
                    found = catalog.with_stats(layout, agent, strays=False)
                    yield from ((name, stat) for name, stat in found if name != head)
        for member in self._parents:
            with suppress(OSError, BsdError):
                yield member, stat_transcript(layout, member)

    def may_have_more(self, calls: Collection[SessionName], parent: SessionName) -> bool:
        """Return True if a session may have started sub-agents whose call is not known yet."""
        return self._source is not None or any(
            name not in calls and name != parent for name in self.listed
        )

    def find(self, session: str) -> SessionName | None:
        """Return the session of a sub-agent by its id or by its key in the program's registry."""
        name = self._by_id.get(self._keys.get(session, session))
        with suppress(OSError, BsdError):
            if name is None and session in self._keys:
                name = SessionName(self._head.agent, self._keys[session])
            elif name is None and self._source is not None:
                name = self._elsewhere.get(session)
            if name is not None and name not in self.listed and name != self._head:
                self.listed[name] = stat_transcript(self._layout, name)
        return name if name in self.listed else None

    @cached_property
    def _elsewhere(self) -> dict[str, SessionName]:
        """The sessions of the source, by each of their ids."""
        found: dict[str, SessionName] = {}
        for agent, _ in self._layout.session_dirs():
            if self._layout.source_of(agent) == self._source:
                with suppress(BsdError):
                    program = program_of(self._layout, agent)
                    for name, _ in catalog.with_stats(self._layout, agent, strays=False):
                        found |= dict.fromkeys(program.ids_in(name.session), name)
        return found

    def unlinked(self, calls: Collection[SessionName]) -> Iterator[tuple[SessionName, SessionName]]:
        """Yield each sub-agent without a known call, and the session that probably started it."""
        for name in [name for name in self.listed if name not in calls]:
            parent = self._parents.get(name)
            yield name, parent if parent is not None and parent in self.listed else self._head


def _parents(registry: Registry, head: SessionName) -> dict[SessionName, SessionName]:
    """Return the sub-agents below a session in the program's registry, each with its parent."""
    found: dict[SessionName, SessionName] = {}
    queue = [head]
    for parent in queue:  # the list grows during the loop
        for session in (*registry.children(parent.session), *registry.started(parent.session)):
            with suppress(BsdError):  # a name that no session can have
                name = SessionName(parent.agent, session)
                if name != head and name not in found:
                    found[name] = parent
                    queue.append(name)
    return found


class _Meters:
    """Reads sub-agents, up to `_MOST_READ` bytes, to find their calls."""

    def __init__(self, context: ActionContext, head: SessionName, meter: SessionMeter) -> None:
        self._context = context
        self._read: dict[SessionName, SessionMeter | None] = {head: meter}
        self._budget = _MOST_READ

    def of(self, name: SessionName) -> SessionMeter | None:
        """Return the meter of a session; None if the session was not read."""
        if name not in self._read:
            self._read[name] = None
            with suppress(OSError, BsdError), self._context.reader(name) as opened:
                self._budget -= opened.transcript.size
                if self._budget >= 0:
                    meter = SessionMeter(opened.format)
                    meter.read(opened.transcript, lambda _: {}, lambda *_: None)
                    self._read[name] = meter
        return self._read[name]


def _started_ms(layout: Layout, name: SessionName) -> float | None:
    """Return the time of a session's first entry in milliseconds since 1970; None: unknown."""
    with suppress(OSError, BsdError), open_transcript(layout, name) as source:
        times = map(entry_time_ms, first_entries(line.raw for line in source.lines()))
        return next((at for at in times if at is not None), None)
    return None
