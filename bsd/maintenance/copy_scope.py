"""What is asked of a run that copies whole sessions (`keeping`), and which sessions that may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bsd.core.errors import BsdError, ConfigError
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.titles import ends_in
from bsd.transcripts.agents.program import AgentProgram
from bsd.transcripts.agents.programs import elsewhere, program_of
from bsd.transcripts.change import Written
from bsd.transcripts.reader import TranscriptFile

SOON_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class CopyScope:
    """Which sessions a run copies.

    Args:
        first: only sessions that their program deletes by their age, and these are urgent.
        at_once: no session waits for a day of rest, and the run goes on until all are copied.
        names: only these sessions, with those that are parts of them; empty: all.
        dry_run: tell which sessions would be copied, and change nothing.
    """

    first: bool = False
    at_once: bool = False
    names: frozenset[SessionName] = frozenset()
    dry_run: bool = False


class CopyStatus(StrEnum):
    """What became of a session of which a copy was asked for."""

    COPIED = "copied"
    UNCHANGED = "unchanged"  # the copy that there was is as the session is
    BUSY = "busy"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """One session of a run. `size`: bytes of its transcript."""

    session: SessionName
    status: CopyStatus
    size: int
    problem: BsdError | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A session in its place, or put aside. `deleted_at`: by its program (epoch seconds)."""

    name: SessionName
    written: Written
    aside: Path | None = None
    deleted_at: float = math.inf


def candidates(layout: Layout, wanted: Collection[str]) -> Iterator[Candidate]:
    """All sessions in their places, and of those that are not there what was put aside last.

    `wanted`: only those of these names, and parts of them; empty: all.
    """
    with suppress(ConfigError):  # a root without agents
        others = {one.name for one in layout.sources if elsewhere(layout, one)}
        for agent in catalog.agents(layout):
            source = layout.source_of(agent.name)
            if agent.sqlite or (source is not None and source.name in others):
                continue  # those of another root are its own to keep
            there = set()
            with suppress(BsdError):  # `agents` says what is wrong with it
                program = program_of(layout, agent.name)
                part_of, deleted_at = parent_of(layout, program), _deletion(program)
                for name, stat in catalog.with_stats(layout, agent.name, strays=False):
                    there.add(name)
                    if _is_wanted(wanted, name, part_of):
                        written = Written.of(stat)
                        yield Candidate(name, written, deleted_at=deleted_at(written))
                for one in _renamed_by_program(layout, agent.name, there):
                    if _is_wanted(wanted, one.name, part_of):
                        yield one


def _is_wanted(wanted: Collection[str], name: SessionName, part_of: str | None) -> bool:
    return not wanted or str(name) in wanted or part_of in wanted


def _renamed_by_program(layout: Layout, agent: str, there: set[SessionName]) -> Iterator[Candidate]:
    latest: dict[SessionName, Candidate] = {}
    for name, path in catalog.renamed_by_program(layout, agent):
        if name in there:
            continue
        with suppress(OSError):
            one = Candidate(name, Written.of(path.lstat()), path)
            before = latest.get(name)
            if before is None or before.written.mtime_ns < one.written.mtime_ns:
                latest[name] = one
    yield from latest.values()


def used_before(layout: Layout, one: Candidate) -> float | None:
    """When the session was last used, if bsd was the last to write to it (epoch seconds).

    Its newest entry tells. None: the time of the file itself is right, since others may have
    written to it later, or bsd does not change that time; or no entry has a time.
    """
    program = program_of(layout, one.name.agent)
    if program.keeps_mtime:
        return None
    try:
        history = layout.history_dir(one.name).lstat()
        if history.st_mtime_ns < one.written.mtime_ns:
            return None
        with TranscriptFile(one.aside or layout.session_file(one.name)) as source:
            newest = ends_in(source, program).newest_ms
    except (BsdError, OSError):  # never changed by bsd; or copying it will tell what is wrong
        return None
    return None if newest is None else newest / 1000


def _deletion(program: AgentProgram) -> Callable[[Written], float]:
    """When the program deletes a session of one agent that was last written to so (epoch seconds).

    Parts of a session go with it.
    """
    kept_for = program.kept_for_seconds
    if kept_for is None:
        return lambda _: math.inf
    if program.part_of is not None:
        with suppress(OSError):  # it is gone already: then each goes by its own age
            goes_with = program.part_of.lstat().st_mtime + kept_for
            return lambda _: goes_with
    return lambda written: written.mtime_ns / 1e9 + kept_for


def parent_of(layout: Layout, program: AgentProgram) -> str | None:
    """The session that this one is a part of."""
    path = program.part_of
    if path is None:
        return None
    agents = (source.agent_at(path.parent) for source in layout.sources)
    agent = next(filter(None, agents), None)
    return f"{agent}/{path.stem}" if agent else None
