"""The list of agents and sessions, made from stat and the indexes without reading transcripts.

Titles and the times of the newest messages come from `maintenance/titles.py`; status, label and
parent come from the list that the session's program keeps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import ClassVar

from bsd.core.errors import BsdError, ConfigError, Invalid, NotFound, os_problem
from bsd.core.files import is_directory
from bsd.core.layout import Layout, SessionName, check_name
from bsd.core.locations import usual_roots
from bsd.core.pauses import Pause, pause_of
from bsd.maintenance.ignored_files import passed_over, sync_copies, twice
from bsd.maintenance.strays import StoredFiles
from bsd.maintenance.titles import Titles, when
from bsd.sessions.foreign import foreign_reason
from bsd.store.originals import SessionStore
from bsd.store.search import Known, SearchIndex, ask
from bsd.store.state import Left
from bsd.store.statistics import Statistics, TakenOut
from bsd.transcripts.agents.compressed import compressed_sessions
from bsd.transcripts.agents.installed import nothing_configured
from bsd.transcripts.agents.opening import has_transcript, stat_transcript
from bsd.transcripts.agents.program import (
    ENDING,
    Registered,
    Registry,
)
from bsd.transcripts.agents.programs import program_of, why_not_followed


@dataclass(frozen=True, slots=True)
class ListedSession:
    """One session as the list shows it. Sizes are bytes, times epoch seconds."""

    name: SessionName
    size: int
    updated: float  # time of the newest message, else of the file
    mtime: float  # of its file
    title: str | None  # the title a user gave, else the first prompt; a single line
    label: str | None  # its key in its program's list
    status: str | None  # from that list, else from the directory that holds the file
    parent: str | None  # session id of its parent
    extracted_entries: int  # entries with a placeholder
    extracted_bytes: int  # size of their original lines
    saved_bytes: int | None  # how much shorter the lines are than the originals; None: not known
    no_session: str | None = None  # why the file is not a session although values are stored
    resume: str | None = None  # the command that continues it in its program
    waits: Left | None = None  # the daemon's note, if the session waits for its prompt cache
    left_alone: str | None = None  # why this root does not edit it
    paused: Pause | None = None


# Session files that the programs themselves have archived, by agent.
_Files = Mapping[str, list[os.DirEntry[str]]]
_File = tuple[str, os.stat_result]


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """One agent. `note` says why sessions of it are not listed or not edited; None if all are."""

    schema_name: ClassVar[str] = "Agent"

    name: str
    sessions: int
    note: str | None
    sqlite: bool = False  # its sessions are in SQLite, which bsd does not edit


@dataclass(frozen=True, slots=True)
class Agents:
    """All agents."""

    agents: tuple[AgentInfo, ...]


def agents(layout: Layout) -> list[AgentInfo]:
    """Return all agents, unreadable agents included; raises ConfigError, Forbidden."""
    away = layout.program_archive()
    return [_agent(layout, name, away) for name in _agent_names(layout, away)]


def links(layout: Layout) -> Iterator[AgentInfo]:
    """Yield agents that are symbolic links below sources. bsd does not follow them; `note` says so.

    Raises ConfigError.
    """
    exclusions = layout.exclusions()
    for source in layout.sources:
        found: list[tuple[str, Path]] = []
        with suppress(OSError):  # `unreadable` reports the problem
            for _ in source.directories(links=found):
                pass
        for agent, link in found:
            told = None if exclusions.agent(agent) else why_not_followed(layout, source, link)
            if told is not None:
                yield AgentInfo(agent, 0, f"{told[0]} (try: {told[1]})")


def sessions(layout: Layout, agent: str | None = None) -> Iterator[ListedSession]:
    """Yield all sessions, newest first within an agent."""
    titles = Titles(layout, agent)
    for _, found in groupby(with_stats(layout, agent), lambda each: each[0].agent):
        newest_first = sorted(found, key=lambda each: titles.updated(*each), reverse=True)
        yield from (describe(layout, name, stat, titles) for name, stat in newest_first)


def titled(
    layout: Layout,
    agent: str | None = None,
    *,
    since: float | None = None,
    until: float | None = None,
) -> Iterator[tuple[SessionName, str]]:
    """Yield the sessions that have a title, with it, in the order of `sessions`; opens no store.

    Args:
        since: only sessions last updated at this time or later (epoch seconds).
        until: only sessions last updated before this time (epoch seconds).
    """
    titles = Titles(layout, agent)
    for agent_name, found in groupby(with_stats(layout, agent), lambda each: each[0].agent):
        registry = program_of(layout, agent_name).registry()
        newest_first = sorted(found, key=lambda each: titles.updated(*each), reverse=True)
        for name, stat in newest_first:
            updated = titles.updated(name, stat)
            if since is not None and updated < since:
                break
            if until is not None and updated >= until:
                continue
            if title := registry.title(name.session) or titles.of(name, stat).title:
                yield name, title


def names(
    layout: Layout, agent: str | None = None, *, strays: bool = True
) -> Iterator[SessionName]:
    """Yield the names of all sessions, newest file first within an agent; stats each file."""
    return (name for name, _ in with_stats(layout, agent, strays=strays))


def with_stats(
    layout: Layout, agent: str | None = None, *, after: str | None = None, strays: bool = True
) -> Iterator[tuple[SessionName, os.stat_result]]:
    """Yield the names of all sessions with the stat of each file, in the order of `names`.

    Agents that cannot be read are left out.

    Args:
        layout: the root.
        agent: only this agent. If it cannot be read, BsdError is raised.
        after: only agents that come after this one.
        strays: include files that are not sessions but from which an earlier version extracted.
    """
    if agent is not None and (exclusion := layout.exclusions().agent(agent)):
        raise exclusion.refusal(agent)
    away, stored = layout.program_archive(), StoredFiles(layout) if strays else None
    for name in [check_name(agent, "agent")] if agent else _agent_names(layout, away):
        if after is not None and agent_order(layout, name) <= agent_order(layout, after):
            continue
        try:
            files = _session_files(layout, name, away, stored)
        except BsdError:
            if agent:
                raise
            continue  # `agents` reports the problem
        for session, stat in sorted(files, key=lambda one: one[1].st_mtime_ns, reverse=True):
            yield SessionName(name, session), stat


def no_files(layout: Layout) -> Iterator[tuple[SessionName, Path]]:
    """Yield links, directories and pipes that are named like session files."""
    exclusions = layout.exclusions()
    for agent in _agent_names(layout, layout.program_archive()):
        with suppress(BsdError, OSError):  # `agents` reports the problem
            directory, program = layout.sessions_dir(agent), program_of(layout, agent)
            for item in sorted(os.scandir(directory), key=lambda one: one.name):
                if program.is_session_file(item.name) and not item.is_file(follow_symlinks=False):
                    name = SessionName(agent, item.name.removesuffix(ENDING))
                    if not exclusions.session(name.agent, name.session):
                        yield name, directory / item.name


def renamed_by_program(layout: Layout, agent: str) -> Iterator[tuple[SessionName, Path]]:
    """Yield the transcripts that an agent's program has renamed, each with its session.

    Raises BsdError.
    """
    program, directory = program_of(layout, agent), layout.sessions_dir(agent)
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise os_problem(error, f"reading {directory}") from error
    exclusions = layout.exclusions()
    for name in names:
        session = program.renamed_by_program(name)
        if session and not exclusions.session(agent, session):
            yield SessionName(agent, session), directory / name


def unreadable(layout: Layout) -> Iterator[tuple[str, BsdError]]:
    """Yield the agents and sources that `names` leaves out because they cannot be read, and why.

    Agents whose directory leads out of the root are not included: bsd does not work on them.
    """
    for source in layout.sources:
        try:
            for _ in source.directories(strictly=True):
                pass
            for _ in source.archived_files():
                pass
        except (FileNotFoundError, NotADirectoryError):
            continue  # its program has never run, or the source is not mounted: see `doctor`
        except OSError as error:
            yield source.name, os_problem(error, f"reading {error.filename or source.path}")
    away = layout.program_archive()
    try:
        agents = _agent_names(layout, away)
    except ConfigError:  # a root without agents
        return
    except BsdError as error:
        yield str(layout.agents), error
        return
    for agent in agents:
        with suppress(BsdError):
            layout.sessions_dir(agent)
            try:
                _session_files(layout, agent, away)
            except BsdError as error:
                yield agent, error


def all_agents(layout: Layout) -> list[str]:
    """Return the names of all agents; raises ConfigError, Forbidden."""
    return _agent_names(layout, layout.program_archive())


def _agent_names(layout: Layout, away: _Files) -> list[str]:
    """Return all agents that are not excluded; raises ConfigError, Forbidden."""
    exclusions = layout.exclusions()
    return [agent for agent in _all_agents(layout, away) if not exclusions.agent(agent)]


def _all_agents(layout: Layout, away: _Files) -> list[str]:
    in_sources = sorted(
        {agent for agent, _ in layout.session_dirs()} | away.keys(),
        key=lambda agent: agent_order(layout, agent),
    )
    try:
        with os.scandir(layout.agents) as found:
            names = [item.name for item in found if is_directory(item)]
    except (FileNotFoundError, NotADirectoryError):
        if layout.sources:
            return in_sources
        if layout.root in usual_roots(os.environ):
            why = f"{layout.root} has no agents/ of OpenClaw, and bsd.toml names no [[sources]]"
            raise nothing_configured(layout.root, why, os.environ) from None
        raise ConfigError(
            f"there is no OpenClaw directory at {layout.root} (it has no agents/)",
            hint="name yours with --root DIR, or set OPENCLAW_ROOT",
        ) from None
    except OSError as error:
        raise os_problem(error, f"reading {layout.agents}") from error
    # A directory named like an agent of a source could not be distinguished from that agent.
    return sorted(name for name in names if layout.source_of(name) is None) + in_sources


def agent_order(layout: Layout, agent: str) -> tuple[bool, str]:
    """Return the sort key of an agent: agents of sources come last."""
    return layout.source_of(agent) is not None, agent


def _agent(layout: Layout, name: str, away: _Files) -> AgentInfo:
    try:
        found = len(_session_files(layout, name, away))
    except BsdError as error:
        return AgentInfo(name, 0, error.message)
    program = program_of(layout, name)
    database = program.database()
    if database is not None:
        note = f"its sessions are in {database.path}: read only"
        return AgentInfo(name, found, database.problem or note, sqlite=True)
    told = [
        program.registry().problem,
        passed_over(layout, name),
        sync_copies(layout, name),
        twice(layout, name, away.get(name, ())),
    ]
    return AgentInfo(name, found, "; ".join(filter(None, told)) or None)


def _session_files(
    layout: Layout, agent: str, away: _Files, stored: StoredFiles | None = None
) -> list[_File]:
    """Return the session files in the agent's directory and those that its program has archived."""
    directory, program = layout.sessions_dir(agent), program_of(layout, agent)
    exclusions = layout.exclusions()
    files: list[_File] = []

    def is_listed(file: str) -> bool:
        if exclusions and exclusions.session(agent, file.removesuffix(ENDING)):
            return False
        return program.is_session_file(file) or (stored is not None and stored.has(agent, file))

    try:
        with os.scandir(directory) as found:
            files = _sessions_among(found, is_listed)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise os_problem(error, f"reading {error.filename or directory}") from error
    if (database := program.database()) is not None:
        rows = {} if database.problem else database.sessions()
        files = [one for one in files if one[0] not in rows]
        files += [each for each in rows.items() if not exclusions.session(agent, each[0])]
    others = away.get(agent, ())
    packed = compressed_sessions(layout, agent, program, others)
    for candidates in (_sessions_among(others, is_listed), packed):
        there = {session for session, _ in files}
        files += [one for one in candidates if one[0] not in there]
    return files


def _sessions_among(
    items: Iterable[os.DirEntry[str]], is_listed: Callable[[str], bool]
) -> list[_File]:
    return [
        (item.name.removesuffix(ENDING), stat)
        for item in items
        if is_listed(item.name) and (stat := _stat_of_file(item)) is not None
    ]


def _stat_of_file(item: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return item.stat(follow_symlinks=False) if item.is_file(follow_symlinks=False) else None
    except FileNotFoundError:  # deleted since the directory was read
        return None


def status_of(layout: Layout, name: SessionName, entry: Registered | None) -> str | None:
    """Return a session's status from its program's list, else from the directory it lies in."""
    return entry.status if entry else layout.archived_as(name)


def describe(
    layout: Layout, name: SessionName, stat: os.stat_result, titles: Titles | None = None
) -> ListedSession:
    """Return one session as the list shows it."""
    titles = titles or Titles(layout, only=name)
    ends, out = titles.of(name, stat), titles.out(name, stat)
    program = program_of(layout, name.agent)
    registry = program.registry()
    entry = next(registry.find(name.session), None)
    there = out or _stored(layout, name)
    no_session = program.why_no_session(f"{name.session}{ENDING}")
    # `foreign_reason` reads no file if the session has a store, as most with placeholders have.
    foreign = foreign_reason(layout, name) if out and out.entries else None
    pause = None
    with suppress(BsdError):  # every edit is refused with this error
        pause = pause_of(layout, name)
    return ListedSession(
        name=name,
        size=stat.st_size,
        updated=when(ends, stat),
        mtime=stat.st_mtime,
        title=registry.title(name.session) or ends.title,
        label=entry.key if entry else None,
        status=status_of(layout, name, entry),
        parent=entry.parent if entry else ends.parent,
        extracted_entries=there.entries,
        extracted_bytes=there.content,
        saved_bytes=out and out.saved,
        no_session=no_session,
        resume=None if no_session else program.resume_command(name.session, ends.directory),
        waits=titles.waits(name, stat),
        left_alone=foreign,
        paused=None if pause is None else pause.pause,
    )


def waits(layout: Layout, name: SessionName) -> Left | None:
    """Return the daemon's note about a session that waits for its prompt cache."""
    with suppress(OSError):  # the file has just been deleted
        return Titles(layout, only=name).waits(name, stat_transcript(layout, name))
    return None


def resume_command(layout: Layout, name: SessionName) -> str | None:
    """Return the command that continues a session in its program; None if there is none."""
    program = program_of(layout, name.agent)
    if program.why_no_session(f"{name.session}{ENDING}"):
        return None
    directory = None
    with suppress(BsdError, OSError):  # the file has just been deleted
        stat = stat_transcript(layout, name)
        directory = Titles(layout, only=name).of(name, stat).directory
    return program.resume_command(name.session, directory)


def _stored(layout: Layout, name: SessionName) -> TakenOut:
    """Sum the values in store and archive, for a session whose placeholders are not counted.

    The sum includes values that were restored since.
    """
    store = SessionStore(layout, name)
    sizes = store.archive.entries() if store.archive else {}
    # An entry that was restored and extracted again has several records: the last one counts.
    sizes |= {record.entry_id: record.size for record in store.index.records.values()}
    return TakenOut(len(sizes), sum(sizes.values()), 0)


def find_session(layout: Layout, text: str) -> SessionName:
    """Resolve `agent/session`, or a session id that only one agent has (seeds 000, 001).

    A session that is the only one in its directory also goes by the name of the directory.

    Raises:
        NotFound: no agent has a session of this id.
        Invalid: several agents have such a session, or the name is not valid.
    """
    if "/" in text:
        return SessionName.parse(text)
    check_name(text, "session")
    every = list(names(layout))
    found = [name for name in every if name.session == text]
    found = found or [name for directory, name in only_sessions(every) if directory == text]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(map(str, found))
        raise Invalid(f"several agents have a session {text}", hint=f"one of {listed}")
    raise NotFound(f"there is no session {text}", hint="`bsd sessions` lists them")


def only_sessions(names: Iterable[SessionName]) -> Iterator[tuple[str, SessionName]]:
    """Yield each session that is the only one in its directory, with the directory's name.

    Directories of the root are left out: they have the names of agents, not of sessions.
    """
    by_agent: dict[str, list[SessionName]] = {}
    for name in names:
        by_agent.setdefault(name.agent, []).append(name)
    for agent, own in by_agent.items():
        _, is_in_source, directory = agent.rpartition(":")
        if is_in_source and len(own) == 1:
            yield directory, own[0]


# --- children of sessions ---


@dataclass(frozen=True, slots=True)
class Member:
    """A session of a family; `parent` is None for the requested session."""

    name: SessionName
    parent: SessionName | None


def family(layout: Layout, head: SessionName) -> list[Member]:
    """Return a session and its descendants, each once, parents before children."""
    registry = program_of(layout, head.agent).registry()
    found = {head: Member(head, None)}
    for member in (queue := [found[head]]):  # the loop appends to this list
        for child in _children(registry, member.name):
            if child not in found:
                found[child] = Member(child, member.name)
                queue.append(found[child])
    return queue


def children(layout: Layout, head: SessionName) -> list[str]:
    """Return the names of the descendants that exist and would be deleted as well."""
    return [str(member.name) for member in family(layout, head)[1:] if _exists(layout, member.name)]


def _exists(layout: Layout, name: SessionName) -> bool:
    with suppress(BsdError):
        return has_transcript(layout, name)
    return False


def _children(registry: Registry, parent: SessionName) -> Iterator[SessionName]:
    for session in registry.children(parent.session):
        try:
            yield SessionName(parent.agent, session)
        except BsdError:  # not a valid session name
            continue


# --- figures of sessions, counted when the search index reads them ---

_STALE_SECONDS = 24 * 3600.0


def is_stale(updated: float, now: float) -> bool:
    """Return True if a session was not written to for a day. Both times are epoch seconds."""
    return now - updated > _STALE_SECONDS


def counted(
    layout: Layout, infos: Collection[ListedSession]
) -> dict[SessionName, tuple[Statistics, bool]]:
    """Return the figures that the index has of sessions; opens no session, creates no index.

    Returns:
        By session: the figures, and whether they cover the whole present file.
    """

    def read(index: SearchIndex) -> dict[str, Known]:
        return index.known_among(str(info.name) for info in infos)

    known: dict[str, Known] = {}
    # A list of sessions without these figures is better than an error.
    with suppress(BsdError, OSError):
        known = ask(layout.search_db, read, known)
    return {
        info.name: (Statistics.loads(found.statistics), _is_of(found, info))
        for info in infos
        if (found := known.get(str(info.name))) is not None
    }


def spending(layout: Layout, agent: str | None = None) -> dict[str, tuple[float, int]]:
    """Return the cost (US dollars) and the tokens of the sessions in the index, by name."""
    nothing: dict[str, tuple[float, int]] = {}
    with suppress(BsdError, OSError):  # then sessions are listed without a cost
        return ask(layout.search_db, lambda index: index.spending(agent), nothing)
    return nothing


def warm(layout: Layout, infos: Collection[ListedSession]) -> dict[SessionName, Statistics]:
    """Return the figures of those sessions that the index has read in their present state."""
    found = counted(layout, infos).items()
    return {name: statistics for name, (statistics, is_current) in found if is_current}


def _is_of(known: Known, info: ListedSession) -> bool:
    return known.size == info.size and abs(known.mtime / 1e9 - info.mtime) < 1e-5
