"""outline_session: what a session is made of, its sub-agents included."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
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
from bsd.transcripts.agents.program import ENDING
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import Line, TranscriptFile

# Transcripts of sub-agents that are read to find those that they have started themselves.
_MOST_READ = 64 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Subagent:
    """A session that a call started, with those that it has started itself. Sizes are bytes."""

    session: str
    call_index: Annotated[
        int | None, Field(description="Line of the call, in the session above it; null: not known")
    ]
    title: str | None
    size: int
    total_size: Annotated[int, Field(description="With the sessions below it")]
    extracted_bytes: int
    subagents: tuple[Subagent, ...] = ()


@dataclass(frozen=True, slots=True)
class TotalSize:
    """A session and all its sub-agents together."""

    sessions: int
    size: int
    extracted_bytes: int


@dataclass(frozen=True, slots=True)
class SessionOutline:
    """What a session is made of. Sizes are bytes."""

    session: str
    lines: int
    entries: int
    size: int
    extracted_bytes: Annotated[int, Field(description="Of the values that are taken out")]
    prompts: tuple[PromptInOutline, ...]
    tools: tuple[ToolInOutline, ...]
    context: ContextInOutline
    fills: tuple[Fill, ...]
    subagents: tuple[Subagent, ...]
    total: TotalSize


def outline_session(context: ActionContext, session: SessionName) -> SessionOutline:
    """Tell the prompts, tools, context, fillings and sub-agents of a session.

    Raises:
        NotFound: there is no such session.
        LeftAlone: its lines are not understood.
    """
    with context.reader(session) as opened:
        source, size = opened.transcript, opened.transcript.identity.size
        with context.outlines.meter_of(session, source, opened.format) as meter:
            meter.read(
                source,
                lambda marker: _sizes(opened, marker),
                lambda line, entry, marker: _original(opened, line, entry, marker),
                lambda done: context.progress(done, size),
            )
            parts, below = meter.parts(), _subagents(context, session, meter)
    return _answer(session, size, parts, below)


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
    """The sizes of extracted values by the store's index; empty if that does not know them."""
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

    session: SessionName  # in which it stands
    line: int | None  # its number, if that is known


def _subagents(
    context: ActionContext, head: SessionName, meter: SessionMeter
) -> tuple[Subagent, ...]:
    """The sub-agents of a session, each below the one that has started it."""
    listed = {info.name: info for info in _related(context.layout, head, meter.subagents)}
    by_session = {name.session: name for name in listed}
    calls = {
        by_session[session]: _StartingCall(head, index)
        for session, index in meter.subagents.items()
        if session in by_session
    }
    calls |= _calls_by_others(context, listed, calls)
    for member in catalog.family(context.layout, head)[1:]:
        if member.name in listed and member.parent is not None and member.parent != head:
            calls.setdefault(member.name, _StartingCall(member.parent, None))
    for name in listed:
        if name not in calls:
            started = _started_ms(context.layout, name)
            calls[name] = _StartingCall(
                head, None if started is None else meter.call_before(started)
            )
    return _below(head, listed, calls, frozenset((head,)))


def _below(
    parent: SessionName,
    listed: Mapping[SessionName, ListedSession],
    calls: Mapping[SessionName, _StartingCall],
    above: frozenset[SessionName],
) -> tuple[Subagent, ...]:
    """The sub-agents that a session has started, in the order of the calls."""
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


def _related(layout: Layout, head: SessionName, named: Collection[str]) -> Iterator[ListedSession]:
    """The sessions that may be sub-agents of a session, or of its sub-agents."""
    transcript = layout.transcript(head)
    program = program_of(layout, head.agent)
    if program.part_of is not None:
        # Sub-agents of one session lie side by side: those below this one are named in it.
        for name, stat in catalog.with_stats(layout, head.agent, strays=False):
            if name != head and name.session in named:
                yield catalog.describe(layout, name, stat)
        return
    below = transcript.with_name(transcript.name.removesuffix(ENDING))
    for agent, directory in layout.session_dirs():
        if not directory.is_relative_to(below):
            continue
        if program_of(layout, agent).part_of == transcript:
            with suppress(BsdError):
                for name, stat in catalog.with_stats(layout, agent, strays=False):
                    yield catalog.describe(layout, name, stat)
    for member in catalog.family(layout, head)[1:]:
        with suppress(OSError, BsdError):
            stat = layout.session_file(member.name).lstat()
            yield catalog.describe(layout, member.name, stat)


def _calls_by_others(
    context: ActionContext,
    listed: Mapping[SessionName, ListedSession],
    known: Mapping[SessionName, _StartingCall],
) -> dict[SessionName, _StartingCall]:
    """The calls, in other sub-agents, that started those of which the session holds no call."""
    left = {name.session: name for name in listed if name not in known}
    found: dict[SessionName, _StartingCall] = {}
    budget = _MOST_READ
    for name, info in listed.items():
        budget -= info.size
        if budget < 0 or not left.keys() - {name.session}:
            continue
        with suppress(OSError, BsdError), context.reader(name) as opened:
            meter = SessionMeter(opened.format)
            meter.read(opened.transcript, lambda _: {}, lambda *_: None)
            for session, index in meter.subagents.items():
                if session in left and session != name.session:
                    found[left.pop(session)] = _StartingCall(name, index)
    return found


def _started_ms(layout: Layout, name: SessionName) -> float | None:
    """When the first entry of a session was written, in milliseconds since 1970."""
    with suppress(OSError, BsdError), TranscriptFile(layout.session_file(name)) as source:
        times = map(entry_time_ms, first_entries(line.raw for line in source.lines()))
        return next((at for at in times if at is not None), None)
    return None
