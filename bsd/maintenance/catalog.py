"""The list of sessions: by stat and the store's indexes, never by reading transcripts.

How a session is called, and when something was last said in it, is told by the index of words where
that has read it; else by its first and last lines alone. Whose child it is says its owner's list.
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
from bsd.maintenance.strays import StoredFiles
from bsd.maintenance.titles import Titles, when
from bsd.store.originals import SessionStore
from bsd.store.search import Known, SearchIndex, ask
from bsd.store.statistics import Statistics, TakenOut
from bsd.transcripts.agents.installed import nothing_configured
from bsd.transcripts.agents.program import ENDING, Registered, Registry
from bsd.transcripts.agents.programs import program_of


@dataclass(frozen=True, slots=True)
class ListedSession:
    """One session as the list shows it. Sizes are bytes, times epoch seconds."""

    name: SessionName
    size: int
    updated: float  # when something was last said in it, as far as it tells
    mtime: float  # of its file
    title: str | None  # how people call it, else what was first asked; on one line
    label: str | None  # its key in its owner's list
    status: str | None  # by that list, or where its program has put it
    parent: str | None  # session id of its parent
    extracted_entries: int  # with a placeholder
    extracted_bytes: int  # of their original lines
    saved_bytes: int | None  # by which the lines are shorter than these; None: not known
    no_session: str | None = None  # why it is none, and listed since something of it is stored


# What programs have put away, by agent.
_Files = Mapping[str, list[os.DirEntry[str]]]
_File = tuple[str, os.stat_result]


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """One agent; `note` says why its sessions are not listed or not edited, if so."""

    schema_name: ClassVar[str] = "Agent"

    name: str
    sessions: int
    note: str | None
    sqlite: bool = False  # its sessions moved to SQLite: nothing of it is edited


@dataclass(frozen=True, slots=True)
class Agents:
    """All agents."""

    agents: tuple[AgentInfo, ...]


def agents(layout: Layout) -> list[AgentInfo]:
    """All agents, SQLite-era and unreadable ones included; raises ConfigError, Forbidden."""
    away = layout.program_archive()
    return [_agent(layout, name, away) for name in _agent_names(layout, away)]


def sessions(layout: Layout, agent: str | None = None) -> Iterator[ListedSession]:
    """All sessions, newest first within an agent; things that are no sessions are left out."""
    titles = Titles(layout, agent)
    for _, found in groupby(with_stats(layout, agent), lambda one: one[0].agent):
        newest_first = sorted(found, key=lambda one: titles.updated(*one), reverse=True)
        yield from (describe(layout, *one, titles) for one in newest_first)


def titled(layout: Layout, agent: str | None = None) -> Iterator[tuple[SessionName, str]]:
    """All sessions that are called something, in the order of `sessions`; no store is opened."""
    titles = Titles(layout, agent)
    for one, found in groupby(with_stats(layout, agent), lambda each: each[0].agent):
        registry = program_of(layout, one).registry()
        ends = [(titles.of(name, stat), stat, name) for name, stat in found]
        for end, _, name in sorted(ends, key=lambda each: when(*each[:2]), reverse=True):
            if title := registry.title(name.session) or end.title:
                yield name, title


def names(
    layout: Layout, agent: str | None = None, *, strays: bool = True
) -> Iterator[SessionName]:
    """The names of all sessions, those first whose files are newest; costs a stat each."""
    return (name for name, _ in with_stats(layout, agent, strays=strays))


def with_stats(
    layout: Layout, agent: str | None = None, *, after: str | None = None, strays: bool = True
) -> Iterator[tuple[SessionName, os.stat_result]]:
    """As `names`, with what stat says of each; of those agents that come `after` one, if named.

    `strays`: also files that are no sessions, but from which an earlier version has extracted.
    """
    away, stored = layout.program_archive(), StoredFiles(layout) if strays else None
    for name in [check_name(agent, "agent")] if agent else _agent_names(layout, away):
        if after is not None and agent_order(layout, name) <= agent_order(layout, after):
            continue
        try:
            files = _session_files(layout, name, away, stored)
        except BsdError:
            if agent:
                raise
            continue  # `agents` says what is wrong with it
        for session, stat in sorted(files, key=lambda one: one[1].st_mtime_ns, reverse=True):
            yield SessionName(name, session), stat


def no_files(layout: Layout) -> Iterator[tuple[SessionName, Path]]:
    """Where a session should be, and something else lies: a link, a directory, a pipe."""
    for agent in _agent_names(layout, layout.program_archive()):
        with suppress(BsdError, OSError):  # `agents` says what is wrong with it
            directory, program = layout.sessions_dir(agent), program_of(layout, agent)
            for item in sorted(os.scandir(directory), key=lambda one: one.name):
                if program.is_session_file(item.name) and not item.is_file(follow_symlinks=False):
                    name = SessionName(agent, item.name.removesuffix(ENDING))
                    yield name, directory / item.name


def renamed_by_program(layout: Layout, agent: str) -> Iterator[tuple[SessionName, Path]]:
    """The transcripts of an agent that its program put aside, and the sessions that they were.

    Raises BsdError.
    """
    program, directory = program_of(layout, agent), layout.sessions_dir(agent)
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise os_problem(error, f"reading {directory}") from error
    for name in names:
        if session := program.renamed_by_program(name):
            yield SessionName(agent, session), directory / name


def unreadable(layout: Layout) -> Iterator[tuple[str, BsdError]]:
    """Agents and sources whose sessions cannot be listed, and why: `names` leaves them out.

    Not those whose directory leads out of the root: bsd works on none of their sessions.
    """
    for source in layout.sources:
        try:
            for _ in source.directories(strictly=True):
                pass
            for _ in source.archived_files():
                pass
        except (FileNotFoundError, NotADirectoryError):
            continue  # its program has never run, or it is not mounted: `doctor` tells
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


def _agent_names(layout: Layout, away: _Files) -> list[str]:
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
    # A directory called like an agent of a source could not be told from that.
    return sorted(name for name in names if layout.source_of(name) is None) + in_sources


def agent_order(layout: Layout, agent: str) -> tuple[bool, str]:
    """By what agents are sorted: those of sources come last."""
    return layout.source_of(agent) is not None, agent


def _agent(layout: Layout, name: str, away: _Files) -> AgentInfo:
    try:
        found = len(_session_files(layout, name, away))
    except BsdError as error:
        return AgentInfo(name, 0, error.message)
    program = program_of(layout, name)
    if database := program.database():
        return AgentInfo(name, found, f"its sessions are in {database}: left alone", sqlite=True)
    told = [program.registry().problem, _passed_over(layout, name), _twice(layout, name, away)]
    return AgentInfo(name, found, "; ".join(filter(None, told)) or None)


def _passed_over(layout: Layout, agent: str) -> str | None:
    """Which transcripts nobody will ever look at, for their names or as links."""
    odd = []
    with suppress(OSError), os.scandir(layout.sessions_dir(agent)) as found:
        odd = sorted(item.name for item in found if _is_odd(item))
    if not odd:
        return None
    shown = ", ".join(repr(name) for name in odd[:3]) + (", …" if len(odd) > 3 else "")
    files = "1 file is" if len(odd) == 1 else f"{len(odd)} files are"
    return f"{files} left alone: {shown} (links, or not only letters, digits and . _ @ : + -)"


def _twice(layout: Layout, agent: str, away: _Files) -> str | None:
    """Which sessions were put away and lie in the agent's directory, too: those are theirs."""
    directory = layout.sessions_dir(agent)
    paths = [file.path for file in away.get(agent, ()) if os.path.lexists(directory / file.name)]
    if not paths:
        return None
    shown = ", ".join(sorted(paths)[:3]) + (", …" if len(paths) > 3 else "")
    return f"left alone, since there is a file of the same name in {directory}: {shown}"


def _is_odd(item: os.DirEntry[str]) -> bool:
    stem = item.name.removesuffix(ENDING)
    if stem == item.name or stem.startswith("."):
        return False
    if item.is_symlink():
        return True
    try:
        check_name(stem, "session")
    except BsdError:
        return item.is_file()
    return False


def _session_files(
    layout: Layout, agent: str, away: _Files, stored: StoredFiles | None = None
) -> list[_File]:
    """Those in the agent's directory, and those that its program has put away."""
    directory, program = layout.sessions_dir(agent), program_of(layout, agent)
    files: list[_File] = []

    def is_listed(file: str) -> bool:
        return program.is_session_file(file) or (stored is not None and stored.has(agent, file))

    try:
        with os.scandir(directory) as found:
            files = _sessions_among(found, is_listed)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise os_problem(error, f"reading {error.filename or directory}") from error
    if others := away.get(agent):
        there = {session for session, _ in files}
        files += [one for one in _sessions_among(others, is_listed) if one[0] not in there]
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
    """What its program says of a session: in its list, or by where it has put it."""
    return entry.status if entry else layout.archived_as(name)


def describe(
    layout: Layout, name: SessionName, stat: os.stat_result, titles: Titles | None = None
) -> ListedSession:
    """One session as the list shows it."""
    titles = titles or Titles(layout, only=name)
    ends, out = titles.of(name, stat), titles.out(name, stat)
    program = program_of(layout, name.agent)
    registry = program.registry()
    entry = next(registry.find(name.session), None)
    there = out or _stored(layout, name)
    return ListedSession(
        name=name,
        size=stat.st_size,
        updated=when(ends, stat),
        mtime=stat.st_mtime,
        title=registry.title(name.session) or ends.title,
        label=entry.key if entry else None,
        status=status_of(layout, name, entry),
        parent=entry.parent if entry else None,
        extracted_entries=there.entries,
        extracted_bytes=there.content,
        saved_bytes=out and out.saved,
        no_session=program.why_no_session(f"{name.session}{ENDING}"),
    )


def _stored(layout: Layout, name: SessionName) -> TakenOut:
    """What store and archive hold of a session of which it is not known what stands in its lines.

    They keep it for a while when it is back in the session, too.
    """
    store = SessionStore(layout, name)
    sizes = store.archive.entries() if store.archive else {}
    # One that came back and left again lies there more than once: what left last counts.
    sizes |= {record.entry_id: record.size for record in store.index.records.values()}
    return TakenOut(len(sizes), sum(sizes.values()), 0)


def find_session(layout: Layout, text: str) -> SessionName:
    """Read `agent/session`, or a session id that only one agent has (seeds 000, 001)."""
    if "/" in text:
        return SessionName.parse(text)
    check_name(text, "session")
    found = [name for name in names(layout) if name.session == text]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(map(str, found))
        raise Invalid(f"several agents have a session {text}", hint=f"one of {listed}")
    raise NotFound(f"there is no session {text}", hint="`bsd sessions` lists them")


# --- whose children they are ---


@dataclass(frozen=True, slots=True)
class Member:
    """A session of a family, and whose child it is (None for the one that was asked for)."""

    name: SessionName
    parent: SessionName | None


def family(layout: Layout, head: SessionName) -> list[Member]:
    """The session, its children, theirs, and so on; each once, parents before children."""
    registry = program_of(layout, head.agent).registry()
    found = {head: Member(head, None)}
    for member in (queue := [found[head]]):  # it grows while it is walked
        for child in _children(registry, member.name):
            if child not in found:
                found[child] = Member(child, member.name)
                queue.append(found[child])
    return queue


def children(layout: Layout, head: SessionName) -> list[str]:
    """Names of the sessions that would be deleted with this one, of all generations."""
    return [
        str(member.name)
        for member in family(layout, head)[1:]
        if layout.transcript(member.name).exists()
    ]


def _children(registry: Registry, parent: SessionName) -> Iterator[SessionName]:
    for session in registry.children(parent.session):
        try:
            yield SessionName(parent.agent, session)
        except BsdError:  # a name that no session of ours can have
            continue


# --- figures of sessions: counted while the search index reads them, and kept there ---

_STALE_SECONDS = 24 * 3600.0


def is_stale(updated: float, now: float) -> bool:
    """Whether nothing was written to a session for a day. Epoch seconds."""
    return now - updated > _STALE_SECONDS


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted in a session; `current` says whether in all of it, as it is now."""

    statistics: Statistics
    current: bool


def counted(layout: Layout, infos: Collection[ListedSession]) -> dict[SessionName, Counted]:
    """What is known of these sessions; none is read, and nothing is created."""

    def read(index: SearchIndex) -> dict[str, Known]:
        return index.known_among(str(info.name) for info in infos)

    known: dict[str, Known] = {}
    # A list of sessions without these figures is better than none.
    with suppress(BsdError, OSError):
        known = ask(layout.search_db, read, known)
    return {
        info.name: Counted(Statistics.loads(found.statistics), _is_of(found, info))
        for info in infos
        if (found := known.get(str(info.name))) is not None
    }


def warm(layout: Layout, infos: Collection[ListedSession]) -> dict[SessionName, Statistics]:
    """What is known of these sessions as they are now."""
    found = counted(layout, infos).items()
    return {name: one.statistics for name, one in found if one.current}


def _is_of(known: Known, info: ListedSession) -> bool:
    return known.size == info.size and abs(known.mtime / 1e9 - info.mtime) < 1e-5
