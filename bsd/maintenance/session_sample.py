"""Chooses a sample of all sessions: the newest and the largest of each agent's program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.transcripts.agents.programs import ROOT_KIND


class SampledSession(NamedTuple):
    """A session in a sample."""

    name: SessionName
    program: str  # name of its source; `openclaw` for sessions of the root
    size: int  # bytes
    written: int  # time of the last write, in nanoseconds since 1970


@dataclass(frozen=True, slots=True)
class SessionSample:
    """The chosen sessions, and the number and size of all sessions. Sizes are bytes."""

    sessions: tuple[SampledSession, ...]
    all_sessions: int
    all_bytes: int

    @property
    def bytes(self) -> int:
        """Size of the chosen sessions."""
        return sum(session.size for session in self.sessions)


def program_name(layout: Layout, agent: str) -> str:
    """Return the name of the source to which an agent belongs; `openclaw` for the root's own."""
    source = layout.source_of(agent)
    return ROOT_KIND if source is None else source.name


def sample_sessions(layout: Layout, most_bytes: int | None) -> SessionSample:
    """Choose sessions of at most `most_bytes` bytes; None: all sessions.

    The programs take turns; each gives its newest session, then its largest, and so on. A session
    that would exceed the limit is passed over. The order of the result depends on the names only,
    and mixes programs, sizes and times, so that its beginning is a sample too.
    """
    found: dict[str, list[SampledSession]] = defaultdict(list)
    for name, stat in catalog.with_stats(layout, strays=False):
        program = program_name(layout, name.agent)
        session = SampledSession(name, program, stat.st_size, stat.st_mtime_ns)
        found[program].append(session)
    everything = [session for sessions in found.values() for session in sessions]
    chosen = everything if most_bytes is None else _choose(list(found.values()), most_bytes)
    ordered = sorted(chosen, key=lambda session: _order(session.name))
    total = sum(session.size for session in everything)
    return SessionSample(tuple(ordered), len(everything), total)


def comes_after(name: SessionName, last: SessionName) -> bool:
    """Return whether a session comes after another in the order of a sample."""
    return _order(name) > _order(last)


def _order(name: SessionName) -> tuple[int, str]:
    text = str(name)
    return crc32(text.encode()), text


def _choose(programs: Sequence[list[SampledSession]], most_bytes: int) -> list[SampledSession]:
    chosen: dict[SessionName, SampledSession] = {}
    turns = [_newest_and_largest(sessions) for sessions in programs]
    left = most_bytes
    while turns:
        for turn in tuple(turns):
            session = next((each for each in turn if each.name not in chosen), None)
            if session is None:
                turns.remove(turn)
            elif session.size <= left:
                chosen[session.name] = session
                left -= session.size
    return list(chosen.values())


def _newest_and_largest(sessions: list[SampledSession]) -> Iterator[SampledSession]:
    """Yield each session twice: in turns the newest and the largest that were not yielded so."""
    newest = sorted(sessions, key=lambda session: session.written, reverse=True)
    largest = sorted(sessions, key=lambda session: session.size, reverse=True)
    for pair in zip(newest, largest, strict=True):
        yield from pair
